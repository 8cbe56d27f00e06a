"""The C++ kernel of the proximal step: compiled once on each machine, kept in the user's cache, loaded by ctypes.

The library has one function on a table of weights (`kernel/kernel.cpp`). Shapes and step sizes are arguments, so it is
compiled once for all models and learning rates.
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
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path

from gossamer.errors import GossamerError

__all__ = ["Kernel", "load_kernel"]

# (address of the table, address of the steps, weights in them, threads) -> 0 where a weight may not be finite
Kernel = Callable[[int, int, int, int], int]

_SOURCES = Path(__file__).with_name("kernel")
_STRICT = ["-shared", "-fPIC", "-std=c++17", "-O3", "-fno-math-errno", "-fno-trapping-math"]
_NATIVE = [*_STRICT, "-march=native"]
# Best first. Compilers avoid 512-bit vectors unless told to, and only x86 has them; a compiler may lack OpenMP (then
# one thread is used) or may not know this processor.
_FLAGS = ([*_NATIVE, "-mprefer-vector-width=512", "-fopenmp"], [*_NATIVE, "-fopenmp"], _NATIVE, _STRICT)


@cache
def load_kernel() -> Kernel | None:
    """The kernel; None, with one warning, if it cannot be compiled."""
    try:
        library = _loaded()
    except (GossamerError, OSError, subprocess.SubprocessError) as error:
        warnings.warn(
            f"The proximal step runs without its fused kernel, many times slower on large weights: {error} "
            "Install a C++ compiler (or name it in CXX); `compile=False` silences this warning.",
            RuntimeWarning,
            stacklevel=2,
        )
        return None
    step = library.gossamer_step
    step.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32]
    step.restype = ctypes.c_int32
    return step


def _loaded() -> ctypes.CDLL:
    """The library; a damaged file in the cache is compiled again."""
    library = _compiled()
    try:
        return ctypes.CDLL(str(library))
    except OSError:
        library.unlink(missing_ok=True)
        return ctypes.CDLL(str(_compiled()))


def _compiled() -> Path:
    """The shared library: from the cache, or compiled into it."""
    compiler = _compiler()
    folder = _cache_folder()
    library = folder / f"kernel-{_fingerprint(compiler)}.so"
    if not (library.exists() and _is_ours(library)):
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            built = Path(scratch, "kernel.so")
            _compile(compiler, built)
            built.chmod(0o700)  # whatever the umask says
            built.replace(library)  # atomically, for processes that start together
    return library


def _compiler() -> list[str]:
    if os.name != "posix":
        raise GossamerError(f"it is built on Linux and macOS only, not on {platform.system()}.")
    if os.environ.get("CXX"):
        return shlex.split(os.environ["CXX"])
    for name in ("c++", "g++", "clang++"):
        if found := shutil.which(name):
            return [found]
    raise GossamerError("no C++ compiler was found.")


def _compile(compiler: list[str], target: Path) -> None:
    for flags in _FLAGS:
        command = [*compiler, *flags, str(_SOURCES / "kernel.cpp"), "-o", str(target)]
        result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        if result.returncode == 0:
            return
    raise GossamerError(f"`{shlex.join(command)}` failed: {result.stderr.strip()[-500:]}")


def _cache_folder() -> Path:
    """A folder that only this user can write to: its content is executed."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    try:
        folder = base / "gossamer"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if os.access(folder, os.W_OK) and _is_ours(folder):
            return folder
    except (OSError, RuntimeError):  # no home folder, or no permission to write there
        pass
    temporary = tempfile.mkdtemp(prefix="gossamer-")
    atexit.register(shutil.rmtree, temporary, ignore_errors=True)
    return Path(temporary)


def _is_ours(path: Path) -> bool:
    """Whether no other user can have written the file."""
    status = path.lstat()
    return status.st_uid == os.getuid() and not status.st_mode & 0o022 and not stat.S_ISLNK(status.st_mode)


def _fingerprint(compiler: list[str]) -> str:
    """A hash of everything the machine code depends on: machines may share a home folder."""
    version = subprocess.run([*compiler, "--version"], capture_output=True, text=True, timeout=60, check=False).stdout
    sources = [path.read_text() for path in sorted(_SOURCES.iterdir())]
    parts = [*sources, repr(_FLAGS), shlex.join(compiler), version, platform.machine(), _processor()]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    if not information.exists():
        return platform.processor()
    lines = information.read_text().splitlines()
    return "\n".join(sorted({line for line in lines if line.startswith(("flags", "Features", "model name"))}))
