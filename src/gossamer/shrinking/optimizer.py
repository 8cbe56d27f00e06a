"""The optimizer's side of an in-place shrink: its state is cut like the parameters, new biases join their layer.

What others keep for the parameters of an optimizer (`ParameterState`: the held zeros of a proximal step) is registered
here and cut along.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from gossamer.errors import GossamerError
from gossamer.shrinking.cuts import packed, take
from gossamer.shrinking.plans import Plan

__all__ = ["OptimizerCut", "ParameterState", "check_cuts", "check_owner", "register_state"]


class ParameterState(Protocol):
    """Tensors of the shapes of parameters, kept outside of `optimizer.state`."""

    def cut_(self, cut: Callable[[nn.Parameter, Tensor], Tensor]) -> None:
        """Replace each tensor of the shape of a parameter by `cut(parameter, tensor)`, its part that stays."""
        ...


# By optimizer, weakly: what is registered goes when the optimizer goes.
_registered: WeakKeyDictionary[Optimizer, OrderedDict[int, ParameterState]] = WeakKeyDictionary()


def register_state(optimizer: Optimizer, state: ParameterState) -> RemovableHandle:
    """From now on `shrink_(..., optimizer=optimizer)` cuts this state too; the handle's `remove()` ends it."""
    registered = _registered.setdefault(optimizer, OrderedDict())
    handle = RemovableHandle(registered)
    registered[handle.id] = state
    return handle


def check_owner(model: nn.Module, optimizer: Optimizer) -> None:
    """An optimizer that updates none of the model's parameters is a mistake; what else it updates is its own affair."""
    if not isinstance(optimizer, Optimizer):
        raise GossamerError(f"`optimizer` must be a torch.optim.Optimizer; received {type(optimizer).__name__}.")
    own = {id(p) for p in model.parameters()}
    if not any(id(p) in own for group in optimizer.param_groups for p in group["params"]):
        raise GossamerError(
            f"`optimizer` ({type(optimizer).__name__}) does not own any parameter of `model`. "
            "Pass the optimizer that was built from model.parameters()."
        )


def check_cuts(model: nn.Module, plan: Plan, optimizer: Optimizer) -> None:
    """Every parameter that is to be cut must be the optimizer's, with a state that can be cut like it."""
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    named = dict(model.named_parameters(remove_duplicate=False))
    for name in plan.kept.keys() & named.keys():
        parameter = named[name]
        if parameter.requires_grad and id(parameter) not in held:
            raise GossamerError(
                f"`optimizer` does not own `{name}`, which is to become smaller; the optimizer that does would fail at "
                "its next step. Pass an optimizer of all of the model's parameters."
            )
        for key, value in optimizer.state.get(parameter, {}).items():
            entries = value if isinstance(value, list | tuple) else [value]
            if any(isinstance(e, Tensor) and e.numel() > 1 and e.shape != parameter.shape for e in entries):
                raise GossamerError(
                    f"the state {key!r} that {type(optimizer).__name__} keeps of `{name}` has not its shape, "
                    "so it cannot be cut along. Shrink without the optimizer, then build a new one."
                )


class OptimizerCut:
    """State of the cut parameters, sliced; all of it, or on a failure none."""

    def __init__(
        self,
        optimizer: Optimizer,
        model: nn.Module,
        plan: Plan,
        shapes: Mapping[nn.Parameter, tuple[int, ...]],
        made: Mapping[str, nn.Parameter],
    ) -> None:
        self._undo: list[Callable[[], None]] = []
        try:
            for parameter, cuts in plan.kept_of(model).items():
                if parameter in optimizer.state:
                    self._slice(optimizer.state[parameter], shapes[parameter], cuts)
            named = dict(model.named_parameters(remove_duplicate=False))
            for weight, bias in made.items():
                self._join(optimizer, named[weight], bias)
            kept = plan.kept_of(model)
            for registered in _registered.get(optimizer, {}).values():
                registered.cut_(lambda parameter, tensor: take(tensor, kept.get(parameter, {})))
        except BaseException:
            while self._undo:
                self._undo.pop()()
            raise

    def _slice(self, state: dict[str, Any], shape: tuple[int, ...], cuts: Mapping[int, Tensor]) -> None:
        for key, value in list(state.items()):
            if isinstance(value, Tensor) and tuple(value.shape) == shape:
                self._undo.append(lambda k=key, v=value: state.__setitem__(k, v))  # type: ignore[misc]
                state[key] = packed(take(value, cuts), value)

    def _join(self, optimizer: Optimizer, weight: nn.Parameter, bias: nn.Parameter) -> None:
        """A bias that folding made is trained with the settings of its weight, and has no past."""
        for group in optimizer.param_groups:
            if any(parameter is weight for parameter in group["params"]):
                group["params"].append(bias)
                self._undo.append(group["params"].pop)
                return
