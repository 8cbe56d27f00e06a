"""How a plan is made from a decision: what follows for parameters, biases, size attributes and attentions."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

import torch
from torch import Tensor, nn

from gossamer.layers.attention import CompactMultiheadAttention, is_compactable
from gossamer.shrinking.analyse import NO_UNIT, SIZE_FROM_INPUT, Analysis
from gossamer.shrinking.analyse.facts import Layer
from gossamer.shrinking.decide import hard_coded
from gossamer.shrinking.decide.liveness import Decision, decide
from gossamer.shrinking.decide.plan import Attention, Change, Channels, Fold, Indices, Plan, Size

__all__ = ["kept_indices", "make_plan", "weights_at_best"]

_OF_ATTENTION = ("num_heads", "head_dim", "embed_dim", "full_head_dim", "full_num_heads", "kept_heads")


def make_plan(analysis: Analysis, pins: Iterable[tuple[int, str]] = ()) -> tuple[Plan, Decision]:
    """Decide, and write down what follows for parameters, biases and size attributes."""
    decision = decide(analysis, pins)
    kept = kept_indices(analysis, decision)
    folds = _folds(analysis, decision)
    attentions = _attentions(analysis, decision)
    sizes = _sizes(analysis, decision, attentions)
    plan = Plan(
        channels=_channels(analysis, decision),
        kept=kept,
        folds=folds,
        sizes=sizes,
        attentions=attentions,
        changes=_changes(analysis, kept, folds, sizes, attentions),
        weights_before=_weights(analysis, {}, ()),
        weights_after=_weights(analysis, kept, folds),
    )
    return plan, decision


def weights_at_best(analysis: Analysis) -> int:
    """The number of parameters that stay by the plan without pins, which need not hold."""
    decision = decide(analysis)
    return _weights(analysis, kept_indices(analysis, decision), _folds(analysis, decision))


def _weights(analysis: Analysis, kept: dict[str, dict[int, Tensor]], folds: tuple[Fold, ...]) -> int:
    """The number of parameters, with those of the biases that folding creates."""
    parameters = [(n, t) for n, t in analysis.traced.tensors.items() if isinstance(t, nn.Parameter)]
    created = sum(fold.amount.numel() for fold in folds if fold.bias is None)
    return sum(_numel_after(tensor, kept.get(name, {})) for name, tensor in parameters) + created


def kept_indices(analysis: Analysis, decision: Decision) -> dict[str, dict[int, Tensor]]:
    """The kept indices of every parameter and buffer that loses any."""
    found: dict[str, dict[int, Tensor]] = {}

    def add(name: str, dim: int, kept: Tensor) -> None:
        if bool(kept.all()):
            return
        if kept.dim() == 1:
            index = torch.nonzero(kept).flatten()
        else:  # one row per group; groups without a kept channel are removed
            rows = kept[kept.any(1)]
            index = torch.nonzero(rows)[:, 1].view(len(rows), -1)
        found.setdefault(name, {})[dim] = index

    for name, axes in analysis.axis_labels.items():
        for dim, labels in axes.items():
            add(name, dim, decision.keeps(labels))
    for name, labels in analysis.element_labels.items():
        kept = decision.keeps(labels)
        for dim in range(kept.dim()):
            others = [d for d in range(kept.dim()) if d != dim]
            add(name, dim, kept.amax(others) if others else kept)
    return found


def _numel_after(tensor: Tensor, kept: dict[int, Tensor]) -> int:
    return math.prod(_shape_after(tensor, kept))


def _shape_after(tensor: Tensor, kept: Indices) -> tuple[int, ...]:
    """The shape of the part of a tensor at the kept indices."""
    return tuple(kept[d].size(-1) if d in kept else tensor.size(d) for d in range(tensor.dim()))


def _changes(
    analysis: Analysis,
    kept: Mapping[str, Indices],
    folds: tuple[Fold, ...],
    sizes: tuple[Size, ...],
    attentions: tuple[Attention, ...],
) -> tuple[Change, ...]:
    """Everything that the plan changes, by name: tensors, attributes, classes. A graph has tensors only."""
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
        yield Change(kind, name, tuple(tensors[name].shape), _shape_after(tensors[name], kept.get(name, {})))
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


def _folds(analysis: Analysis, decision: Decision) -> tuple[Fold, ...]:
    return tuple(f for layer in analysis.layers.values() if (f := _fold(layer, decision)) is not None)


def _fold(layer: Layer, decision: Decision) -> Fold | None:
    """What the removed inputs of a layer contribute to its kept outputs."""
    call = layer.calls[0]
    removed = ~decision.keeps(call.inputs) & layer.constant_inputs() & (layer.constants() != 0)
    if not bool(removed.any()):
        return None
    constants = torch.where(removed, layer.constants(), torch.zeros_like(layer.constants()))
    columns = removed.any(0)  # summed in double precision, so that many small constants do not lose digits
    amount = torch.einsum("goi,gi->go", layer.tap_sums[:, :, columns].double(), constants[:, columns].double())
    amount = amount[decision.keeps(call.outputs)]
    return Fold(layer.weight, layer.bias, amount) if bool((amount != 0).any()) else None


def _attentions(analysis: Analysis, decision: Decision) -> tuple[Attention, ...]:
    """The multi-head attentions of PyTorch whose packed projection gets smaller."""
    found = []
    for name, axes in analysis.axis_labels.items():
        path, _, kind = name.rpartition(".")
        module = analysis.model.get_submodule(path) if kind == "in_proj_weight" else None
        if isinstance(module, nn.MultiheadAttention) and is_compactable(module):
            rows, columns = decision.keeps(axes[0]), decision.keeps(axes[1])
            if not bool(rows.all()) or not bool(columns.all()):
                of_heads = rows[: len(rows) // 3].view(module.num_heads, -1)
                found.append(_attention(path, module, of_heads, int(columns.sum())))
    return tuple(found)


def _attention(path: str, module: nn.MultiheadAttention, of_heads: Tensor, embed_dim: int) -> Attention:
    """The sizes of an attention that keeps these units of its heads `(h, d)`."""
    kept = torch.nonzero(of_heads.any(1)).flatten().tolist()
    full_width, full_heads, numbers = module.head_dim, module.num_heads, tuple(kept)
    if isinstance(module, CompactMultiheadAttention):  # shrunk before: scale and masks are those of the full one
        full_width, full_heads = module.full_head_dim, module.full_num_heads
        numbers = tuple(module.kept_heads[head] for head in kept)
    return Attention(path, len(kept), int(of_heads.sum(1).max()), embed_dim, full_width, full_heads, numbers)


def _sizes(analysis: Analysis, decision: Decision, attentions: tuple[Attention, ...]) -> tuple[Size, ...]:
    """Size attributes that change: those of layers, then those that the user's forward repeats."""
    sizes: dict[tuple[str, str], Size] = {}
    for counted in analysis.size_attributes:
        stays = decision.keeps(counted.labels)
        stays = stays.any(1) if stays.dim() == 2 else stays
        size = Size(counted.module, counted.attribute, stays.numel(), int(stays.sum()))
        module = analysis.modules.get(size.module)
        if module is not None and vars(module).get(size.attribute) == size.before and size.before != size.after:
            sizes[size.module, size.attribute] = size
    compacted = {attention.module for attention in attentions}
    if analysis.literal_sizes and not analysis.rewrites_graph:
        for size in hard_coded.attributes(analysis, decision):
            if size.module not in compacted:
                sizes.setdefault((size.module, size.attribute), size)
    return tuple(sizes.values())


