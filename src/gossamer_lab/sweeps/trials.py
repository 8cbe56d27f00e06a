"""Finished trials, and the file in which they are kept as evidence: JSON lines that need no Optuna to be read."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NoReturn

from gossamer.errors import GossamerError
from gossamer.files import write_atomically

__all__ = ["Trial", "read_trials", "write_trials"]


@dataclass(frozen=True)
class Trial:
    """One point of a study and what came of it.

    Attributes:
        study: Name of the study.
        number: Of the trial in the storage; a trial that was stopped and tried again leaves a gap.
        parameters: The point.
        value: What the study minimises; infinity where the objective had no value.
        figures: What the objective reported beside the value; empty where it had no value.
        seconds: What the objective took.
        failure: Why the objective had no value, or ``None``.
    """

    study: str
    number: int
    parameters: dict[str, float]
    value: float
    figures: dict[str, float]
    seconds: float
    failure: str | None = None


def write_trials(path: Path, trials: Iterable[Trial]) -> None:
    """Write one trial per line, by study and number; the file is there whole or as it was before."""
    ordered = sorted(trials, key=lambda trial: (trial.study, trial.number))
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, "".join(_to_line(trial) + "\n" for trial in ordered).encode())


def read_trials(path: Path) -> list[Trial]:
    """Read what :func:`write_trials` wrote.

    Raises:
        GossamerError: When the file cannot be read, or a line of it is not a trial.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise GossamerError(f"{path} cannot be read: {error}.") from None
    trials = []
    for number, line in enumerate(lines, start=1):
        try:
            trials.append(_from_line(line))
        except (ValueError, TypeError, KeyError) as error:
            raise GossamerError(f"{path}, line {number}, is not a trial: {error}.") from None
    return trials


def _to_line(trial: Trial) -> str:
    # JSON has no infinity.
    fields = {**asdict(trial), "value": None if trial.failure is not None else trial.value}
    try:
        return json.dumps(fields, sort_keys=True, allow_nan=False)
    except ValueError:
        raise GossamerError(f"A trial must hold finite numbers; received {trial}.") from None


def _from_line(line: str) -> Trial:
    fields = json.loads(line, parse_constant=_refuse)
    if not isinstance(fields, dict):
        raise TypeError(f"it is {fields!r}")
    failure = fields.pop("failure")
    value = fields.pop("value")
    if not (failure is None or isinstance(failure, str)) or (value is None) != (failure is not None):
        raise ValueError("it needs either a value or a failure")
    trial = Trial(value=math.inf if value is None else _number(value), failure=failure, **fields)
    if not isinstance(trial.study, str) or type(trial.number) is not int:
        raise ValueError(f"its study is {trial.study!r} and its number {trial.number!r}")
    _number(trial.seconds)
    for numbers in (trial.parameters, trial.figures):
        if not isinstance(numbers, dict):
            raise TypeError(f"{numbers!r} has no names")
        for number in numbers.values():
            _number(number)
    return trial


def _number(value: Any) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise TypeError(f"{value!r} is not a number")
    return float(value)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"it says {constant}")
