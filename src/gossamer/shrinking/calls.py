"""The calls that users make: plan, shrink into a new module, shrink in place during training.

`shrink` is exact for evaluation mode. `shrink_` is exact for the mode in which the model is: in training mode a
batch norm turns a constant channel into its shift, whatever its running mean says, so what a unit contributes to the
training is kept, and its contribution in evaluation may differ until the running mean has settled
(`zero_dead_biases` makes the two agree).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils import _pytree as pytree

from gossamer.errors import GossamerError
from gossamer.example import Call, Example, call_with, evaluating
from gossamer.shrinking.analysis import Analysis
from gossamer.shrinking.attempt import Outcome, settle_plan
from gossamer.shrinking.graph import smaller_graph
from gossamer.shrinking.interpret import analyse
from gossamer.shrinking.optimizer import OptimizerCut, check_cuts, check_owner
from gossamer.shrinking.plans import Plan
from gossamer.shrinking.solve import Decision
from gossamer.shrinking.surgery import InPlace, smaller_copy
from gossamer.shrinking.trace import trace
from gossamer.shrinking.verify import Outputs, agree, buffers_kept, steady_calls, training_outputs

__all__ = ["Form", "GraphFormWarning", "plan", "settle", "shrink", "shrink_"]

Form = Literal["auto", "module", "graph"]


_TRAINING_ONLY = (
    "the training forward is unchanged; in evaluation mode the outputs differ until the running means have settled, "
    "because dead channels with a shift have left a batch norm (zero_dead_biases before shrinking avoids that)"
)


class GraphFormWarning(UserWarning):
    """`shrink(form="auto")` returned the exported graph, because the class could not lose as many units."""


def shrink(model: nn.Module, example: Example, *, form: Form = "auto") -> nn.Module:
    """A new module without the units that do nothing; its outputs in evaluation mode are those of `model`.

    Args:
        model: any module that `torch.export` can trace; it is left as it is.
        example: what the model is called with: a tensor, a tuple of inputs, or a dict of keyword inputs.
        form: `"module"` returns the user's own class and keeps units whose number is written into its forward;
            `"graph"` returns the exported graph made small; `"auto"` returns the module unless the graph removes
            more because of such numbers, and then warns with `GraphFormWarning`.

    Returns:
        The smaller module, in the same training or evaluation mode as `model` (a graph always computes what the
        model computes in evaluation mode).
    """
    outcome = settle(model, example, form)
    if form == "auto" and outcome.plan.form == "graph":
        warnings.warn(outcome.plan.notes[-1], GraphFormWarning, stacklevel=2)
    return outcome.result


def plan(model: nn.Module, example: Example, *, form: Form = "auto") -> Plan:
    """What `shrink` would do, verified, as a table: per channel class what goes, what is folded, what stays and why."""
    return settle(model, example, form).plan


def shrink_(model: nn.Module, example: Example, *, optimizer: Optimizer | None = None) -> Plan:
    """Remove from the model, in place, the units that do nothing; training goes on as if nothing had happened.

    Parameter objects stay the same and hold smaller tensors. Gradients, the optimizer's state (momentum, Adam's
    moments, anything of a parameter's shape) and the state of regularizers attached to it are cut alike; a bias that
    has to be created joins the parameter group of its weight. Learning-rate schedulers and checkpoints go on as they
    are. If anything fails, model and optimizer are as they were.

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
    calls, expected = steady_calls(model, call)
    training = any(module.training for module in model.modules())
    trained = training_outputs(model, calls) if training else None
    traced = trace(model, calls[0])

    def carry_out(attempt: Plan, _: Decision) -> bool | None:
        if attempt.empty:
            return True
        change = InPlace(model, attempt)
        try:
            return True if _holds_in_place(model, calls, expected, trained) else None
        finally:
            change.undo()

    outcome = settle_plan(
        analyse(model, traced, training=training),
        carry_out,
        lambda: analyse(model, traced, training=training, whole_heads=True),
    )
    _commit(model, outcome.plan, optimizer)
    if trained is not None and not _holds_in_place(model, calls, expected, None):
        return outcome.plan.noting(_TRAINING_ONLY)
    return outcome.plan


