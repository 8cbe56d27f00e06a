"""What each part of our recipe gives: integrated Tl1 as in the table, with one thing changed at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gossamer_lab.paper.outcomes import Outcome, plus_minus
from gossamer_lab.training import SETTINGS

__all__ = ["LEVERS", "levers_markdown"]

_EPOCHS = int(SETTINGS["pendigits"]["epochs"])

# What is changed in the configuration, by what a reader calls it.
LEVERS: dict[str, Mapping[str, float | str | None]] = {
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
    "twice the units in every layer": {"network": "pendigits-wide"},
    "Tl1 alone": {"regularizer": "transformed-l1", "s": None},
    "Tl1 of group norms alone": {"regularizer": "group-transformed-l1", "s": None},
}


def levers_markdown(outcomes: Sequence[Outcome]) -> str:
    """Write a table of the trainings, mean ± standard deviation over the seeds, in the order of :data:`LEVERS`.

    Numbers of weights and multiply-adds, and not parts: one of the networks is wider than the others.
    """
    lines = [
        "| change | accuracy (%) | multiply-adds left | weights left | weights of the small network | seeds |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for lever in LEVERS:
        results = [outcome.result for outcome in outcomes if outcome.job.key == lever]
        if not results:
            continue
        totals = [result.measurement["total"] for result in results]
        cells = [
            lever,
            plus_minus([100 * result.accuracy for result in results]),
            plus_minus([total["macs_nonzero"] for total in totals], 0),
            plus_minus([total["nonzeros"] for total in totals], 0),
            plus_minus([result.small["weights"] for result in results], 0),
            str(len(results)),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"
