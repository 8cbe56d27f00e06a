"""The configuration of a training run: one frozen object, stored as JSON."""

from __future__ import annotations

import json
import reprlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import count
from typing import Any, NoReturn

from gossamer_lab.training.checksum import sealed, unsealed
from gossamer_lab.training.fields import (
    COUNT,
    FLAG,
    FRACTION,
    HALF,
    NAME,
    NON_NEGATIVE,
    PART,
    POSITIVE,
    SEED,
    SHARE,
    check,
    documented,
    percentage,
    setting,
)
from gossamer_lab.training.regularizers import REGULARIZERS
from gossamer_lab.training.settings import SETTINGS

__all__ = ["RENAMED", "TrainingConfig"]

# Written to every configuration file, so that a JSON file of another program is never taken for one.
_FORMAT = "gossamer-run-1"

# Not `--overwrite`, which deletes no file that could be of another program.
_WAY_OUT = "Restore the file from a copy, or choose another `--run-dir`."

# Fields by the names they had in the first run directories and result files. Such files are still read under these
# names, and fingerprints still hash them: committed tuning results are stored under fingerprints.
RENAMED = {"augment": "vary", "affine": "slant"}

# Fields that are newer than the format: a file without them has their defaults.
_TARGETS = ("target_params", "target_flops", "target_dense_params", "target_dense_flops", "target_bytes")
_ADDED = {"regrow", "affine", "groups", "balance", *_TARGETS}

_LISTED = ", ".join(name for name, spec in REGULARIZERS.items() if not spec.arguments)


