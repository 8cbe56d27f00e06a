from __future__ import annotations

import io
import os
import shutil
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
import torch
from torch import nn

from gossamer.errors import GossamerError
from gossamer.shrinking import shrink_
from gossamer_lab.training import (
    EpochMetrics,
    Progress,
    RunDirectory,
    TrainingConfig,
    load_checkpoint,
    open_run,
    save_checkpoint,
)

StartTraining = Callable[..., Iterator[EpochMetrics]]

PROGRESS = Progress(epoch=0, phase="hold", phase_epoch=1, objective=0.1 + 0.2)


@pytest.fixture
def run(tmp_path: Path, config: TrainingConfig) -> RunDirectory:
    return open_run(tmp_path / "run", config)


def trained(model: nn.Module) -> torch.optim.Optimizer:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    model(torch.ones(2, 6)).square().sum().backward()
    optimizer.step()
    return optimizer


def test_model_optimizer_and_progress_come_back_bit_by_bit(
    run: RunDirectory, small_network: Callable[[], nn.Module]
) -> None:
    model = small_network()
    optimizer = trained(model)
    save_checkpoint(run, model, optimizer, PROGRESS)
    other = small_network()
    other_optimizer = torch.optim.SGD(other.parameters(), lr=0.01, momentum=0.9)
    checkpoint = load_checkpoint(run, other)
    assert checkpoint.progress == PROGRESS
    assert checkpoint.parameters == ["hidden.weight", "hidden.bias", "output.weight", "output.bias"]
    other_optimizer.load_state_dict(checkpoint.optimizer)
    for mine, theirs in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(mine, theirs)
        buffers = (optimizer.state[mine]["momentum_buffer"], other_optimizer.state[theirs]["momentum_buffer"])
        assert torch.equal(*buffers)
    assert other_optimizer.param_groups[0]["lr"] == 0.05


