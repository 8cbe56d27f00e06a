"""Damaged storages: SQLite checks the structure of its file when asked to; trials carry a checksum of their own.

The checksum of a trial covers its point, its values and the attributes that it had when it ended. A trial that was
changed since is refused, wherever the damage came from.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gossamer.errors import GossamerError
from gossamer_lab.training.checksum import digest

if TYPE_CHECKING:
    import optuna

__all__ = ["DamagedStorageError", "checked", "file_fault", "readable", "seal"]

_CHECKSUM = "checksum"
_WAY_OUT = "Restore a copy of it, or start again with another storage."


class DamagedStorageError(GossamerError):
    """The storage cannot be read, or is not as it was written."""


def file_fault(path: str | Path) -> str:
    """Why a file is no whole SQLite database, or an empty string. A file that does not exist is created empty."""
    if Path(path).exists() and not Path(path).is_file():
        return "it is not a plain file"
    try:
        with closing(sqlite3.connect(path, timeout=60)) as connection:
            (answer,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
    except (sqlite3.Error, UnicodeDecodeError) as error:
        return str(error)
    return "" if answer == "ok" else str(answer).replace("\n", " ")


@contextmanager
def readable(where: str) -> Iterator[None]:
    """Turn what Optuna and its database raise on damaged tables into one error."""
    from optuna.exceptions import OptunaError
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except GossamerError:
        raise
    # Optuna parses texts of the database as JSON, as names of states, as numbers.
    except (
        SQLAlchemyError, OptunaError, sqlite3.Error, LookupError, ValueError, TypeError, AssertionError, RecursionError,
    ) as error:  # fmt: skip
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DamagedStorageError(f"{where} cannot be read: {reason}. {_WAY_OUT}") from error


def seal(trial: optuna.Trial, point: Mapping[str, float], values: Sequence[float]) -> None:
    """Give a trial that is about to end a checksum. After that Optuna changes it no more."""
    trial.set_user_attr(_CHECKSUM, _digest(trial.user_attrs, point, values))


def checked(trial: optuna.trial.FrozenTrial) -> optuna.trial.FrozenTrial:
    """A trial that has ended, as it was when it ended. Trials of earlier versions have no checksum.

    Raises:
        DamagedStorageError: If the trial was changed since.
    """
    expected = trial.user_attrs.get(_CHECKSUM)
    if expected is not None and _digest(trial.user_attrs, trial.params, trial.values or ()) != expected:
        raise DamagedStorageError(f"Trial {trial.number} of the storage is not as it was recorded. {_WAY_OUT}")
    return trial


def _digest(attributes: Mapping[str, Any], point: Mapping[str, float], values: Sequence[float]) -> str:
    covered = {name: value for name, value in attributes.items() if name != _CHECKSUM}
    return digest([covered, dict(point), list(values)])
