"""Trace: the model as one ATen graph in which no value is ever overwritten.

`export` runs `torch.export` on the example and names the parameter or buffer behind each placeholder;
`functionalize` rewrites in-place operations. The result, a `TracedModel`, is the program that `analyse` interprets.
"""

from gossamer.shrinking.trace.export import (
    TracedModel,
    arguments,
    caller_path,
    shape_of,
    size_hint,
    state_tensors,
    trace,
)

__all__ = ["TracedModel", "arguments", "caller_path", "shape_of", "size_hint", "state_tensors", "trace"]
