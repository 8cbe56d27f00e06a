"""How the network of a data set is trained, whatever the regularizer, where nothing else is asked for."""

from __future__ import annotations

__all__ = ["SETTINGS"]

# Chosen on parts of the training images, never by the test images (experiments/digits, docs/paper.md).
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
    "mnist": {
        "epochs": 10,
        "batch_size": 128,
        "learning_rate": 0.05,
        "hold_learning_rate": 0.02,
        "warm_up_fraction": 0.5,
        "hold_fraction": 0.3,
        "cost_exponent": 0.25,
        "compact_every": 2,
    },
    "fashion-mnist": {
        "epochs": 8,
        "batch_size": 128,
        "learning_rate": 0.05,
        "hold_learning_rate": 0.02,
        "warm_up_fraction": 0.5,
        "hold_fraction": 0.3,
        "cost_exponent": 0.25,
        "compact_every": 2,
    },
    "pendigits": {
        "epochs": 60,
        "batch_size": 64,
        "learning_rate": 0.05,
        "hold_learning_rate": 0.02,
        "warm_up_fraction": 0.5,
        "hold_fraction": 0.3,
        "cost_exponent": 0.25,
    },
    "sdd": {
        "epochs": 20,
        "batch_size": 64,
        "learning_rate": 0.05,
        "hold_learning_rate": 0.02,
        "warm_up_fraction": 0.5,
        "hold_fraction": 0.3,
        "cost_exponent": 0.25,
    },
    "cifar-10": {
        "epochs": 16,
        "batch_size": 128,
        "learning_rate": 0.05,
        "hold_learning_rate": 0.02,
        "warm_up_fraction": 0.5,
        "hold_fraction": 0.3,
        "cost_exponent": 0.25,
        "compact_every": 2,
    },
}
