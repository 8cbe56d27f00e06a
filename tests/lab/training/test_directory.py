from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gossamer.errors import GossamerError
from gossamer_lab.training import EpochMetrics, RunDirectory, RunResult, TrainingConfig, clear, directory, open_run
from gossamer_lab.training.checksum import sealed

StartTraining = Callable[..., Iterator[EpochMetrics]]

EPOCH = EpochMetrics(
    epoch=1,
    phase="sparsify",
    loss=0.1 + 0.2,
    penalty=0.0,
    train_accuracy=0.5,
    test_accuracy=1 / 3,
    params_kept=1.0,
    flops_kept=1.0,
    units_alive={"hidden": 3},
    learning_rate=0.05,
    seconds=0.1,
)

RESULT = RunResult(
    dataset="blobs",
    regularizer="l1",
    strength=1e-3,
    seed=0,
    epochs=2,
    accuracy=0.5,
    params_kept=0.1,
    flops_kept=0.2,
    seconds=1.0,
    measurement={},
    small={},
)


def contents(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}


def test_a_new_run_begins_with_its_configuration(tmp_path: Path, config: TrainingConfig) -> None:
    run = open_run(tmp_path / "a" / "b", config)
    assert run.read_config() == config


def test_a_folder_with_a_run_is_left_alone_and_the_ways_out_are_named(tmp_path: Path, config: TrainingConfig) -> None:
    open_run(tmp_path, config)
    before = contents(tmp_path)
    with pytest.raises(GossamerError, match=r"already holds a run.*--resume.*--run-dir.*--overwrite"):
        open_run(tmp_path, replace(config, seed=5))
    assert contents(tmp_path) == before


def test_resume_needs_the_same_configuration(tmp_path: Path, config: TrainingConfig) -> None:
    open_run(tmp_path, config)
    open_run(tmp_path, config, resume=True)
    with pytest.raises(GossamerError, match=r"another configuration.*seed 0 \(not 5\).*another `--run-dir`"):
        open_run(tmp_path, replace(config, seed=5), resume=True)


def test_resume_of_a_run_that_was_stopped_before_it_began_is_a_new_run(tmp_path: Path, config: TrainingConfig) -> None:
    (tmp_path / "config.json.partial").write_text("{")
    assert open_run(tmp_path, config, resume=True).read_config() == config


def test_files_of_someone_else_are_never_overwritten(tmp_path: Path, config: TrainingConfig) -> None:
    (tmp_path / "weights.safetensors").write_text("precious")
    for resume in (False, True):
        with pytest.raises(GossamerError, match=r"is not a run.*weights\.safetensors"):
            open_run(tmp_path, config, resume=resume)
    with pytest.raises(GossamerError, match="is not a run"):
        clear(tmp_path)
    assert contents(tmp_path) == {"weights.safetensors": b"precious"}


def test_a_configuration_of_another_program_is_never_deleted(tmp_path: Path, config: TrainingConfig) -> None:
    open_run(tmp_path / "dense", config)
    (tmp_path / "config.json").write_text('{"theme": "dark"}')
    before = contents(tmp_path)
    with pytest.raises(GossamerError, match="format"):
        clear(tmp_path, ["dense"])
    with pytest.raises(GossamerError, match="format"):
        open_run(tmp_path, config, resume=True)
    assert contents(tmp_path) == before


def test_clear_deletes_the_files_of_the_runs_and_nothing_else(tmp_path: Path, config: TrainingConfig) -> None:
    for path in (tmp_path, tmp_path / "dense", tmp_path / "l1"):
        run = open_run(path, config)
        for file in run.files:
            if file != run.config:
                file.write_text("ours")
            (path / f".{file.name}.killed.partial").mkdir()
            (path / f".{file.name}.killed.partial" / file.name).write_text("ours")
    (tmp_path / "dense" / "notes.txt").write_text("theirs")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.json").write_text("theirs")
    clear(tmp_path, ["dense", "l1", "absent"])
    assert contents(tmp_path) == {"dense/notes.txt": b"theirs", "other/config.json": b"theirs"}
    assert not (tmp_path / "l1").exists()


def test_clear_of_a_folder_that_is_not_there_does_nothing(tmp_path: Path) -> None:
    clear(tmp_path / "absent", ["dense"])
    assert not (tmp_path / "absent").exists()


def test_a_locked_folder_is_neither_locked_again_nor_cleared(tmp_path: Path, config: TrainingConfig) -> None:
    run = open_run(tmp_path / "run", config)
    before = contents(tmp_path)
    with run.lock():
        with pytest.raises(GossamerError, match="in progress"), RunDirectory(run.path).lock():
            pass
        with pytest.raises(GossamerError, match="in progress"):
            clear(run.path)
        assert contents(tmp_path) == before
    with run.lock():
        pass
    clear(run.path)
    assert not run.path.exists()