def test_damage_anywhere_is_one_clear_error(run: RunDirectory, small_network: Callable[[], nn.Module]) -> None:
    model = small_network()
    optimizer = trained(model)
    path = run.checkpoint
    save_checkpoint(run, model, optimizer, PROGRESS)
    whole = path.read_bytes()
    with zipfile.ZipFile(io.BytesIO(whole)) as archive:
        tensor = next(info for info in archive.infolist() if info.filename.endswith("data/0"))
    inside_a_tensor = tensor.header_offset + 128
    flipped = whole[:inside_a_tensor] + bytes([whole[inside_a_tensor] ^ 1]) + whole[inside_a_tensor + 1 :]
    for damaged in (b"", b"not an archive", whole[: len(whole) // 2], flipped):
        path.write_bytes(damaged)
        with pytest.raises(GossamerError, match=r"checkpoint\.pt is corrupt.*--overwrite"):
            load_checkpoint(run, model)


def test_a_checkpoint_of_another_network_is_one_clear_error(
    run: RunDirectory, small_network: Callable[[], nn.Module]
) -> None:
    other = nn.Linear(6, 3)
    save_checkpoint(run, other, trained(other), PROGRESS)
    model = small_network()
    with pytest.raises(GossamerError, match="another run"):
        load_checkpoint(run, model)


def test_a_network_that_was_made_smaller_comes_back_small(
    run: RunDirectory, small_network: Callable[[], nn.Module]
) -> None:
    model = small_network()
    optimizer = trained(model)
    with torch.no_grad():
        model.hidden.weight[4:] = 0
        model.hidden.bias[4:] = 0
    shrink_(model, torch.ones(2, 6), optimizer=optimizer)
    save_checkpoint(run, model, optimizer, PROGRESS)
    other = small_network()
    checkpoint = load_checkpoint(run, other)
    assert other.hidden.weight.shape == (4, 6)
    assert torch.equal(other.eval()(torch.ones(2, 6)), model.eval()(torch.ones(2, 6)))
    named = dict(other.named_parameters())
    resumed = torch.optim.SGD([named[name] for name in checkpoint.parameters], lr=0.05, momentum=0.9)
    resumed.load_state_dict(checkpoint.optimizer)
    assert resumed.state[other.hidden.weight]["momentum_buffer"].shape == (4, 6)


class _Hostile:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, ("hostile",)


def test_no_code_in_a_checkpoint_is_run(
    tmp_path: Path, run: RunDirectory, small_network: Callable[[], nn.Module], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({"model": _Hostile()}, run.checkpoint)
    model = small_network()
    with pytest.raises(GossamerError, match="corrupt"):
        load_checkpoint(run, model)
    assert not (tmp_path / "hostile").exists()


def test_there_is_a_whole_checkpoint_at_every_moment(
    run: RunDirectory, small_network: Callable[[], nn.Module], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = small_network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    save_checkpoint(run, model, optimizer, PROGRESS)
    first = run.checkpoint.read_bytes()
    renamed = []

    def replace_file(source: Path, target: Path) -> None:
        assert run.checkpoint.read_bytes() == first
        renamed.append(Path(target))
        shutil.move(source, target)

    with torch.no_grad():
        model.hidden.weight += 1
    monkeypatch.setattr("os.replace", replace_file)
    save_checkpoint(run, model, optimizer, PROGRESS)
    assert [path for path in renamed if path.parent == run.path] == [run.previous_checkpoint, run.checkpoint]
    assert run.previous_checkpoint.read_bytes() == first != run.checkpoint.read_bytes()


def test_no_checkpoint_yet(run: RunDirectory, small_network: Callable[[], nn.Module]) -> None:
    assert load_checkpoint(run, small_network()) is None


def stopped(start: StartTraining, path: Path, config: TrainingConfig) -> RunDirectory:
    """A run that was stopped after its fifth epoch."""
    training = start(path, config)
    list(islice(training, 5))
    training.close()
    return RunDirectory(path)


@pytest.mark.parametrize("damage", [b"", b"PK not an archive", None])
def test_damaged_checkpoint_the_previous_one_is_taken(
    start: StartTraining, finished: RunDirectory, config: TrainingConfig, tmp_path: Path, damage: bytes | None
) -> None:
    run = stopped(start, tmp_path, config)
    if damage is None:  # lost altogether
        run.checkpoint.unlink()
        list(start(tmp_path, resume=True))
    else:
        run.checkpoint.write_bytes(damage)
        with pytest.warns(UserWarning, match=r"checkpoint\.pt is corrupt.*Resuming from the previous checkpoint"):
            list(start(tmp_path, resume=True))
    assert run.weights.read_bytes() == finished.weights.read_bytes()


def test_files_of_a_run_are_bound_to_each_other(start: StartTraining, config: TrainingConfig, tmp_path: Path) -> None:
    run = stopped(start, tmp_path / "run", config)
    other = stopped(start, tmp_path / "other", replace(config, seed=1))
    files = {file: file.read_bytes() for file in (run.config, run.metrics, run.checkpoint, run.previous_checkpoint)}

    def resumed() -> str:
        with pytest.raises(GossamerError) as caught:
            list(start(run.path, config, resume=True))
        for file, content in files.items():
            file.write_bytes(content)
        return str(caught.value)

    run.config.write_bytes(files[run.config].replace(b'"seed": 0', b'"seed": 7'))
    assert "its checksum differs" in resumed()
    run.metrics.write_bytes(files[run.metrics].replace(b'"loss": ', b'"loss": 1', 1))
    assert "metrics.jsonl is corrupt: its checksum differs" in resumed()
    run.metrics.write_bytes(other.metrics.read_bytes())
    assert "does not belong to the config.json and metrics.jsonl beside it" in resumed()
    run.metrics.write_bytes(b"\xff" + files[run.metrics])
    assert "metrics.jsonl is corrupt" in resumed()
    run.checkpoint.write_bytes(other.checkpoint.read_bytes())
    run.previous_checkpoint.unlink()
    assert "does not belong" in resumed()


def hostile_archive(path: Path, edit: Callable[[dict[str, object]], object]) -> None:
    state = torch.load(path, weights_only=True)
    edit(state)
    torch.save(state, path)


def test_small_checkpoint_cannot_ask_for_much_memory(run: RunDirectory, small_network: Callable[[], nn.Module]) -> None:
    model = small_network()
    save_checkpoint(run, model, trained(model), PROGRESS)
    whole = run.checkpoint.read_bytes()
    hostile_archive(run.checkpoint, lambda state: state.update(model=torch.zeros(1, dtype=torch.uint8).expand(2**31)))
    with pytest.raises(GossamerError, match="fewer elements stored"):
        load_checkpoint(run, model)
    with zipfile.ZipFile(io.BytesIO(whole)) as archive, zipfile.ZipFile(run.checkpoint, "w") as bomb:
        for member in archive.infolist():
            bomb.writestr(member.filename, archive.read(member))
        bomb.writestr("archive/data/9", bytes(2**20), zipfile.ZIP_DEFLATED)
    with pytest.raises(GossamerError, match="more than its own size"):
        load_checkpoint(run, model)
