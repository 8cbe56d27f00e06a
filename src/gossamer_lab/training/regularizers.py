"""Regularizers by the names that configurations and the command use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the command reads this table for `--help`, which does without torch
    from torch import Tensor, nn

    from gossamer.regularizers import Regularizer
    from gossamer_lab.training.config import TrainingConfig

__all__ = ["REGULARIZERS", "RegularizerSpec", "regularizer_spec"]


@dataclass(frozen=True)
class RegularizerSpec:
    """A named regularizer.

    Attributes:
        function: Name of its constructor in `gossamer.regularizers`; None for training without a regularizer.
        strength: Default strength.
        parameters: Further parameters with their defaults.
        arguments: Fixed keyword arguments of the constructor. A variant with such arguments is for the ablation, and
            `--help` does not list it.
        grouped: Whether the groups of its group term can be chosen.
    """

    function: str | None
    strength: float = 1e-3
    parameters: Mapping[str, float] = field(default_factory=dict)
    arguments: Mapping[str, Any] = field(default_factory=dict)
    grouped: bool = False

    @property
    def options(self) -> set[str]:
        """The fields of a configuration that it uses."""
        return set() if self.function is None else {"strength", *self.parameters, *["groups"] * self.grouped}

    def build(self, model: nn.Module, config: TrainingConfig, example: Tensor) -> Regularizer | None:
        """Construct the regularizer for a model."""
        if self.function is None:
            return None
        from gossamer import regularizers

        parameters = {name: getattr(config, name) for name in self.parameters}
        regularizer: Regularizer = getattr(regularizers, self.function)(
            model,
            config.strength if config.target is None else config.strength or None,
            example=example,
            cost_exponent=config.cost_exponent,
            **self.arguments,
            **parameters,
            **({} if config.groups is None else {"groups": config.groups}),
        )
        return regularizer


_INTEGRATED = {"a": 0.2, "s": 0.1}

REGULARIZERS: dict[str, RegularizerSpec] = {
    "integrated-tl1": RegularizerSpec("integrated_tl1", parameters=_INTEGRATED, grouped=True),
    "unit-tl1": RegularizerSpec("unit_tl1", parameters={"a": 1.0, "balance": 0.02}),
    "transformed-l1": RegularizerSpec("transformed_l1", parameters={"a": 1.0}),
    "l1": RegularizerSpec("l1"),
    "l2": RegularizerSpec("l2"),
    "group-lasso": RegularizerSpec("group_lasso", grouped=True),
    "sparse-group-lasso": RegularizerSpec("sparse_group_lasso", grouped=True),
    "combined-group-exclusive": RegularizerSpec("combined_group_exclusive", parameters={"s": 0.2}, grouped=True),
    "group-transformed-l1": RegularizerSpec("group_transformed_l1", parameters={"a": 1.0}, grouped=True),
    "integrated-tl1-by-input": RegularizerSpec("integrated_tl1", 1e-3, _INTEGRATED, {"groups": "inputs"}),
    "integrated-tl1-by-tap": RegularizerSpec("integrated_tl1", 1e-3, _INTEGRATED, {"groups": "taps"}),
    "integrated-tl1-by-size": RegularizerSpec("integrated_tl1", 1e-3, _INTEGRATED, {"scale_by_size": True}),
    "integrated-tl1-of-units": RegularizerSpec(
        "integrated_tl1", 1e-3, _INTEGRATED, {"groups": "units", "scale_by_size": True}
    ),
    "sparse-group-lasso-of-units": RegularizerSpec("sparse_group_lasso", arguments={"groups": "units"}),
    "combined-group-exclusive-of-units": RegularizerSpec(
        "combined_group_exclusive", parameters={"s": 0.2}, arguments={"groups": "units"}
    ),
    "none": RegularizerSpec(None, strength=0.0),
}


def regularizer_spec(name: str) -> RegularizerSpec:
    """Return the regularizer of this name."""
    if name not in REGULARIZERS:
        from gossamer.errors import GossamerError

        raise GossamerError(f"Unknown regularizer {name!r}. Available: {', '.join(REGULARIZERS)}.")
    return REGULARIZERS[name]
