"""Training recipes: ours, the same for all methods, and the plain algorithm of the paper."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gossamer_lab.paper.methods import Method
from gossamer_lab.training import SETTINGS, TrainingConfig, regularizer_spec

__all__ = ["OURS", "PLAIN", "Recipe"]

# Smoke test of an experiment.
_QUICK = {"images": 256, "epochs": 4, "batch_size": 32}


@dataclass(frozen=True)
class Recipe:
    """Everything about a training but the data set and the penalty.

    Attributes:
        name: Name in the names of studies.
        changes: Changes to the settings of the data set, as pairs, so that a recipe is hashable.
        quick: Whether to train for a few epochs on a few images only.
    """

    name: str
    changes: tuple[tuple[str, float | str | None], ...] = ()
    quick: bool = False

    def configuration(
        self, dataset: str, method: Method, parameters: Mapping[str, float], seed: int = 0, **changes: Any
    ) -> TrainingConfig:
        """Return the configuration of one training.

        Args:
            dataset: Name of the data set.
            method: The method, which determines the regularizer.
            parameters: Strength and shape of the penalty.
            seed: Seed of the training.
            **changes: Further changes to the configuration.
        """
        spec = regularizer_spec(method.regularizer)
        settings: dict[str, Any] = {
            **SETTINGS[dataset],
            **dict(self.changes),
            "strength": spec.strength,
            **spec.parameters,
            **parameters,
            "seed": seed,
            "regularizer": method.regularizer,
            **changes,
            **(_QUICK if self.quick else {}),
        }
        return TrainingConfig(dataset=dataset, **settings)


OURS = Recipe("ours")

# Algorithm 1 as printed: SGD without momentum, one strength for all layers and steps, no removal of dead units. The
# learning rate is higher, because without momentum the effective step is at least ten times shorter.
PLAIN = Recipe(
    "plain",
    (
        ("momentum", 0.0),
        ("learning_rate", 0.2),
        ("warm_up_fraction", 0.0),
        ("hold_fraction", 0.0),
        ("cost_exponent", 0.0),
        ("augment", False),
        ("compact_every", None),
    ),
)
