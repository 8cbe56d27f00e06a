"""The planner: make a plan from a decision, build it, verify it, and on failure pin what is to blame.

The first plan removes every class that is not kept. If the module built from it fails or computes other outputs, the
forward depends on units in a way that the analysis cannot see: on sizes that are hard-coded in it, nearly always. A
forward that fails tells which class of modules is to blame: the units that its forwards count are pinned, at once for
all modules of the class. If the outputs differ, nobody can be blamed: pinning all counted units gives a plan that
holds, and bisection then finds those that can be removed after all.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch
from torch import Tensor, nn

from gossamer.errors import GossamerError
from gossamer.layers.attention import CompactMultiheadAttention, is_compactable
from gossamer.shrinking.analyse import NO_UNIT, SIZE_FROM_INPUT, Analysis
from gossamer.shrinking.analyse.facts import Layer, abstract_values_in
from gossamer.shrinking.decide import hard_coded, heads
from gossamer.shrinking.decide.blame import Blame
from gossamer.shrinking.decide.liveness import Decision, decide
from gossamer.shrinking.decide.plan import Attention, Change, Channels, Fold, Plan, Size

__all__ = ["NOT_VERIFIED", "Verified", "kept_indices", "largest_verified_plan", "make_plan"]

Result = TypeVar("Result")
Build = Callable[[Plan, Decision], Result | None]

_ATTEMPTS = 8
"""The largest number of further attempts; each costs a plan, a copy of the model and a few forward passes."""

_BISECTIONS = 4
"""The largest number of attempts to release some of the pins for which no module can be blamed."""

_GRAPH_DIFFERS = "even its unchanged graph, as torch.export made it, gives other outputs. Use form='module'."
_COPY_DIFFERS = (
    "even an unchanged copy of it gives other outputs. Make sure that copy.deepcopy(model) computes what model does."
)
HARD_CODED = "its size is hard-coded in forward"
NOT_VERIFIED = "without it forward fails or the outputs change (please report this)"


@dataclass(frozen=True)
class Verified(Generic[Result]):
    """A plan with what was built from it and verified; `restricted` if units had to be pinned for that."""

    plan: Plan
    result: Result
    restricted: bool


def largest_verified_plan(analysis: Analysis, build: Build[Result]) -> Verified[Result]:
    """The largest plan that can be built and verified.

    Args:
        analysis: the facts to plan from.
        build: builds a plan and verifies the result; returns None if either fails.
    """
    found, last = _blame(analysis, build)
    if found is None:
        facts, decision = last
        found = _pin(facts, build, hard_coded.counted_classes(facts, decision), HARD_CODED)
        found = found or _pin(facts, build, _classes_by_dimension(facts, decision), NOT_VERIFIED)
    if found is None:
        raise GossamerError(
            f"the model cannot be shrunk: {_GRAPH_DIFFERS if analysis.rewrites_graph else _COPY_DIFFERS}"
        )
    return found


def _blame(analysis: Analysis, build: Build[Result]) -> tuple[Verified[Result] | None, tuple[Analysis, Decision]]:
    """Try; where the forward of a module fails, pin what the forwards of its class count, and try again.

    A class with attention gets another chance first: heads of equal widths, then whole heads.
    """
    waiting = heads.variants(analysis) if analysis.heads else []
    facts, pins = analysis, list[tuple[int, str]]()
    for attempt in range(_ATTEMPTS):
        plan, decision = make_plan(facts, pins)
        with Blame() as blame:
            result = build(plan, decision)
        if result is not None:
            return Verified(plan, result, restricted=attempt > 0 or facts.graph_could_do_more), (facts, decision)
        failed = _classes_to_blame(facts, blame.path)
        attends = (
            any(isinstance(facts.modules.get(each.module), failed[:1]) for each in facts.heads) if failed else True
        )
        counted = _counted(facts, decision, failed)
        if waiting and (attends or not counted):
            facts = waiting.pop(0)()
        elif counted:
            pins += [(int(c), HARD_CODED) for group in counted for c in group]
        else:
            break
    return None, (facts, decision)


def _classes_to_blame(analysis: Analysis, path: str | None) -> tuple[type[nn.Module], ...]:
    """The class of the module whose forward fails, then those of the modules that it is part of."""
    if path is None:
        return ()
    parts = path.split(".")
    owners = [".".join(parts[:length]) for length in range(len(parts), 0, -1)]
    return tuple(type(analysis.modules.get(owner, analysis.model)) for owner in [*owners, ""])


def _counted(analysis: Analysis, decision: Decision, failed: tuple[type[nn.Module], ...]) -> list[Tensor]:
    """What to pin when a forward fails: what the first of these classes counts that counts any; else what it computes.

    A layer may fail because the module that calls it took a part of a tensor that is not its part any more.
    """
    counted = (hard_coded.counted_classes(analysis, decision, each) for each in failed)
    found = next((classes for classes in counted if classes), [])
    if found or not failed:
        return found
    own = [value for node, value in analysis.values.items() if isinstance(analysis.caller(node), failed[:1])]
    computed = [value.labels for result in own for value in abstract_values_in(result)]
    return hard_coded.changing_classes(decision, computed)


def _pin(analysis: Analysis, build: Build[Result], groups: list[Tensor], reason: str) -> Verified[Result] | None:
    """Pin all of these groups of classes; if that verifies, bisect for the groups that need no pin."""

    def attempt(pinned: list[Tensor]) -> Verified[Result] | None:
        plan, decision = make_plan(analysis, [(int(c), reason) for group in pinned for c in group])
        result = build(plan, decision)
        return None if result is None else Verified(plan, result, restricted=True)

    best = attempt(groups) if groups else None
    if best is None:
        return None
    pinned, waiting = list(groups), _halves(groups)
    for _ in range(_BISECTIONS):
        if not waiting:
            break
        released = waiting.pop()
        fewer = [group for group in pinned if not any(group is other for other in released)]
        found = attempt(fewer) if fewer else None
        if found is not None:
            pinned, best = fewer, found
        else:
            waiting += _halves(released)
    return best


def _halves(groups: list[Tensor]) -> list[list[Tensor]]:
    middle = len(groups) // 2
    return [groups[:middle], groups[middle:]] if middle else []


def _classes_by_dimension(analysis: Analysis, decision: Decision) -> list[Tensor]:
    """All classes, grouped by the first parameter dimension that they run along.

    Kept ones too: some only fill a shape, which is another one when more classes are pinned.
    """
    seen = torch.zeros(len(decision.classes), dtype=torch.bool)
    groups = []
    for labels in analysis.parameter_labels():
        classes = torch.unique(decision.classes[labels])
        new = classes[~seen[classes]]
        seen[new] = True
        if new.numel():
            groups.append(new)
    return groups


def make_plan(analysis: Analysis, pins: Iterable[tuple[int, str]] = ()) -> tuple[Plan, Decision]:
    """Decide, and write down what follows for parameters, biases and size attributes."""
    decision = decide(analysis, pins)
    kept = kept_indices(analysis, decision)
    parameters = {n: t for n, t in analysis.traced.tensors.items() if isinstance(t, nn.Parameter)}
    folds = tuple(f for layer in analysis.layers.values() if (f := _fold(layer, decision)) is not None)
    attentions = _attentions(analysis, decision)
    created = sum(f.amount.numel() for f in folds if f.bias is None)
    sizes = _sizes(analysis, decision, attentions)
    plan = Plan(
        channels=_channels(analysis, decision),
        kept=kept,
        folds=folds,
        sizes=sizes,
        attentions=attentions,
        changes=_changes(analysis, kept, folds, sizes, attentions),
        weights_before=sum(t.numel() for t in parameters.values()),
        weights_after=sum(_numel_after(t, kept.get(n, {})) for n, t in parameters.items()) + created,
    )
    return plan, decision


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


def _shape_after(tensor: Tensor, kept: dict[int, Tensor]) -> tuple[int, ...]:
    return tuple(kept[d].size(-1) if d in kept else tensor.size(d) for d in range(tensor.dim()))


def _changes(
    analysis: Analysis,
    kept: dict[str, dict[int, Tensor]],
    folds: tuple[Fold, ...],
    sizes: tuple[Size, ...],
    attentions: tuple[Attention, ...],
) -> tuple[Change, ...]:
    """Everything that the plan changes, by name: tensors, attributes, classes. A graph has tensors only."""
    found = []
    tensors = analysis.traced.tensors
    for name in dict.fromkeys([*kept, *(fold.bias for fold in folds if fold.bias is not None)]):
        kind = "parameter" if isinstance(tensors[name], nn.Parameter) else "buffer"
        found.append(Change(kind, name, tuple(tensors[name].shape), _shape_after(tensors[name], kept.get(name, {}))))
    for fold in folds:
        if fold.bias is None:
            path = fold.weight.rpartition(".")[0]
            found.append(Change("parameter", f"{path}.bias".lstrip("."), None, tuple(fold.amount.shape)))
    if analysis.rewrites_graph:
        return tuple(found)
    found += [Change("attribute", f"{s.module}.{s.attribute}".lstrip("."), s.before, s.after) for s in sizes]
    for attention in attentions:
        module = analysis.modules[attention.module]
        for name in ("num_heads", "head_dim", "embed_dim"):
            before, after = getattr(module, name), getattr(attention, name)
            if before != after:
                found.append(Change("attribute", f"{attention.module}.{name}".lstrip("."), before, after))
        names = type(module).__name__, CompactMultiheadAttention.__name__
        if names[0] != names[1]:
            found.append(Change("class", attention.module, *names))
    return tuple(found)


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
        module = analysis.model.get_submodule(path)
        if kind == "in_proj_weight" and isinstance(module, nn.MultiheadAttention) and is_compactable(module):
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
    """Size attributes that change: those of PyTorch's layers, then those that the user's forward repeats."""
    sizes: dict[tuple[str, str], Size] = {}
    for counted in analysis.size_attributes:
        kept = decision.keeps(counted.labels)
        kept = kept.any(1) if kept.dim() == 2 else kept
        size = Size(counted.module, counted.attribute, kept.numel(), int(kept.sum()))
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
