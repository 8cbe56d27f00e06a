from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
import torch
from torch import nn

from gossamer.errors import GossamerError
from gossamer.regularizers import l1
from gossamer.store import load
from gossamer_lab.data import Dataset
from gossamer_lab.training import EpochMetrics, RunDirectory, TrainingConfig, accuracy, clear, loop, open_run, train

StartTraining = Callable[..., Iterator[EpochMetrics]]


def without_seconds(metrics: list[EpochMetrics]) -> list[EpochMetrics]:
    return [replace(line, seconds=0.0) for line in metrics]


def test_learns_with_few_weights_and_holds_the_zeros(finished: RunDirectory) -> None:
    metrics = finished.read_metrics()
    assert metrics[-1].test_accuracy > 0.9
    assert metrics[-1].params_kept < 0.7
    assert [line.phase for line in metrics] == ["sparsify"] * 7 + ["hold"] * 3
    assert len({line.params_kept for line in metrics[6:]}) == 1
    assert metrics[-1].units_alive["output.weight"] <= 3


def test_files_of_a_whole_run(finished: RunDirectory, small_network: Callable[[], nn.Module]) -> None:
    names = {"config.json", "metrics.jsonl", "weights.safetensors", "small.safetensors", "result.json"}
    checkpoints = {"checkpoint.pt", "checkpoint.previous.pt"}
    assert {file.name for file in finished.path.iterdir()} == names | checkpoints
    result, last = finished.read_result(), finished.read_metrics()[-1]
    assert (result.epochs, result.accuracy) == (10, last.test_accuracy)
    assert 0 < result.params_kept <= last.params_kept  # what only dead units hold is gone in the end
    assert set(result.versions) == {"python", "torch", "gossamer"}
    assert result.measurement["params_kept"] == result.params_kept
    trained, small = load(finished.weights, small_network()), load(finished.small, small_network())
    points = torch.rand(5, 6)
    torch.testing.assert_close(small.eval()(points), trained.eval()(points))
    assert result.small["weights"] < 6 * 12 + 12 * 3
    assert result.small["file_bytes"] == finished.small.stat().st_size


def test_metrics_are_one_json_object_per_line(finished: RunDirectory) -> None:
    lines = [json.loads(line) for line in finished.metrics.read_text().splitlines()]
    assert [line["epoch"] for line in lines] == list(range(1, 11))
    assert set(lines[0]) >= {"loss", "penalty", "train_accuracy", "test_accuracy", "params_kept", "units_alive"}


def test_one_seed_is_one_result_and_the_callers_random_numbers_are_left_alone(
    start: StartTraining, finished: RunDirectory, tmp_path: Path
) -> None:
    training = start(tmp_path / "again")
    torch.manual_seed(123)
    expected = torch.rand(1)
    torch.manual_seed(123)
    metrics = list(training)
    assert torch.equal(torch.rand(1), expected)
    assert without_seconds(metrics) == without_seconds(finished.read_metrics())
    assert RunDirectory(tmp_path / "again").weights.read_bytes() == finished.weights.read_bytes()


def test_another_seed_is_another_result(
    start: StartTraining, finished: RunDirectory, config: TrainingConfig, tmp_path: Path
) -> None:
    list(start(tmp_path / "other", replace(config, seed=1)))
    assert RunDirectory(tmp_path / "other").weights.read_bytes() != finished.weights.read_bytes()


@pytest.mark.parametrize("epochs", [1, 5, 7, 8, 10])
def test_resumed_after_any_epoch_the_weights_are_the_same_bit_by_bit(
    start: StartTraining, finished: RunDirectory, tmp_path: Path, epochs: int
) -> None:
    list(islice(start(tmp_path / "stopped"), epochs))
    checkpoint = torch.load(tmp_path / "stopped" / "checkpoint.pt", weights_only=True)
    assert checkpoint["progress"]["epoch"] == epochs
    metrics = list(start(tmp_path / "stopped", resume=True))
    run = RunDirectory(tmp_path / "stopped")
    assert run.weights.read_bytes() == finished.weights.read_bytes()
    assert without_seconds(metrics) == without_seconds(finished.read_metrics())
    assert run.read_metrics() == metrics


@pytest.mark.parametrize("step", ["append_metrics", "save_checkpoint", "write_result"])
def test_stopped_between_two_files_the_run_goes_on_as_if_nothing_had_happened(
    start: StartTraining, finished: RunDirectory, tmp_path: Path, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*args: object) -> None:
        raise KeyboardInterrupt

    training = start(tmp_path / "stopped")
    next(training)
    with monkeypatch.context() as patched:
        patched.setattr(loop if step == "save_checkpoint" else RunDirectory, step, stop)
        with pytest.raises(KeyboardInterrupt):
            list(training)
    list(start(tmp_path / "stopped", resume=True))
    run = RunDirectory(tmp_path / "stopped")
    assert run.weights.read_bytes() == finished.weights.read_bytes()
    assert without_seconds(run.read_metrics()) == without_seconds(finished.read_metrics())


def test_a_finished_run_is_not_trained_again(start: StartTraining, finished: RunDirectory) -> None:
    before = {file.name: file.read_bytes() for file in finished.path.iterdir()}
    assert len(list(start(finished.path, resume=True))) == 10
    assert {file.name: file.read_bytes() for file in finished.path.iterdir()} == before


def test_without_a_regularizer_nothing_becomes_zero(
    start: StartTraining, config: TrainingConfig, tmp_path: Path
) -> None:
    metrics = list(start(tmp_path, replace(config, regularizer="none", strength=0.0)))
    assert [(line.params_kept, line.penalty) for line in metrics] == [(1.0, 0.0)] * 10


