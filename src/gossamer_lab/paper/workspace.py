"""The folders of the experiments."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["Workspace"]


@dataclass(frozen=True)
class Workspace:
    """Where experiments read and write.

    Attributes:
        results: Folder of result files, with a subfolder per experiment.
        tuning: Folder of the tuning results.
        runs: Folder of run directories. They hold checkpoints and weights and may be deleted.
        data: Data folder to search first.
        workers: Number of parallel trainings, with one thread each.
    """

    results: Path
    tuning: Path
    runs: Path
    data: Path | None = None
    workers: int = 2
