"""From what the analysis found and the solver decided to a plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from gossamer.layers.attention import CompactMultiheadAttention, is_compactable
from gossamer.shrinking.analysis import Analysis
from gossamer.shrinking.cuts import decide_cuts, take
from gossamer.shrinking.labels import FIXED, NEUTRAL
from gossamer.shrinking.plans import Attention, Channels, Fold, Plan, Size
from gossamer.shrinking.reading import Layer
from gossamer.shrinking.solve import Decision, solve
from gossamer.shrinking.written import repeated_sizes

__all__ = ["make_plan"]


def make_plan(run: Analysis, held: Iterable[tuple[int, str]] = ()) -> tuple[Plan, Decision]:
    """Decide, and write down what the decision means for parameters, biases and sizes."""
    decision = solve(run, held)
    kept = decide_cuts(run, decision)
    parameters = {n: t for n, t in run.traced.tensors.items() if isinstance(t, nn.Parameter)}
    folds = tuple(f for layer in run.layers.values() if (f := _fold(layer, decision)) is not None)
    attentions = _attentions(run, decision)
    made = sum(f.amount.numel() for f in folds if f.bias is None)
    plan = Plan(
        channels=_channels(run, decision),
        kept=kept,
        folds=folds,
        sizes=_sizes(run, decision, attentions),
        attentions=attentions,
        weights_before=sum(t.numel() for t in parameters.values()),
        weights_after=sum(_size_after(t, kept.get(n, {})) for n, t in parameters.items()) + made,
    )
    return plan, decision


def _size_after(tensor: Tensor, cuts: dict[int, Tensor]) -> int:
    return take(torch.empty((), device="meta").expand(tensor.shape), _on_meta(cuts)).numel()


def _on_meta(cuts: dict[int, Tensor]) -> dict[int, Tensor]:
    return {dim: index.to("meta") for dim, index in cuts.items()}


def _fold(layer: Layer, decision: Decision) -> Fold | None:
    """What the inputs that leave a layer have given to its living outputs."""
    use = layer.uses[0]
    gone = ~decision.lives(use.inputs) & layer.steady() & (layer.constants() != 0)
    if not bool(gone.any()):
        return None
    constants = torch.where(gone, layer.constants(), torch.zeros_like(layer.constants()))
    columns = gone.any(0)  # summed in double precision, so that many small constants do not lose digits
    amount = torch.einsum("goi,gi->go", layer.strength[:, :, columns].double(), constants[:, columns].double())
    amount = amount[decision.lives(use.outputs)]
    return Fold(layer.weight, layer.bias, amount) if bool((amount != 0).any()) else None


def _attentions(run: Analysis, decision: Decision) -> tuple[Attention, ...]:
    """Multi-head attentions of PyTorch whose packed projection gets smaller."""
    found = []
    for name, axes in run.axes.items():
        path, _, kind = name.rpartition(".")
        module = run.model.get_submodule(path)
        if kind == "in_proj_weight" and isinstance(module, nn.MultiheadAttention) and is_compactable(module):
            rows, columns = decision.lives(axes[0]), decision.lives(axes[1])
            if not bool(rows.all()) or not bool(columns.all()):
                heads = rows[: len(rows) // 3].view(module.num_heads, -1)
                width = int(heads.sum(1).max())
                found.append(Attention(path, int(heads.any(1).sum()), width, int(columns.sum()), _full(module)))
    return tuple(found)


def _full(module: nn.MultiheadAttention) -> int:
    """The width of a head from which the scale comes, also if the module was shrunk before."""
    return module.full_head_dim if isinstance(module, CompactMultiheadAttention) else module.head_dim


def _sizes(run: Analysis, decision: Decision, attentions: tuple[Attention, ...]) -> tuple[Size, ...]:
    """Attributes that repeat a size, where the module really has them."""
    own = {attention.module for attention in attentions}
    sizes: dict[tuple[str, str], Size] = {}
    modules = dict(run.model.named_modules(remove_duplicate=False))
    for note in run.notes:
        alive = decision.lives(note.labels)
        counted = alive.any(1) if alive.dim() == 2 else alive
        size = Size(note.module, note.attribute, counted.numel(), int(counted.sum()))
        module = modules.get(note.module)
        if module is not None and vars(module).get(note.attribute) == size.before and size.before != size.after:
            sizes[note.module, note.attribute] = size
    for size in repeated_sizes(run, decision):
        if size.module not in own:
            sizes.setdefault((size.module, size.attribute), size)
    return tuple(sizes.values())


def _channels(run: Analysis, decision: Decision) -> tuple[Channels, ...]:
    """One row for each set of classes that runs through parameter dimensions together."""
    read = _still_read(run, decision)
    reasons = {**_obstacles(run, decision), **decision.reasons}
    families: dict[bytes, tuple[Tensor, list[str]]] = {}
    axes = [(name, dim, labels) for name, dims in run.axes.items() for dim, labels in sorted(dims.items())]
    for name, dim, labels in axes:
        classes = torch.unique(decision.classes[labels])
        classes = classes[classes != NEUTRAL]
        families.setdefault(classes.numpy().tobytes(), (classes, []))[1].append(f"{name}:{dim}")
    covered = torch.zeros(len(decision.classes), dtype=torch.bool)
    rows = []
    for classes, where in sorted(families.values(), key=lambda family: len(family[0])):
        fixed = all(reasons.get(c) == FIXED for c in classes.tolist())
        if not fixed and not bool(covered[classes].all()):
            rows.append((classes, where))
        covered[classes] = True
    order = {id(classes): place for place, (classes, _) in enumerate(families.values())}
    rows.sort(key=lambda row: order[id(row[0])])
    return tuple(_row(classes, where, decision, read, reasons) for classes, where in rows)


def _row(classes: Tensor, where: list[str], decision: Decision, read: Tensor, reasons: dict[int, str]) -> Channels:
    alive = decision.alive[classes]
    constant = int((~alive & read[classes]).sum())
    held = Counter(reasons[c] for c in classes[alive].tolist() if c in reasons)
    return Channels(
        where=tuple(sorted(where, key=lambda axis: not axis.endswith(".weight:0"))),
        units=len(classes),
        unread=int((~alive).sum()) - constant,
        constant=constant,
        held=dict(held),
    )


def _still_read(run: Analysis, decision: Decision) -> Tensor:
    """Classes that a living unit has a non-zero weight for (they can go only because they are constant)."""
    read = torch.zeros(len(decision.classes), dtype=torch.bool)
    for layer in run.layers.values():
        for use in layer.uses:
            seen = (layer.nonzero & decision.lives(use.outputs).unsqueeze(2)).any(1)
            read[decision.classes[use.inputs[seen]]] = True
    return read


def _obstacles(run: Analysis, decision: Decision) -> dict[int, str]:
    """Constants that stay because the layer that reads them cannot take them into its bias."""
    found: dict[int, str] = {}
    for layer in run.layers.values():
        known = torch.stack([use.known for use in layer.uses]).all(0)
        stuck = {
            f"constant, but {layer.obstacle}": layer.steady() & ~layer.spared(),
            f"constant, but not the same in every call of {layer.weight}": known & ~layer.steady(),
        }
        for use in layer.uses:
            for reason, inputs in stuck.items():
                for label in use.inputs[inputs & decision.lives(use.inputs)].tolist():
                    found.setdefault(int(decision.classes[label]), reason)
    found.pop(NEUTRAL, None)
    return found
