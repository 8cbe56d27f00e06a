"""Running benchmarks by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path

from gossamer.errors import GossamerError
from gossamer_lab.bench import BENCHMARKS
from gossamer_lab.bench.result import Result

__all__ = ["load_benchmark", "run"]


def load_benchmark(name: str) -> Callable[[], Result]:
    """Return the function of a benchmark."""
    if name not in BENCHMARKS:
        raise GossamerError(f"Unknown benchmark {name!r}. Available: {', '.join(BENCHMARKS)}.")
    module, function = BENCHMARKS[name]
    benchmark: Callable[[], Result] = getattr(import_module(f"gossamer_lab.bench.{module}"), function)
    return benchmark


def run(names: Sequence[str] = (), folder: Path | None = None) -> Iterator[Result]:
    """Run benchmarks, all by default, and yield each result.

    Args:
        names: Names of benchmarks; all if empty.
        folder: Folder to write each result to as it is measured; None to write nothing.
    """
    benchmarks = [load_benchmark(name) for name in names or BENCHMARKS]
    for benchmark in benchmarks:
        result = benchmark()
        if folder is not None:
            result.write(folder)
        yield result
