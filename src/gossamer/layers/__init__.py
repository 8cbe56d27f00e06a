"""Weight layers: the table of layer kinds, the layout of weights, order of execution, MACs."""

from gossamer.layers.attention import (
    CompactMultiheadAttention,
    compact_attention,
    is_compactable,
    restore_attention,
)
from gossamer.layers.cost import Convention, call_order, multiply_adds
from gossamer.layers.find import (
    Weight,
    find_weights,
    is_parameter,
    original_module,
    plain_name,
    require_supported,
    weights_with_macs,
)
from gossamer.layers.kind import LayerKind
from gossamer.layers.kinds import kind_of, layouts, register_kind
from gossamer.layers.layout import Groups, Layout, require_groups
from gossamer.layers.sharding import (
    along_dimension,
    gathered,
    gathered_mask,
    is_sharded,
    local_part,
    nonzero_mask,
    own_part,
    packed_bits,
    refuse_flat_parameter,
    require_whole,
    reshard_,
    unpacked_bits,
    whole,
)
from gossamer.layers.stages import RemoteWeight, Stage

__all__ = [
    "CompactMultiheadAttention",
    "Convention",
    "Groups",
    "LayerKind",
    "Layout",
    "RemoteWeight",
    "Stage",
    "Weight",
    "along_dimension",
    "call_order",
    "compact_attention",
    "find_weights",
    "gathered",
    "gathered_mask",
    "is_compactable",
    "is_parameter",
    "is_sharded",
    "kind_of",
    "layouts",
    "local_part",
    "multiply_adds",
    "nonzero_mask",
    "original_module",
    "own_part",
    "packed_bits",
    "plain_name",
    "refuse_flat_parameter",
    "register_kind",
    "require_groups",
    "require_supported",
    "require_whole",
    "reshard_",
    "restore_attention",
    "unpacked_bits",
    "weights_with_macs",
    "whole",
]
