"""How the networks of the paper are trained: our recipe, one for all methods, and the paper's plain one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gossamer_lab.paper.compared import Compared
from gossamer_lab.training import SETTINGS, TrainingConfig, method

__all__ = ["OURS", "PLAIN", "Recipe"]

# A training of the small version of an experiment, which shows that all works and nothing more.
_QUICK = {"images": 256, "epochs": 4, "batch_size": 32}


@dataclass(frozen=True)
class Recipe:
    """Everything about a training but the data set and the penalty.

    Attributes:
        name: In result files and on the command line.
        changes: What differs from the settings of the data set, as pairs, so that a recipe can be a key.
        quick: A few epochs on a few images only.
    """

    name: str
    changes: tuple[tuple[str, float | str | None], ...] = ()
    quick: bool = False

    def configuration(
        self, dataset: str, compared: Compared, parameters: Mapping[str, float], seed: int = 0, **others: Any
    ) -> TrainingConfig:
        """The training of a data set's network with a penalty of these parameters, and ``others`` changed."""
        known = method(compared.regularizer)
        settings: dict[str, Any] = {
            **SETTINGS[dataset],
            **dict(self.changes),
            "strength": known.strength,
            **known.parameters,
            **parameters,
            "seed": seed,
            "regularizer": compared.regularizer,
            **others,
            **(_QUICK if self.quick else {}),
        }
        return TrainingConfig(dataset=dataset, **settings)


OURS = Recipe("ours")

# Algorithm 1 as it is printed: plain SGD, one strength for all layers from the first step to the last, nothing removed
# on the way. Without momentum steps are ten times shorter or more, so the learning rate is higher; it still falls along
# the cosine.
PLAIN = Recipe(
    "plain",
    (
        ("momentum", 0.0),
        ("learning_rate", 0.2),
        ("warm_up_fraction", 0.0),
        ("hold_fraction", 0.0),
        ("cost_exponent", 0.0),
        ("vary", False),
        ("compact_every", None),
    ),
)
