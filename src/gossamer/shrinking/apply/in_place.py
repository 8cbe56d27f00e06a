"""Apply a plan to the model itself: parameter objects stay, the tensors that they hold get smaller.

Every change can be undone, so a plan can be tried and a failure leaves model and optimizer as they were.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.optim import Optimizer

from gossamer.errors import GossamerError
from gossamer.shrinking.apply.module import add_fold, compact, packed, take
from gossamer.shrinking.apply.optimizer import check_state, slice_state
from gossamer.shrinking.decide.plan import Attention, Indices, Plan
from gossamer.shrinking.trace import state_tensors

__all__ = ["InPlace", "apply_in_place", "matching_copy"]


def apply_in_place(model: nn.Module, plan: Plan, optimizer: Optimizer | None, copies: Sequence[nn.Module] = ()) -> None:
    """Apply a plan to the model, to copies of it and to the state of its optimizer: to all, or on a failure to none."""
    if optimizer is not None:
        check_state(model, plan, optimizer)
    shapes = {parameter: tuple(parameter.shape) for parameter in model.parameters()}
    changes: list[InPlace] = []
    try:
        for network in (model, *copies):
            changes.append(InPlace(network, plan))
        if optimizer is not None:
            slice_state(optimizer, model, plan, shapes, changes[0].created)
    except BaseException:
        for change in changes:
            change.undo()
        raise


def matching_copy(model: nn.Module, copy: nn.Module) -> nn.Module:
    """The network in `copy` that has the tensors of the model: itself, or what it wraps as `module`.

    Raises:
        GossamerError: when their names or shapes differ.
    """
    if not isinstance(copy, nn.Module):
        raise GossamerError(f"`also` must be a sequence of modules; it holds a {type(copy).__name__}.")
    own = {name: tensor.shape for name, tensor in state_tensors(model).items()}
    wrapped = getattr(copy, "module", None)
    candidates = [copy, *([wrapped] if isinstance(wrapped, nn.Module) else [])]
    for candidate in candidates:
        if {name: tensor.shape for name, tensor in state_tensors(candidate).items()} == own:
            return candidate
    raise GossamerError(
        f"`also` holds a {type(copy).__name__} whose parameters and buffers do not have the names and shapes of those "
        "of `model`. Pass copies of `model`, or wrappers that hold one as `module`."
    )


class InPlace:
    """A plan applied to a model. What is overwritten is kept for `undo` as long as this object lives.

    `created` holds the biases that had to be created, by the name of their weight.
    """

    def __init__(self, model: nn.Module, plan: Plan) -> None:
        self.created: dict[str, nn.Parameter] = {}
        self._undo: list[Callable[[], None]] = []
        try:
            self._apply(model, plan)
        except BaseException:
            self.undo()
            raise

    def undo(self) -> None:
        """Restore everything, last change first."""
        while self._undo:
            self._undo.pop()()

    def _apply(self, model: nn.Module, plan: Plan) -> None:
        tensors = state_tensors(model)
        for fold in plan.folds:
            if fold.bias is not None and fold.bias not in plan.kept:
                self._replace(tensors[fold.bias], {})
        for name, indices in plan.kept.items():
            self._replace(tensors[name], indices)
        for fold in plan.folds:
            created = add_fold(model, fold)
            if created is not None:
                module = model.get_submodule(fold.weight.rpartition(".")[0])
                self.created[fold.weight] = created
                self._undo.append(lambda m=module: m.register_parameter("bias", None))  # type: ignore[misc]
        for size in plan.sizes:
            self._resize(model.get_submodule(size.module), size.attribute, size.after)
        for attention in plan.attentions:
            self._compact(model.get_submodule(attention.module), attention)

    def _replace(self, tensor: Tensor, indices: Indices) -> None:
        data, grad = tensor.data, tensor.grad
        self._undo.append(lambda: _set(tensor, data, grad))
        smaller = packed(take(data, indices), data) if indices else data.clone()
        _set(tensor, smaller, None if grad is None else packed(take(grad, indices), grad))

    def _resize(self, module: nn.Module, attribute: str, after: int) -> None:
        before = getattr(module, attribute)
        self._undo.append(lambda: setattr(module, attribute, before))
        setattr(module, attribute, after)

    def _compact(self, module: nn.Module, attention: Attention) -> None:
        before, kind = dict(vars(module)), type(module)
        self._undo.append(lambda: _restore(module, kind, before))
        compact(module, attention)


def _set(tensor: Tensor, data: Tensor, grad: Tensor | None) -> None:
    """Replace what a tensor holds.

    As long as an earlier loss is alive, so is the node that accumulates its gradients, with their shape. Assigning data
    of another type makes autograd forget it. With several processes it stays: DDP has put its exchange there, and has
    to fail rather than to leave out parameters.
    """
    tensor.grad = None
    if not (distributed.is_available() and distributed.is_initialized()):
        tensor.data = data.new_empty(0, dtype=torch.float32 if data.dtype is torch.float16 else torch.float16)
    tensor.data = data
    tensor.grad = grad


def _restore(module: nn.Module, kind: type[nn.Module], attributes: dict[str, Any]) -> None:
    module.__class__ = kind
    vars(module).clear()
    vars(module).update(attributes)
