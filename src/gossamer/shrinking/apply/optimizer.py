"""Optimizer state that follows the parameters: every tensor of a parameter's shape keeps the parameter's kept indices.

Other objects that hold such tensors (`ParameterState`: the zeros held by a proximal step) register themselves here and
are sliced along.
"""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from gossamer.errors import GossamerError
from gossamer.shrinking.apply.module import packed, take
from gossamer.shrinking.decide.plan import Indices, Plan

__all__ = ["ParameterState", "check_owner", "check_state", "register_state", "slice_state"]


class ParameterState(Protocol):
    """Tensors of the shapes of parameters that are stored outside of `optimizer.state`."""

    def cut_(self, cut: Callable[[nn.Parameter, Tensor], Tensor]) -> None:
        """Replace each tensor of the shape of a parameter by `cut(parameter, tensor)`, its kept part."""
        ...


# Weak keys: what is registered is dropped with the optimizer.
_registered: WeakKeyDictionary[Optimizer, OrderedDict[int, ParameterState]] = WeakKeyDictionary()


def register_state(optimizer: Optimizer, state: ParameterState) -> RemovableHandle:
    """Let `shrink_(..., optimizer=optimizer)` slice this state too, until `remove()` of the returned handle."""
    registered = _registered.setdefault(optimizer, OrderedDict())
    handle = RemovableHandle(registered)
    registered[handle.id] = state
    return handle


_WHOLE_TENSORS = {
    "LBFGS": "has one history for all parameters together",
    "Adafactor": "averages over the rows and columns of a weight, which removal makes shorter",
    "Muon": "makes the step of a whole weight orthogonal and scales it by its shape",
}
"""Optimizers whose steps are not element-wise: the steps of the smaller network would not be those of the full one."""


def check_owner(model: nn.Module, optimizer: Optimizer) -> None:
    """Raise an error if the optimizer updates none of the model's parameters, or not element by element."""
    if not isinstance(optimizer, Optimizer):
        raise GossamerError(f"`optimizer` must be a torch.optim.Optimizer; received {type(optimizer).__name__}.")
    for kind in type(optimizer).__mro__:
        if kind.__name__ in _WHOLE_TENSORS:
            raise GossamerError(
                f"the state of {type(optimizer).__name__} cannot be sliced along: it {_WHOLE_TENSORS[kind.__name__]}. "
                "Call shrink_ without the optimizer, then build a new one."
            )
    own = {id(p) for p in model.parameters()}
    if not any(id(p) in own for group in optimizer.param_groups for p in group["params"]):
        raise GossamerError(
            f"`optimizer` ({type(optimizer).__name__}) does not own any parameter of `model`. "
            "Pass the optimizer that was built from model.parameters()."
        )


def check_state(model: nn.Module, plan: Plan, optimizer: Optimizer) -> None:
    """Raise an error if a parameter that gets smaller is not the optimizer's, or has state of another shape."""
    owned = {id(p) for group in optimizer.param_groups for p in group["params"]}
    named = dict(model.named_parameters(remove_duplicate=False))
    for name in plan.kept.keys() & named.keys():
        parameter = named[name]
        if parameter.requires_grad and id(parameter) not in owned:
            raise GossamerError(
                f"`optimizer` does not own `{name}`, which gets smaller; the optimizer that owns it would fail at its "
                "next step. Pass an optimizer of all of the model's parameters."
            )
        for key, value in optimizer.state.get(parameter, {}).items():
            entries = value if isinstance(value, list | tuple) else [value]
            if any(isinstance(e, Tensor) and e.numel() > 1 and e.shape != parameter.shape for e in entries):
                raise GossamerError(
                    f"the state {key!r} that {type(optimizer).__name__} holds for `{name}` does not have the shape of "
                    "the parameter, so it cannot be sliced along. Shrink without the optimizer, then build a new one."
                )


def slice_state(
    optimizer: Optimizer,
    model: nn.Module,
    plan: Plan,
    shapes: Mapping[nn.Parameter, tuple[int, ...]],
    created: Mapping[str, nn.Parameter],
) -> None:
    """Slice the state of all parameters that got smaller; on a failure, restore what was sliced already.

    Args:
        optimizer: the optimizer whose state it is.
        model: the model, to which the plan was applied.
        plan: the plan.
        shapes: the shapes of its parameters before that.
        created: the biases that were created, by the name of their weight.
    """
    kept = plan.kept_of(model)
    named = dict(model.named_parameters(remove_duplicate=False))
    undo: list[Callable[[], None]] = []
    try:
        for parameter, indices in kept.items():
            if parameter in optimizer.state:
                _slice(optimizer.state[parameter], shapes[parameter], indices, undo)
        for weight, bias in created.items():
            name = f"{weight.rpartition('.')[0]}.bias".lstrip(".")
            _join_group(optimizer, named[weight], bias, name, undo)
        for registered in _registered.get(optimizer, {}).values():
            registered.cut_(lambda parameter, tensor: take(tensor, kept.get(parameter, {})))
    except BaseException:
        while undo:
            undo.pop()()
        raise


def _slice(state: dict[str, Any], shape: tuple[int, ...], indices: Indices, undo: list[Callable[[], None]]) -> None:
    for key, value in list(state.items()):
        if isinstance(value, Tensor) and tuple(value.shape) == shape:
            undo.append(lambda k=key, v=value: state.__setitem__(k, v))  # type: ignore[misc]
            state[key] = packed(take(value, indices), value)


def _join_group(
    optimizer: Optimizer, weight: nn.Parameter, bias: nn.Parameter, name: str, undo: list[Callable[[], None]]
) -> None:
    """Put a created bias behind its weight, where `model.parameters()` has it: a state dict numbers the parameters."""
    for group in optimizer.param_groups:
        place = next((i for i, parameter in enumerate(group["params"]) if parameter is weight), None)
        if place is None:
            continue
        for key, entry in (("params", bias), ("param_names", name)):
            if key in group:
                group[key].insert(place + 1, entry)
                undo.append(functools.partial(group[key].pop, place + 1))
        return
