"""Default training settings by data set."""

from __future__ import annotations

from gossamer_lab.training.regularizers import regularizer_spec

__all__ = ["SETTINGS", "defaults"]

# Shared by all networks but that of DIGITS.
_COMMON: dict[str, float] = {
    "batch_size": 128,
    "learning_rate": 0.05,
    "hold_learning_rate": 0.02,
    "warm_up_fraction": 0.5,
    "hold_fraction": 0.3,
    "cost_exponent": 0.25,
}

# For few epochs: a warm-up over most of the first phase, and a second phase long enough to recover. Removing dead units
# makes the later epochs on large images faster.
_FEW_EPOCHS: dict[str, float] = {"warm_up_fraction": 0.86, "hold_fraction": 0.5, "compact_every": 2}

# The same for every regularizer. They were chosen on validation images.
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
    "mnist": {**_COMMON, **_FEW_EPOCHS, "epochs": 14, "cost_exponent": 0.5},
    "fashion-mnist": {**_COMMON, **_FEW_EPOCHS, "epochs": 14, "cost_exponent": 0.5},
    "pendigits": {**_COMMON, "epochs": 150, "learning_rate": 0.1, "momentum": 0.95, "hold_fraction": 0.4},
    "sdd": {**_COMMON, "epochs": 30, "momentum": 0.95},
    "cifar-10": {**_COMMON, **_FEW_EPOCHS, "epochs": 12, "hold_fraction": 0.42},
}

# Strength and shape found by tuning, where they are not the regularizer's defaults.
_TUNED: dict[tuple[str, str], dict[str, float]] = {
    ("digits", "integrated-tl1"): {"strength": 1e-3, "a": 1.0, "s": 0.1},
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


# Smallest exponent of the cost by what a target counts. A constraint on MACs penalizes each weight by its MACs:
# exponent 1. Whole units have weights in two layers, of different costs (experiments/target).
_COST_EXPONENT = {"flops": 1.0, "dense_flops": 0.5}


def defaults(dataset: str, regularizer: str, target: str | None = None) -> dict[str, float]:
    """Return the settings of a data set, with the strength and shape of a regularizer for it.

    With a target the shape is the regularizer's default, which is the same for all data sets (experiments/shapes).

    Args:
        dataset: Name of the data set.
        regularizer: Name of the regularizer.
        target: Kind of the target, such as `flops`, which drives the strength; None without a target.
    """
    spec = regularizer_spec(regularizer)
    own = {"strength": spec.strength, **spec.parameters}
    settings = {**SETTINGS[dataset], **own}
    if target is None:
        settings |= _TUNED.get((dataset, regularizer), {})
    else:
        exponent = max(settings.get("cost_exponent", 0.0), _COST_EXPONENT.get(target, 0.0))
        settings |= {"strength": 0.0, "cost_exponent": exponent}
    return settings
