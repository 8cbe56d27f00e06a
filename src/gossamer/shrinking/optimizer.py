"""The optimizer's side of an in-place shrink: its state is cut like the parameters, new biases join their layer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from gossamer.errors import GossamerError
from gossamer.shrinking.cuts import take
from gossamer.shrinking.plans import Plan

__all__ = ["OptimizerCut", "check_owner"]


def check_owner(model: nn.Module, optimizer: Optimizer) -> None:
    """An optimizer that updates none of the model's parameters, or others as well, is a mistake."""
    own = {id(p) for p in model.parameters()}
    held = [p for group in optimizer.param_groups for p in group["params"]]
    strangers = sum(id(p) not in own for p in held)
    if strangers or not held:
        raise GossamerError(
            f"`optimizer` ({type(optimizer).__name__}) does not own the parameters of `model`: {strangers} of its "
            f"{len(held)} parameters are not the model's. Pass the optimizer that was built from model.parameters()."
        )


class OptimizerCut:
    """State of the cut parameters, sliced; remembered until `undo` or the end of this object."""

    def __init__(
        self,
        optimizer: Optimizer,
        model: nn.Module,
        plan: Plan,
        shapes: Mapping[nn.Parameter, tuple[int, ...]],
        made: Mapping[str, nn.Parameter],
    ) -> None:
        self._undo: list[Callable[[], None]] = []
        for parameter, cuts in plan.kept_of(model).items():
            if parameter in optimizer.state:
                self._slice(optimizer.state[parameter], shapes[parameter], cuts)
        named = dict(model.named_parameters(remove_duplicate=False))
        for weight, bias in made.items():
            self._join(optimizer, named[weight], bias)

    def undo(self) -> None:
        """Put back everything, last change first."""
        while self._undo:
            self._undo.pop()()

    def _slice(self, state: dict[str, Any], shape: tuple[int, ...], cuts: Mapping[int, Tensor]) -> None:
        for key, value in list(state.items()):
            if isinstance(value, Tensor) and tuple(value.shape) == shape:
                self._undo.append(lambda k=key, v=value: state.__setitem__(k, v))  # type: ignore[misc]
                state[key] = take(value, cuts).contiguous()

    def _join(self, optimizer: Optimizer, weight: nn.Parameter, bias: nn.Parameter) -> None:
        """A bias that folding made is trained with the settings of its weight, and has no past."""
        for group in optimizer.param_groups:
            if any(parameter is weight for parameter in group["params"]):
                group["params"].append(bias)
                self._undo.append(group["params"].pop)
                return
