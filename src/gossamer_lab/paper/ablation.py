"""Ablation of our recipe: integrated Tl1 on PENDIGITS, with one change at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from gossamer_lab.paper.experiments import Experiment, Request, write_text
from gossamer_lab.paper.methods import ITL
from gossamer_lab.paper.outcomes import Outcome
from gossamer_lab.paper.plan import Training
from gossamer_lab.paper.recipes import OURS
from gossamer_lab.paper.runner import OUTCOMES
from gossamer_lab.paper.searches import searches
from gossamer_lab.reporting.tables import Table, mean_std
from gossamer_lab.training import SETTINGS

__all__ = ["CHANGES", "EXPERIMENT", "ablation_table"]

_DATASET = "pendigits"
_EPOCHS = int(SETTINGS[_DATASET]["epochs"])
_FILE = "ablation/results.jsonl"

# Changes to the configuration, by key in the result file.
CHANGES: dict[str, Mapping[str, float | str | None]] = {
    "our recipe": {},
    "no final phase with the zeros held": {"hold_fraction": 0.0},
    "no warm-up of the strength": {"warm_up_fraction": 0.0},
    "one strength for all layers (exponent 0)": {"cost_exponent": 0.0},
    "strength by cost, exponent 1/2": {"cost_exponent": 0.5},
    "no momentum, a tenth of the effective rate": {"momentum": 0.0, "learning_rate": 0.2},
    "half the epochs": {"epochs": _EPOCHS // 2},
    "twice the epochs": {"epochs": 2 * _EPOCHS},
    "balance s = 0.1": {"s": 0.1},
    "balance s = 0.5": {"s": 0.5},
    "group norms scaled by the root of the group's size": {"regularizer": "integrated-tl1-by-size"},
    "groups by input": {"regularizer": "integrated-tl1-by-input"},
    "groups by tap": {"regularizer": "integrated-tl1-by-tap"},
    "groups of removable units": {"regularizer": "integrated-tl1-of-units"},
    "unit Tl1": {"regularizer": "unit-tl1", "s": None, "balance": 0.02},
    "twice the units in every layer": {"network": "pendigits-wide"},
    "Tl1 alone": {"regularizer": "transformed-l1", "s": None},
    "Tl1 of group norms alone": {"regularizer": "group-transformed-l1", "s": None},
}


def _trainings(request: Request) -> list[Training]:
    recipe = replace(OURS, quick=request.quick)
    tuned = searches(_DATASET, ITL, recipe)
    return [
        Training(_FILE, key, _DATASET, ITL, recipe, seed, tuned, changes=tuple(changes.items()))
        for key, changes in CHANGES.items()
        for seed in request.seeds
    ]


def ablation_table(outcomes: Sequence[Outcome]) -> Table:
    """Return the trainings in the order of `CHANGES`, mean ± standard deviation over the seeds.

    Sizes are absolute numbers, because one of the networks is wider than the others.
    """
    rows = []
    for key in CHANGES:
        results = [outcome.result for outcome in outcomes if outcome.job.key == key]
        if not results:
            continue
        totals = [result.measurement["total"] for result in results]
        rows.append(
            [
                key,
                mean_std([100 * result.accuracy for result in results]),
                mean_std([total["macs_nonzero"] for total in totals], 0),
                mean_std([total["nonzeros"] for total in totals], 0),
                mean_std([result.small["weights"] for result in results], 0),
                str(len(results)),
            ]
        )
    columns = ("change", "accuracy (%)", "MACs kept", "weights kept", "weights after `shrink`", "seeds")
    return Table(columns, rows, "Ablation on PENDIGITS")


EXPERIMENT = Experiment(
    folder="ablation",
    datasets=(_DATASET,),
    trainings=_trainings,
    kind=lambda request: OUTCOMES,
    read=lambda request: request.outcomes(_FILE),
    outputs={"table.md": lambda outcomes, path: write_text(path, ablation_table(outcomes).markdown())},
    tables=lambda outcomes: [ablation_table(outcomes)],
)
