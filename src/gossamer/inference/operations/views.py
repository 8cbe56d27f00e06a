"""Rules for other looks at the same memory: slices, permutations, shapes; and for what does nothing in evaluation."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gossamer.inference.operations.masks import converted
from gossamer.inference.program import Value, viewed
from gossamer.inference.registry import Builder, Refusal, lowers

__all__: list[str] = []

aten = torch.ops.aten


def _lower_view(name: str) -> None:
    """PyTorch's own view operation tells offset and strides."""

    @lowers(getattr(aten, name), integers=True)
    def rule(build: Builder, x: Value, *args: Any, **kwargs: Any) -> Value:
        del build
        operator = getattr(aten, name)

        def view(tensor: Tensor) -> Tensor:
            seen: Tensor = operator(tensor, *args, **kwargs)
            return seen

        return viewed(x, view)


for _name in (
    "alias",
    "detach",
    "expand",
    "mT",
    "moveaxis",
    "movedim",
    "narrow",
    "permute",
    "select",
    "slice",
    "squeeze",
    "swapaxes",
    "swapdims",
    "t",
    "transpose",
    "unsqueeze",
):
    _lower_view(_name)


def _lower_views(name: str) -> None:
    """As `_lower_view`, for operations with several results."""

    @lowers(getattr(aten, name), integers=True)
    def rule(build: Builder, x: Value, *args: Any, **kwargs: Any) -> tuple[Value, ...]:
        del build
        operator = getattr(aten, name)
        count = len(operator(torch.empty(x.shape, device="meta"), *args, **kwargs))

        def pick(number: int) -> Value:
            return viewed(x, lambda tensor: operator(tensor, *args, **kwargs)[number])

        return tuple(pick(number) for number in range(count))


for _name in ("chunk", "split", "split_with_sizes", "tensor_split", "unbind", "unsafe_chunk", "unsafe_split"):
    _lower_views(_name)


def _lower_reshape(name: str) -> None:
    """Where the strides do not allow the shape, the tensor is copied."""

    @lowers(getattr(aten, name), integers=True)
    def rule(build: Builder, x: Value, *args: Any, **kwargs: Any) -> Value:
        shape = getattr(aten, name)(torch.empty(x.shape, device="meta"), *args, **kwargs).shape
        return build.reshaped(x, tuple(shape))


for _name in ("_unsafe_view", "flatten", "reshape", "unflatten", "view"):
    _lower_reshape(_name)


@lowers(aten.contiguous, aten.clone, aten.lift_fresh_copy, integers=True)
def _same(build: Builder, x: Value, *, memory_format: object = None) -> Value:
    del build, memory_format
    return x


@lowers(aten._to_copy, aten.to, integers=True)
def _to(build: Builder, x: Value, *args: Any, **kwargs: Any) -> Value:
    """The dtype is an argument, or that of a tensor."""
    given = (*args, *kwargs.values())
    dtypes = [one.dtype if isinstance(one, Value) else one for one in given if isinstance(one, Value | torch.dtype)]
    return converted(build, x, dtypes[0]) if dtypes else x


@lowers(aten.type_as, integers=True)
def _type_as(build: Builder, x: Value, other: Value) -> Value:
    return converted(build, x, other.dtype)


def _lower_shape_of(name: str) -> None:
    """The shape of another tensor."""

    @lowers(getattr(aten, name), integers=True)
    def rule(build: Builder, x: Value, other: Value) -> Value:
        return build.reshaped(x, other.shape)


for _name in ("view_as", "reshape_as"):
    _lower_shape_of(_name)


@lowers(aten.expand_as, integers=True)
def _expand_as(build: Builder, x: Value, other: Value) -> Value:
    del build
    return viewed(x, lambda tensor: tensor.expand(other.shape))


@lowers(aten.copy, integers=True)
def _copy(build: Builder, x: Value, src: Value, non_blocking: bool = False) -> Value:
    """What `x` is after `src` was written to it: `src`, in the shape and dtype of `x`."""
    del non_blocking
    return viewed(converted(build, src, x.dtype), lambda tensor: tensor.expand(x.shape))


@lowers(aten.dropout, aten.feature_dropout, aten.alpha_dropout, aten.feature_alpha_dropout)
def _dropout(build: Builder, x: Value, p: float, train: bool) -> Value:
    del build
    if train and p:
        raise Refusal(f"it drops at random (p = {p}), also in evaluation mode")
    return x


@lowers(aten.channel_shuffle)
def _channel_shuffle(build: Builder, x: Value, groups: int) -> Value:
    samples, channels, *rest = x.shape
    apart = build.reshaped(x, (samples, groups, channels // groups, *rest))
    return build.reshaped(viewed(apart, lambda tensor: tensor.transpose(1, 2)), x.shape)
