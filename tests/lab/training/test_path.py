from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from torch import nn

from gossamer.targets import Target
from gossamer_lab.training import TrainingConfig, load_dataset, loop
from gossamer_lab.training.path import train_to_target

CONFIG = TrainingConfig(
    dataset="digits", regularizer="l1", epochs=6, hold_fraction=0.5, learning_rate=0.1, target_params=0.02
)


@pytest.mark.filterwarnings("ignore::gossamer.SparsityWarning")
def test_removal_during_the_training_leaves_the_same_network(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []

    def compact(model: nn.Module, *rest: Any) -> None:
        loop.compact(model, *rest)
        sizes.append(sum(each.numel() for each in model.parameters()))

    monkeypatch.setattr("gossamer_lab.training.path.compact", compact)
    dataset = load_dataset(CONFIG)
    kept, _ = train_to_target(CONFIG, Target(params=0.02), dataset)
    assert not sizes
    compacted, small = train_to_target(replace(CONFIG, compact_every=1), Target(params=0.02), dataset)
    # Once, between the phases: in the first phase a unit that is removed could have come back.
    assert sizes == [sum(each.numel() for each in small.parameters())]
    assert (compacted.params_kept, compacted.dense_params) == (kept.params_kept, kept.dense_params)
    assert compacted.dense_params < 0.5
    assert compacted.accuracy == pytest.approx(kept.accuracy, abs=0.01)