@documented
@dataclass(frozen=True)
class TrainingConfig:
    """Everything that determines a training run: equal configurations give bit-identical weights on one machine.

    A run has two phases, with or without a regularizer. In the phase `sparsify` the penalty acts, and its strength
    rises linearly from 0 during the warm-up. In the phase `hold` the penalty is off, zeros stay zero (unless `regrow`
    is set) and the other weights converge. The learning rate follows a cosine in each phase: to a tenth of its
    initial value in the first, so that the penalty still acts at the end, and to 0 in the second. With a target there
    is no warm-up: the target drives the strength, from `strength` if that is not 0, and is reached in the first phase.
    """

    dataset: str = field(metadata=setting(f"Data set: {', '.join(SETTINGS)}.", NAME))
    regularizer: str = field(
        default="none",
        metadata=setting(f"Regularizer: {_LISTED}.", NAME, option=True, default="integrated-tl1"),
    )
    strength: float = field(
        default=0.0,
        metadata=setting(
            "Strength λ: the multiplier of the penalty in the objective.",
            NON_NEGATIVE,
            option=True,
            default="by data set and regularizer",
        ),
    )
    target_params: float | None = field(
        default=None,
        metadata=setting(
            "Target in place of a strength: non-zero weights, such as 5%.", PART, option=True, parse=percentage
        ),
    )
    target_flops: float | None = field(
        default=None,
        metadata=setting(
            "Target in place of a strength: MACs with a non-zero weight.", PART, option=True, parse=percentage
        ),
    )
    target_dense_params: float | None = field(
        default=None,
        metadata=setting(
            "Target in place of a strength: weights after shrinking.", PART, option=True, parse=percentage
        ),
    )
    target_dense_flops: float | None = field(
        default=None,
        metadata=setting("Target in place of a strength: MACs after shrinking.", PART, option=True, parse=percentage),
    )
    target_bytes: int | None = field(
        default=None, metadata=setting("Target in place of a strength: bytes of the shrunk file.", COUNT, option=True)
    )
    a: float | None = field(
        default=None,
        metadata=setting("Shape of transformed l1, above 0.", POSITIVE, option=True, default="by data set"),
    )
    s: float | None = field(
        default=None,
        metadata=setting(
            "Smallest weight of either term of a combined penalty over the layers, from 0 to 1/2.",
            HALF,
            option=True,
            default="by data set",
        ),
    )
    balance: float | None = field(
        default=None,
        metadata=setting(
            "Share of the element-wise term of unit-tl1, from 0 to 1.", SHARE, option=True, default="by regularizer"
        ),
    )
    groups: str | None = field(
        default=None,
        metadata=setting(
            "Groups of the group term: outputs, inputs, taps, or units (what `shrink` can remove).",
            NAME,
            option=True,
            default="by regularizer",
        ),
    )
    cost_exponent: float = field(
        default=0.0,
        metadata=setting(
            "Exponent c of the cost: the strength of a layer is proportional to (MACs per weight)^c.",
            NON_NEGATIVE,
            option=True,
            default="by data set",
        ),
    )
    network: str | None = field(
        default=None, metadata=setting("Name of the network; None for that of the data set.", NAME)
    )
    validation_fraction: float = field(
        default=0.0,
        metadata=setting("Fraction of the training images that replaces the test images, for tuning.", FRACTION),
    )
    augment: bool = field(
        default=True, metadata=setting("Whether training images are augmented as defined by the data set.", FLAG)
    )
    affine: float = field(
        default=0.0,
        metadata=setting(
            "Random affine augmentation: bound on the entries of E in x -> (I + E)x, at most 1/2; 0.1 is mild.",
            HALF,
            option=True,
            default="0",
        ),
    )
    images: int | None = field(
        default=None, metadata=setting("Number of training images and of test images to use; None for all.", COUNT)
    )
    epochs: int = field(
        default=60,
        metadata=setting("Maximum number of epochs, both phases together.", COUNT, option=True, default="by data set"),
    )
    tolerance: float | None = field(
        default=None,
        metadata=setting(
            "End a phase when the objective improves by less than this in an epoch, after the warm-up.",
            NON_NEGATIVE,
            option=True,
        ),
    )
    seed: int = field(
        default=0, metadata=setting("Seed for initialisation and shuffling.", SEED, option=True, default="0")
    )
    batch_size: int = field(default=64, metadata=setting("Images per step.", COUNT))
    learning_rate: float = field(
        default=0.05, metadata=setting("Initial learning rate of SGD in the first phase.", POSITIVE)
    )
    hold_learning_rate: float = field(
        default=0.02, metadata=setting("Initial learning rate of SGD in the second phase.", POSITIVE)
    )
    momentum: float = field(default=0.9, metadata=setting("Momentum of SGD.", FRACTION))
    warm_up_fraction: float = field(
        default=0.2, metadata=setting("Fraction of the first phase over which the strength rises.", FRACTION)
    )
    hold_fraction: float = field(
        default=0.3, metadata=setting("Fraction of the epochs that forms the second phase.", FRACTION)
    )
    compact_every: int | None = field(
        default=None, metadata=setting("Remove dead units every so many epochs; None for never.", COUNT)
    )
    regrow: bool = field(
        default=False,
        metadata=setting(
            "Remove dead units before the second phase and let all remaining weights train again, zeros included.",
            FLAG,
            option=True,
        ),
    )

    def __post_init__(self) -> None:
        check(self)
        if self.regrow and self.hold_epochs == 0:
            _reject(
                "`regrow` needs a second phase, and `epochs` and `hold_fraction` leave none. Train for more epochs."
            )
        self._check_target()

    def _check_target(self) -> None:
        given = [name for name in _TARGETS if getattr(self, name) is not None]
        if len(given) > 1:
            _reject(f"{' and '.join(given)} can contradict each other. Give one target.")
        if given and self.regularizer in ("none", "l2"):
            _reject(f"`{given[0]}` needs a regularizer that sets weights to zero; received {self.regularizer!r}.")
        if given and (self.regrow or self.tolerance is not None):
            _reject(
                f"`{given[0]}` fixes the size and the length of the first phase: leave out `regrow` and `tolerance`."
            )

    @property
    def target(self) -> tuple[str, float] | None:
        """Kind and size of the target, such as ("params", 0.05)."""
        given = ((name.removeprefix("target_"), getattr(self, name)) for name in _TARGETS)
        return next(((kind, value) for kind, value in given if value is not None), None)

    @property
    def hold_epochs(self) -> int:
        """Maximum number of epochs of the second phase."""
        return int(self.epochs * self.hold_fraction)

    @property
    def sparsify_epochs(self) -> int:
        """Maximum number of epochs of the first phase; at least 1."""
        return self.epochs - self.hold_epochs

    def fewest_epochs(self, steps: int, steps_per_epoch: int) -> int:
        """The fewest epochs whose first phase has this many optimizer steps."""
        return next(n for n in count(1) if replace(self, epochs=n).sparsify_epochs * steps_per_epoch >= steps)

    @property
    def warm_up_epochs(self) -> int:
        """Number of epochs over which the strength rises."""
        return int(self.sparsify_epochs * self.warm_up_fraction)

    def differences(self, other: TrainingConfig) -> list[str]:
        """Return the fields that differ, as `seed 0 (not 1)`."""
        return [
            f"{field.name} {getattr(self, field.name)} (not {getattr(other, field.name)})"
            for field in fields(self)
            if getattr(self, field.name) != getattr(other, field.name)
        ]

    def to_json(self) -> str:
        """Return the configuration as a JSON object with a checksum: a run must not resume with a damaged one."""
        values = asdict(self)
        return json.dumps({"format": _FORMAT, **sealed(values)}, indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> TrainingConfig:
        """Parse the output of `to_json`, of this version or an earlier one."""
        try:
            values: Any = json.loads(text)
        except (ValueError, RecursionError) as error:
            _reject(f"Not a run configuration: it is not JSON ({error}). {_WAY_OUT}")
        if not isinstance(values, dict):
            _reject(f'Not a run configuration: it is {reprlib.repr(values)}, which has no "format". {_WAY_OUT}')
        if (received := values.pop("format", None)) != _FORMAT:
            _reject(
                f'Not a run configuration: its "format" is {reprlib.repr(received)}, not {_FORMAT!r}. It may be of '
                f"another program. {_WAY_OUT}"
            )
        try:
            values = unsealed(values)
        except ValueError as error:
            _reject(f"Not a run configuration as it was written: {error}. {_WAY_OUT}")
        current = _current(values)
        if absent := sorted({field.name for field in fields(cls)} - _ADDED - set(current)):
            _reject(
                f"Not a whole run configuration: fields are missing: {', '.join(absent)}. Their defaults may be "
                f"others. {_WAY_OUT}"
            )
        return cls(**current)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TrainingConfig:
        """Create a configuration from stored values; fields that are absent have their defaults."""
        return cls(**_current(values))


def _current(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return stored values under the current field names."""
    earlier = {old: new for new, old in RENAMED.items() if new not in values}
    current = {earlier.get(name, name): value for name, value in values.items()}
    if unknown := sorted(set(current) - {field.name for field in fields(TrainingConfig)}):
        _reject(
            f"Not a run configuration of this version: unknown fields: {', '.join(unknown)}. Without them it would not "
            "be the same run. Read it with the version of gossamer that wrote it, or restore the file from a copy."
        )
    return current


def _reject(message: str) -> NoReturn:
    from gossamer.errors import GossamerError  # imports torch, which `gossamer --help` does without

    raise GossamerError(message)
