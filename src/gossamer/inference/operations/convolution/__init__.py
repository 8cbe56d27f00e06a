"""Linear layers and convolutions: every product of a constant weight with a computed tensor."""

from gossamer.inference.operations.convolution.operation import Convolution, Pooling

__all__ = ["Convolution", "Pooling"]
