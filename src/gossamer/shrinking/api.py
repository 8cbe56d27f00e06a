"""The public calls: `plan`, `shrink` into a new module, `shrink_` in place during training.

`plan` and `shrink` are exact for evaluation mode, `shrink_` for the mode in which the model is. In training mode a
batch norm turns a constant channel into its shift, whatever its running mean is. After `shrink_` in training mode the
training forward is therefore unchanged, and evaluation may differ until the running means have converged
(`zero_dead_biases` makes both modes agree).
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal

from torch import distributed, nn
from torch.optim import Optimizer

from gossamer.errors import GossamerError
from gossamer.example import Call, Example, call_with
from gossamer.layers import require_whole
from gossamer.shrinking.analyse import Analysis, analyse
from gossamer.shrinking.apply import (
    InPlace,
    Reference,
    accepted_inputs,
    accepts,
    apply_in_place,
    at_least_two,
    changed_dims,
    check_owner,
    evaluation_reference,
    is_cheap,
    matching_copy,
    refuse_size_one,
    smaller_copy,
    smaller_graph,
    training_reference,
)
from gossamer.shrinking.decide import Decision, Plan, Rejected, Verified, largest_verified_plan, weights_at_best
from gossamer.shrinking.trace import TracedModel, takes_both, trace

__all__ = ["Form", "GraphFormWarning", "plan", "shrink", "shrink_"]

Form = Literal["auto", "module", "graph"]

_WORTH_A_GRAPH, _WORTH_FIXED_SIZES = 0.95, 0.75
"""`form="auto"` takes a graph if it keeps at most this share of the parameters that the class keeps.

