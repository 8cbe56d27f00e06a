"""Matrices of a model that no regularizer acts on: the classes of their layers are not in the table of kinds."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping

from torch import nn

from gossamer.layers import Weight, is_parameter, plain_name

__all__ = ["UnregularizedWarning", "unknown_matrices", "warn_of_unknown"]

# A smaller part of the parameters, such as a table of positions, is not worth a warning.
_LARGE = 0.01
_NAMED = 5


class UnregularizedWarning(UserWarning):
    """A regularizer passes over a large part of the model, which is in layers of unknown classes."""


def unknown_matrices(model: nn.Module, weights: Collection[Weight]) -> dict[str, nn.Parameter]:
    """The trainable parameters with more than one dimension that are not the weight of a known layer, by name."""
    known = {weight.parameter for weight in weights if is_parameter(weight)}
    return {
        plain_name(name): parameter
        for name, parameter in model.named_parameters()
        if parameter.requires_grad and parameter not in known and sum(size > 1 for size in parameter.shape) > 1
    }


def warn_of_unknown(model: nn.Module, passed_over: Mapping[str, nn.Parameter]) -> None:
    """Name the matrices that are passed over, the largest first, if they are a large part of the model."""
    total = sum(parameter.numel() for parameter in model.parameters())
    count = sum(parameter.numel() for parameter in passed_over.values())
    if not passed_over or count < _LARGE * total:
        return
    by_size = sorted(passed_over.items(), key=lambda item: -item[1].numel())
    named = ", ".join(f"{name} {tuple(parameter.shape)}" for name, parameter in by_size[:_NAMED])
    more = f" and {len(by_size) - _NAMED} more" if len(by_size) > _NAMED else ""
    warnings.warn(
        f"The regularizer passes over {named}{more}: {count:,} of {total:,} parameters are matrices of layers whose "
        "classes are unknown. Declare them by `gossamer.layers.register_kind`, or name them in `skip`.",
        UnregularizedWarning,
        stacklevel=5,  # the caller of the recipe
    )