@pytest.mark.parametrize("made_again", [True, False])
def test_two_runs_never_hold_the_lock_of_one_path(
    tmp_path: Path, config: TrainingConfig, monkeypatch: pytest.MonkeyPatch, made_again: bool
) -> None:
    run = open_run(tmp_path / "run", config)
    flock = fcntl.flock

    def cleared_meanwhile(descriptor: int, operation: int) -> None:
        monkeypatch.setattr(fcntl, "flock", flock)
        clear(run.path)
        if made_again:
            open_run(run.path, config)
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", cleared_meanwhile)
    if not made_again:
        with pytest.raises(GossamerError, match=r"was deleted before.*Start the run again"), run.lock():
            pass
        return
    with run.lock(), pytest.raises(GossamerError, match="in progress"), RunDirectory(run.path).lock():
        pass


def test_a_file_is_no_folder(tmp_path: Path, config: TrainingConfig) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(GossamerError, match="is a file"):
        open_run(tmp_path / "file", config)


def test_metrics_come_back_as_they_were(tmp_path: Path, config: TrainingConfig) -> None:
    run = open_run(tmp_path, config)
    lines = [replace(EPOCH, epoch=epoch, loss=EPOCH.loss / epoch) for epoch in (1, 2, 3)]
    for line in lines:
        run.append_metrics(line)
    assert run.read_metrics() == lines


def test_lines_after_the_checkpoint_are_dropped_even_when_torn(tmp_path: Path, config: TrainingConfig) -> None:
    run = open_run(tmp_path, config)
    run.append_metrics(EPOCH)
    whole = run.metrics.read_bytes()
    with run.metrics.open("a") as file:
        file.write('{"epoch": 2, "ph')
    assert run.truncate_metrics(1) == [EPOCH]
    assert run.metrics.read_bytes() == whole


@pytest.mark.parametrize("damage", ["", "{}\n", "[1]\n", '{"epoch": 2'])
def test_damaged_metrics_are_one_clear_error(tmp_path: Path, config: TrainingConfig, damage: str) -> None:
    run = open_run(tmp_path, config)
    run.metrics.write_text(damage)
    with pytest.raises(GossamerError, match=r"metrics\.jsonl is corrupt.*Restore it.*--overwrite"):
        run.truncate_metrics(1)


def test_a_number_of_epochs_takes_no_memory(tmp_path: Path, config: TrainingConfig) -> None:
    run = open_run(tmp_path, config)
    run.append_metrics(EPOCH)
    with pytest.raises(GossamerError, match=f"epochs from 1 to {10**15} in this order; it has 1 lines"):
        run.read_metrics(10**15)


def test_a_result_that_is_not_there_or_damaged_is_one_clear_error(tmp_path: Path, config: TrainingConfig) -> None:
    run = open_run(tmp_path, config)
    with pytest.raises(GossamerError, match=r"not a finished run.*gossamer train --resume"):
        run.read_result()
    run.result.write_text("{")
    with pytest.raises(GossamerError, match=r"result\.json is corrupt.*delete it and resume"):
        run.read_result()
    run.result.write_text('{"dataset": "digits"}')
    with pytest.raises(GossamerError, match=r"result\.json is corrupt"):
        RunDirectory(tmp_path).read_result()


def test_a_digit_that_was_changed_is_noticed_without_the_checkpoint(tmp_path: Path, config: TrainingConfig) -> None:
    run = open_run(tmp_path, config)
    run.append_metrics(EPOCH)
    line = run.metrics.read_text()
    run.metrics.write_text(line.replace('"test_accuracy": 0.3', '"test_accuracy": 0.8'))
    with pytest.raises(GossamerError, match=r"metrics\.jsonl is corrupt: its checksum differs"):
        run.read_metrics()
    run.metrics.write_text("[" * 100_000)
    with pytest.raises(GossamerError, match=r"metrics\.jsonl is corrupt"):
        run.read_metrics()
    run.metrics.write_text(line)
    run.write_result(RESULT)
    assert run.read_result() == RESULT
    with pytest.raises(GossamerError, match="epochs from 1 to 2 in this order; it has 1 lines"):  # that of the result
        run.read_metrics()
    run.result.write_text(run.result.read_text().replace('"accuracy": 0.5', '"accuracy": 0.9'))
    with pytest.raises(GossamerError, match=r"result\.json is corrupt: its checksum differs"):
        run.read_result()


