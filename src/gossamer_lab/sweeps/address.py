"""Where a study is kept: a path or an address that was given, as the URL that SQLAlchemy and optuna-dashboard read."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from gossamer.errors import GossamerError

__all__ = ["Address", "address", "as_template", "refused", "without_password"]

_WAYS = "Give a path, or an address such as postgresql://user:password@host/database, of a database that exists."


@dataclass(frozen=True)
class Address:
    """The place of a study.

    Attributes:
        url: Its URL.
        file: The SQLite file; None for a server.
    """

    url: str
    file: Path | None

    @classmethod
    def of_file(cls, path: Path) -> Address:
        """The address of an SQLite file. Spaces, percent signs and the like are written as the URL needs them."""
        from sqlalchemy import URL

        return cls(URL.create("sqlite", database=str(path.absolute())).render_as_string(), path)


def address(storage: str) -> Address:
    """Read the path of an SQLite file, or the address of a database.

    Raises:
        GossamerError: If it is neither that of an SQLite file nor of a PostgreSQL server.
    """
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    if "://" not in storage:
        if "?" in storage:
            raise GossamerError(
                f"`--storage` must not contain a question mark, which ends the path; received {storage!r}."
            )
        return Address.of_file(Path(storage))
    try:
        url = make_url(storage)
    except (ArgumentError, ValueError):
        raise refused(storage, "it is no address of a database") from None
    backend = url.get_backend_name() if url.drivername in ("sqlite", "postgresql") or "+" in url.drivername else ""
    if backend == "sqlite":
        if url.host or url.query or not url.database or url.database == ":memory:":
            raise refused(storage, "that names no file, and workers share nothing else")
        return Address.of_file(Path(url.database))
    if backend != "postgresql":
        raise refused(storage, "studies are kept in SQLite files and on PostgreSQL servers")
    if url.drivername == "postgresql":
        url = url.set(drivername="postgresql+psycopg")
    return Address(url.render_as_string(hide_password=False), None)


def without_password(storage: str) -> str:
    """The address as it may be shown: passwords before the host and in the query are left out."""
    shown = re.sub(r"://([^:/@?]*):.*@", r"://\1@", storage)
    kept = [part for part in shown.partition("?")[2].split("&") if "password" not in part.partition("=")[0].lower()]
    return shown.partition("?")[0] + "?" * any(kept) + "&".join(kept)


def as_template(place: Address) -> str:
    """The URL as Optuna takes it: as a format string."""
    return place.url.replace("{", "{{").replace("}", "}}")


def refused(storage: str, reason: str) -> GossamerError:
    """The error for an address that cannot be used. What a driver says may repeat the password."""
    for secret in re.findall(r"://[^:/@?]*:(.+)@|(?i:password)=([^&]+)", storage):
        reason = reason.replace("".join(secret), "***")
    return GossamerError(f"The storage {without_password(storage)!r} cannot be opened: {reason.rstrip('.')}. {_WAYS}")
