from __future__ import annotations

from pathlib import Path

import pytest

from gossamer.errors import GossamerError
from gossamer_lab.data import Dataset
from gossamer_lab.training import EpochMetrics, TrainingConfig, finished_run


class InterruptedTrainingError(Exception):
    pass


def test_an_interrupted_run_is_finished_and_a_finished_one_is_read(tmp_path: Path) -> None:
    config = TrainingConfig(dataset="digits", epochs=3, images=64, batch_size=32)
    epochs: list[EpochMetrics] = []

    def stop(metrics: EpochMetrics) -> None:
        epochs.append(metrics)
        if metrics.epoch == 2:
            raise InterruptedTrainingError

    def no_data(_: TrainingConfig) -> Dataset:
        raise AssertionError("the run has its result")

    with pytest.raises(InterruptedTrainingError):
        finished_run(config, tmp_path, on_epoch=stop)
    run = finished_run(config, tmp_path, on_epoch=epochs.append)
    assert [metrics.epoch for metrics in epochs] == [1, 2, 1, 2, 3]
    assert epochs[2:4] == epochs[:2]  # not trained again: the seconds are the same
    assert run.read_result().epochs == 3
    assert not run.checkpoint.exists()
    assert finished_run(config, tmp_path, dataset=no_data).read_result() == run.read_result()
    with pytest.raises(GossamerError, match="another configuration"):
        finished_run(TrainingConfig(dataset="digits", epochs=4, images=64, batch_size=32), tmp_path)