def _channels(analysis: Analysis, decision: Decision) -> tuple[Channels, ...]:
    """One row per set of classes that run along the same parameter dimensions."""
    is_read = _read_by_kept(analysis, decision)
    reasons = {**_not_foldable(analysis, decision), **decision.reasons}
    sets: dict[bytes, tuple[Tensor, list[str]]] = {}
    for name, axes in analysis.axis_labels.items():
        for dim, labels in sorted(axes.items()):
            classes = torch.unique(decision.classes[labels])
            classes = classes[classes != NO_UNIT]
            sets.setdefault(classes.numpy().tobytes(), (classes, []))[1].append(f"{name}:{dim}")
    covered = torch.zeros(len(decision.classes), dtype=torch.bool)
    shown: set[bytes] = set()
    for key, (classes, _) in sorted(sets.items(), key=lambda entry: len(entry[1][0])):
        from_input = all(reasons.get(c) == SIZE_FROM_INPUT for c in classes.tolist())
        if not from_input and not bool(covered[classes].all()):
            shown.add(key)
        covered[classes] = True
    return tuple(_row(*sets[key], decision, is_read, reasons) for key in sets if key in shown)


def _row(classes: Tensor, where: list[str], decision: Decision, is_read: Tensor, reasons: dict[int, str]) -> Channels:
    kept = decision.keeps(classes)
    constant = int((~kept & is_read[classes]).sum())
    return Channels(
        where=tuple(sorted(where, key=lambda axis: not axis.endswith(".weight:0"))),
        units=len(classes),
        unread=int((~kept).sum()) - constant,
        constant=constant,
        reasons=dict(Counter(reasons[c] for c in classes[kept].tolist() if c in reasons)),
    )


def _read_by_kept(analysis: Analysis, decision: Decision) -> Tensor:
    """Classes that a kept unit has a non-zero weight for: those of them that are removed are constant."""
    is_read = torch.zeros(len(decision.classes), dtype=torch.bool)
    for layer in analysis.layers.values():
        for call in layer.calls:
            inputs = (layer.nonzero & decision.keeps(call.outputs).unsqueeze(2)).any(1)
            is_read[decision.classes[call.inputs[inputs]]] = True
    return is_read


def _not_foldable(analysis: Analysis, decision: Decision) -> dict[int, str]:
    """Constants that are kept because the layer that reads them cannot fold them into its bias."""
    found: dict[int, str] = {}
    for layer in analysis.layers.values():
        known = torch.stack([call.known for call in layer.calls]).all(0)
        constant = layer.constant_inputs()
        obstacles = {
            f"constant, but {layer.obstacle}": constant & ~layer.foldable(),
            f"constant, but not the same in every call of {layer.weight}": known & ~constant,
        }
        for call in layer.calls:
            for reason, inputs in obstacles.items():
                for label in call.inputs[inputs & decision.keeps(call.inputs)].tolist():
                    found.setdefault(int(decision.classes[label]), reason)
    found.pop(NO_UNIT, None)
    return found
