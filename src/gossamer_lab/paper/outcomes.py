"""The trainings of an experiment and how they ended, one JSON object a line, in files that are kept."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from gossamer.errors import GossamerError
from gossamer.files import write_atomically
from gossamer_lab.training import EpochMetrics, RunResult, TrainingConfig

__all__ = ["Job", "Outcome", "plus_minus", "read_outcomes", "write_outcomes"]


@dataclass(frozen=True)
class Job:
    """One training of an experiment.

    Attributes:
        key: What it is called among those it is compared with: the key of a method, or a value that is varied.
        config: All that determines it.
    """

    key: str
    config: TrainingConfig


@dataclass(frozen=True)
class Outcome:
    """A training that is done: what it was, how it ended, and its epochs."""

    job: Job
    result: RunResult
    history: tuple[EpochMetrics, ...]

    @property
    def small_params(self) -> float:
        """Weights of the network without its dead units, zero or not, as part of the whole network."""
        return float(self.result.small["weights"] / self.result.measurement["total"]["weights"])

    @property
    def small_flops(self) -> float:
        """Multiply-adds of the same."""
        return float(self.result.small["macs"] / self.result.measurement["total"]["macs"])

    def to_json(self) -> str:
        """Write it as one line."""
        content = {
            "key": self.job.key,
            "config": asdict(self.job.config),
            "result": asdict(self.result),
            "history": [asdict(metrics) for metrics in self.history],
        }
        return json.dumps(content) + "\n"

    @classmethod
    def from_json(cls, line: str) -> Outcome:
        """Read what :meth:`to_json` wrote."""
        content: dict[str, Any] = json.loads(line)
        return cls(
            Job(content["key"], TrainingConfig(**content["config"])),
            RunResult(**content["result"]),
            tuple(EpochMetrics(**metrics) for metrics in content["history"]),
        )


def read_outcomes(path: Path) -> list[Outcome]:
    """Read a file of outcomes; none when it is not there."""
    if not path.exists():
        return []
    try:
        return [Outcome.from_json(line) for line in path.read_text(encoding="utf-8").splitlines()]
    except (ValueError, KeyError, TypeError, GossamerError) as error:
        raise GossamerError(f"{path} is damaged: {error}. Restore it, or delete it to make it again.") from None


def write_outcomes(path: Path, outcomes: Iterable[Outcome]) -> None:
    """Write all outcomes of an experiment, in an order that does not depend on which ended first."""
    ordered = sorted(outcomes, key=lambda outcome: (outcome.job.config.dataset, outcome.job.key, outcome.to_json()))
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, "".join(outcome.to_json() for outcome in ordered).encode())


def plus_minus(values: Sequence[float], digits: int = 2) -> str:
    """Write mean ± standard deviation, that of a sample (divided by n - 1); one value alone has none."""
    mean = f"{fmean(values):.{digits}f}"
    return f"{mean} ± {stdev(values):.{digits}f}" if len(values) > 1 else mean
