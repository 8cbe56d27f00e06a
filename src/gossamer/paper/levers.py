"""What each part of our recipe gives: integrated Tl1 as in the table, with one thing changed at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gossamer.paper.outcomes import Outcome, plus_minus

__all__ = ["LEVERS", "levers_markdown"]

# What is changed in the configuration, by what a reader calls it.
LEVERS: dict[str, Mapping[str, float | str | None]] = {
    "our recipe": {},
    "no final phase with the zeros held": {"hold_fraction": 0.0},
    "no warm-up of the strength": {"warm_up_fraction": 0.0},
    "one strength for all layers (exponent 0)": {"cost_exponent": 0.0},
    "strength by cost, exponent 1/2": {"cost_exponent": 0.5},
    "no momentum": {"momentum": 0.0, "learning_rate": 0.2},
    "half the epochs": {"epochs": 75},
    "twice the epochs": {"epochs": 300},
    "balance s = 0.1": {"s": 0.1},
    "balance s = 0.5": {"s": 0.5},
    "Tl1 alone": {"regularizer": "transformed-l1", "s": None},
    "Tl1 of group norms alone": {"regularizer": "group-transformed-l1", "s": None},
}


def levers_markdown(outcomes: Sequence[Outcome]) -> str:
    """Write a table of the trainings, mean ± standard deviation over the seeds, in the order of :data:`LEVERS`."""
    lines = [
        "| change | accuracy (%) | FLOP kept (%) | parameters kept (%) | small network, weights (%) | seeds |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for lever in LEVERS:
        results = [outcome.result for outcome in outcomes if outcome.job.key == lever]
        if not results:
            continue
        small = [100 * result.small["weights"] / result.measurement["total"]["weights"] for result in results]
        cells = [
            lever,
            plus_minus([100 * result.accuracy for result in results]),
            plus_minus([100 * result.flops_kept for result in results]),
            plus_minus([100 * result.params_kept for result in results]),
            plus_minus(small),
            str(len(results)),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"
