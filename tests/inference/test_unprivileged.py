"""Folders that a user may read and not write: one clear error, or another folder, and nothing is left behind."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import gossamer
from gossamer import GossamerError, compiler

from .test_export_c import Unused

NOBODY = 65534
SOURCE, FLAGS = "int answer(void) { return 42; }\n", [["-shared", "-fPIC"]]


@pytest.fixture
def read_only() -> Iterator[Path]:
    """A folder that this user may not write to, with a file; root, who may do all, is another user meanwhile."""
    folder = Path(tempfile.mkdtemp())  # the folders of pytest are closed to other users
    (folder / "net.c").write_text("before")
    folder.chmod(0o555)
    if os.getuid() == 0:
        os.setresuid(NOBODY, NOBODY, 0)
    try:
        yield folder
    finally:
        if os.getresuid()[2] == 0:
            os.setresuid(0, 0, 0)
        folder.chmod(0o755)
        shutil.rmtree(folder)


def content(folder: Path) -> dict[str, str]:
    return {file.name: file.read_text() for file in folder.iterdir()}


def test_export_c(read_only: Path) -> None:
    for path in (read_only / "net.c", read_only / "other.c"):
        with pytest.raises(GossamerError, match=r"cannot write .*Permission denied.*that you may write to"):
            gossamer.export_c(Unused(), path, torch.randn(1, 4))
    assert content(read_only) == {"net.c": "before"}


@pytest.fixture
def no_folder_yet() -> Iterator[None]:
    """The folder for libraries that cannot be kept has not been made, and is removed afterwards."""
    compiler._temporary_folder.cache_clear()
    yield
    if compiler._temporary_folder.cache_info().currsize:
        shutil.rmtree(compiler._temporary_folder())
        compiler._temporary_folder.cache_clear()


def test_the_cache_of_libraries(read_only: Path, no_folder_yet: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be kept is compiled into a folder of this process."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(read_only))
    monkeypatch.setenv("TMPDIR", "/tmp")
    assert compiler.load_library(SOURCE, "test", FLAGS).answer() == 42
    assert not compiler.cache_folder().is_relative_to(read_only)
    assert content(read_only) == {"net.c": "before"}


def test_no_folder_for_libraries(read_only: Path, no_folder_yet: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(read_only))
    monkeypatch.setattr(tempfile, "tempdir", str(read_only))
    with pytest.raises(GossamerError, match=r"no folder .*Permission denied.*XDG_CACHE_HOME"):
        compiler.load_library(SOURCE, "test", FLAGS)
    assert content(read_only) == {"net.c": "before"}
