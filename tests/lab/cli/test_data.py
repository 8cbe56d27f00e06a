from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from gossamer_lab.cli import main
from gossamer_lab.data import SOURCES
from gossamer_lab.data.sources import Mirror, Part

CONTENT = {name: f"{name}\n".encode() for name in ("pendigits.tra", "pendigits.tes")}
Called = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two small files as PENDIGITS, a mirror that does not exist, and no data of this machine."""
    monkeypatch.delenv("GOSSAMER_DATA", raising=False)
    monkeypatch.setattr("gossamer_lab.data.files.cache_dir", lambda: tmp_path / "cache")
    monkeypatch.setattr("gossamer_lab.data.fetching.cache_dir", lambda: tmp_path / "cache")
    monkeypatch.setattr("gossamer_lab.data.files._SYSTEM", tmp_path / "system")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    parts = [Part(name, len(data), hashlib.sha256(data).hexdigest()) for name, data in CONTENT.items()]
    mirrors = (Mirror("http://127.0.0.1:9/", {"pendigits.tra": None}),)
    monkeypatch.setitem(SOURCES, "pendigits", replace(SOURCES["pendigits"], parts=tuple(parts), mirrors=mirrors))


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Called:
    """Call the command in this process; return exit code, stdout and stderr."""

    def call(*words: str | Path) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["gossamer", "data", *map(str, words)])
        with pytest.raises(SystemExit) as end:
            main()
        out, err = capsys.readouterr()
        return int(end.value.code or 0), out, err

    return call


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A data folder with PENDIGITS in it."""
    path = tmp_path / "a folder with a name that is long enough to be cut in a narrow terminal" / "pendigits"
    path.mkdir(parents=True)
    for name, data in CONTENT.items():
        (path / f"{name}.gz").write_bytes(gzip.compress(data))
    return path.parent


def test_list_says_what_is_where(called: Called, folder: Path) -> None:
    code, out, err = called("list", "--data-dir", folder)
    assert (code, err) == (0, "")
    rows = {line.split()[0]: line for line in out.splitlines() if line.strip()}
    assert [name for name in rows if name in SOURCES] == list(SOURCES)
    assert str(folder / "pendigits") in rows["pendigits"]
    assert "not found: gossamer data fetch cifar-10" in rows["cifar-10"]
    assert "scikit-learn" in rows["digits"]
    for word in ("3x32x32", "50,000", "10,000"):
        assert word in rows["cifar-10"]
    assert "\x1b" not in out


def test_list_as_json_is_one_object(called: Called, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOSSAMER_DATA", str(folder))
    code, out, err = called("list", "--json")
    assert (code, err, out.count("\n")) == (0, "", 1)
    rows = {row["name"]: row for row in json.loads(out)["datasets"]}
    assert list(rows) == list(SOURCES)
    assert rows["pendigits"]["place"] == str(folder / "pendigits")
    assert rows["sdd"] == {
        "name": "sdd",
        "input_shape": [1, 48],
        "train": 46807,
        "test": 11702,
        "classes": 11,
        "place": None,
    }


def test_fetch_of_what_is_there_says_where(called: Called, folder: Path) -> None:
    code, out, err = called("fetch", "pendigits", "digits", "--data-dir", folder)
    assert (code, err) == (0, "")
    assert out.splitlines() == [f"pendigits: already in {folder / 'pendigits'}", "digits: already in scikit-learn"]


def test_fetch_without_a_network_is_one_line_and_code_2(called: Called, tmp_path: Path) -> None:
    code, out, err = called("fetch", "pendigits", "--data-dir", tmp_path / "new")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("error: Data set 'pendigits' could not be downloaded: http://127.0.0.1:9/ could not be reach")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("words", [["fetch"], ["fetch", "pendigits", "--all"]])
def test_fetch_needs_names_or_all(words: list[str], called: Called) -> None:
    code, out, err = called(*words)
    assert (code, out) == (2, "")
    assert err.startswith("error: Name the data sets to fetch, or give `--all`. Available: digits, mnist")


@pytest.mark.parametrize("command", ["fetch", "verify"])
def test_all_names_are_looked_at_first(command: str, called: Called, tmp_path: Path) -> None:
    code, out, err = called(command, "pendigits", "stars", "--data-dir", tmp_path / "new")
    assert (code, out) == (2, "")
    assert err.startswith("error: Unknown data set 'stars'.")


def test_verify_is_content_with_what_is_whole(called: Called, folder: Path) -> None:
    for names in ([], ["pendigits"], ["digits"]):
        code, out, err = called("verify", *names, "--data-dir", folder)
        assert (code, err) == (0, "")
    code, out, _ = called("verify", "--data-dir", folder)
    assert f"pendigits: pendigits.tra: ok ({folder / 'pendigits' / 'pendigits.tra.gz'})\n" in out
    assert "mnist: t10k-labels-idx1-ubyte: missing\n" in out


def test_verify_names_what_is_wrong(called: Called, folder: Path) -> None:
    wrong = folder / "pendigits" / "pendigits.tes.gz"
    wrong.write_bytes(gzip.compress(CONTENT["pendigits.tes"].upper()))
    code, out, err = called("verify", "--data-dir", folder)
    assert code == 2
    assert "pendigits: pendigits.tra: ok" in out
    assert f"pendigits: pendigits.tes: wrong ({wrong})" in out
    assert "Delete it and run `gossamer data fetch pendigits`." in err
    assert "Traceback" not in err


def test_verify_misses_a_part_and_what_was_asked_for(called: Called, folder: Path) -> None:
    assert called("verify", "mnist", "--data-dir", folder)[0] == 2
    (folder / "pendigits" / "pendigits.tes.gz").unlink()
    code, out, _ = called("verify", "--data-dir", folder)
    assert code == 2
    assert "pendigits: pendigits.tes: missing\n" in out
