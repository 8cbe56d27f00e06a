"""The weights that a regularizer acts on, and the relative strength of each."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TypedDict, TypeVar

from torch import Tensor, nn

from gossamer.errors import GossamerError
from gossamer.example import Example
from gossamer.layers import (
    Weight,
    find_weights,
    is_parameter,
    multiply_adds,
    original_module,
    plain_name,
    require_supported,
)
from gossamer.regularizers.unknown import unknown_matrices, warn_of_unknown

__all__ = ["LayerOptions", "select"]

_Layer = str | nn.Module
_Matrix = TypeVar("_Matrix", bound=Tensor)


class LayerOptions(TypedDict, total=False):
    """Options of every regularizer.

    only: layers to regularize, by module or by name (of a weight, a layer, or a block of layers); all if absent.
    skip: layers to leave out, likewise. A parameter of a layer of unknown class can be named too: the regularizer
        passes over it anyway, and `skip` says that this is intended.
    strengths: layer name -> strength of its own, in place of the common one.
    example: an input of the model; gives the order of execution, and the costs that `cost_exponent` needs.
    cost_exponent: c >= 0; the strength of a layer is proportional to (MACs per weight)^c, normalised so that the mean
        over all weights is `strength`. With 0, the default, all layers have the same strength; 0.5 penalizes
        convolutions more, which have most of the MACs. Weights without MACs (embeddings) keep the common strength.
    keep_norms: weights in front of a normalisation have no scale that a penalty could shrink; with True their blocks
        keep their norms through the proximal step, and the weights of a block compete. By default they do where an
        `example` is given.
    """

    only: Iterable[_Layer] | None
    skip: Iterable[_Layer]
    strengths: Mapping[str, float] | None
    example: Example | None
    cost_exponent: float
    keep_norms: bool


def select(model: nn.Module, strength: float | None, options: LayerOptions) -> list[tuple[Weight, float]]:
    """The chosen weights in order of execution, each with its scale relative to `strength`."""
    if unknown := sorted(options.keys() - LayerOptions.__annotations__.keys()):
        raise GossamerError(
            f"A regularizer has no option {', '.join(unknown)}. "
            f"Besides its own it takes: {', '.join(LayerOptions.__annotations__)}."
        )
    model = original_module(model)
    example = options.get("example")
    weights = find_weights(model, example)
    matrices = unknown_matrices(model, weights)
    skip = _as_list(options.get("skip", ()))
    skipped = _part(model, matrices, skip)
    chosen = set(weights)
    if (only := options.get("only")) is not None:
        only = _as_list(only)
        matrices = _part(model, matrices, only)
        chosen = _matching(model, weights, only, "only")
    chosen -= _matching(model, weights, skip, "skip", skipped)
    selected = [weight for weight in weights if weight in chosen]
    for weight in selected:
        require_supported(weight)
    warn_of_unknown(model, {name: matrix for name, matrix in matrices.items() if name not in skipped})

    scales = _cost_scales(model, selected, example, options.get("cost_exponent", 0.0))
    for layer, own in (options.get("strengths") or {}).items():
        if not (math.isfinite(own) and own >= 0):
            raise GossamerError(f"`strengths[{layer!r}]` must be finite and not negative; received {own!r}.")
        if strength is None or not strength > 0:
            raise GossamerError(f"`strengths` needs a positive common `strength`; received {strength!r}.")
        for weight in _matching(model, weights, [layer], "strengths"):
            if weight not in chosen:
                raise GossamerError(f"`strengths[{layer!r}]`: `only` or `skip` leaves `{weight.name}` out.")
            scales[weight] = own / strength
    return [(weight, scales[weight]) for weight in selected]


def _as_list(layers: Iterable[_Layer]) -> list[_Layer]:
    return [layers] if isinstance(layers, str | nn.Module) else list(layers)


def _matching(
    model: nn.Module,
    weights: tuple[Weight, ...],
    layers: list[_Layer],
    option: str,
    passed_over: Mapping[str, Tensor] = MappingProxyType({}),
) -> set[Weight]:
    """The weights that belong to any of the layers; a layer may also hold matrices that are passed over anyway."""
    found: set[Weight] = set()
    for layer in layers:
        if not isinstance(layer, str | nn.Module):
            raise GossamerError(f"`{option}` takes layer names and modules; received a {type(layer).__name__}.")
        inside = _inside(model, layer)
        matches = {weight for weight in weights if weight.module in inside or _own(weight) in inside}
        matches |= {weight for weight in weights if weight.name == layer}
        if not matches and not _part(model, passed_over, [layer]):
            what = f"a module of type {type(layer).__name__}" if isinstance(layer, nn.Module) else repr(layer)
            raise GossamerError(
                f"`{option}` names {what}, which holds no weight of `{type(model).__name__}`. "
                f"Its weights are: {', '.join(weight.name for weight in weights)}."
            )
        found |= matches
    return found


def _part(model: nn.Module, matrices: Mapping[str, _Matrix], layers: list[_Layer]) -> dict[str, _Matrix]:
    """The matrices that belong to any of the layers, or are named themselves."""
    inside = {tensor for layer in layers if isinstance(layer, str | nn.Module) for tensor in _inside(model, layer)}
    return {name: matrix for name, matrix in matrices.items() if matrix in inside or name in layers}


def _inside(model: nn.Module, layer: _Layer) -> set[nn.Module | Tensor]:
    """The modules of a layer or block, and their parameters: a tied weight belongs to every layer that shares it."""
    named = {plain_name(name): module for name, module in model.named_modules(remove_duplicate=False)}
    block = named.get(layer) if isinstance(layer, str) else layer
    return set() if block is None else {*original_module(block).modules(), *block.parameters()}


def _own(weight: Weight) -> Tensor | None:
    """The parameter, or None for a weight that a parametrization computes."""
    return weight.parameter if is_parameter(weight) else None


def _cost_scales(
    model: nn.Module, weights: list[Weight], example: Example | None, exponent: float
) -> dict[Weight, float]:
    """(MACs per weight)^exponent, divided by its mean over all weights that have a cost."""
    if not (math.isfinite(exponent) and exponent >= 0):
        raise GossamerError(f"`cost_exponent` must be finite and not negative; received {exponent!r}.")
    scales = dict.fromkeys(weights, 1.0)
    if exponent == 0:
        return scales
    if example is None:
        raise GossamerError("`cost_exponent` needs an `example` input, to count the MACs of each layer.")
    macs = multiply_adds(model, example)
    sizes = {weight: weight.parameter.numel() for weight in weights if macs.get(weight.parameter, 0) > 0}
    costs = {weight: (macs[weight.parameter] / size) ** exponent for weight, size in sizes.items()}
    mean = sum(costs[weight] * size for weight, size in sizes.items()) / max(sum(sizes.values()), 1)
    return scales | {weight: cost / mean for weight, cost in costs.items()}
