"""Everything that determines a training, in one frozen object that goes to JSON and back."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, fields
from typing import Any

from gossamer.errors import GossamerError

__all__ = ["TrainingConfig"]

# Stands in every configuration file, so that a file of some other program is never taken for one of ours.
_FORMAT = "gossamer-run-1"

# Came after runs of this format had been written: where they are missing, they have their defaults.
_ADDED_LATER = {"regrow", "slant"}


@dataclass(frozen=True)
class TrainingConfig:
    """Two runs with equal configurations, on one machine, end with the same weights bit by bit.

    A training has two phases, the same for every regularizer and for none. In the first, ``sparsify``, the penalty
    acts, its strength rising from nothing over the warm-up. In the second, ``hold``, the penalty is off, what is zero
    stays zero (but see ``regrow``), and the other weights settle. In each the learning rate falls along a cosine, in
    the first to a tenth of where it began, so that the penalty still bites at the end, in the second to nothing.

    Attributes:
        dataset: Name of the data set.
        regularizer: Name of the regularizer, or ``none``.
        strength: What the regularizer's value is multiplied by in the objective.
        a: The shape of transformed l1, for the regularizers that have it.
        s: The smallest weight of the group term (or of its rival) over the layers, for the regularizers that have it.
        cost_exponent: c; the strength of a layer is proportional to (multiply-adds per weight)^c, its mean kept.
        network: Name of the network, where it is not the data set's own.
        validation_fraction: Part of the training images that takes the place of the test images, to choose settings.
        vary: Whether the training images are changed at random in the way of their data set.
        slant: How much all of them are turned, stretched and sheared besides: the entries of random maps I + E lie
            within this of those of I.
        images: When given, only so many training images and as many test images are used, for a quick look.
        epochs: The most epochs both phases take together.
        tolerance: When given, a phase ends as soon as the objective improves by less than this from one epoch to the
            next; never during the warm-up, where the objective changes its meaning.
        seed: Of the first weights and of the order of the images.
        batch_size: Images per step.
        learning_rate: Of SGD, where the first phase begins.
        hold_learning_rate: The same for the second phase.
        momentum: Of SGD.
        warm_up_fraction: Part of the first phase over which the strength rises linearly to its full value.
        hold_fraction: Part of the epochs that is the second phase.
        compact_every: When given, dead units leave the network after every so many epochs.
        regrow: Whether dead units leave for good when the second phase begins, and the zeros among the weights that
            are left learn again: for networks that will run where zeros are computed like other weights. Without a
            regularizer it does nothing.
    """

    dataset: str
    regularizer: str = "none"
    strength: float = 0.0
    a: float | None = None
    s: float | None = None
    cost_exponent: float = 0.0
    network: str | None = None
    validation_fraction: float = 0.0
    vary: bool = True
    images: int | None = None
    epochs: int = 60
    tolerance: float | None = None
    seed: int = 0
    batch_size: int = 64
    learning_rate: float = 0.05
    hold_learning_rate: float = 0.02
    momentum: float = 0.9
    warm_up_fraction: float = 0.2
    hold_fraction: float = 0.3
    compact_every: int | None = None
    regrow: bool = False
    slant: float = 0.0

    def __post_init__(self) -> None:
        _require(_is_text(self.dataset), "dataset", self.dataset, "must be a name")
        _require(_is_text(self.regularizer), "regularizer", self.regularizer, "must be a name")
        _require(_at_least(self.strength, 0), "strength", self.strength, "must be finite and not negative")
        _require(self.a is None or _above(self.a, 0), "a", self.a, "must be finite and above 0")
        _require(self.s is None or _within(self.s, 0, 0.5), "s", self.s, "must lie between 0 and 1/2")
        _require(
            _at_least(self.cost_exponent, 0), "cost_exponent", self.cost_exponent, "must be finite and not negative"
        )
        _require(self.network is None or _is_text(self.network), "network", self.network, "must be a name")
        _require(_is_count(self.epochs, 1), "epochs", self.epochs, "must be a whole number, at least 1")
        _require(
            self.tolerance is None or _at_least(self.tolerance, 0),
            "tolerance",
            self.tolerance,
            "must be finite and not negative",
        )
        _require(
            _is_count(self.seed, 0) and self.seed < 2**32,
            "seed",
            self.seed,
            "must be a whole number from 0 to 2^32 - 1",
        )
        _require(_within(self.slant, 0, 0.5), "slant", self.slant, "must lie between 0 and 1/2")
        _require(_is_count(self.batch_size, 1), "batch_size", self.batch_size, "must be a whole number, at least 1")
        for name in ("vary", "regrow"):
            _require(isinstance(getattr(self, name), bool), name, getattr(self, name), "must be true or false")
        for name in ("compact_every", "images"):
            value = getattr(self, name)
            _require(value is None or _is_count(value, 1), name, value, "must be a whole number, at least 1")
        for name in ("learning_rate", "hold_learning_rate"):
            _require(_above(getattr(self, name), 0), name, getattr(self, name), "must be finite and above 0")
        for name in ("momentum", "warm_up_fraction", "hold_fraction", "validation_fraction"):
            value = getattr(self, name)
            _require(_within(value, 0, 1) and value < 1, name, value, "must be at least 0 and below 1")
        _require(
            not self.regrow or self.hold_epochs > 0,
            "regrow",
            self.regrow,
            "needs a second phase: train for more epochs",
        )

    @property
    def hold_epochs(self) -> int:
        """The most epochs of the second phase."""
        return int(self.epochs * self.hold_fraction)

    @property
    def sparsify_epochs(self) -> int:
        """The most epochs of the first phase; never none."""
        return self.epochs - self.hold_epochs

    @property
    def warm_up_epochs(self) -> int:
        """Epochs of the first phase over which the strength rises."""
        return int(self.sparsify_epochs * self.warm_up_fraction)

    def differences(self, other: TrainingConfig) -> list[str]:
        """Say what differs, as ``seed 0 (not 1)``, empty when nothing does."""
        return [
            f"{field.name} {getattr(self, field.name)} (not {getattr(other, field.name)})"
            for field in fields(self)
            if getattr(self, field.name) != getattr(other, field.name)
        ]

    def to_json(self) -> str:
        """Write the configuration as one JSON object."""
        return json.dumps({"format": _FORMAT, **asdict(self)}, indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> TrainingConfig:
        """Read what :meth:`to_json` wrote."""
        try:
            values: Any = json.loads(text)
        except ValueError as error:
            raise GossamerError(f"Not the configuration of a run: not JSON ({error}).") from None
        if not isinstance(values, dict) or values.pop("format", None) != _FORMAT:
            raise GossamerError(f'Not the configuration of a run: "format" is not {_FORMAT!r}.')
        known = {field.name for field in fields(cls)}
        if unknown := sorted(set(values) - known):
            raise GossamerError(f"Not the configuration of a run: unknown {', '.join(unknown)}.")
        if missing := sorted(known - _ADDED_LATER - set(values)):
            raise GossamerError(f"Not the configuration of a run: without {', '.join(missing)}.")
        return cls(**values)


def _require(holds: bool, name: str, value: object, rule: str) -> None:
    if not holds:
        raise GossamerError(f"`{name}` {rule}; received {value!r}.")


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _is_count(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _is_finite(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _at_least(value: float, least: float) -> bool:
    return _is_finite(value) and value >= least


def _above(value: float, bound: float) -> bool:
    return _is_finite(value) and value > bound


def _within(value: float, low: float, high: float) -> bool:
    return _is_finite(value) and low <= value <= high
