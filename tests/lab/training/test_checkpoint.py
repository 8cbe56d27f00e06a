from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import sys
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from typing import Any

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
    restore_optimizer,
    save_checkpoint,
)

StartTraining = Callable[..., Iterator[EpochMetrics]]

CONFIG = TrainingConfig(dataset="blobs", regularizer="l1", strength=3e-2, epochs=10, batch_size=16)
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
    save_checkpoint(run, CONFIG, [], model, optimizer, PROGRESS)
    other = small_network()
    other_optimizer = torch.optim.SGD(other.parameters(), lr=0.01, momentum=0.9)
    checkpoint = load_checkpoint(run, CONFIG, other)
    assert checkpoint.progress == PROGRESS
    assert checkpoint.parameters == ["hidden.weight", "hidden.bias", "output.weight", "output.bias"]
    restore_optimizer(run, other_optimizer, checkpoint)
    for mine, theirs in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(mine, theirs)
        buffers = (optimizer.state[mine]["momentum_buffer"], other_optimizer.state[theirs]["momentum_buffer"])
        assert torch.equal(*buffers)
    assert other_optimizer.param_groups[0]["lr"] == 0.05


def test_damage_anywhere_is_one_clear_error(run: RunDirectory, small_network: Callable[[], nn.Module]) -> None:
    model = small_network()
    optimizer = trained(model)
    path = run.checkpoint
    save_checkpoint(run, CONFIG, [], model, optimizer, PROGRESS)
    whole = path.read_bytes()
    with zipfile.ZipFile(io.BytesIO(whole)) as archive:
        tensor = next(info for info in archive.infolist() if info.filename.endswith("data/0"))
    inside_a_tensor = tensor.header_offset + 128
    flipped = whole[:inside_a_tensor] + bytes([whole[inside_a_tensor] ^ 1]) + whole[inside_a_tensor + 1 :]
    for damaged in (b"", b"not an archive", whole[: len(whole) // 2], flipped):
        path.write_bytes(damaged)
        with pytest.raises(GossamerError, match=r"checkpoint\.pt is corrupt.*--overwrite"):
            load_checkpoint(run, CONFIG, model)


def test_a_checkpoint_of_another_network_is_one_clear_error(
    run: RunDirectory, small_network: Callable[[], nn.Module]
) -> None:
    other = nn.Linear(6, 3)
    save_checkpoint(run, CONFIG, [], other, trained(other), PROGRESS)
    model = small_network()
    with pytest.raises(GossamerError, match="another run"):
        load_checkpoint(run, CONFIG, model)


def test_a_network_that_was_made_smaller_comes_back_small(
    run: RunDirectory, small_network: Callable[[], nn.Module]
) -> None:
    model = small_network()
    optimizer = trained(model)
    with torch.no_grad():
        model.hidden.weight[4:] = 0
        model.hidden.bias[4:] = 0
    shrink_(model, torch.ones(2, 6), optimizer=optimizer)
    save_checkpoint(run, CONFIG, [], model, optimizer, PROGRESS)
    other = small_network()
    checkpoint = load_checkpoint(run, CONFIG, other)
    assert other.hidden.weight.shape == (4, 6)
    assert torch.equal(other.eval()(torch.ones(2, 6)), model.eval()(torch.ones(2, 6)))
    named = dict(other.named_parameters())
    resumed = torch.optim.SGD([named[name] for name in checkpoint.parameters], lr=0.05, momentum=0.9)
    restore_optimizer(run, resumed, checkpoint)
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
        load_checkpoint(run, CONFIG, model)
    assert not (tmp_path / "hostile").exists()


def test_there_is_a_whole_checkpoint_at_every_moment(
    run: RunDirectory, small_network: Callable[[], nn.Module], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = small_network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    save_checkpoint(run, CONFIG, [], model, optimizer, PROGRESS)
    first = run.checkpoint.read_bytes()
    renamed = []

    def replace_file(source: Path, target: Path) -> None:
        assert run.checkpoint.read_bytes() == first
        renamed.append(Path(target))
        shutil.move(source, target)

    with torch.no_grad():
        model.hidden.weight += 1
    monkeypatch.setattr("os.replace", replace_file)
    save_checkpoint(run, CONFIG, [], model, optimizer, PROGRESS)
    assert [path for path in renamed if path.parent == run.path] == [run.previous_checkpoint, run.checkpoint]
    assert run.previous_checkpoint.read_bytes() == first != run.checkpoint.read_bytes()


def test_no_checkpoint_yet(run: RunDirectory, small_network: Callable[[], nn.Module]) -> None:
    assert load_checkpoint(run, CONFIG, small_network()) is None


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


def test_a_damaged_checkpoint_does_not_become_the_previous_one(
    start: StartTraining, config: TrainingConfig, tmp_path: Path
) -> None:
    run = stopped(start, tmp_path, config)
    previous = run.previous_checkpoint.read_bytes()
    run.checkpoint.write_bytes(b"damage")
    training = start(tmp_path, resume=True)
    with pytest.warns(UserWarning, match="Resuming from the previous checkpoint"):
        next(training)
    # From here on the run may be killed at any operation.
    assert not run.checkpoint.exists()
    assert run.previous_checkpoint.read_bytes() == previous
    list(islice(training, 4))
    training.close()
    assert run.checkpoint.read_bytes() != b"damage"
    assert run.previous_checkpoint.read_bytes() != b"damage"


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
    # Without a fingerprint it would be of an earlier version, whose configurations have no checksum.
    state = torch.load(other.checkpoint, weights_only=True)
    del state["fingerprint"]
    torch.save(state, run.checkpoint)
    run.previous_checkpoint.unlink()
    assert "does not belong" in resumed()


def test_a_checkpoint_is_of_the_configuration_that_was_trained(
    start: StartTraining, config: TrainingConfig, tmp_path: Path
) -> None:
    training = start(tmp_path, config)
    next(training)
    other = replace(config, seed=1)
    RunDirectory(tmp_path).write_config(other)  # by someone who does not know of the run
    list(islice(training, 3))
    training.close()
    with pytest.raises(GossamerError, match=r"checkpoint\.pt .*does not belong to the config\.json") as caught:
        list(start(tmp_path, other, resume=True))
    assert "--overwrite" in str(caught.value)


def test_a_checkpoint_of_the_version_before_is_resumed(
    start: StartTraining, config: TrainingConfig, finished: RunDirectory, tmp_path: Path
) -> None:
    run = stopped(start, tmp_path, config)
    state = torch.load(run.checkpoint, weights_only=True)
    text = config.to_json() + "".join(json.dumps(asdict(line)) for line in run.read_metrics(5))
    earlier = hashlib.sha256(text.encode()).hexdigest()
    assert state["fingerprint"] != earlier
    torch.save({**state, "fingerprint": earlier}, run.checkpoint)
    run.previous_checkpoint.unlink()
    list(start(tmp_path, resume=True))
    assert run.weights.read_bytes() == finished.weights.read_bytes()


def write_archive(path: Path, members: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> None:
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(f"archive/{name}", content)


@pytest.fixture
def members(run: RunDirectory, small_network: Callable[[], nn.Module]) -> dict[str, bytes]:
    """What is in the archive of a checkpoint."""
    model = small_network()
    save_checkpoint(run, CONFIG, [], model, trained(model), PROGRESS)
    with zipfile.ZipFile(run.checkpoint) as archive:
        return {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}


# Lists of two references to the list before: as many leaves as 2 to the power of their number.
DOUBLED = b"".join(b"]q" + bytes([n + 1]) + b"(h" + bytes([n]) + b"h" + bytes([n]) + b"e" for n in range(20))


@pytest.mark.parametrize(
    ("pickle", "found"),
    [
        (b"cbuiltins\nbytearray\nJ\x00\x00\x00\x10\x85R.", r"builtins\.bytearray"),
        (b"cbuiltins\nset\n](K\x01K\x02e\x85R.", r"builtins\.set"),
        (b"]q\x00" + DOUBLED + b".", "one object in several places"),
        (b")q\x00(h\x00h\x00t.", "one object in several places"),
        (b"X\x01\x00\x00\x00aq\x00]q\x00(h\x00h\x00e.", "one object in several places"),
        (b"]2\x86.", "the pickle operation DUP"),
        (b"]}b.", "the pickle operation BUILD"),
        (b"X\xff\xff\xff\x7fa.", "expected 2147483647 bytes"),
        (b"]", "exhausted before seeing STOP"),
        (b"(" + b"}" * 2**20 + b"t.", "its structure has 1048581 bytes"),
    ],
    ids=["bytearray", "set", "lists", "tuple", "reused name", "copy", "state", "text", "cut", "long"],
)
def test_a_pickle_that_asks_for_more_than_it_holds(
    run: RunDirectory,
    small_network: Callable[[], nn.Module],
    members: dict[str, bytes],
    pickle: bytes,
    found: str,
) -> None:
    write_archive(run.checkpoint, {**members, "data.pkl": b"\x80\x02" + pickle})
    with pytest.raises(GossamerError, match=rf"checkpoint\.pt is corrupt.*{found}.*--overwrite"):
        load_checkpoint(run, CONFIG, small_network())


def test_tensors_that_claim_more_than_is_stored(
    run: RunDirectory, small_network: Callable[[], nn.Module], members: dict[str, bytes]
) -> None:
    del members
    whole = torch.load(run.checkpoint, weights_only=True)
    stored = torch.zeros(4096)
    for model in (torch.zeros(1, dtype=torch.uint8).expand(2**31), [stored.view(64, 64) for _ in range(4)]):
        torch.save({**whole, "model": model}, run.checkpoint)
        with pytest.raises(GossamerError, match=r"its tensors claim .* bytes, and only .* are stored"):
            load_checkpoint(run, CONFIG, small_network())


def test_an_archive_that_unpacks_to_more_than_it_is(
    run: RunDirectory, small_network: Callable[[], nn.Module], members: dict[str, bytes]
) -> None:
    write_archive(run.checkpoint, {**members, "data/9": bytes(2**20)}, zipfile.ZIP_DEFLATED)
    with pytest.raises(GossamerError, match="compressed"):
        load_checkpoint(run, CONFIG, small_network())
    write_archive(run.checkpoint, members)
    content = run.checkpoint.read_bytes()
    entry = content.rindex(b"PK\x01\x02")  # the last entry of the directory; its sizes are at 20 and 24
    size = (2**30).to_bytes(4, "little")
    run.checkpoint.write_bytes(content[: entry + 20] + 2 * size + content[entry + 28 :])
    with pytest.raises(GossamerError, match="more than its own size"):
        load_checkpoint(run, CONFIG, small_network())


def test_one_member_is_not_many_storages(
    run: RunDirectory, small_network: Callable[[], nn.Module], members: dict[str, bytes]
) -> None:
    pickle = members["data.pkl"].replace(b"X\x01\x00\x00\x000", b"X\x01\x00\x00\x00A", 1)
    assert pickle != members["data.pkl"]
    write_archive(run.checkpoint, {**members, "data.pkl": pickle, "data/a": members["data/0"]})
    with pytest.raises(GossamerError, match=r"is corrupt.*data/A"):
        load_checkpoint(run, CONFIG, small_network())


def test_what_is_loaded_is_what_was_checked(
    run: RunDirectory, small_network: Callable[[], nn.Module], members: dict[str, bytes]
) -> None:
    del members
    other = io.BytesIO()
    torch.save({}, other, _use_new_zipfile_serialization=False)
    # A zip archive may follow anything; torch looks at the start of the file.
    run.checkpoint.write_bytes(other.getvalue() + run.checkpoint.read_bytes())
    checkpoint = load_checkpoint(run, CONFIG, small_network())
    assert checkpoint is not None
    assert checkpoint.progress == PROGRESS


def nested(depth: int) -> list[object]:
    content: list[object] = []
    for _ in range(depth):
        content = [content]
    return content


def change(state: dict[str, Any], path: tuple[Any, ...], value: object) -> None:
    for key in path[:-1]:
        state = state[key]
    state[path[-1]] = value


@pytest.mark.parametrize(
    ("path", "value", "found"),
    [
        (("optimizer",), nested(2000), "list indices must be integers"),
        (("optimizer", "state", 0, "momentum_buffer"), nested(2000), "recursion"),
        (("optimizer", "state", 0, "momentum_buffer"), torch.zeros(3), r"'momentum_buffer' has the shape \[3\], not"),
        (("optimizer", "param_groups"), [], "parameter group"),
        (("optimizer", "param_groups", 0, "lr"), "fast", "'lr' is 'fast'"),
        (("optimizer", "param_groups", 0, "params"), [0], "parameter group"),
        (("parameters",), ["a", "b"], "the parameters of its optimizer are not those of its network"),
        (("parameters",), nested(2000), "the parameters of its optimizer are not those of its network"),
        (("progress", "epoch"), -1, "its progress is"),
        (("progress", "phase"), "begun", "its progress is"),
        (("progress", "objective"), None, "'objective' is None"),
    ],
)
def test_a_checkpoint_with_whole_checksums_and_a_strange_state(
    run: RunDirectory, small_network: Callable[[], nn.Module], path: tuple[Any, ...], value: object, found: str
) -> None:
    model = small_network()
    save_checkpoint(run, CONFIG, [], model, trained(model), PROGRESS)
    state = torch.load(run.checkpoint, weights_only=True)
    change(state, path, value)
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(20 * limit)
    torch.save(state, run.checkpoint)
    sys.setrecursionlimit(limit)
    with pytest.raises(GossamerError, match=rf"checkpoint\.pt .*({found}).*--overwrite"):
        resume(run, small_network())


def resume(run: RunDirectory, model: nn.Module) -> None:
    checkpoint = load_checkpoint(run, CONFIG, model)
    assert checkpoint is not None
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    restore_optimizer(run, optimizer, checkpoint)
