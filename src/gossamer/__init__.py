"""Train networks whose weights become exactly zero, and take the zeros out."""

from gossamer.errors import GossamerError

__all__ = ["GossamerError"]
__version__ = "0.1.0"
