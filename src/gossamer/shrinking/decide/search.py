"""The search for the largest plan that holds: make a plan, build it, verify it, and on failure pin what is to blame.

The first plan removes every class that is not kept. If the module built from it fails or computes other outputs, the
forward depends on units in a way that the analysis cannot see: on sizes that are hard-coded in it, nearly always. A
forward that fails tells which class of modules is to blame: the units that its forwards count are pinned, at once for
all modules of the class. If the outputs differ, nobody can be blamed: pinning all counted units gives a plan that
holds, and bisection then finds those that can be removed after all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from gossamer.errors import GossamerError
from gossamer.example import Call
from gossamer.shrinking.analyse import Analysis
from gossamer.shrinking.analyse.domain import abstract_values_in
from gossamer.shrinking.decide import hard_coded, heads
from gossamer.shrinking.decide.liveness import Decision
from gossamer.shrinking.decide.plan import Plan
from gossamer.shrinking.decide.planner import make_plan

__all__ = ["NOT_VERIFIED", "Rejected", "Verified", "largest_verified_plan"]

Result = TypeVar("Result")


@dataclass(frozen=True)
class Rejected:
    """A plan does not hold: at `call`, which has other sizes than the example, or (None) at the example already."""

    call: Call | None


Build = Callable[[Plan, Decision], Result | Rejected]
Refine = Callable[[Analysis, Call], bool]

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
IN_TRAINING_ONLY = "the training forward reads it, or gives it random numbers, and that of evaluation does not"


@dataclass(frozen=True)
class Verified(Generic[Result]):
    """A plan with what was built from it and verified; `restricted` if units had to be pinned for that."""

    plan: Plan
    result: Result
    restricted: bool


def largest_verified_plan(analysis: Analysis, build: Build[Result], refine: Refine) -> Verified[Result]:
    """The largest plan that can be built and verified.

    Args:
        analysis: the facts to plan from.
        build: builds a plan and verifies the result.
        refine: forgets facts that do not hold at a call where a plan was rejected; returns whether there were any.
    """
    found, last = _blame(analysis, build, refine)
    if found is None:
        facts, decision = last
        found = _pin(facts, build, hard_coded.counted_classes(facts, decision), HARD_CODED)
        reason = IN_TRAINING_ONLY if facts.training else NOT_VERIFIED
        found = found or _pin(facts, build, _classes_by_dimension(facts, decision), reason)
    if found is None:
        raise GossamerError(
            f"the model cannot be shrunk: {_GRAPH_DIFFERS if analysis.rewrites_graph else _COPY_DIFFERS}"
        )
    return found


def _blame(
    analysis: Analysis, build: Build[Result], refine: Refine
) -> tuple[Verified[Result] | None, tuple[Analysis, Decision]]:
    """Try; where the forward of a module fails, pin what the forwards of its class count, and try again.

    A class with attention gets another chance first: heads of equal widths, then whole heads.
    """
    waiting = heads.variants(analysis) if analysis.heads else []
    facts, pins = analysis, list[tuple[int, str]]()
    for attempt in range(_ATTEMPTS):
        plan, decision, result, path = _refined(facts, pins, build, refine)
        if not isinstance(result, Rejected):
            return Verified(plan, result, restricted=attempt > 0 or facts.graph_could_do_more), (facts, decision)
        failed = _classes_to_blame(facts, path)
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


def _refined(
    facts: Analysis, pins: list[tuple[int, str]], build: Build[Result], refine: Refine
) -> tuple[Plan, Decision, Result | Rejected, str | None]:
    """Build a plan; as long as that shows facts that do not hold at other sizes, forget them and build again.

    Also returns the path of the module whose forward fails.
    """
    while True:
        plan, decision = make_plan(facts, pins)
        with _Blame() as blame:
            result = build(plan, decision)
        if not isinstance(result, Rejected) or result.call is None or not refine(facts, result.call):
            return plan, decision, result, blame.path


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
        return None if isinstance(result, Rejected) else Verified(plan, result, restricted=True)

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


class _Blame:
    """A context in which forwards run. Afterwards `path` is the innermost module whose forward failed, or None.

    A layer of PyTorch fails because of what it is called with, so the module that calls it is to blame.
    """

    path: str | None = None

    def __enter__(self) -> _Blame:
        self._entered: list[nn.Module] = []
        self._handles = [
            register_module_forward_pre_hook(lambda module, _: self._entered.append(module)),
            register_module_forward_hook(self._leave),
        ]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for handle in self._handles:
            handle.remove()
        if not self._entered:
            return
        paths = {id(module): path for path, module in self._entered[0].named_modules()}
        inner = next((m for m in reversed(self._entered) if not _is_torch(m) and id(m) in paths), None)
        self.path = None if inner is None else paths[id(inner)]

    def _leave(self, module: nn.Module, *_: Any) -> None:
        while self._entered and self._entered.pop() is not module:
            pass  # a forward that failed inside and was caught


def _is_torch(module: nn.Module) -> bool:
    return type(module).__module__.startswith("torch.")
