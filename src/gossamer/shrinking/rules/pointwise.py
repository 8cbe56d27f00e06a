"""Element-wise operations: the units that meet at a position go or stay together."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor, fx
from torch._ops import OpOverload

from gossamer.shrinking.analysis import Analysis
from gossamer.shrinking.labels import NEUTRAL
from gossamer.shrinking.reading import Reads, Uniform
from gossamer.shrinking.rules.parameters import bind_vector
from gossamer.shrinking.shadow import Shadow, as_matrix, settle, thin, varying

__all__ = ["dropout", "is_pointwise", "pointwise", "prelu"]

aten = torch.ops.aten

_ALSO_POINTWISE: set[OpOverload] = {
    aten.hardswish.default,
    aten.hardtanh.default,
    aten.relu6.default,
    aten.hardsigmoid.default,
    aten.leaky_relu.default,
    aten.elu.default,
    aten.celu.default,
    aten.selu.default,
    aten.mish.default,
    aten.softplus.default,
    aten.silu.default,
    aten.gelu.default,
    aten.log_sigmoid.default,
    aten.hardshrink.default,
    aten.softshrink.default,
    aten.threshold.default,
    aten.to.dtype,
    aten.to.device,
    aten.to.dtype_layout,
    aten._to_copy.default,
    aten.type_as.default,
    aten.masked_fill.Scalar,
    aten.masked_fill.Tensor,
    aten.square.default,
    aten.clip.default,
    aten.subtract.Tensor,
    aten.multiply.Tensor,
    aten.divide.Tensor,
}

_PRODUCTS: set[OpOverload] = {aten.mul.Tensor, aten.multiply.Tensor}


def is_pointwise(op: Any) -> bool:
    """Whether an operation treats every position alone and always gives the same result."""
    if not isinstance(op, OpOverload) or torch.Tag.nondeterministic_seeded in op.tags:
        return False
    return torch.Tag.pointwise in op.tags or op in _ALSO_POINTWISE


def pointwise(run: Analysis, node: fx.Node) -> Shadow:
    """Tie the labels that meet, and compute the result wherever all operands are known."""
    shape = run.shape(node)
    sources = [n for n in node.all_input_nodes if isinstance(n.meta.get("val"), Tensor)]
    shadows = [run.shadow(n) for n in sources]
    labels = meet(run, node, shadows, shape)
    value, known = _constants(run, node, dict(zip(sources, shadows, strict=True)), shape)
    return Shadow(labels, value, known)


def dropout(run: Analysis, node: fx.Node) -> Shadow:
    """Nothing in evaluation; in training only a constant zero stays a constant."""
    source = run.shadow(node.all_input_nodes[0])
    if not run.trains(node):
        return source
    value, known = thin(source.value, source.known)
    return Shadow(source.labels, source.value, (known & (value == 0)).expand(source.shape))


def prelu(run: Analysis, node: fx.Node) -> Any:
    """A slope per channel, or one for all."""
    source = run.shadow(node.all_input_nodes[0])
    slope = run.value_of(node.args[1])
    if slope is None or (slope.numel() > 1 and any(d != 1 for d in varying(source.labels))):
        return run.opaque(node, "a slope per channel that is not a parameter")
    if slope.numel() > 1:
        own = thin(source.labels, keep=1)[0].flatten()
        bind_vector(run, node.args[1], own)
        run.note(run.caller(node), "num_parameters", own)
    value, known = thin(source.value, source.known, keep=1 if source.value.dim() > 1 else None)
    return Shadow(source.labels, torch.prelu(value, slope).expand(source.shape), known.expand(source.shape))


def meet(run: Analysis, node: fx.Node, shadows: list[Shadow], shape: tuple[int, ...]) -> Tensor:
    """The labels of an element-wise result, with all that follows for those that met."""
    aligned = [_align(s.labels, len(shape)) for s in shadows]
    wide = [labels.expand(shape) for labels in aligned]
    moving = {d for labels in wide for d in varying(labels)}
    carriers = [s.labelled for s in shadows]
    coarse = [any(labels.size(d) == 1 for d in moving if shape[d] > 1) for labels in aligned]
    full = [w for w, carrier, rough in zip(wide, carriers, coarse, strict=True) if carrier and not rough]
    if not full:
        for labels, carrier in zip(wide, carriers, strict=True):
            if carrier:
                run.labels.pin(thin(labels)[0], f"combined with units of another dimension by {node.target}")
        return torch.zeros((), dtype=torch.long).expand(shape)
    result = _tie_full(run, node, full, shape)
    for labels, before, carrier, rough in zip(wide, aligned, carriers, coarse, strict=True):
        if not carrier and any(before.size(d) > 1 for d in moving):
            run.labels.pin(thin(result)[0], f"meets a fixed-size operand in {node.target}")
        elif carrier and rough:
            _attach_coarse(run, result, labels, before, sorted(moving))
    return result


def _align(labels: Tensor, rank: int) -> Tensor:
    return labels.reshape((1,) * (rank - labels.dim()) + tuple(labels.shape))


def _tie_full(run: Analysis, node: fx.Node, full: list[Tensor], shape: tuple[int, ...]) -> Tensor:
    slim = thin(*full)
    result = slim[0]
    for labels in slim[1:]:
        run.labels.tie(result, labels)
        alone = (result == NEUTRAL) != (labels == NEUTRAL)
        if bool(alone.any()):
            run.labels.pin(torch.maximum(result, labels)[alone], f"meets a fixed position in {node.target}")
        result = torch.where(result == NEUTRAL, labels, result)
    return settle(result.expand(shape))


def _attach_coarse(run: Analysis, result: Tensor, coarse: Tensor, before: Tensor, moving: list[int]) -> None:
    """One unit that is broadcast over many (a gate, a temperature per head): it lives while one of them does."""
    rows = [d for d in moving if before.size(d) > 1]
    columns = [d for d in moving if before.size(d) == 1]
    fine = as_matrix(result, rows, columns)
    one = as_matrix(coarse, rows, columns)[:, :1]
    run.uniforms.append(Uniform((fine, one), "it is broadcast over units that stay"))
    reads = torch.ones(fine.size(0), fine.size(1), 1, dtype=torch.bool)
    run.reads.append(Reads(fine, one, reads, torch.zeros_like(one, dtype=torch.bool)))


def _constants(
    run: Analysis, node: fx.Node, shadows: dict[fx.Node, Shadow], shape: tuple[int, ...]
) -> tuple[Tensor, Tensor]:
    dtype = node.meta["val"].dtype
    if not any(bool(thin(s.known)[0].any()) for s in shadows.values()):
        return torch.zeros((), dtype=dtype).expand(shape), torch.tensor(False).expand(shape)
    values = {n: s.value.expand(shape) for n, s in shadows.items()}
    knowns = [s.known.expand(shape) for s in shadows.values()]
    slim = thin(*values.values(), *knowns)
    operands = dict(zip(values, slim, strict=False))
    sure = list(slim[len(values) :])
    args, kwargs = fx.map_arg((node.args, node.kwargs), lambda n: operands.get(n, run.shadows.get(n)))
    target: Any = node.target
    try:
        result = target(*args, **kwargs).to(dtype)
    except RuntimeError:  # such as an integer division by an unknown, which is zero here
        return torch.zeros((), dtype=dtype).expand(shape), torch.tensor(False).expand(shape)
    known = functools.reduce(torch.logical_and, sure)
    if node.target in _PRODUCTS:
        result, known = _zero_wins(result, known, list(operands.values()), sure)
    return settle(result.expand(shape)), settle(known.expand(shape))


def _zero_wins(result: Tensor, known: Tensor, factors: list[Tensor], sure: list[Tensor]) -> tuple[Tensor, Tensor]:
    """A known zero makes the product zero whatever the other (finite) factor is: this is how gates close."""
    for factor, certain in zip(factors, sure, strict=True):
        zero = certain & (factor == 0)
        known = known | zero
        result = torch.where(zero, torch.zeros_like(result), result)
    return result, known
