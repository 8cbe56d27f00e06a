"""The regularizers by the names that configurations and the command give them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from torch import Tensor, nn

from gossamer import regularizers
from gossamer.errors import GossamerError
from gossamer.regularizers import Regularizer
from gossamer_lab.training.config import TrainingConfig

__all__ = ["METHODS", "Method", "method"]


@dataclass(frozen=True)
class Method:
    """A regularizer as a configuration knows it.

    Attributes:
        recipe: Makes it for a model; None for training without one.
        strength: Taken when none is given.
        parameters: What else it can be given, with what is taken otherwise.
    """

    recipe: Callable[..., Regularizer] | None
    strength: float = 1e-3
    parameters: Mapping[str, float] = field(default_factory=dict)

    @property
    def options(self) -> set[str]:
        """The settings that mean something to it."""
        return set() if self.recipe is None else {"strength", *self.parameters}

    def build(self, model: nn.Module, config: TrainingConfig, example: Tensor) -> Regularizer | None:
        """Make the regularizer of a configuration for a model."""
        if self.recipe is None:
            return None
        parameters = {name: getattr(config, name) for name in self.parameters}
        return self.recipe(model, config.strength, example=example, cost_exponent=config.cost_exponent, **parameters)


_INTEGRATED = {"a": 1.0, "s": 0.1}

METHODS: dict[str, Method] = {
    "integrated-tl1": Method(regularizers.integrated_tl1, parameters=_INTEGRATED),
    "transformed-l1": Method(regularizers.transformed_l1, parameters={"a": 1.0}),
    "l1": Method(regularizers.l1),
    "l2": Method(regularizers.l2),
    "group-lasso": Method(regularizers.group_lasso),
    "sparse-group-lasso": Method(regularizers.sparse_group_lasso),
    "combined-group-exclusive": Method(regularizers.combined_group_exclusive, parameters={"s": 0.2}),
    "group-transformed-l1": Method(regularizers.group_transformed_l1, parameters={"a": 1.0}),
    "integrated-tl1-by-input": Method(partial(regularizers.integrated_tl1, groups="inputs"), parameters=_INTEGRATED),
    "integrated-tl1-by-tap": Method(partial(regularizers.integrated_tl1, groups="taps"), parameters=_INTEGRATED),
    "integrated-tl1-by-size": Method(partial(regularizers.integrated_tl1, scale_by_size=True), parameters=_INTEGRATED),
    "none": Method(None, strength=0.0),
}


def method(name: str) -> Method:
    """Return the regularizer of this name."""
    if name not in METHODS:
        raise GossamerError(f"Unknown regularizer {name!r}. There is: {', '.join(METHODS)}.")
    return METHODS[name]
