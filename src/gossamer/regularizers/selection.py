"""The weights that a regularizer acts on, and the relative strength of each."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TypedDict

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

__all__ = ["LayerOptions", "select"]

_Layer = str | nn.Module


class LayerOptions(TypedDict, total=False):
    """Options of every regularizer.

    only: layers to regularize, by module or by name (of a weight, a layer, or a block of layers); all if absent.
    skip: layers to leave out, likewise.
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


def select(model: nn.Module, strength: float, options: LayerOptions) -> list[tuple[Weight, float]]:
    """The chosen weights in order of execution, each with its scale relative to `strength`."""
    if unknown := sorted(options.keys() - LayerOptions.__annotations__.keys()):
        raise GossamerError(
            f"A regularizer has no option {', '.join(unknown)}. "
            f"Besides its own it takes: {', '.join(LayerOptions.__annotations__)}."
        )
    model = original_module(model)
    example = options.get("example")
    weights = find_weights(model, example)
    only = options.get("only")
    chosen = set(weights) if only is None else _matching(model, weights, only, "only")
    chosen -= _matching(model, weights, options.get("skip", ()), "skip")
    selected = [weight for weight in weights if weight in chosen]
    for weight in selected:
        require_supported(weight)

    scales = _cost_scales(model, selected, example, options.get("cost_exponent", 0.0))
    for layer, own in (options.get("strengths") or {}).items():
        if not (math.isfinite(own) and own >= 0):
            raise GossamerError(f"`strengths[{layer!r}]` must be finite and not negative; received {own!r}.")
        if not strength > 0:
            raise GossamerError(f"`strengths` needs a positive common `strength`; received {strength!r}.")
        for weight in _matching(model, weights, [layer], "strengths"):
            if weight not in chosen:
                raise GossamerError(f"`strengths[{layer!r}]`: `only` or `skip` leaves `{weight.name}` out.")
            scales[weight] = own / strength
    return [(weight, scales[weight]) for weight in selected]


def _matching(model: nn.Module, weights: tuple[Weight, ...], layers: Iterable[_Layer], option: str) -> set[Weight]:
    """The weights that belong to any of the layers."""
    if isinstance(layers, str | nn.Module):
        layers = [layers]
    found: set[Weight] = set()
    for layer in layers:
        if not isinstance(layer, str | nn.Module):
            raise GossamerError(f"`{option}` takes layer names and modules; received a {type(layer).__name__}.")
        inside = _inside(model, layer)
        matches = {weight for weight in weights if weight.module in inside or _own(weight) in inside}
        matches |= {weight for weight in weights if weight.name == layer}
        if not matches:
            what = f"a module of type {type(layer).__name__}" if isinstance(layer, nn.Module) else repr(layer)
            raise GossamerError(
                f"`{option}` names {what}, which holds no weight of `{type(model).__name__}`. "
                f"Its weights are: {', '.join(weight.name for weight in weights)}."
            )
        found |= matches
    return found


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
