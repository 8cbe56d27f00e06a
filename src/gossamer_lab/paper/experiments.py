"""Experiments: the trainings each needs, and how it shows their results.

To add one: define an `Experiment` in a module of its own, and add the module to `gossamer_lab.paper.EXPERIMENTS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from gossamer.errors import GossamerError
from gossamer.files import write_atomically
from gossamer_lab.paper import EXPERIMENTS
from gossamer_lab.paper.outcomes import MissingResultsError, Outcome, read_outcomes
from gossamer_lab.paper.workspace import Workspace
from gossamer_lab.reporting.tables import Table

if TYPE_CHECKING:
    from gossamer_lab.paper.plan import Training
    from gossamer_lab.paper.runner import ResultKind

__all__ = ["SEEDS", "Experiment", "Request", "load_experiment", "missing_results", "write_text"]

SEEDS = (0, 1, 2)

_Results = TypeVar("_Results")


def load_experiment(name: str) -> Experiment[Any]:
    """Return the experiment of this name."""
    if name not in EXPERIMENTS:
        raise GossamerError(f"Unknown experiment {name!r}. Available: {', '.join(EXPERIMENTS)}.")
    module, attribute = EXPERIMENTS[name]
    experiment: Experiment[Any] = getattr(import_module(f"gossamer_lab.paper.{module}"), attribute)
    return experiment


@dataclass(frozen=True)
class Request:
    """Which part of an experiment is requested.

    Attributes:
        workspace: The folders.
        datasets: Restriction to these data sets; empty for all.
        seeds: Seeds of the trainings.
        quick: Whether to train for a few epochs on a few images only, as a smoke test.
        report: Receives messages for the user.
    """

    workspace: Workspace
    datasets: tuple[str, ...] = ()
    seeds: tuple[int, ...] = SEEDS
    quick: bool = False
    report: Callable[[str], None] = field(default=lambda message: None, compare=False)

    @property
    def is_whole(self) -> bool:
        """Whether all data sets and all seeds are requested."""
        return not self.datasets and self.seeds == SEEDS

    def select(self, datasets: Sequence[str]) -> list[str]:
        """Return the requested ones of an experiment's data sets."""
        selected = [dataset for dataset in datasets if not self.datasets or dataset in self.datasets]
        if not selected:
            raise GossamerError(
                f"The experiment uses {', '.join(datasets) or 'no data set'}; requested: {', '.join(self.datasets)}."
            )
        return selected

    def outcomes(self, *files: str) -> list[Outcome]:
        """Read the requested outcomes from result files, given relative to the results folder.

        Raises:
            MissingResultsError: If there are none.
        """
        paths = [self.workspace.results / file for file in files]
        found = [outcome for path in paths for outcome in read_outcomes(path) if self._includes(outcome)]
        if not found:
            raise missing_results(paths)
        for path in paths:
            if not path.exists():
                self.report(f"{path} does not exist and is left out; `--train` creates it.")
        return found

    def _includes(self, outcome: Outcome) -> bool:
        config = outcome.job.config
        return config.seed in self.seeds and (not self.datasets or config.dataset in self.datasets)


def missing_results(paths: Sequence[Path]) -> MissingResultsError:
    """Return the error for result files that are missing or have nothing of what is requested."""
    return MissingResultsError(
        f"No results in {', '.join(map(str, paths))}. Point `--results` to the folder `experiments` of the gossamer "
        "repository, or train what is missing with `--train`."
    )


def no_tables(results: object) -> Sequence[Table]:
    """The tables of an experiment that only has figures."""
    del results
    return ()


def no_json(results: object) -> dict[str, Any]:
    """The JSON object of an experiment that has no machine-readable summary."""
    del results
    return {}


@dataclass(frozen=True)
class Experiment(Generic[_Results]):
    """An experiment.

    Attributes:
        folder: Its subfolder of the results folder.
        datasets: The data sets it trains on.
        trainings: The trainings it needs for a request.
        kind: The kind of its result files for a request.
        read: Reads its results from the result files; trains nothing.
        outputs: Its Markdown and figure files, with the functions that write them from the results.
        tables: Its tables for the terminal.
        json: Its JSON object for scripts.
        compute: Writes result files that need no training.
    """

    folder: str
    datasets: tuple[str, ...]
    trainings: Callable[[Request], list[Training]]
    kind: Callable[[Request], ResultKind]
    read: Callable[[Request], _Results]
    outputs: Mapping[str, Callable[[_Results, Path], object]]
    tables: Callable[[_Results], Sequence[Table]] = no_tables
    json: Callable[[_Results], dict[str, Any]] = no_json
    compute: Callable[[Request], None] | None = None

    @property
    def has_tables(self) -> bool:
        """Whether there is anything to print; otherwise there are only figures."""
        return self.tables is not no_tables

    def output_files(self, request: Request) -> list[Path]:
        """Return the paths of the Markdown and figure files."""
        return [request.workspace.results / self.folder / name for name in self.outputs]

    def write(self, results: _Results, request: Request) -> None:
        """Write the Markdown and figure files."""
        for path, write in zip(self.output_files(request), self.outputs.values(), strict=True):
            path.parent.mkdir(parents=True, exist_ok=True)
            write(results, path)


def write_text(path: Path, text: str) -> None:
    """Write a Markdown file, atomically."""
    write_atomically(path, text.encode())