def _commit(model: nn.Module, settled: Plan, optimizer: Optimizer | None) -> None:
    if optimizer is not None:
        check_cuts(model, settled, optimizer)
    shapes = {parameter: tuple(parameter.shape) for parameter in model.parameters()}
    change = InPlace(model, settled)
    if optimizer is None:
        return
    try:
        OptimizerCut(optimizer, model, settled, shapes, change.made)
    except BaseException:
        change.undo()
        raise


def _holds_in_place(model: nn.Module, calls: list[Call], expected: Outputs, trained: Outputs | None) -> bool:
    """In training mode what counts is the training forward, wherever it can be compared at all."""
    try:
        if trained is not None:
            found = training_outputs(model, calls)
            return found is not None and agree(trained, found)
        with evaluating(model), buffers_kept(model):
            return agree(expected, [call.run(model) for call in calls])
    except Exception:  # a forward that the smaller sizes break; the attempt is given up
        return False


def settle(model: nn.Module, example: Example, form: Form) -> Outcome[nn.Module]:
    """The smaller module with the plan that made it."""
    if form not in ("auto", "module", "graph"):
        raise GossamerError(f"`form` must be 'auto', 'module' or 'graph'; received {form!r}.")
    calls, expected = steady_calls(model, call_with(model, example))
    if form == "graph":
        return _as_graph(model, calls, expected)
    by_module = _as_module(model, calls, expected)
    if form == "module" or not by_module.blocked:
        return by_module
    by_graph = _as_graph(model, calls, expected)
    if by_graph.plan.weights_after >= by_module.plan.weights_after:
        return by_module
    note = (
        f"the class cannot lose all of them (its forward has sizes written in, or shares layers in a way that "
        f"does not go with fewer), so the exported graph is returned: it keeps "
        f"{by_graph.plan.weights_after:,} parameters, form='module' would keep {by_module.plan.weights_after:,}"
    )
    return Outcome(by_graph.plan.noting(note), by_graph.result, by_graph.blocked)


def _as_module(model: nn.Module, calls: list[Call], expected: Outputs) -> Outcome[nn.Module]:
    traced = trace(model, calls[0])

    def carry_out(attempt: Plan, _: Decision) -> nn.Module | None:
        return _verified(lambda: smaller_copy(model, attempt), calls, expected)

    return settle_plan(analyse(model, traced), carry_out, lambda: analyse(model, traced, whole_heads=True))


def _as_graph(model: nn.Module, calls: list[Call], expected: Outputs) -> Outcome[nn.Module]:
    run = _analyse_graph(model, calls[0])

    def carry_out(attempt: Plan, decision: Decision) -> nn.Module | None:
        return _verified(lambda: smaller_graph(run, attempt, decision), calls, expected)

    outcome = settle_plan(run, carry_out)
    return Outcome(outcome.plan.noting(form="graph"), outcome.result, outcome.blocked)


def _analyse_graph(model: nn.Module, call: Call) -> Analysis:
    """Traced with a free batch size if the model allows it, else for the batch size of the example."""
    try:
        traced = trace(model, _with_batch(call), dynamic_batch=True)
    except GossamerError:
        traced = trace(model, call)
    return analyse(model, traced, rewrites_graph=True)


def _with_batch(call: Call) -> Call:
    """A batch of one is made one of two, since the exporter takes a size of one for a constant."""
    if any(tensor.dim() and tensor.size(0) != 1 for tensor in call.tensors()):
        return call

    def double(leaf: object) -> object:
        return torch.cat([leaf, leaf]) if isinstance(leaf, Tensor) and leaf.dim() else leaf

    args, kwargs = pytree.tree_map(double, (call.args, call.kwargs))
    return Call(args, kwargs)


def _verified(build: Callable[[], nn.Module], calls: list[Call], expected: Outputs) -> nn.Module | None:
    """What was built, if it computes what the model computes."""
    try:
        small = build()
        with evaluating(small), buffers_kept(small):
            found = [call.run(small) for call in calls]
    except Exception:  # a forward that the smaller sizes break; the attempt is given up
        return None
    return small if agree(expected, found) else None
