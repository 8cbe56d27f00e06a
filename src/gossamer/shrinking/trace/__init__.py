"""Trace: the model as one ATen graph in which no value is ever overwritten.

`export` runs `torch.export` on the example, which `stopping` ends if it is of no use, and names the parameter or buffer
behind each placeholder; `functionalize` rewrites in-place operations. The result, a `TracedModel`, is the program that
`analyse` interprets. `attributes` finds the sizes that the forward takes from attributes of its modules, `numbers` the
attributes that it computes with, `branches` what it does with the sizes of its inputs.
"""

from gossamer.shrinking.trace.attributes import Attribute, AttributeSize, SizeUse, size_uses
from gossamer.shrinking.trace.branches import compared_sizes, takes_both
from gossamer.shrinking.trace.export import (
    TracedModel,
    arguments,
    caller_path,
    shape_of,
    size_hint,
    state_tensors,
    trace,
)
from gossamer.shrinking.trace.numbers import NumberUse, number_uses

__all__ = [
    "Attribute",
    "AttributeSize",
    "NumberUse",
    "SizeUse",
    "TracedModel",
    "arguments",
    "caller_path",
    "compared_sizes",
    "number_uses",
    "shape_of",
    "size_hint",
    "size_uses",
    "state_tensors",
    "takes_both",
    "trace",
]
