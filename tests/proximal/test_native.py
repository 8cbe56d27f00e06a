"""The compiled kernel: loaded through the cache of compiled libraries, whatever lies there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gossamer.proximal import native


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    native.load_kernel.cache_clear()
    yield tmp_path / "gossamer-libraries"
    native.load_kernel.cache_clear()


def test_a_damaged_library_is_compiled_again(cache: Path) -> None:
    assert native.load_kernel() is not None
    (library,) = cache.glob("kernel-*.so")
    whole = library.read_bytes()
    library.write_bytes(whole[:4096])  # its header is whole: loading it would end the process
    native.load_kernel.cache_clear()
    assert native.load_kernel() is not None
    assert all(len(file.read_bytes()) > 4096 for file in cache.glob("kernel-*.so"))


def test_without_a_compiler_there_is_one_warning(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "'")
    with pytest.warns(RuntimeWarning, match=r"without its fused kernel.*No closing quotation"):
        assert native.load_kernel() is None
