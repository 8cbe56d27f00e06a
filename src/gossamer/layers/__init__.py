"""The weight layers of a model: which they are, in which order they run, what they cost, how they are laid out."""

from gossamer.layers.cost import Convention, call_order, multiply_adds
from gossamer.layers.find import Weight, find_weights, original_module
from gossamer.layers.layout import Groups, Layout, layouts, require_groups

__all__ = [
    "Convention",
    "Groups",
    "Layout",
    "Weight",
    "call_order",
    "find_weights",
    "layouts",
    "multiply_adds",
    "original_module",
    "require_groups",
]
