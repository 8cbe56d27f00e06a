"""What a plan changes, by name: tensors, attributes and classes. A graph has tensors only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from torch import Tensor, nn

from gossamer.layers.attention import CompactMultiheadAttention
from gossamer.shrinking.analyse import Analysis
from gossamer.shrinking.decide.plan import Attention, Change, Fold, Indices, Size

__all__ = ["changes_of", "shape_after"]

_OF_ATTENTION = ("num_heads", "head_dim", "embed_dim", "full_head_dim", "full_num_heads", "kept_heads")


def shape_after(tensor: Tensor, kept: Indices) -> tuple[int, ...]:
    """The shape of the part of a tensor at the kept indices."""
    return tuple(kept[d].size(-1) if d in kept else tensor.size(d) for d in range(tensor.dim()))


def changes_of(
    analysis: Analysis,
    kept: Mapping[str, Indices],
    folds: tuple[Fold, ...],
    sizes: tuple[Size, ...],
    attentions: tuple[Attention, ...],
) -> tuple[Change, ...]:
    """Everything that is another one afterwards."""
    found = [*_tensors(analysis, kept, folds)]
    if not analysis.rewrites_graph:
        found += [Change("attribute", _join(size.module, size.attribute), size.before, size.after) for size in sizes]
        for attention in attentions:
            found += _of_attention(analysis.modules[attention.module], attention)
    return tuple(found)


def _tensors(analysis: Analysis, kept: Mapping[str, Indices], folds: tuple[Fold, ...]) -> Iterator[Change]:
    tensors = analysis.traced.tensors
    for name in dict.fromkeys([*kept, *(fold.bias for fold in folds if fold.bias is not None)]):
        kind = "parameter" if isinstance(tensors[name], nn.Parameter) else "buffer"
        yield Change(kind, name, tuple(tensors[name].shape), shape_after(tensors[name], kept.get(name, {})))
    for fold in folds:
        if fold.bias is None:
            yield Change("parameter", _join(fold.weight.rpartition(".")[0], "bias"), None, tuple(fold.amount.shape))


def _of_attention(module: nn.Module, attention: Attention) -> Iterator[Change]:
    for name in _OF_ATTENTION:
        before, after = getattr(module, name, None), getattr(attention, name)
        if before != after:
            yield Change("attribute", _join(attention.module, name), before, after)
    if not isinstance(module, CompactMultiheadAttention):
        yield Change("attribute", _join(attention.module, "_qkv_same_embed_dim"), True, False)
        yield Change("class", attention.module, type(module).__name__, CompactMultiheadAttention.__name__)


def _join(path: str, name: str) -> str:
    return f"{path}.{name}".lstrip(".")
