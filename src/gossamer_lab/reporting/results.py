"""Results of many trainings in one file: a JSON line each, written as it comes, continued where it stopped."""

from __future__ import annotations

import json
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from gossamer.files import append_line

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Job = TypeVar("Job", bound="DataclassInstance")
Outcome = TypeVar("Outcome", bound="DataclassInstance")

__all__ = ["ResultsFile"]


@dataclass(frozen=True)
class ResultsFile(Generic[Job, Outcome]):
    """A file of outcomes, one per job; both are flat dataclasses, a job is hashable.

    Attributes:
        path: The file, in JSON lines.
        job: Type of the jobs.
        outcome: Type of the outcomes.
    """

    path: Path
    job: type[Job]
    outcome: type[Outcome]

    def read(self) -> dict[Job, Outcome]:
        """Return what has been trained. A last line that was cut off by a kill does not count."""
        values = [json.loads(line) for line in self._whole_lines().splitlines()]
        return {self.job(**value["job"]): self.outcome(**value["outcome"]) for value in values}

    def complete(self, jobs: Iterable[Job], train: Callable[[Job], Outcome], minutes: float) -> None:
        """Train what is missing, in order; no training starts after `minutes`. Warnings of trainings are not shown."""
        done, started = self.read(), time.monotonic()
        if self.path.exists():  # what is appended needs a line of its own
            os.truncate(self.path, len(self._whole_lines()))
        for job in jobs:
            if job in done:
                continue
            if time.monotonic() - started > 60 * minutes:
                return
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # layers of one unit are meant where the targets are small
                outcome = train(job)
            append_line(self.path, json.dumps({"job": asdict(job), "outcome": asdict(outcome)}))
            print(job, outcome, file=sys.stderr, flush=True)

    def _whole_lines(self) -> bytes:
        text = self.path.read_bytes() if self.path.exists() else b""
        return text[: text.rfind(b"\n") + 1]