def test_of_two_commands_that_start_at_one_moment_one_is_refused(
    tmp_path: Path, config: TrainingConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse = directory._refuse_foreign_files

    def other_starts(run: RunDirectory) -> None:
        monkeypatch.setattr(directory, "_refuse_foreign_files", refuse)
        refuse(run)
        open_run(tmp_path, config)

    monkeypatch.setattr(directory, "_refuse_foreign_files", other_starts)
    with pytest.raises(GossamerError, match="already holds a run"):
        open_run(tmp_path, replace(config, seed=1))
    assert RunDirectory(tmp_path).read_config() == config


def test_a_run_in_progress_is_not_opened(tmp_path: Path, config: TrainingConfig) -> None:
    run = open_run(tmp_path, config)
    with run.lock(), pytest.raises(GossamerError, match="in progress"):
        open_run(tmp_path, config, resume=True)


@pytest.fixture
def copy(finished: RunDirectory, tmp_path: Path) -> RunDirectory:
    shutil.copytree(finished.path, tmp_path / "copy")
    return RunDirectory(tmp_path / "copy")


def test_a_result_belongs_to_its_run(
    copy: RunDirectory, start: StartTraining, config: TrainingConfig, tmp_path: Path
) -> None:
    list(start(tmp_path / "other", replace(config, seed=1)))
    other = RunDirectory(tmp_path / "other")
    for file in ("result", "metrics", "config"):
        target: Path = getattr(copy, file)
        before = target.read_bytes()
        shutil.copyfile(getattr(other, file), target)
        for read in (copy.read_result, copy.read_metrics):
            with pytest.raises(GossamerError, match=r"result\.json does not belong to the config\.json and metrics"):
                read()
        target.write_bytes(before)
    assert copy.read_result().epochs == len(copy.read_metrics()) == 10


def make_pipe(path: Path) -> None:
    os.mkfifo(path)


@pytest.mark.parametrize("make", [Path.mkdir, make_pipe], ids=["folder", "pipe"])
def test_what_is_no_plain_file_is_one_clear_error(
    copy: RunDirectory, start: StartTraining, make: Callable[[Path], None]
) -> None:
    readers = {copy.config: copy.read_config, copy.metrics: copy.read_metrics, copy.result: copy.read_result}
    for file in copy.files:
        kept = file.read_bytes() if file.exists() else None
        file.unlink(missing_ok=True)
        make(file)
        for each in (
            lambda: list(start(copy.path, resume=True)),
            lambda: clear(copy.path),
            *filter(None, [readers.get(file)]),
        ):
            with pytest.raises(GossamerError, match=f"{file.name}.*(not a plain file|Is a directory)"):
                each()
        os.rmdir(file) if make is Path.mkdir else file.unlink()
        if kept is not None:
            file.write_bytes(kept)
    assert copy.read_result().epochs == 10


def test_a_pipe_is_no_folder(tmp_path: Path, config: TrainingConfig) -> None:
    os.mkfifo(tmp_path / "run")
    with pytest.raises(GossamerError, match="is a file"):
        open_run(tmp_path / "run", config)


@pytest.mark.parametrize("name", ["config", "metrics", "result"])
def test_absurd_files_are_not_read(copy: RunDirectory, name: str) -> None:
    file: Path = getattr(copy, name)
    read = {"config": copy.read_config, "metrics": copy.read_metrics, "result": copy.read_result}[name]
    os.truncate(file, 2**40)  # takes no space on the disk
    with pytest.raises(GossamerError, match=rf"{file.name} .*has more than"):
        read()
    file.write_text("[" * 100_000)
    with pytest.raises(GossamerError, match=file.name):
        read()


@pytest.mark.parametrize(("field", "value"), [("loss", "low"), ("epoch", 1.0), ("units_alive", {"a": []}), ("x", 1)])
def test_metrics_of_other_types_are_one_clear_error(
    tmp_path: Path, config: TrainingConfig, field: str, value: object
) -> None:
    run = open_run(tmp_path, config)
    run.append_metrics(EPOCH)
    values = json.loads(run.metrics.read_text())
    del values["sha256"]
    run.metrics.write_text(json.dumps(sealed({**values, field: value})) + "\n")
    with pytest.raises(GossamerError, match=rf"metrics\.jsonl is corrupt.*'{field}'"):
        run.read_metrics()


def test_a_configuration_that_is_not_utf_8_is_one_clear_error(tmp_path: Path, config: TrainingConfig) -> None:
    run = open_run(tmp_path, config)
    run.config.write_bytes(run.config.read_bytes().replace(b"blobs", b"bl\xf6bs"))
    with pytest.raises(GossamerError, match=r"config\.json cannot be used: it is not text in UTF-8\. Restore the file"):
        run.read_config()


def test_fields_with_their_defaults_are_no_part_of_a_fingerprint(config: TrainingConfig) -> None:
    """A version that adds a field has to read the runs of this one."""
    known = directory.fingerprint(config, [EPOCH])
    assert known == "3b476ef602eb61b582f934323ef500a232e0b8f55674945aaf1388e3f73d034c"
    others = [(replace(config, regrow=True), [EPOCH]), (config, [replace(EPOCH, strength=1.0)]), (config, [])]
    assert len({known, *(directory.fingerprint(*each) for each in others)}) == 4