def test_a_tolerance_ends_training_early(start: StartTraining, config: TrainingConfig, tmp_path: Path) -> None:
    metrics = list(start(tmp_path, replace(config, tolerance=1e3)))
    assert [line.phase for line in metrics] == ["sparsify"] * 3 + ["hold"] * 2
    assert RunDirectory(tmp_path).read_result().epochs == 5


def test_the_penalty_is_that_of_the_weights(
    dataset: Dataset, small_network: Callable[[], nn.Module], config: TrainingConfig, tmp_path: Path
) -> None:
    model = small_network()
    metrics = list(train(model, dataset, l1(model, config.strength), config, open_run(tmp_path, config)))
    total = sum(weight.abs().sum().item() for weight in model.parameters() if weight.dim() > 1)
    assert metrics[-1].penalty == pytest.approx(config.strength * total, rel=1e-5)


def test_a_training_that_diverges_stops_with_one_clear_error(
    start: StartTraining, config: TrainingConfig, tmp_path: Path
) -> None:
    wild = replace(config, regularizer="none", strength=0.0, learning_rate=1e30)
    with pytest.raises(GossamerError, match="diverged"):
        list(start(tmp_path, wild))


def test_accuracy_does_not_depend_on_the_batches_and_leaves_the_mode(
    dataset: Dataset, small_network: Callable[[], nn.Module]
) -> None:
    model = small_network().train()
    whole, by_seven = (accuracy(model, dataset.train_images, dataset.train_labels, size) for size in (1000, 7))
    assert whole == by_seven
    assert model.training
    assert accuracy(nn.Identity(), torch.eye(4), torch.tensor([0, 1, 2, 0])) == 0.75


@pytest.mark.filterwarnings("ignore::gossamer.SparsityWarning")
def test_what_is_left_of_the_network_learns_again_and_a_resumed_run_is_the_same_bit_by_bit(
    start: StartTraining, config: TrainingConfig, tmp_path: Path, small_network: Callable[[], nn.Module]
) -> None:
    config = replace(config, strength=0.1, regrow=True)
    metrics = list(start(tmp_path / "whole", config))
    whole = RunDirectory(tmp_path / "whole")
    hidden = load(whole.weights, small_network()).hidden.weight
    assert hidden.shape[0] < 12
    assert bool((hidden != 0).all())
    last = [one for one in metrics if one.phase == "sparsify"][-1]
    first = next(one for one in metrics if one.phase == "hold")
    assert last.units_alive["hidden.weight"] == first.units_alive["hidden.weight"]
    assert last.params_kept < first.params_kept

    for epochs in (6, 8):  # before and within the second phase
        list(islice(start(tmp_path / f"stopped-{epochs}", config), epochs))
        list(start(tmp_path / f"stopped-{epochs}", config, resume=True))
        assert RunDirectory(tmp_path / f"stopped-{epochs}").weights.read_bytes() == whole.weights.read_bytes()


@pytest.mark.filterwarnings("ignore::gossamer.SparsityWarning")
def test_dead_units_leave_during_training_and_a_resumed_run_is_the_same_bit_by_bit(
    start: StartTraining, config: TrainingConfig, tmp_path: Path, small_network: Callable[[], nn.Module]
) -> None:
    config = replace(config, strength=0.1, compact_every=2)
    list(start(tmp_path / "whole", config))
    whole = RunDirectory(tmp_path / "whole")
    assert load(whole.weights, small_network()).hidden.weight.shape[0] < 12
    result = whole.read_result()
    assert result.params_kept < 1  # of the full network, which the small one is a part of
    assert result.measurement["total"]["weights"] == 6 * 12 + 12 * 3

    list(islice(start(tmp_path / "stopped", config), 5))
    list(start(tmp_path / "stopped", config, resume=True))
    assert RunDirectory(tmp_path / "stopped").weights.read_bytes() == whole.weights.read_bytes()


@pytest.mark.filterwarnings("ignore::gossamer.SparsityWarning")
@pytest.mark.parametrize("compact_every", [None, 2])
def test_a_target_and_a_resumed_run_are_the_same_bit_by_bit(
    start: StartTraining, config: TrainingConfig, tmp_path: Path, compact_every: int | None
) -> None:
    config = replace(config, strength=0.0, epochs=14, target_params=0.2, compact_every=compact_every)
    whole = list(start(tmp_path / "whole", config))
    result = RunDirectory(tmp_path / "whole").read_result()
    assert result.params_kept == pytest.approx(0.2, abs=3 / 108)  # and the weights of a unit that the cut empties
    assert result.target is not None
    assert whole[-1].strength == 0
    assert whole[5].strength is not None
    assert whole[5].strength > 0
    path = tmp_path / "parts"
    for epochs in (1, 6, 11):
        list(islice(start(path, config, resume=True), epochs))
    resumed = list(start(path, config, resume=True))
    assert without_seconds(resumed) == without_seconds(whole)
    assert RunDirectory(path).weights.read_bytes() == RunDirectory(tmp_path / "whole").weights.read_bytes()


def test_a_run_that_was_replaced_before_it_started_does_not_write(
    start: StartTraining, config: TrainingConfig, tmp_path: Path
) -> None:
    training = start(tmp_path)  # its directory is open, and not locked yet
    clear(tmp_path)
    open_run(tmp_path, replace(config, seed=1))
    with pytest.raises(GossamerError, match=r"now holds another run.*would mix\. Choose another `--run-dir`"):
        next(training)
    assert not RunDirectory(tmp_path).metrics.exists()


def test_half_written_files_of_a_killed_run_are_removed(
    start: StartTraining, config: TrainingConfig, tmp_path: Path
) -> None:
    training = start(tmp_path)
    (tmp_path / ".checkpoint.pt.abc.partial").mkdir()
    next(training)
    assert not list(tmp_path.glob(".*.partial"))
