"""The record of a sweep (`study.json`), and its HTML report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from gossamer.errors import GossamerError
from gossamer.visualization import Command, Epoch, Page, Run, Series, Study, check_can_write, write_page
from gossamer.visualization.tradeoff import pareto_front
from gossamer_lab.training.metrics import versions
from gossamer_lab.training.records import read_record, write_record

__all__ = ["STUDY_FILE", "StudyRecord", "Trial", "write_study_report"]

STUDY_FILE = "study.json"

_MOST_CURVES = 6
_LARGEST = 2**26  # bytes: a million epochs in the histories of the trials


@dataclass(frozen=True)
class Trial:
    """A training of the study; without numbers if it was given up early. `history`: accuracy, weights kept."""

    number: int
    point: Mapping[str, float]
    accuracy: float | None = None
    params_kept: float | None = None
    flops_kept: float | None = None
    history: Sequence[tuple[float, float]] = ()


@dataclass(frozen=True)
class StudyRecord:
    """The content of `study.json`.

    Attributes:
        name: Name of the study.
        dataset: Name of the data set.
        regularizer: Name of the regularizer.
        command: The command that made it, without passwords.
        configuration: What all trainings have in common.
        failed: Number of trainings that ended with an error.
        trials: The others.
        versions: Versions of Python, torch and this package.
    """

    name: str
    dataset: str
    regularizer: str
    command: str
    configuration: Mapping[str, Any]
    failed: int
    trials: Sequence[Trial]
    versions: Mapping[str, str] = field(default_factory=versions)

    def write(self, folder: Path) -> Path:
        """Write the record into the folder of the study."""
        path = folder / STUDY_FILE
        write_record(path, asdict(self))
        return path

    @classmethod
    def read(cls, folder: Path) -> StudyRecord:
        """Read the record in the folder of a study."""
        path = folder / STUDY_FILE
        try:
            content = read_record(path, _LARGEST)
            return cls(**{**content, "trials": [Trial(**trial) for trial in content["trials"]]})
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise GossamerError(
                f"{path} is corrupt: {error!r}. Run the sweep again; it trains nothing twice."
            ) from None


def write_study_report(folder: Path, output: Path | None = None) -> Path:
    """Write the page of the sweep in `folder`, by default as `report.html` into it."""
    target = output or folder / "report.html"
    check_can_write(target)
    record = StudyRecord.read(folder)
    runs = tuple(_run(trial, record) for trial in record.trials)
    study = Study((Series("trials", runs),), "trial", _remarks(record))
    again = f"gossamer report {folder}" + ("" if output is None else f" --output {output}")
    settings = {**record.configuration, **{f"version of {name}": each for name, each in record.versions.items()}}
    page = Page(
        title=f"{record.dataset}: sweep of {record.regularizer}",
        study=study,
        runs=_curves(study.runs),
        score="validation accuracy",
        configuration=tuple((name, str(value)) for name, value in settings.items() if value is not None),
        commands=(Command("Run the sweep, or go on with it", record.command), Command("Make this page again", again)),
    )
    return write_page(page, target)


def _curves(runs: Sequence[Run]) -> tuple[Run, ...]:
    """The runs whose training is drawn: evenly spaced on the front, with both of its ends."""
    front = [run for run in pareto_front(runs) if run.history]
    if len(front) <= _MOST_CURVES:
        return tuple(front)
    return tuple(front[round(number * (len(front) - 1) / (_MOST_CURVES - 1))] for number in range(_MOST_CURVES))


def _run(trial: Trial, record: StudyRecord) -> Run:
    history = tuple(
        Epoch(number, accuracy=accuracy, params_kept=kept)
        for number, (accuracy, kept) in enumerate(trial.history, start=1)
    )
    return Run(
        label=f"trial\N{NO-BREAK SPACE}{trial.number}",
        accuracy=trial.accuracy,
        params_kept=trial.params_kept,
        flops_kept=trial.flops_kept,
        history=history,
        settings=tuple((name, f"{value:.3g}") for name, value in trial.point.items()),
    )


def _remarks(record: StudyRecord) -> tuple[str, ...]:
    pruned = sum(trial.accuracy is None for trial in record.trials)
    found = []
    if pruned:
        found.append(f"{pruned} of the trials were given up early: half of the others were better in both numbers.")
    if record.failed:
        found.append(f"{record.failed} more ended with an error.")
    return tuple(found)
