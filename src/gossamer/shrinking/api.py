"""The public calls: `plan`, `shrink` into a new module, `shrink_` in place during training.

`plan` and `shrink` are exact for evaluation mode, `shrink_` for the mode in which the model is. In training mode a
batch norm turns a constant channel into its shift, whatever its running mean is. After `shrink_` in training mode the
training forward is therefore unchanged, and evaluation may differ until the running means have converged
(`zero_dead_biases` makes both modes agree).
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Literal

from torch import nn
from torch.optim import Optimizer

from gossamer.errors import GossamerError
from gossamer.example import Call, Example, call_with
from gossamer.shrinking.analyse import Analysis, analyse
from gossamer.shrinking.apply import (
    InPlace,
    Reference,
    apply_in_place,
    check_owner,
    evaluation_reference,
    smaller_copy,
    smaller_graph,
    training_reference,
)
from gossamer.shrinking.decide import Decision, Plan, Verified, largest_verified_plan
from gossamer.shrinking.trace import TracedModel, trace

__all__ = ["Form", "GraphFormWarning", "plan", "shrink", "shrink_"]

Form = Literal["auto", "module", "graph"]

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
            fewer parameters because of hard-coded sizes, and then warns with `GraphFormWarning`.

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


def shrink_(model: nn.Module, example: Example, *, optimizer: Optimizer | None = None) -> Plan:
    """Remove the units that do nothing from the model, in place; training continues unchanged.

    Parameter objects stay the same and hold smaller tensors. Gradients, the optimizer's state (momentum, moments,
    anything of a parameter's shape) and state that is registered with `register_state` are sliced alike; a bias that
    has to be created joins the parameter group of its weight. Learning-rate schedulers and checkpoints keep working. If
    anything fails, model and optimizer are as they were.

    Args:
        model: the model in training; exactness holds for the mode in which it is, training or evaluation.
        example: what the model is called with: a tensor, a tuple of arguments, or a dict of keyword arguments.
        optimizer: the optimizer that trains it.

    Returns:
        What was done; it prints as a table.
    """
    call = call_with(model, example)
    if optimizer is not None:
        check_owner(model, optimizer)
    evaluation = evaluation_reference(model, call)
    in_training = any(module.training for module in model.modules())
    training = training_reference(model, evaluation) if in_training else None
    reference = evaluation if training is None else training
    traced = trace(model, call)

    def build(candidate: Plan, _: Decision) -> bool | None:
        if candidate.empty:
            return True
        change = InPlace(model, candidate)
        try:
            return True if reference.matches(model) else None
        finally:
            change.undo()

    found = largest_verified_plan(_analyse(model, traced, reference, training=in_training), build).plan
    apply_in_place(model, found, optimizer)
    if training is not None and not found.empty and not evaluation.matches(model):
        return found.with_note(_EVALUATION_DIFFERS)
    return found


def _find(model: nn.Module, example: Example, form: Form) -> Verified[nn.Module]:
    """The plan for a form, with the module that was built from it."""
    if form not in ("auto", "module", "graph"):
        raise GossamerError(f"`form` must be 'auto', 'module' or 'graph'; received {form!r}.")
    call = call_with(model, example)
    reference = evaluation_reference(model, call)
    if form == "graph":
        return _as_graph(model, call, reference)
    traced = trace(model, call)
    by_module = _as_module(model, traced, reference)
    if form == "module" or not by_module.restricted:
        return by_module
    by_graph = _as_graph(model, call, reference, traced)
    if by_graph.plan.weights_after >= by_module.plan.weights_after:
        return by_module
    note = (
        "the exported graph is returned, because the class cannot lose all of these units (its forward has sizes "
        "hard-coded, or calls a shared layer in different ways): the graph keeps "
        f"{by_graph.plan.weights_after:,} parameters, form='module' would keep {by_module.plan.weights_after:,}"
    )
    return replace(by_graph, plan=by_graph.plan.with_note(note))


def _as_module(model: nn.Module, traced: TracedModel, reference: Reference) -> Verified[nn.Module]:
    def build(candidate: Plan, _: Decision) -> nn.Module | None:
        return reference.verified(lambda: smaller_copy(model, candidate))

    return largest_verified_plan(_analyse(model, traced, reference), build)


def _analyse(model: nn.Module, traced: TracedModel, reference: Reference, **options: bool) -> Analysis:
    """Analyse the model; constants are kept only where they are the same at other sizes of the inputs."""
    analysis = analyse(model, traced, **options)
    if reference.other_sizes is not None and analysis.folds_constants:
        analysis.keep_common_constants(analyse(model, trace(model, reference.other_sizes), **options))
    return analysis


def _as_graph(
    model: nn.Module, call: Call, reference: Reference, traced: TracedModel | None = None
) -> Verified[nn.Module]:
    """Traced with a symbolic batch size if the model allows it, else at the batch size of the example."""
    try:
        traced = trace(model, call, dynamic_batch=True)
    except GossamerError:
        traced = traced or trace(model, call)
    analysis = _analyse(model, traced, reference, rewrites_graph=True)
    fixed = reference.at_example_sizes()  # the graph has guards against other sizes

    def build(candidate: Plan, decision: Decision) -> nn.Module | None:
        return fixed.verified(lambda: smaller_graph(analysis, candidate, decision))

    found = largest_verified_plan(analysis, build)
    return replace(found, plan=replace(found.plan, form="graph"))
