"""Jobs and their outcomes, stored as JSON lines."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gossamer.errors import GossamerError
from gossamer.files import write_atomically
from gossamer_lab.training import EpochMetrics, RunResult, TrainingConfig

__all__ = ["Job", "MissingResultsError", "Outcome", "read_outcomes", "write_outcomes"]


class MissingResultsError(GossamerError):
    """The result files do not have what is requested."""


@dataclass(frozen=True)
class Job:
    """One training of an experiment.

    Attributes:
        key: Identifies it within the experiment: the key of a method, or the value of a varied parameter.
        config: Configuration of the training.
    """

    key: str
    config: TrainingConfig


@dataclass(frozen=True)
class Outcome:
    """A finished job: its result and the metrics of its epochs."""

    job: Job
    result: RunResult
    history: tuple[EpochMetrics, ...]

    @property
    def small_params(self) -> float:
        """Weights of the shrunk network, zeros included, as a fraction of the full network."""
        return float(self.result.small["weights"] / self.result.measurement["total"]["weights"])

    @property
    def small_flops(self) -> float:
        """MACs of the shrunk network, as a fraction of the full network."""
        return float(self.result.small["macs"] / self.result.measurement["total"]["macs"])

    def to_json(self) -> str:
        """Return the outcome as one JSON line."""
        content = {
            "key": self.job.key,
            "config": asdict(self.job.config),
            "result": asdict(self.result),
            "history": [asdict(metrics) for metrics in self.history],
        }
        return json.dumps(content) + "\n"

    @classmethod
    def from_json(cls, line: str) -> Outcome:
        """Parse the output of `to_json`, of this version or an earlier one."""
        content: dict[str, Any] = json.loads(line)
        return cls(
            Job(content["key"], TrainingConfig.from_dict(content["config"])),
            RunResult(**content["result"]),
            tuple(EpochMetrics(**metrics) for metrics in content["history"]),
        )


def read_outcomes(path: Path) -> list[Outcome]:
    """Read a file of outcomes; a file that does not exist has none."""
    if not path.exists():
        return []
    try:
        return [Outcome.from_json(line) for line in path.read_text(encoding="utf-8").splitlines()]
    except (ValueError, KeyError, TypeError) as error:
        raise GossamerError(f"{path} is corrupt: {error}. Restore it, or delete it and train again.") from None


def write_outcomes(path: Path, outcomes: Iterable[Outcome]) -> None:
    """Write outcomes in an order that does not depend on which finished first."""
    ordered = sorted(outcomes, key=lambda outcome: (outcome.job.config.dataset, outcome.job.key, outcome.to_json()))
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, "".join(outcome.to_json() for outcome in ordered).encode())
