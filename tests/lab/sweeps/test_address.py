from __future__ import annotations

from pathlib import Path

import pytest

from gossamer.errors import GossamerError
from gossamer_lab.sweeps import finished_trials
from gossamer_lab.sweeps.address import address, refused, without_password
from gossamer_lab.sweeps.search import Search, open_search, results
from gossamer_lab.sweeps.storage import exclusive_writer
from gossamer_lab.sweeps.worker import work

STRANGE = ["with space.db", "with%20percent.db", "with{brace}.db", "with#hash.db", "ä.db"]


@pytest.mark.parametrize("name", STRANGE)
@pytest.mark.parametrize("as_url", [False, True])
def test_the_file_of_a_search_is_the_one_that_was_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, as_url: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    given = address(name).url if as_url else name
    search = Search("one", {"x": [1.0]})
    for _ in range(2):
        with open_search(search, given) as study:
            work(study, search, lambda trial, point: (point["x"], 0.0))
            assert [result.values for result in results(study)] == [(1.0, 0.0)]
    assert {file.name for file in tmp_path.iterdir()} == {name}


@pytest.mark.parametrize("name", STRANGE)
def test_the_file_of_a_study_is_the_one_that_was_named(tmp_path: Path, name: str) -> None:
    with exclusive_writer(tmp_path / name):
        assert finished_trials(tmp_path / name, "none") == []
    assert {file.name for file in tmp_path.iterdir()} == {name, f"{name}.lock"}


@pytest.mark.parametrize(
    ("storage", "reason"),
    [
        ("sqlite://", "names no file"),
        ("sqlite:///", "names no file"),
        ("sqlite:///:memory:", "names no file"),
        ("sqlite:///sweep.db?mode=ro", "names no file"),
        ("sqlite://host/sweep.db", "names no file"),
        ("mysql://user:secret@host/db", "SQLite files and on PostgreSQL servers"),
        ("mysql+pymysql://user:secret@host/db?password=secret", "SQLite files and on PostgreSQL servers"),
        ("postgres://user:secret@host/db", "SQLite files and on PostgreSQL servers"),
        ("postgresql://user:secret@host:port/db", "no address of a database"),
    ],
)
def test_other_addresses_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, storage: str, reason: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(GossamerError, match=rf"cannot be opened: .*{reason}.*Give a path, or an address") as caught:
        address(storage)
    assert "secret" not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_a_server_is_reached_by_psycopg() -> None:
    assert address("postgresql://user:p%40ss@host/db").url == "postgresql+psycopg://user:p%40ss@host/db"
    assert address("postgresql://host/db").file is None


@pytest.mark.parametrize(
    ("storage", "shown"),
    [
        ("postgresql://user:se/cret@host/db", "postgresql://user@host/db"),
        ("postgresql://user:se@cret@host/db", "postgresql://user@host/db"),
        ("postgresql://user@host:5432/db", "postgresql://user@host:5432/db"),
        ("postgresql://user@host/db?password=secret", "postgresql://user@host/db"),
        ("postgresql://host/db?a=1&sslPassword=secret&b=2", "postgresql://host/db?a=1&b=2"),
        ("folder/sweep.db", "folder/sweep.db"),
    ],
)
def test_a_password_is_not_shown(storage: str, shown: str) -> None:
    assert without_password(storage) == shown


@pytest.mark.parametrize(
    "storage",
    ["postgresql://user:s@cret@host/db", "postgresql://host/db?a=1&sslPassword=s@cret&b=2", "mysql://u:s@cret@h/d"],
)
def test_a_password_is_not_in_an_error(storage: str) -> None:
    assert "cret" not in str(refused(storage, "connection failed with s@cret"))