The second share is that of a graph that refuses sizes of the input which the class accepts.
"""

_AUTOCAST = (
    "what the forward calls inside torch.autocast stays as it is: call the model inside it instead, "
    "`with torch.autocast(...): model(x)`"
)

_MOST_REFINEMENTS = 4  # exports at sizes at which a plan does not hold

_EVALUATION_DIFFERS = (
    "the training forward is unchanged; in evaluation mode the outputs differ until the running means have converged, "
    "because dead channels with a shift were removed from a batch norm (call zero_dead_biases first to avoid that)"
)


class GraphFormWarning(UserWarning):
    """`shrink(form="auto")` returned the exported graph, because the class itself could not lose as many units."""


def shrink(model: nn.Module, example: Example, *, form: Form = "auto") -> nn.Module:
    """A smaller module without the units that do nothing; in evaluation mode its outputs are those of `model`.

    The same as `plan(model, example, form=form).apply()`, with a warning where the result is a graph.

    Args:
        model: any module that `torch.export` can trace; it is not changed.
        example: what the model is called with: a tensor, a tuple of arguments, or a dict of keyword arguments.
        form: `"module"` returns the user's own class, and keeps units whose number is hard-coded in its forward;
            `"graph"` returns the exported graph with fewer units; `"auto"` returns the module, unless the graph has
            at least 5 % fewer parameters because of hard-coded sizes (25 % if it is bound to the sizes of the example
            and the module is not), and then warns with `GraphFormWarning`. A graph checks its inputs, and raises a
            `GuardError` for sizes and arguments that it was not exported for.

    Returns:
        The smaller module, in the same training or evaluation mode as `model` (a graph always computes what the
        model computes in evaluation mode).
    """
    found = _find(model, example, form)
    if form == "auto" and found.plan.form == "graph":
        warnings.warn(found.plan.notes[-1], GraphFormWarning, stacklevel=2)
    return found.result


def plan(model: nn.Module, example: Example, *, form: Form = "auto") -> Plan:
    """What `shrink` does, verified: how many units are removed or folded, and why others stay. Prints as a table.

    `apply()` of the plan returns the smaller module without analysing or verifying again. Arguments as in `shrink`.
    """
    found = _find(model, example, form)
    return replace(found.plan, module=found.result)


def shrink_(
    model: nn.Module, example: Example, *, optimizer: Optimizer | None = None, also: Sequence[nn.Module] = ()
) -> Plan:
    """Remove the units that do nothing from the model, in place; training continues.

    Parameter objects stay the same and hold smaller tensors. Gradients, the optimizer's state (momentum, moments,
    anything of a parameter's shape) and state that is registered with `register_state` are sliced alike; a bias that
    has to be created follows its weight in the parameter group. Learning-rate schedulers and checkpoints keep working.
    If anything fails, model, copies and optimizer are as they were.

    The forward is that of the full network. A forward that is random in training mode is compared with equal random
    numbers, so units that noise of their own is added to stay. The following steps are those of the full network, if
    there the removed weights that are zero are held at zero (`ProximalStep.hold`), the removed units were zero, and
    the optimizer works element by element. They are not, although the next forward is the same:

    - where a constant other than zero was folded: the full network would train the weights that read it, the smaller
      one trains the bias;
    - where an unread unit was not held: the full network might read it again later;
    - where something is taken over all entries, as in clipping by the global norm of gradients that are not zero;
    - where random numbers are drawn in the shape of the units, as in dropout: the smaller network draws others.

    Args:
        model: the model in training; exactness holds for the mode in which it is, training or evaluation.
        example: what the model is called with: a tensor, a tuple of arguments, or a dict of keyword arguments.
        optimizer: the optimizer that trains it. LBFGS, Adafactor and Muon are refused: their steps depend on whole
            tensors.
        also: copies of the model to cut at the same indices, such as an exponential moving average
            (`torch.optim.swa_utils.AveragedModel`, or anything that holds the copy as `module`). Constants are folded
            with the amounts of `model`. The outputs of a copy are kept as far as its removed units do nothing either.

    Returns:
        What was done; it prints as a table.
    """
    _require_whole(model, "shrink_")
    call = call_with(model, example)
    if optimizer is not None:
        check_owner(model, optimizer)
    copies = [matching_copy(model, copy) for copy in also]
    evaluation = evaluation_reference(model, call)
    in_training = any(module.training for module in model.modules())
    reference = training_reference(model, evaluation) if in_training else evaluation

    def build(candidate: Plan, _: Decision) -> Rejected | None:
        if candidate.empty:
            return None
        change = InPlace(model, candidate)
        try:
            return reference.rejected(model)
        finally:
            change.undo()

    exports = _Exports(model, reference)
    analysis = exports.analysis(exports.at_example, training=in_training, dropout=reference.dropout)
    found = largest_verified_plan(analysis, build, exports.refine).plan
    apply_in_place(model, found, optimizer, copies)
    if in_training and not found.empty and not evaluation.matches(model):
        return found.with_note(_EVALUATION_DIFFERS)
    return found


def _find(model: nn.Module, example: Example, form: Form) -> Verified[nn.Module]:
    """The plan for a form, with the module that was built from it."""
    if form not in ("auto", "module", "graph"):
        raise GossamerError(f"`form` must be 'auto', 'module' or 'graph'; received {form!r}.")
    _require_whole(model, "shrink")
    reference = evaluation_reference(model, call_with(model, example))
    exports = _Exports(model, reference)
    if form == "graph":
        return _as_graph(reference, exports)
    by_module = _as_module(reference, exports)
    if form == "module" or not by_module.restricted or not _worth_a_graph(exports, by_module.plan):
        return by_module
    try:
        by_graph = _as_graph(reference, exports)
    except GossamerError:  # the exporter made a graph that does not compute what the model does
        return by_module
    share = by_graph.plan.weights_after / by_module.plan.weights_after
    if share > (_WORTH_A_GRAPH if exports.take_other_sizes else _WORTH_FIXED_SIZES):
        return by_module
    return replace(by_graph, plan=by_graph.plan.with_note(_why_a_graph(by_graph.plan, by_module.plan)))


def _worth_a_graph(exports: _Exports, module: Plan) -> bool:
    """Whether the graph may be worth it; known without symbolic sizes, whose export takes several times as long."""
    facts = exports.for_class
    if facts.depends_on_form:
        facts = exports.analysis(exports.at_example, rewrites_graph=True)
    share = weights_at_best(facts) / module.weights_after
    if share <= _WORTH_FIXED_SIZES or share > _WORTH_A_GRAPH:
        return share <= _WORTH_FIXED_SIZES
    exports.must_take_other_sizes = True
    return exports.may_take_other_sizes and exports.take_other_sizes


def _require_whole(model: nn.Module, what: str) -> None:
    """Refuse sharded parameters, which only exist in a process group."""
    if distributed.is_available() and distributed.is_initialized():
        require_whole(model, what)


def _why_a_graph(graph: Plan, module: Plan) -> str:
    return (
        "the exported graph is returned, because the class cannot lose all of these units (its forward has sizes "
        "hard-coded, or calls a shared layer in different ways): the graph keeps "
        f"{graph.weights_after:,} parameters, form='module' would keep {module.weights_after:,}; {graph.notes[-1]}"
    )


def _as_module(reference: Reference, exports: _Exports) -> Verified[nn.Module]:
    def build(candidate: Plan, _: Decision) -> nn.Module | Rejected:
        return reference.verified(lambda: smaller_copy(exports.model, candidate))

    found = largest_verified_plan(exports.for_class, build, exports.refine)
    return replace(found, plan=found.plan.with_note(_AUTOCAST)) if exports.at_example.has_autocast else found


def _as_graph(reference: Reference, exports: _Exports) -> Verified[nn.Module]:
    """The traced graph, made smaller: with as many symbolic sizes as there can be."""
    for symbolic in exports.symbolic():
        try:
            if symbolic is not None:
                return _smaller_graph(symbolic, reference, exports)
        except GossamerError:  # the exporter wrote a size into it; or the model does something else at a size of one
            continue
    return _smaller_graph(exports.at_example, reference, exports)


def _smaller_graph(traced: TracedModel, reference: Reference, exports: _Exports) -> Verified[nn.Module]:
    """One of the traced graphs, made smaller. Its guards refuse what it was not traced for."""
    analysis = exports.analysis(traced, rewrites_graph=True)
    reference = reference.with_size_one(exports.model)

    def build(candidate: Plan, decision: Decision) -> nn.Module | Rejected:
        make = functools.partial(smaller_graph, analysis, candidate, decision)
        return reference.verified(make, otherwise=refuse_size_one)

    found = largest_verified_plan(analysis, build, exports.refine)
    note = (
        f"a graph computes in evaluation mode only, and takes {accepted_inputs(traced.inputs)}; it refuses other "
        "sizes, sizes at which the forward takes another branch, and other arguments than those of the example"
    )
    return replace(found, plan=replace(found.plan, form="graph").with_note(note))


class _Exports:
    """The exports of a model, each made when it is first needed: they take most of the time of a `shrink`.

    If a graph `must_take_other_sizes`, the export with symbolic sizes ends where it turns out that it does not.
    """

    def __init__(self, model: nn.Module, reference: Reference) -> None:
        self.model = model
        self.must_take_other_sizes = False
        self._reference = reference
        self._at: dict[int, TracedModel | None] = {}

    @functools.cached_property
    def at_example(self) -> TracedModel:
        """At the sizes of the example."""
        return trace(self.model, self._reference.example)

    @functools.cached_property
    def at_other_sizes(self) -> TracedModel | None:
        """At other sizes, if the model accepts any."""
        other = self._reference.other_sizes
        return None if other is None else trace(self.model, other)

    @functools.cached_property
    def with_free_sizes(self) -> TracedModel | None:
        """With symbolic sizes where the model accepts other sizes, if it can be exported so."""
        other = self._reference.other_sizes
        if other is None:
            return None
        needed = other if self.must_take_other_sizes else None
        return self._symbolic(changed_dims(self._reference.example, other), needed)

    @functools.cached_property
    def with_free_batch(self) -> TracedModel | None:
        """With a symbolic batch size, if the model accepts others and can be exported so."""
        other = self._reference.other_sizes
        free = [] if other is None else changed_dims(self._reference.example, other)
        return self._symbolic([dims & {0} for dims in free]) if any(dims - {0} for dims in free) else None

    def symbolic(self) -> Iterator[TracedModel | None]:
        """Those with symbolic sizes, the one with the most first; each is made only if it is asked for."""
        yield self.with_free_sizes
        yield self.with_free_batch

    @property
    def may_take_other_sizes(self) -> bool:
        """Whether that can be so as far as two forward passes tell, if these are cheap."""
        example, other = self._reference.example, self._reference.other_sizes
        return other is None or not is_cheap(example) or takes_both(self.model, example, other)

    @functools.cached_property
    def take_other_sizes(self) -> bool:
        """Whether a graph is bound to no more sizes than the model itself."""
        other, traced = self._reference.other_sizes, self.with_free_sizes
        return other is None or (traced is not None and accepts(traced, other))

    @functools.cached_property
    def for_class(self) -> Analysis:
        """The analysis at the sizes of the example of what the class can lose, in evaluation mode."""
        return self.analysis(self.at_example)

    def _symbolic(self, dims: list[frozenset[int]], needed: Call | None = None) -> TracedModel | None:
        example = self._reference.example
        try:
            call = at_least_two(example, dims)
            traced = trace(self.model, call, symbolic=dims, needed=needed) if any(dims) else None
        except GossamerError:
            return None
        return traced if traced is not None and accepts(traced, example) else None

    def analysis(self, traced: TracedModel, **options: bool) -> Analysis:
        """Analyse one of them; constants are kept only where they are the same at other sizes of the inputs."""
        found = analyse(self.model, traced, **options)
        if found.folds_constants and self.at_other_sizes is not None:
            found.keep_common_constants(analyse(self.model, self.at_other_sizes, **options))
        return found

    def refine(self, analysis: Analysis, call: Call) -> bool:
        """Keep constants only where they are the same at the sizes of a call; returns whether that made a difference.

        After a few exports, or if the model cannot be exported for the call, no constant is kept.
        """
        if id(call) not in self._at:
            self._at[id(call)] = self._exported(call) if len(self._at) < _MOST_REFINEMENTS else None
        traced = self._at[id(call)]
        other = None if traced is None else analyse(self.model, traced, **analysis.options)
        return analysis.keep_common_constants(other)

    def _exported(self, call: Call) -> TracedModel | None:
        try:
            return trace(self.model, call)
        except GossamerError:
            return None
