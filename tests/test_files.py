"""A file is there whole or not at all, whatever happens while it is written."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import torch
from torch import nn

from gossamer.errors import GossamerError
from gossamer.files import abandoned, check_can_write, lock_folder, staged, write_atomically
from gossamer.store import load, save


def test_file_appears_and_replaces(tmp_path: Path) -> None:
    path = tmp_path / "net"
    for content in ("first", "second"):
        with staged(path) as place:
            place.write_text(content)
            assert place.parent != tmp_path
        assert path.read_text() == content
    assert list(tmp_path.iterdir()) == [path]


def test_error_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "net"
    path.write_text("old")

    def interrupted() -> None:
        with staged(path) as place:
            place.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_rename_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "net"
    path.write_text("old")

    def fail(*paths: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(GossamerError, match="No space left"), staged(path) as place:
        place.write_text("new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_companions_come_along(tmp_path: Path) -> None:
    with staged(tmp_path / "net") as place:
        place.write_text("graph")
        place.with_name("net.data").write_text("weights")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["net", "net.data"]


def test_link_keeps_pointing(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "folder" / "net")
    save(nn.Linear(1, 1), link)
    assert link.is_symlink()
    load(tmp_path / "folder" / "net", nn.Linear(2, 2))


def test_others_may_read_the_file(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        save(nn.Linear(1, 1), tmp_path / "net")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "net").stat().st_mode) == 0o644


def test_paths_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for path in (tmp_path / "missing" / "net", tmp_path / "folder"):
        with pytest.raises(GossamerError, match="cannot write"):
            save(nn.Linear(1, 1), path)
        with pytest.raises(GossamerError, match="cannot write"):
            check_can_write(path)
    check_can_write(tmp_path / "net")
    assert list(tmp_path.iterdir()) == [tmp_path / "folder"]


KILLED = """
import os, signal, sys
from pathlib import Path
from torch import nn
from gossamer.store import save

write = Path.write_bytes
def killed_halfway(path, content):
    write(path, content[: len(content) // 2])
    os.kill(os.getpid(), signal.SIGKILL)

Path.write_bytes = killed_halfway
save(nn.Linear(300, 300), sys.argv[1])
"""


def test_killed_process_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "net"
    model = nn.Linear(3, 3)
    save(model, path)
    process = subprocess.run([sys.executable, "-c", KILLED, path], timeout=60, check=False)
    assert process.returncode == -signal.SIGKILL
    assert load(path, nn.Linear(300, 300)).weight.equal(model.weight)
    # What the process could not tidy up is a hidden folder with a telling name, and in nobody's way.
    (left,) = set(tmp_path.iterdir()) - {path}
    assert left.name.startswith(".net.")
    assert left.name.endswith(".partial")
    assert abandoned(path) == [left]
    save(model, path)
    assert torch.equal(load(path, nn.Linear(1, 1)).bias, model.bias)
    assert list(tmp_path.iterdir()) == [path]  # whoever writes the file next tidies up


@pytest.mark.parametrize("name", ["net", "net[1]"])
def test_a_folder_is_removed_when_nobody_writes_into_it(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    with staged(path) as begun:
        own = begun.parent.name.rsplit(".", 2)[0]
    left, elsewhere = tmp_path / f"{own}.killed.partial", tmp_path / f".{name}.another-machine.killed.partial"
    for folder in (left, elsewhere):
        folder.mkdir()
        (folder / name).write_text("half")
    with staged(path) as slow:
        assert not left.exists()
        assert elsewhere.exists()  # where a lock may be seen on one machine only, it could be in use
        slow.write_text("slow")
        write_atomically(path, b"fast")
        check_can_write(path)
        assert slow.exists()
    assert path.read_text() == "slow"
    assert set(tmp_path.iterdir()) == {path, elsewhere}


def test_a_folder_that_is_removed_before_it_is_locked_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Path] = []

    def make(**names: str) -> str:
        folder = tmp_path / f"{names['prefix']}{len(made)}{names['suffix']}"
        folder.mkdir()
        made.append(folder)
        if len(made) == 1:  # as another process does that finds it without a lock
            folder.rmdir()
        return str(folder)

    monkeypatch.setattr(tempfile, "mkdtemp", make)
    write_atomically(tmp_path / "net", b"content")
    assert len(made) == 2
    assert (tmp_path / "net").read_bytes() == b"content"


def test_without_locks_files_are_still_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", fail)
    (tmp_path / ".net.other.partial").mkdir()
    write_atomically(tmp_path / "net", b"content")
    assert (tmp_path / "net").read_bytes() == b"content"
    assert (tmp_path / ".net.other.partial").exists()  # it may be in use


@pytest.mark.parametrize("made_again", [True, False])
def test_a_lock_is_that_of_the_folder_which_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made_again: bool
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    flock = fcntl.flock

    def removed_meanwhile(descriptor: int, operation: int) -> None:
        monkeypatch.setattr(fcntl, "flock", flock)
        folder.rmdir()
        if made_again:
            folder.mkdir()
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", removed_meanwhile)
    if not made_again:
        with pytest.raises(FileNotFoundError):
            lock_folder(folder)
        return
    descriptor = lock_folder(folder)
    with pytest.raises(BlockingIOError):
        lock_folder(folder)
    os.close(descriptor)


def test_content_is_written_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    write_atomically(tmp_path / "file", b"one")
    write_atomically(tmp_path / "file", b"two")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("file", b"two")]


def test_stopped_before_the_rename_the_old_content_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_atomically(tmp_path / "file", b"old")

    def stop(source: Path, target: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", stop)
        with pytest.raises(KeyboardInterrupt):
            write_atomically(tmp_path / "file", b"new")
    assert (tmp_path / "file").read_bytes() == b"old"
    write_atomically(tmp_path / "file", b"newer")
    assert (tmp_path / "file").read_bytes() == b"newer"
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]
