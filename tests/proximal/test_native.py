"""The compiled kernel's cache: what lies in it is executed, so it must be ours and whole."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gossamer.proximal import native


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    native.load_kernel.cache_clear()
    yield tmp_path / "gossamer"
    native.load_kernel.cache_clear()


def test_a_damaged_library_is_compiled_again(cache: Path) -> None:
    library = native._compiled()
    assert library.parent == cache
    library.write_bytes(b"")
    assert native.load_kernel() is not None
    assert library.stat().st_size > 0


def test_what_others_could_have_written_is_not_loaded(cache: Path) -> None:
    library = native._compiled()
    library.write_bytes(b"not ours")
    library.chmod(0o777)
    assert native._compiled().read_bytes() != b"not ours"
    assert native._is_ours(library)


def test_a_folder_that_others_can_write_to_is_left_alone(cache: Path) -> None:
    cache.mkdir(parents=True)
    cache.chmod(0o777)
    assert native._cache_folder() != cache
