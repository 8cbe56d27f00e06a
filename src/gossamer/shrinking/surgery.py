"""Surgery: the plan carried out on modules, as a smaller copy or in place with a way back."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from gossamer.layers.attention import compact_attention
from gossamer.shrinking.cuts import Cuts, packed, take
from gossamer.shrinking.plans import Attention, Fold, Plan
from gossamer.shrinking.trace import state_tensors

__all__ = ["InPlace", "smaller_copy"]


def smaller_copy(model: nn.Module, plan: Plan) -> nn.Module:
    """A copy of the model in which every tensor is copied only as far as it stays."""
    tensors = state_tensors(model)
    memo: dict[int, Any] = {}
    for name, cuts in plan.kept.items():
        memo[id(tensors[name])] = _smaller(tensors[name], cuts)
    copied = copy.deepcopy(model, memo)
    for fold in plan.folds:
        _fold(copied, fold)
    for size in plan.sizes:
        setattr(copied.get_submodule(size.module), size.attribute, size.after)
    for attention in plan.attentions:
        _compact(copied.get_submodule(attention.module), attention)
    return copied


def _compact(module: nn.Module, attention: Attention) -> None:
    assert isinstance(module, nn.MultiheadAttention)
    for attribute in ("num_heads", "head_dim", "embed_dim"):
        setattr(module, attribute, getattr(attention, attribute))
    compact_attention(module, full_head_dim=attention.full_head_dim)


def _smaller(tensor: Tensor, cuts: Cuts) -> Tensor:
    part = packed(take(tensor.detach(), cuts), tensor)
    return nn.Parameter(part, requires_grad=tensor.requires_grad) if isinstance(tensor, nn.Parameter) else part


def _fold(model: nn.Module, fold: Fold) -> nn.Parameter | None:
    """Add a constant to a bias, or make one; returns what was made."""
    module = model.get_submodule(fold.weight.rpartition(".")[0])
    if fold.bias is not None:
        bias = state_tensors(model)[fold.bias]
        with torch.no_grad():
            bias.add_(fold.amount.to(bias))
        return None
    weight = module.get_parameter(fold.weight.rpartition(".")[2])
    made = nn.Parameter(fold.amount.to(weight.detach()), requires_grad=weight.requires_grad)
    module.register_parameter("bias", made)
    return made


class InPlace:
    """The plan carried out on the model itself: parameter objects stay, what they hold gets smaller.

    Everything that is overwritten is remembered until `undo` or the end of this object, so that a failure leaves
    the model as it was.
    """

    def __init__(self, model: nn.Module, plan: Plan) -> None:
        self.made: dict[str, nn.Parameter] = {}
        self._undo: list[Callable[[], None]] = []
        try:
            self._apply(model, plan)
        except BaseException:
            self.undo()
            raise

    def undo(self) -> None:
        """Put back everything, last change first."""
        while self._undo:
            self._undo.pop()()

    def _apply(self, model: nn.Module, plan: Plan) -> None:
        tensors = state_tensors(model)
        for fold in plan.folds:
            if fold.bias is not None and fold.bias not in plan.kept:
                self._replace(tensors[fold.bias], {})
        for name, cuts in plan.kept.items():
            self._replace(tensors[name], cuts)
        for fold in plan.folds:
            made = _fold(model, fold)
            if made is not None:
                module = model.get_submodule(fold.weight.rpartition(".")[0])
                self.made[fold.weight] = made
                self._undo.append(lambda m=module: m.register_parameter("bias", None))  # type: ignore[misc]
        for size in plan.sizes:
            self._resize(model.get_submodule(size.module), size.attribute, size.after)
        for attention in plan.attentions:
            self._swap(model.get_submodule(attention.module), attention)

    def _replace(self, tensor: Tensor, cuts: Mapping[int, Tensor]) -> None:
        data, grad = tensor.data, tensor.grad
        self._undo.append(lambda: _put(tensor, data, grad))
        smaller = packed(take(data, cuts), data) if cuts else data.clone()
        _put(tensor, smaller, None if grad is None else packed(take(grad, cuts), grad))

    def _swap(self, module: nn.Module, attention: Attention) -> None:
        before, kind = dict(vars(module)), type(module)
        self._undo.append(lambda: _restore(module, kind, before))
        _compact(module, attention)

    def _resize(self, module: nn.Module, attribute: str, after: int) -> None:
        before = getattr(module, attribute)
        self._undo.append(lambda: setattr(module, attribute, before))
        setattr(module, attribute, after)


def _restore(module: nn.Module, kind: type[nn.Module], attributes: dict[str, Any]) -> None:
    module.__class__ = kind
    vars(module).clear()
    vars(module).update(attributes)


def _put(tensor: Tensor, data: Tensor, grad: Tensor | None) -> None:
    tensor.grad = None
    tensor.data = data
    tensor.grad = grad
