from __future__ import annotations

from dataclasses import replace

import pytest

from gossamer_lab.training import Progress, TrainingConfig, learning_rate

# Seven epochs with the penalty, the first of them warming up, then three with the zeros held.
CONFIG = TrainingConfig(dataset="digits", epochs=10, hold_fraction=0.3, warm_up_fraction=0.2)


def phases(config: TrainingConfig, objectives: list[float]) -> list[str]:
    """The phase of each epoch that is trained, when the epochs end with these objectives."""
    progress, seen = Progress(), []
    for objective in objectives:
        if progress.phase == "done":
            break
        seen.append(progress.phase)
        progress = progress.after(objective, config)
    assert progress.epoch == len(seen)
    return seen


def test_without_a_tolerance_all_epochs_are_trained() -> None:
    assert phases(CONFIG, [1.0] * 20) == ["sparsify"] * 7 + ["hold"] * 3


def test_without_a_second_phase_training_ends_after_the_first() -> None:
    assert phases(replace(CONFIG, hold_fraction=0.0), [1.0] * 20) == ["sparsify"] * 10


def test_a_phase_ends_when_the_objective_improves_by_less_than_the_tolerance() -> None:
    config = replace(CONFIG, tolerance=0.1)
    # Epoch 4 improves by 0.05 on epoch 3; in the second phase, epoch 6 by 0.05 on epoch 5.
    assert phases(config, [9.0, 1.0, 0.5, 0.45, 3.0, 2.95, 0.0]) == ["sparsify"] * 4 + ["hold"] * 2


def test_getting_worse_ends_a_phase_too() -> None:
    assert phases(replace(CONFIG, tolerance=0.0), [1.0, 1.0, 2.0, 1.0, 2.0]) == ["sparsify"] * 3 + ["hold"] * 2


def test_the_warm_up_is_never_cut_short() -> None:
    config = replace(CONFIG, warm_up_fraction=0.5, tolerance=1.0)
    assert config.warm_up_epochs == 3
    assert phases(config, [1.0] * 20) == ["sparsify"] * 5 + ["hold"] * 2


def test_the_learning_rate_falls_within_each_phase() -> None:
    first, second = Progress(), Progress(epoch=7, phase="hold")
    assert learning_rate(first, 0.0, CONFIG) == pytest.approx(CONFIG.learning_rate)
    assert learning_rate(replace(first, phase_epoch=6), 1.0, CONFIG) == pytest.approx(0.1 * CONFIG.learning_rate)
    assert learning_rate(second, 0.0, CONFIG) == pytest.approx(CONFIG.hold_learning_rate)
    assert learning_rate(replace(second, phase_epoch=2), 1.0, CONFIG) == pytest.approx(0.0, abs=1e-12)
    rates = [learning_rate(replace(first, phase_epoch=epoch), 0.5, CONFIG) for epoch in range(7)]
    assert rates == sorted(rates, reverse=True)
