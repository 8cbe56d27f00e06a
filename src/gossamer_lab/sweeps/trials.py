"""Finished trials and their JSON lines format, which can be read without Optuna."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NoReturn

from gossamer.errors import GossamerError
from gossamer.files import read_plain, write_atomically

__all__ = ["Trial", "read_trials", "write_trials"]

_LARGEST = 2**26  # bytes: a hundred thousand trials


@dataclass(frozen=True)
class Trial:
    """A finished evaluation of one point of a study.

    Attributes:
        study: Name of the study.
        number: Number of the trial in the storage; interrupted trials leave gaps.
        parameters: The point.
        value: Value of the objective; infinity if it has none.
        figures: Further figures of the objective; empty if it has no value.
        seconds: Wall-clock time of the evaluation.
        failure: Why the objective has no value; None if it has one.
    """

    study: str
    number: int
    parameters: dict[str, float]
    value: float
    figures: dict[str, float]
    seconds: float
    failure: str | None = None


def write_trials(path: Path, trials: Iterable[Trial]) -> None:
    """Write one trial per line, ordered by study and number, atomically."""
    ordered = sorted(trials, key=lambda trial: (trial.study, trial.number))
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, "".join(_to_line(trial) + "\n" for trial in ordered).encode())


def read_trials(path: Path) -> list[Trial]:
    """Read a file of `write_trials`.

    Raises:
        GossamerError: If the file cannot be read, or a line is not a trial.
    """
    try:
        lines = read_plain(path, _LARGEST).decode().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise GossamerError(f"{path} cannot be read: {error}. Give a file that `write_trials` wrote.") from None
    trials = []
    for number, line in enumerate(lines, start=1):
        try:
            trials.append(_from_line(line))
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            reason = f"it has no {error}" if isinstance(error, KeyError) else error
            raise GossamerError(
                f"{path}, line {number}, is not a trial: {reason}. Restore the file from a copy, or delete it and "
                "evaluate its trials again."
            ) from None
    return trials


def _to_line(trial: Trial) -> str:
    # JSON cannot represent infinity.
    fields = {**asdict(trial), "value": None if trial.failure is not None else trial.value}
    try:
        return json.dumps(fields, sort_keys=True, allow_nan=False)
    except ValueError:
        raise GossamerError(f"A trial must have finite numbers; received {trial}.") from None


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
