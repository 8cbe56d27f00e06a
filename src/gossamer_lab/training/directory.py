"""The folder of a run: its files, and who may write into it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from gossamer.errors import GossamerError
from gossamer.files import abandoned, write_atomically
from gossamer_lab.training.config import TrainingConfig
from gossamer_lab.training.metrics import EpochMetrics, RunResult

__all__ = ["RunDirectory", "clear", "open_run"]


@dataclass(frozen=True)
class RunDirectory:
    """The files of one run under ``path``; nothing is created before it is written."""

    path: Path

    @property
    def config(self) -> Path:
        """The configuration; a folder with this file in it is a run."""
        return self.path / "config.json"

    @property
    def metrics(self) -> Path:
        """One JSON object per epoch and line."""
        return self.path / "metrics.jsonl"

    @property
    def checkpoint(self) -> Path:
        """All that training needs to go on after its last whole epoch."""
        return self.path / "checkpoint.pt"

    @property
    def weights(self) -> Path:
        """The trained weights."""
        return self.path / "weights.safetensors"

    @property
    def small(self) -> Path:
        """The trained network without its dead units."""
        return self.path / "small.safetensors"

    @property
    def result(self) -> Path:
        """The end of the run; a run with this file is finished."""
        return self.path / "result.json"

    @property
    def figure(self) -> Path:
        """The summary figure."""
        return self.path / "summary.png"

    @property
    def report(self) -> Path:
        """The report."""
        return self.path / "report.html"

    @property
    def files(self) -> tuple[Path, ...]:
        """Everything a run writes; the configuration last, because it is what marks the folder as a run."""
        return (
            self.metrics, self.checkpoint, self.weights, self.small, self.result, self.figure, self.report, self.config,
        )  # fmt: skip

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep other trainings out of the folder; let go even when this one is killed.

        Raises:
            GossamerError: When another training holds it.
        """
        if os.name != "posix":  # elsewhere a folder cannot be locked
            yield
            return
        import fcntl

        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise GossamerError(
                    f"Another training is under way in {self.path}. Wait for its end, or choose another folder."
                ) from None
            yield
        finally:
            os.close(descriptor)

    def read_config(self) -> TrainingConfig:
        """Read the configuration of the run."""
        try:
            return TrainingConfig.from_json(self.config.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, GossamerError) as error:
            raise GossamerError(f"{self.config} cannot be used: {error}") from None

    def append_metrics(self, metrics: EpochMetrics) -> None:
        """Add the line of one epoch."""
        with self.metrics.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(metrics)) + "\n")

    def sync_metrics(self) -> None:
        """Bring the lines to the disk, for a checkpoint that counts on them."""
        with self.metrics.open("rb") as file:
            os.fsync(file.fileno())

    def read_metrics(self, epochs: int | None = None) -> list[EpochMetrics]:
        """Read the lines of the first ``epochs`` epochs, or of all."""
        lines = self.metrics.read_text(encoding="utf-8").splitlines() if self.metrics.exists() else []
        lines = lines[:epochs]
        try:
            metrics = [EpochMetrics(**json.loads(line)) for line in lines]
        except (ValueError, TypeError) as error:
            raise GossamerError(f"{self.metrics} is damaged: {error}.") from None
        expected = range(1, 1 + (len(lines) if epochs is None else epochs))
        if [line.epoch for line in metrics] != list(expected):
            raise GossamerError(f"{self.metrics} is damaged: epochs are missing up to epoch {len(expected)}.")
        return metrics

    def keep_metrics(self, epochs: int) -> list[EpochMetrics]:
        """Drop the lines after the first ``epochs`` epochs, which a stopped run wrote ahead of its checkpoint."""
        metrics = self.read_metrics(epochs)
        text = "".join(json.dumps(asdict(line)) + "\n" for line in metrics)
        write_atomically(self.metrics, text.encode())
        return metrics

    def write_result(self, result: RunResult) -> None:
        """Write the end of the run."""
        write_atomically(self.result, (json.dumps(asdict(result), indent=2) + "\n").encode())

    def read_result(self) -> RunResult:
        """Read the end of the run."""
        try:
            return RunResult(**json.loads(self.result.read_text(encoding="utf-8")))
        except FileNotFoundError:
            raise GossamerError(f"{self.path} holds no finished run: there is no {self.result.name}.") from None
        except (OSError, ValueError, TypeError) as error:
            raise GossamerError(f"{self.result} is damaged: {error}.") from None


def open_run(path: Path, config: TrainingConfig, *, resume: bool = False) -> RunDirectory:
    """Make ``path`` the folder of a run with this configuration, or find in it the run that is to go on.

    Raises:
        GossamerError: When the folder holds a run and ``resume`` is not asked for, when that run has another
            configuration, or when a file of someone else would be overwritten.
    """
    run = RunDirectory(path)
    if not run.config.exists():
        _refuse_foreign_files(run)
        path.mkdir(parents=True, exist_ok=True)
        write_atomically(run.config, config.to_json().encode())
        return run
    if not resume:
        raise GossamerError(
            f"{path} already holds a run. Go on with it by `--resume`, choose another `--run-dir`, "
            "or delete its files by `--overwrite`."
        )
    if differences := run.read_config().differences(config):
        raise GossamerError(f"{path} cannot be resumed with another configuration: it has {', '.join(differences)}.")
    return run


def clear(path: Path, inner: Iterable[str] = ()) -> None:
    """Delete the files of the run in ``path`` and of the runs in its folders ``inner``; never anything else."""
    runs = [*(RunDirectory(path / name) for name in inner), RunDirectory(path)]
    for run in runs:  # all is looked at before anything is deleted
        if run.config.exists():
            run.read_config()
        else:
            _refuse_foreign_files(run)
    there = [run for run in runs if run.path.exists()]
    with ExitStack() as stack:
        for run in there:
            stack.enter_context(run.held())
        for run in there:
            for file in run.files:
                for folder in abandoned(file):
                    shutil.rmtree(folder, ignore_errors=True)
                file.unlink(missing_ok=True)
            with suppress(OSError):  # not empty: what is left in it is not ours
                run.path.rmdir()


def _refuse_foreign_files(run: RunDirectory) -> None:
    if run.path.exists() and not run.path.is_dir():
        raise GossamerError(f"{run.path} is a file. `--run-dir` needs a folder.")
    in_the_way = [file.name for file in run.files if file.exists()]
    if in_the_way:
        raise GossamerError(
            f"{run.path} is not a run, yet holds {', '.join(in_the_way)}, which a run would overwrite. "
            "Choose another `--run-dir`."
        )
