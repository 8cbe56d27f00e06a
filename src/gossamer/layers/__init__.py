"""The weight layers of a model: which they are, in which order they run, what they cost, how they are laid out."""

from gossamer.layers.attention import (
    CompactMultiheadAttention,
    compact_attention,
    is_compactable,
    restore_attention,
)
from gossamer.layers.cost import Convention, call_order, multiply_adds
from gossamer.layers.find import Weight, find_weights, original_module
from gossamer.layers.layout import Groups, Layout, layouts, require_groups

__all__ = [
    "CompactMultiheadAttention",
    "Convention",
    "Groups",
    "Layout",
    "Weight",
    "call_order",
    "compact_attention",
    "find_weights",
    "is_compactable",
    "layouts",
    "multiply_adds",
    "original_module",
    "require_groups",
    "restore_attention",
]
