"""What code is tuned to."""

from __future__ import annotations

from pathlib import Path

import pytest

from gossamer.inference import machine


@pytest.fixture
def caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(machine, "_CACHES", tmp_path)
    return tmp_path


def add(folder: Path, level: str, kind: str, size: str) -> None:
    folder.mkdir()
    for name, text in (("level", level), ("type", kind), ("size", size)):
        (folder / name).write_text(f"{text}\n")


def test_the_first_level_cache_of_data(caches: Path) -> None:
    add(caches / "index0", "1", "Instruction", "64K")
    add(caches / "index1", "1", "Data", "48K")
    add(caches / "index2", "2", "Unified", "1024K")
    assert machine._first_level_cache() == 48 * 1024


@pytest.mark.parametrize("size", ["", "unknown", "K"])
def test_a_system_that_does_not_say(caches: Path, size: str) -> None:
    assert machine._first_level_cache() == 32 * 1024
    add(caches / "index0", "1", "Data", size)
    (caches / "index1").mkdir()
    assert machine._first_level_cache() == 32 * 1024
