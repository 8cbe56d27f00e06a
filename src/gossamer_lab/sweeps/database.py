"""The database of a search, by Optuna: an SQLite file, or a server.

Workers take trials by reading their state and changing it in one transaction. A server locks the rows that are read for
that. SQLite has no such lock, and Python's driver begins a transaction only at the first change: two workers that read
at the same time would both take the trial. So every transaction on SQLite locks the file when it begins. The file has a
write-ahead log, which needs one flush to the disk for a transaction where a rollback journal needs four.
"""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any

from gossamer.errors import GossamerError
from gossamer_lab.sweeps.address import address, as_template, refused
from gossamer_lab.sweeps.integrity import file_fault

if TYPE_CHECKING:
    import optuna

__all__ = ["open_database"]

_BUSY_SECONDS = 60  # for a transaction of another process


def open_database(url: str, heartbeat: int) -> optuna.storages.RDBStorage:
    """Open or create a database.

    Args:
        url: Its address, or the path of an SQLite file.
        heartbeat: Seconds between two heartbeats of a running trial; after two of them it is stale.

    Raises:
        GossamerError: If it cannot be opened.
    """
    import optuna
    from sqlalchemy.exc import SQLAlchemyError

    place = address(url)
    is_file = place.file is not None
    reason = "" if place.file is None else file_fault(place.file)
    for attempt in range(0 if reason else 6):
        try:
            storage = optuna.storages.RDBStorage(
                as_template(place),
                heartbeat_interval=heartbeat,
                grace_period=2 * heartbeat,
                engine_kwargs=_explicit_transactions() if is_file else None,
            )
        except ImportError:
            raise GossamerError(
                "`--storage postgresql://...` needs its driver, psycopg, which is not installed: "
                "`pip install 'gossamer[postgresql]'`."
            ) from None
        except (SQLAlchemyError, RuntimeError, ValueError) as error:
            reason = str(error).splitlines()[0]
            if not any(word in str(error).lower() for word in ("exists", "unique")):
                break
            time.sleep(0.2 * 2**attempt)  # another process is creating the tables
        else:
            if is_file:
                _lock_when_beginning(storage)
            return storage
    raise refused(url, reason)


def _explicit_transactions() -> dict[str, Any]:
    """Options of SQLite's driver: it begins no transaction on its own."""
    return {"connect_args": {"timeout": _BUSY_SECONDS, "isolation_level": None}}


def _lock_when_beginning(storage: optuna.storages.RDBStorage) -> None:
    from sqlalchemy import event

    connection = storage.engine.raw_connection()
    with closing(connection), suppress(sqlite3.OperationalError):  # in use: by a process that does the same
        connection.cursor().execute("PRAGMA journal_mode = WAL")

    @event.listens_for(storage.engine, "begin")
    def begin(connection: Any) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")
