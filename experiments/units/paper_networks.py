"""What `shrink` leaves of the paper's networks, all methods with groups that are removable units.

    python experiments/units/paper_networks.py [DATASET ...]            # show the table of the result files
    python experiments/units/paper_networks.py [DATASET ...] --train    # tune and train what they lack
    python experiments/units/paper_networks.py [DATASET ...] --missing  # list what --train would do

Recipe, networks and validation images are those of `gossamer paper table`. Each method has at most eight trials. Among
those that lose at most the same drop in accuracy, the network with the smallest geometric mean of weights and MACs
after `shrink` is taken, and trained on all training images with three seeds. An interrupted run is resumed.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from gossamer_lab.paper.criteria import SmallestAfterShrink
from gossamer_lab.paper.experiments import Experiment, Request
from gossamer_lab.paper.methods import L1, Method
from gossamer_lab.paper.outcomes import MissingResultsError, Outcome
from gossamer_lab.paper.plan import Training, find_missing, make_missing
from gossamer_lab.paper.published import DATASETS
from gossamer_lab.paper.recipes import OURS
from gossamer_lab.paper.runner import OUTCOMES
from gossamer_lab.paper.searches import log_grid
from gossamer_lab.paper.tuning import Search, Shape
from gossamer_lab.paper.workspace import Workspace
from gossamer_lab.reporting.tables import Table, mean_std

FOLDER = Path(__file__).parent
DROP = {"mnist": 0.003, "fashion-mnist": 0.01, "sdd": 0.003, "pendigits": 0.003, "cifar-10": 0.01}
VALIDATION = {"mnist": 0.1, "fashion-mnist": 0.1, "sdd": 0.1, "pendigits": 0.2, "cifar-10": 0.1}
TRIALS = {dataset: 4 if dataset == "cifar-10" else 8 for dataset in DATASETS}

SGL = Method("sgl-units", "SGL, units", "SGL", "sparse-group-lasso-of-units")
CGES = Method("cges-units", "CGES, units", "CGES", "combined-group-exclusive-of-units")
ITL = Method("itl-units", "integrated Tl1, units", "ITL", "integrated-tl1-of-units")
UNIT = Method("unit-tl1", "unit Tl1", "unit Tl1", "unit-tl1")
_SHAPED_TL1 = ((("a", 1.0), ("s", 0.3)), (("a", 0.1), ("s", 0.3)))
_SHAPED_UNIT = ((("a", 1.0), ("balance", 0.1)), (("a", 0.1), ("balance", 0.1)))
METHODS: dict[Method, tuple[float, tuple[Shape, ...]]] = {
    L1: (5e-5, ((),)),
    SGL: (1e-5, ((),)),
    CGES: (1e-4, ((),)),
    ITL: (1e-5, _SHAPED_TL1),
    UNIT: (1e-5, _SHAPED_UNIT),
}
"""The lowest strength of each method and its shapes, which share the trials."""


def searches(dataset: str, method: Method) -> tuple[Search, ...]:
    """The searches of a method: 25 strengths over two decades, or every second one for each of two shapes."""
    lowest, shapes = METHODS[method]
    grid = log_grid(lowest, 2, 25)[:: len(shapes)]
    return tuple(
        Search(
            dataset,
            method,
            OURS,
            grid,
            TRIALS[dataset] // len(shapes),
            SmallestAfterShrink(DROP[dataset]),
            validation=VALIDATION[dataset],
            shape=shape,
        )
        for shape in shapes
    )


def trainings(request: Request) -> list[Training]:
    """All methods on all seeds."""
    return [
        Training(f"{dataset}.jsonl", method.key, dataset, method, OURS, seed, searches=searches(dataset, method))
        for dataset in request.select(DATASETS)
        for method in METHODS
        for seed in request.seeds
    ]


@dataclass(frozen=True)
class Row:
    """A method on a data set, over the seeds."""

    dataset: str
    method: Method
    outcomes: list[Outcome]

    def cells(self) -> list[str]:
        """The figures in percent."""
        figures = (
            [outcome.result.accuracy for outcome in self.outcomes],
            [outcome.result.params_kept for outcome in self.outcomes],
            [outcome.small_params for outcome in self.outcomes],
            [outcome.small_flops for outcome in self.outcomes],
        )
        shown = [mean_std([100 * value for value in values]) for values in figures]
        return [self.dataset, self.method.label, *shown, str(len(self.outcomes))]


def table(outcomes: list[Outcome]) -> Table:
    """One row for each data set and method."""
    rows = [
        Row(dataset, method, own)
        for dataset in DATASETS
        for method in METHODS
        if (own := [o for o in outcomes if o.job.key == method.key and o.job.config.dataset == dataset])
    ]
    headings = ["data set", "method", "accuracy (%)", "non-zero (%)", "weights (%)", "MACs (%)", "seeds"]
    return Table(headings, [row.cells() for row in rows], "Left by `shrink`", align="ll")


EXPERIMENT: Experiment[list[Outcome]] = Experiment(
    folder=".",
    datasets=DATASETS,
    trainings=trainings,
    kind=lambda request: OUTCOMES,
    read=lambda request: request.outcomes(*(f"{dataset}.jsonl" for dataset in request.select(DATASETS))),
    outputs={},
    tables=lambda outcomes: [table(outcomes)],
)


class Printer:
    """Prints each finished trial; epochs are not shown."""

    def start(self, title: str, total: int) -> None:
        """A task starts."""
        print(f"{title}: {total}", flush=True)

    def advance(self, message: str) -> None:
        """A part of it is finished."""
        if "epoch" not in message:
            print(message, flush=True)


def main() -> None:
    """Show, list or train."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("datasets", nargs="*", help="data sets; all by default")
    parser.add_argument("--train", action="store_true", help="tune and train what the result files lack")
    parser.add_argument("--missing", action="store_true", help="list what --train would do")
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds")
    parser.add_argument("--workers", type=int, default=1, help="processes")
    arguments = parser.parse_args()
    workspace = Workspace(FOLDER, FOLDER / "tuning", Path("runs/units"), workers=arguments.workers)
    request = Request(workspace, tuple(arguments.datasets), tuple(range(arguments.seeds)))
    if arguments.train:
        make_missing(EXPERIMENT, request, Printer())
    if arguments.missing:
        print("\n".join(find_missing(EXPERIMENT, request).lines()) or "nothing")
    try:
        print(table(EXPERIMENT.read(request)).markdown())
    except MissingResultsError as error:
        print(error)


if __name__ == "__main__":
    main()
