"""Run directories: their files, and a lock for the run that writes them."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from itertools import islice
from pathlib import Path
from typing import Any

from gossamer.errors import GossamerError
from gossamer.files import abandoned, flush, lock_folder, open_plain, read_plain, write_atomically
from gossamer_lab.training.checksum import digest, has_seal, sealed, unsealed
from gossamer_lab.training.config import TrainingConfig
from gossamer_lab.training.metrics import EpochMetrics, RunResult
from gossamer_lab.training.records import read_record, record, write_record

__all__ = ["RunDirectory", "clear", "earlier_fingerprint", "fingerprint", "open_run"]

# Metrics have no other source than the training.
_RETRAIN = "Restore it from a copy, or train again with `--overwrite`."
_REWRITE = "Restore it from a copy, or delete it and resume the run, which writes it again."

# Bytes. Parsed JSON takes up to some thirty times its length in memory.
_LARGEST_CONFIG = 2**18
_LARGEST_RESULT = 2**22
_LARGEST_LINE = 2**20  # the metrics of one epoch


@dataclass(frozen=True)
class RunDirectory:
    """The files of a run in the folder `path`. Creating the object creates no file."""

    path: Path

    @property
    def config(self) -> Path:
        """The configuration. A folder with this file is a run directory."""
        return self.path / "config.json"

    @property
    def options(self) -> Path:
        """The options of the command that started the run, for `gossamer train --config`."""
        return self.path / "run.toml"

    @property
    def metrics(self) -> Path:
        """Metrics, one JSON object per epoch and line."""
        return self.path / "metrics.jsonl"

    @property
    def checkpoint(self) -> Path:
        """The checkpoint to resume from."""
        return self.path / "checkpoint.pt"

    @property
    def previous_checkpoint(self) -> Path:
        """The checkpoint before it, which is taken when the last one is damaged."""
        return self.path / "checkpoint.previous.pt"

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
        """The result. A run with this file is finished."""
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
        """All files of a run; the configuration last, because it marks the folder as a run directory."""
        return (
            self.metrics, self.checkpoint, self.previous_checkpoint, self.weights, self.small, self.result, self.figure,
            self.report, self.options, self.config,
        )  # fmt: skip

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the folder against other runs. The system releases the lock even if the process is killed.

        What a killed process has left half-written is removed: whoever holds the lock is the only writer.

        Raises:
            GossamerError: If another run holds the lock, the folder is gone or cannot be locked, or something that is
                no plain file has the name of a file of the run.
        """
        if os.name != "posix":  # a folder cannot be locked elsewhere
            yield
            return
        try:
            descriptor = lock_folder(self.path)
        except BlockingIOError:
            raise GossamerError(
                f"Another run is in progress in {self.path}. Wait for it to finish, or choose another folder."
            ) from None
        except FileNotFoundError:
            raise GossamerError(
                f"{self.path} was deleted before the run could begin, by `--overwrite` of another one or by hand. "
                "Start the run again, or choose another folder."
            ) from None
        except OSError as error:
            raise GossamerError(
                f"{self.path} cannot be locked: {error.strerror or error}. Choose another folder."
            ) from None
        try:
            self._require_plain_files()
            self._remove_partial_files()
            yield
        finally:
            os.close(descriptor)

    def _require_plain_files(self) -> None:
        strange = [file.name for file in self.files if file.exists() and not file.is_file()]
        if strange:
            raise GossamerError(
                f"{self.path} holds {', '.join(strange)}, which is not a plain file, as that of a run is. Remove it, "
                "or choose another `--run-dir`."
            )

    def _remove_partial_files(self) -> None:
        for file in self.files:
            for folder in abandoned(file):
                shutil.rmtree(folder, ignore_errors=True)

    def remove_checkpoints(self) -> None:
        """Remove the last checkpoint and the previous one, of a finished run."""
        for file in (self.checkpoint, self.previous_checkpoint):
            file.unlink(missing_ok=True)

    def write_config(self, config: TrainingConfig) -> None:
        """Write the configuration."""
        write_atomically(self.config, config.to_json().encode())

    def read_config(self) -> TrainingConfig:
        """Read the configuration."""
        try:
            return TrainingConfig.from_json(read_plain(self.config, _LARGEST_CONFIG).decode())
        except (OSError, UnicodeDecodeError) as error:
            reason = "it is not text in UTF-8" if isinstance(error, UnicodeDecodeError) else error
            raise GossamerError(
                f"{self.config} cannot be used: {reason}. Restore the file from a copy, or choose another `--run-dir`."
            ) from None
        except GossamerError as error:
            raise GossamerError(f"{self.config} cannot be used: {error}") from None

    def require(self, config: TrainingConfig) -> None:
        """Raise `GossamerError` if the run has another configuration."""
        if differences := self.read_config().differences(config):
            raise GossamerError(
                f"{self.path} cannot be resumed with another configuration: it has {', '.join(differences)}, and its "
                "epochs so far would not belong to the others. Resume it with its own, or choose another `--run-dir`."
            )

    def append_metrics(self, metrics: EpochMetrics) -> None:
        """Append the metrics of one epoch."""
        with self.metrics.open("a", encoding="utf-8") as file:
            file.write(_line(metrics))

    def sync_metrics(self) -> None:
        """Flush the metrics to disk, before a checkpoint that relies on them."""
        flush(self.metrics)

    def read_metrics(self, epochs: int | None = None) -> list[EpochMetrics]:
        """Read the metrics of the first `epochs` epochs; of all if None, which have to be those of the result."""
        if epochs is None and self.result.exists():
            return self._metrics_of(self._result())
        return self._metrics(epochs)

    def _metrics(self, epochs: int | None, *, more: int = 0) -> list[EpochMetrics]:
        """The metrics of so many epochs. So many `more` lines are looked for, which must not be there."""
        try:
            lines = islice(self._lines(), None if epochs is None else epochs + more)
            metrics = [record(EpochMetrics, unsealed(json.loads(line))) for line in lines]
        except (OSError, ValueError, TypeError, RecursionError) as error:
            raise GossamerError(f"{self.metrics} is corrupt: {error}. {_RETRAIN}") from None
        if epochs is None:
            epochs = len(metrics)
        # `epochs` is what a file says: a list of so many could fill the memory.
        if len(metrics) != epochs or [line.epoch for line in metrics] != list(range(1, 1 + len(metrics))):
            raise GossamerError(
                f"{self.metrics} is corrupt: its lines should be the epochs from 1 to {epochs} in this order; it has "
                f"{len(metrics)} lines, the last one of epoch {metrics[-1].epoch if metrics else 'none'}. {_RETRAIN}"
            )
        return metrics

    def _lines(self) -> Iterator[bytes]:
        if not self.metrics.exists():
            return
        with open_plain(self.metrics) as file:
            while line := file.readline(_LARGEST_LINE + 1):
                if len(line) > _LARGEST_LINE:
                    raise ValueError(f"a line has more than {_LARGEST_LINE:,} bytes")
                yield line

    def _metrics_of(self, result: RunResult) -> list[EpochMetrics]:
        metrics = self._metrics(result.epochs, more=1)
        # Results of earlier versions have no fingerprint.
        if result.fingerprint not in (None, fingerprint(self.read_config(), metrics)):
            raise GossamerError(
                f"{self.result} does not belong to the {self.config.name} and {self.metrics.name} beside it. {_REWRITE}"
            )
        return metrics

    def is_sealed(self) -> bool:
        """Whether the configuration has a checksum, as those of earlier versions have not."""
        values: dict[str, Any] = json.loads(read_plain(self.config, _LARGEST_CONFIG))
        return has_seal(values)

    def truncate_metrics(self, epochs: int) -> list[EpochMetrics]:
        """Drop the metrics after the first `epochs` epochs, which an interrupted run wrote after its checkpoint."""
        metrics = self.read_metrics(epochs)
        text = "".join(map(_line, metrics))
        write_atomically(self.metrics, text.encode())
        return metrics

    def write_result(self, result: RunResult) -> None:
        """Write the result."""
        write_record(self.result, asdict(result))

    def read_result(self) -> RunResult:
        """Read the result, which has to be of the configuration and the metrics beside it."""
        result = self._result()
        if result.fingerprint is not None:
            self._metrics_of(result)
        return result

    def _result(self) -> RunResult:
        try:
            return record(RunResult, read_record(self.result, _LARGEST_RESULT))
        except FileNotFoundError:
            raise GossamerError(
                f"{self.path} is not a finished run: it has no {self.result.name}. Finish it with `gossamer train "
                "--resume`, or give the folder of a finished run."
            ) from None
        except (OSError, ValueError, TypeError) as error:
            raise GossamerError(f"{self.result} is corrupt: {error}. {_REWRITE}") from None


