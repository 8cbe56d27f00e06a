"""How the network of a data set is trained where nothing else is asked for."""

from __future__ import annotations

from gossamer_lab.training.methods import method

__all__ = ["SETTINGS", "defaults"]

# What the networks larger than that of DIGITS have in common.
_COMMON: dict[str, float] = {
    "batch_size": 128,
    "learning_rate": 0.05,
    "hold_learning_rate": 0.02,
    "warm_up_fraction": 0.5,
    "hold_fraction": 0.3,
    "cost_exponent": 0.25,
}

# Where epochs are few: the strength rises over nearly all of the first phase, and the second has time to mend. Epochs
# on large images get shorter as units leave.
_LONG_PHASES: dict[str, float] = {"warm_up_fraction": 0.86, "hold_fraction": 0.5, "compact_every": 2}

# Whatever the regularizer. How they were chosen is told in experiments/digits and experiments/tuning.
SETTINGS: dict[str, dict[str, float]] = {
    "digits": {
        "epochs": 100,
        "batch_size": 128,
        "learning_rate": 0.1,
        "hold_learning_rate": 0.01,
        "momentum": 0.97,
        "warm_up_fraction": 0.1,
        "hold_fraction": 0.2,
    },
    "mnist": {**_COMMON, **_LONG_PHASES, "epochs": 14, "cost_exponent": 0.5},
    "fashion-mnist": {**_COMMON, **_LONG_PHASES, "epochs": 14, "cost_exponent": 0.5},
    "pendigits": {**_COMMON, "epochs": 150, "learning_rate": 0.1, "momentum": 0.95, "hold_fraction": 0.4},
    "sdd": {**_COMMON, "epochs": 30, "momentum": 0.95},
    "cifar-10": {**_COMMON, **_LONG_PHASES, "epochs": 12, "hold_fraction": 0.42},
}

# Strength and shape, where they are not the regularizer's own: what experiments/tuning found.
_TUNED: dict[tuple[str, str], dict[str, float]] = {
    ("mnist", "integrated-tl1"): {"strength": 2.32e-4, "a": 0.02, "s": 0.3},
    ("mnist", "l1"): {"strength": 5e-4},
    ("fashion-mnist", "integrated-tl1"): {"strength": 1.58e-4, "a": 0.02, "s": 0.3},
    ("fashion-mnist", "l1"): {"strength": 3.41e-4},
    ("pendigits", "integrated-tl1"): {"strength": 1.08e-3, "a": 0.1, "s": 0.3},
    ("pendigits", "l1"): {"strength": 1.58e-3},
    ("sdd", "integrated-tl1"): {"strength": 1.08e-3, "a": 0.1, "s": 0.3},
    ("sdd", "l1"): {"strength": 1.58e-3},
    ("cifar-10", "integrated-tl1"): {"strength": 1.92e-4, "a": 0.1, "s": 0.3},
    ("cifar-10", "l1"): {"strength": 5e-4},
}


def defaults(dataset: str, regularizer: str) -> dict[str, float]:
    """Return the settings of a data set together with strength and shape of a regularizer for it."""
    known = method(regularizer)
    own = {"strength": known.strength, **known.parameters}
    return {**SETTINGS[dataset], **own, **_TUNED.get((dataset, regularizer), {})}
