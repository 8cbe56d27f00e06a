"""A C or C++ source as a loaded shared library: compiled once on each machine, kept in the user's cache.

What lies in the cache is executed. So the folder and its files must belong to this user and be writable by no one else;
a library is published in one piece, and its name holds the checksum of its bytes. The bytes that were checked are the
bytes that are loaded, from a private copy: what a crash, a full disk or someone else has changed is compiled again.
"""

from __future__ import annotations

import atexit
import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType

from gossamer.errors import GossamerError
from gossamer.files import flush, scratch_folder

__all__ = ["Compiler", "cache_folder", "find_compiler", "load_library", "predefined_macros"]

_TIMEOUT = 600  # seconds; a large network is a large source
_KEPT = 256  # libraries of one kind in the cache
_SCRATCH = "compile"  # the name of folders that are in use

_LANGUAGES = {
    "c": ("C", "CC", ("cc", "gcc", "clang"), ".c"),
    "c++": ("C++", "CXX", ("c++", "g++", "clang++"), ".cpp"),
}


@dataclass(frozen=True)
class Compiler:
    """A compiler of one language, as it is called."""

    language: str
    command: tuple[str, ...]

    @property
    def suffix(self) -> str:
        """How the name of a source file ends."""
        return _LANGUAGES[self.language][3]

    def run(self, arguments: Sequence[str], text: str | None = None) -> subprocess.CompletedProcess[str]:
        """Call the compiler."""
        command = [*self.command, *arguments]
        try:
            return subprocess.run(
                command, input=text, capture_output=True, text=True, errors="replace", timeout=_TIMEOUT, check=False
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise GossamerError(f"the compiler `{shlex.join(self.command)}` cannot be run: {error}.") from error


def find_compiler(language: str) -> Compiler:
    """The compiler for "c" or "c++": what CC or CXX names, or the first of the usual names that is installed."""
    name, variable, usual, _ = _LANGUAGES[language]
    if os.name != "posix":
        raise GossamerError(f"libraries are compiled on Linux and macOS only, not on {platform.system()}.")
    if os.environ.get(variable, "").strip():
        return Compiler(language, _words(variable, os.environ[variable]))
    for candidate in usual:
        if found := shutil.which(candidate):
            return Compiler(language, (found,))
    raise GossamerError(
        f"no {name} compiler was found (looked for {', '.join(usual)}). Install one, or name it in {variable}."
    )


def _words(variable: str, value: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(value))
    except ValueError as error:
        raise GossamerError(
            f"{variable} is {value!r}, which is not a command: {error}. Give a compiler as on a command line."
        ) from error


def load_library(
    source: str,
    name: str,
    flags: Sequence[Sequence[str]],
    language: str = "c",
    headers: Mapping[str, str] = MappingProxyType({}),
) -> ctypes.CDLL:
    """The shared library compiled from `source`, from the cache where it is there and whole.

    Args:
        source: The text of one translation unit.
        name: The kind of library; the start of its file's name.
        flags: Lists of compiler flags, the best first; the first list that compiles is taken.
        language: "c" or "c++".
        headers: The texts of the files that it includes by "name".
    """
    compiler = find_compiler(language)
    files = {f"source{compiler.suffix}": source, **headers}
    folder = cache_folder()
    stem = f"{name}-{_fingerprint(compiler, files, flags)}"
    try:
        content = _cached(folder, stem) or _build(folder, stem, compiler, files, flags)
        # A private copy: whatever happens to the file in the cache, what has been checked is loaded and stays.
        with scratch_folder(folder, _SCRATCH) as scratch:
            library = scratch / f"{stem}.so"
            library.write_bytes(content)
            return ctypes.CDLL(str(library))
    except OSError as error:
        raise GossamerError(
            f"the compiled library cannot be kept in {folder} or loaded from there: {error}. Name a folder with space "
            "from which programs may be run in XDG_CACHE_HOME."
        ) from error


def predefined_macros(compiler: Compiler, flags: Sequence[str]) -> dict[str, str]:
    """The macros that the compiler defines by itself under these flags; none where it cannot say."""
    result = compiler.run([*flags, "-dM", "-E", "-x", compiler.language, "-"], text="")
    if result.returncode != 0:
        return {}
    lines = (line.split(maxsplit=2) for line in result.stdout.splitlines() if line.startswith("#define "))
    return {words[1]: words[2] if len(words) > 2 else "" for words in lines}


def cache_folder() -> Path:
    """A folder that no one else can write to: what lies in it is executed."""
    try:
        # Not that of the data sets, which others may be allowed to write to.
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").absolute() / "gossamer-libraries"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if os.access(folder, os.W_OK) and _is_ours(folder.lstat()):
            return folder
    except (OSError, RuntimeError):  # no home, or a home that cannot be written
        pass
    return _temporary_folder()


@cache
def _temporary_folder() -> Path:
    try:
        temporary = tempfile.mkdtemp(prefix="gossamer-")
    except OSError as error:
        raise GossamerError(
            f"there is no folder for compiled libraries: {error}. Name one that you may write to in XDG_CACHE_HOME."
        ) from error
    atexit.register(shutil.rmtree, temporary, ignore_errors=True)
    return Path(temporary)


def _cached(folder: Path, stem: str) -> bytes | None:
    """The bytes of a whole library of this name; files that are damaged or not ours are removed."""
    for file in sorted(folder.glob(f"{stem}-*.so")):
        content = _read_ours(file)
        if content is not None and file.name == _file_name(stem, content):
            return content
        file.unlink(missing_ok=True)
    return None


def _build(
    folder: Path, stem: str, compiler: Compiler, files: Mapping[str, str], flags: Sequence[Sequence[str]]
) -> bytes:
    with scratch_folder(folder, _SCRATCH) as scratch:
        for name, text in files.items():
            (scratch / name).write_text(text)
        built = scratch / "library.so"
        _compile(compiler, flags, scratch / next(iter(files)), built)
        content = built.read_bytes()
        built.chmod(0o700)  # whatever the umask says
        flush(built)
        built.replace(folder / _file_name(stem, content))  # in one piece, for processes that start together
        flush(folder)
    _forget_oldest(folder, stem.rpartition("-")[0])
    return content


def _compile(compiler: Compiler, flags: Sequence[Sequence[str]], source: Path, target: Path) -> None:
    for chosen in flags:
        result = compiler.run([*chosen, str(source), "-o", str(target), "-lm"])
        if result.returncode == 0 and target.exists():
            return
    said = result.stderr.strip() or f"it ended with code {result.returncode}"
    raise GossamerError(f"`{shlex.join([*compiler.command, *flags[-1]])}` failed: {said[-500:]}")


def _forget_oldest(folder: Path, name: str) -> None:
    """Keep the cache from growing without end."""
    files = sorted(folder.glob(f"{name}-*.so"), key=lambda file: file.stat().st_mtime if file.exists() else 0.0)
    for file in files[:-_KEPT]:
        file.unlink(missing_ok=True)


def _file_name(stem: str, content: bytes) -> str:
    return f"{stem}-{hashlib.sha256(content).hexdigest()[:16]}.so"


def _read_ours(path: Path) -> bytes | None:
    """The bytes of a file that only this user can have written; None for any other."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
            return file.read() if _is_ours(os.fstat(file.fileno())) else None
    except OSError:
        return None


def _is_ours(status: os.stat_result) -> bool:
    """Whether only this user can write it."""
    return status.st_uid == os.getuid() and not status.st_mode & 0o022 and not stat.S_ISLNK(status.st_mode)


def _fingerprint(compiler: Compiler, files: Mapping[str, str], flags: Sequence[Sequence[str]]) -> str:
    """Of all that the machine code depends on: a home folder may be shared by machines that differ."""
    parts = [
        repr(sorted(files.items())),
        repr(flags),
        shlex.join(compiler.command),
        _version(compiler),
        platform.machine(),
        _processor(),
    ]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


@cache
def _version(compiler: Compiler) -> str:
    return compiler.run(["--version"]).stdout


@cache
def _processor() -> str:
    information = Path("/proc/cpuinfo")
    if not information.exists():
        return platform.processor()
    lines = information.read_text().splitlines()
    return "\n".join(sorted({line for line in lines if line.startswith(("flags", "Features", "model name"))}))
