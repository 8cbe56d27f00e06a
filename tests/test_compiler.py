"""The cache of compiled libraries: what lies in it is executed, so it must be ours and whole."""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path

import pytest

from gossamer import GossamerError, compiler
from gossamer.compiler import cache_folder, find_compiler, load_library, predefined_macros
from gossamer.files import scratch_folder

FLAGS = [["-shared", "-fPIC", "-no-such-flag"], ["-shared", "-fPIC"]]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "gossamer-libraries"


def answer(library: ctypes.CDLL) -> int:
    return library.answer()


def source(number: int) -> str:
    return f"int answer(void) {{ return {number}; }}\n"


def test_a_source_is_compiled_once(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert answer(load_library(source(42), "test", FLAGS)) == 42
    (library,) = cache.iterdir()
    assert library.stat().st_mode & 0o777 == 0o700
    monkeypatch.setattr(compiler, "_compile", None)  # it must not be called
    assert answer(load_library(source(42), "test", FLAGS)) == 42


def test_sources_flags_and_kinds_are_told_apart(cache: Path) -> None:
    assert answer(load_library(source(1), "test", FLAGS)) == 1
    assert answer(load_library(source(2), "test", FLAGS)) == 2
    load_library(source(2), "test", FLAGS[1:])
    load_library(source(2), "other", FLAGS)
    assert len(list(cache.glob("test-*.so"))) == 3
    assert len(list(cache.glob("other-*.so"))) == 1


def test_cpp() -> None:
    text = 'template <int N> int number() { return N; }\nextern "C" int answer() { return number<7>(); }\n'
    assert answer(load_library(text, "test", FLAGS, "c++")) == 7


def test_headers_are_part_of_the_source(cache: Path) -> None:
    text = '#include "number.h"\nint answer(void) { return NUMBER; }\n'
    for number in (3, 4):
        header = {"number.h": f"#define NUMBER {number}\n"}
        assert answer(load_library(text, "test", FLAGS, headers=header)) == number
    assert len(list(cache.iterdir())) == 2


@pytest.mark.parametrize("damage", ["empty", "cut", "zeros", "flipped", "replaced"])
def test_a_damaged_library_is_compiled_again(cache: Path, damage: str) -> None:
    first = load_library(source(42), "test", FLAGS)
    (library,) = cache.iterdir()
    whole = library.read_bytes()
    where = whole.index(bytes([42, 0, 0, 0]))  # what the function returns
    flipped = whole[:where] + bytes([43]) + whole[where + 1 :]
    damages = {
        "empty": b"",
        "cut": whole[:-100],
        "zeros": bytes(len(whole)),
        "flipped": flipped,
        "replaced": b"no library",
    }
    other = damages[damage]
    library.write_bytes(other)
    assert answer(load_library(source(42), "test", FLAGS)) == 42
    assert answer(first) == 42
    assert [file.read_bytes() != other for file in cache.glob("*.so")] == [True]


def test_a_library_that_is_swapped_between_check_and_load_is_not_loaded(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_library(source(42), "test", FLAGS)
    (library,) = cache.iterdir()
    load = ctypes.CDLL

    def swapped(name: str) -> ctypes.CDLL:
        library.write_bytes(b"of another user")
        return load(name)

    monkeypatch.setattr(ctypes, "CDLL", swapped)
    assert answer(load_library(source(42), "test", FLAGS)) == 42


def test_what_others_could_have_written_is_not_loaded(cache: Path) -> None:
    load_library(source(42), "test", FLAGS)
    (library,) = cache.iterdir()
    library.chmod(0o777)
    assert answer(load_library(source(42), "test", FLAGS)) == 42
    (again,) = cache.glob("*.so")
    assert again.stat().st_mode & 0o022 == 0


def test_a_folder_that_others_can_write_to_is_left_alone(cache: Path) -> None:
    cache.mkdir(parents=True)
    cache.chmod(0o777)
    assert cache_folder() != cache
    assert answer(load_library(source(42), "test", FLAGS)) == 42
    assert not list(cache.iterdir())


def test_a_home_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nowhere")
    assert answer(load_library(source(42), "test", FLAGS)) == 42


def test_no_home(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(Path, "home", unknown)
    assert answer(load_library(source(42), "test", FLAGS)) == 42


def test_a_group_that_may_write_new_files(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = os.umask(0o002)
    try:
        load_library(source(42), "test", FLAGS)
    finally:
        os.umask(before)
    assert cache.stat().st_mode & 0o777 == 0o700
    monkeypatch.setattr(compiler, "_compile", None)  # it must not be called
    assert answer(load_library(source(42), "test", FLAGS)) == 42


def test_data_sets_beside_it_that_a_group_may_write(cache: Path) -> None:
    (cache.parent / "gossamer").mkdir(mode=0o775)
    assert cache_folder() == cache


def test_a_link_in_the_cache_is_not_followed(cache: Path, tmp_path: Path) -> None:
    load_library(source(42), "test", FLAGS)
    (library,) = cache.iterdir()
    elsewhere = tmp_path / "elsewhere.so"
    library.rename(elsewhere)
    library.symlink_to(elsewhere)
    assert answer(load_library(source(42), "test", FLAGS)) == 42
    assert not library.is_symlink()


def test_a_disk_without_space(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, content: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(GossamerError, match=r"No space left.*XDG_CACHE_HOME"):
        load_library(source(42), "test", FLAGS)


def test_the_cache_does_not_grow_without_end(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "_KEPT", 3)
    for number in range(5):
        load_library(source(number), "test", FLAGS)
    assert len(list(cache.glob("test-*.so"))) == 3


def test_nothing_is_left_of_a_source_that_does_not_compile(cache: Path) -> None:
    with pytest.raises(GossamerError, match=r"failed: (?s:.*)error"):
        load_library("int answer(void) { return }", "test", FLAGS)
    assert not list(cache.iterdir())


def test_the_folders_of_killed_processes_are_removed(cache: Path) -> None:
    load_library(source(1), "test", FLAGS)
    with scratch_folder(cache, "compile") as used:
        left = used.with_name(used.name.replace(".partial", ".killed.partial"))
        left.mkdir()
        (left / "library.so").write_text("half")
        assert answer(load_library(source(2), "test", FLAGS)) == 2
        assert used.exists()
        assert not left.exists()


def test_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(GossamerError, match=r"no C compiler was found.*name it in CC"):
        find_compiler("c")


def test_a_compiler_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "/nowhere/cc -O2")
    with pytest.raises(GossamerError, match="cannot be run"):
        load_library(source(1), "test", FLAGS)


@pytest.mark.parametrize("value", ["cc 'O2", '"'])
def test_a_command_with_an_open_quote(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("CC", value)
    with pytest.raises(GossamerError, match=r"CC is .* which is not a command: No closing quotation"):
        load_library(source(1), "test", FLAGS)


def test_an_empty_variable_names_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", " ")
    assert answer(load_library(source(3), "test", FLAGS)) == 3


def test_a_compiler_that_says_it_succeeded_and_did_nothing(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    monkeypatch.setenv("CC", "true")
    with pytest.raises(GossamerError, match="failed"):
        load_library(source(1), "test", FLAGS)
    assert not list(cache.glob("*.so"))


def test_macros() -> None:
    macros = predefined_macros(find_compiler("c"), [])
    assert macros["__STDC__"] == "1"
    assert predefined_macros(find_compiler("c"), ["-no-such-flag"]) == {}
