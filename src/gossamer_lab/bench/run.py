"""Running benchmarks by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path

from gossamer.errors import GossamerError
from gossamer_lab.bench import BENCHMARKS, RESUMABLE
from gossamer_lab.bench.journal import Journal
from gossamer_lab.bench.result import Result, result_file

__all__ = ["load_benchmark", "run"]


def load_benchmark(name: str) -> Callable[..., Result]:
    """Return the function of a benchmark."""
    if name not in BENCHMARKS:
        raise GossamerError(f"Unknown benchmark {name!r}. Available: {', '.join(BENCHMARKS)}.")
    module, function = BENCHMARKS[name]
    benchmark: Callable[..., Result] = getattr(import_module(f"gossamer_lab.bench.{module}"), function)
    return benchmark


def run(
    names: Sequence[str] = (), folder: Path | None = None, report: Callable[[str], None] = lambda _: None
) -> Iterator[Result]:
    """Run benchmarks, all by default, and yield each result.

    Args:
        names: Names of benchmarks; all if empty.
        folder: Folder to write each result to as it is measured; None to write nothing. Single measurements of long
            benchmarks are written too, until their result is there: an interrupted one goes on where it stopped.
        report: Called with a line of text for each measurement of a long benchmark.
    """
    chosen = list(names or BENCHMARKS)
    benchmarks = [load_benchmark(name) for name in chosen]
    for name, benchmark in zip(chosen, benchmarks, strict=True):
        if name not in RESUMABLE:
            result = benchmark()
        else:
            journal = Journal(_journal_file(name, folder), report)
            result = benchmark(journal=journal)
        if folder is not None:
            result.write(folder)
        if name in RESUMABLE:
            journal.close()
        yield result


def _journal_file(name: str, folder: Path | None) -> Path | None:
    if folder is None:
        return None
    folder.mkdir(parents=True, exist_ok=True)
    return result_file(name, folder).with_suffix(".unfinished.jsonl")