def fingerprint(config: TrainingConfig, metrics: Sequence[EpochMetrics]) -> str:
    """A digest of what was trained and of what came of it, for the checkpoint or the result after these epochs.

    A file with another fingerprint belongs to another run, or a file of this one is damaged. Defaults are left out, so
    that a field which a later version adds changes no fingerprint.
    """
    return digest([_given(config), [_given(epoch) for epoch in metrics]])


def earlier_fingerprint(config: TrainingConfig, metrics: Sequence[EpochMetrics]) -> str:
    """The fingerprint in checkpoints of the version before."""
    text = "".join([config.to_json(), *(json.dumps(asdict(epoch)) for epoch in metrics)])
    return hashlib.sha256(text.encode()).hexdigest()


def _given(values: TrainingConfig | EpochMetrics) -> dict[str, Any]:
    defaults = {field.name: field.default for field in fields(values)}
    return {name: value for name, value in asdict(values).items() if value != defaults[name]}


def _line(metrics: EpochMetrics) -> str:
    return json.dumps(sealed(asdict(metrics))) + "\n"


def open_run(path: Path, config: TrainingConfig, *, resume: bool = False) -> RunDirectory:
    """Create a run directory with this configuration, or open an existing one to resume.

    Args:
        path: The folder.
        config: Configuration of the run.
        resume: Whether the folder may hold a run already, which must have the same configuration.

    Raises:
        GossamerError: If the folder holds a run and `resume` is False, if that run has another configuration, or if a
            file that is not of a run would be overwritten.
    """
    run = RunDirectory(path)
    if not run.config.exists():
        _refuse_foreign_files(run)
        path.mkdir(parents=True, exist_ok=True)
        flush(path.parent)
    # Two commands may start at the same moment: the second one finds the configuration of the first.
    with run.lock():
        if not run.config.exists():
            run.write_config(config)
            return run
        if not resume:
            raise GossamerError(
                f"{path} already holds a run. Continue it with `--resume`, choose another `--run-dir`, "
                "or delete its files with `--overwrite`."
            )
        run.require(config)
    return run


def clear(path: Path, inner: Iterable[str] = ()) -> None:
    """Delete the files of the run in `path` and of the runs in its subfolders `inner`, and nothing else."""
    runs = [*(RunDirectory(path / name) for name in inner), RunDirectory(path)]
    for run in runs:  # check all before deleting anything
        if run.config.exists():
            run.read_config()
        else:
            _refuse_foreign_files(run)
    existing = [run for run in runs if run.path.exists()]
    with ExitStack() as stack:
        for run in existing:
            stack.enter_context(run.lock())
        for run in existing:
            for file in run.files:
                file.unlink(missing_ok=True)
            with suppress(OSError):  # the folder holds files of others
                run.path.rmdir()


def _refuse_foreign_files(run: RunDirectory) -> None:
    if run.path.exists() and not run.path.is_dir():
        raise GossamerError(f"{run.path} is a file. `--run-dir` must be a folder.")
    conflicts = [file.name for file in run.files if file.exists()]
    if conflicts:
        raise GossamerError(
            f"{run.path} is not a run directory, but it holds {', '.join(conflicts)}, which a run would overwrite. "
            "Choose another `--run-dir`."
        )
