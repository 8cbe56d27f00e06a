"""Results on MNIST that are stronger than the paper's own, and ours beside them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gossamer.paper.outcomes import Outcome, plus_minus
from gossamer.paper.published import REFERENCES

__all__ = ["REFERENCE_SETTINGS", "references_markdown"]

# Strength and shape of integrated Tl1, and what else differs from the recipe for MNIST; chosen on a tenth of the
# training images.
REFERENCE_SETTINGS: dict[str, tuple[dict[str, float], dict[str, Any]]] = {}

_NETWORKS = {None: "LeNet-5-Caffe", "lenet-300-100": "LeNet-300-100"}


def references_markdown(outcomes: Sequence[Outcome]) -> str:
    """Write a table of the published results and of ours, by the key of their jobs, mean ± deviation over the seeds.

    Of the published results those that remove whole units count the weights of the small network, and those that
    remove single weights the weights that are not zero. Ours are counted both ways.
    """
    lines = [
        "| network | method | units | error (%) | weights not zero (%) | weights of the small network (%) "
        "| its multiply-adds (%) | seeds |",
        "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for reference in REFERENCES:
        single = not reference.units
        cells = [
            reference.network,
            f"{reference.method}, published",
            "-".join(map(str, reference.units)),
            f"{100 * reference.error:.2f}",
            f"{100 * reference.params_kept:.2f}" if single else "",
            "" if single else f"{100 * reference.params_kept:.2f}",
            "" if reference.flops_kept is None else f"{100 * reference.flops_kept:.1f}",
            "",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    for key in dict.fromkeys(outcome.job.key for outcome in outcomes):
        lines.append(_line(key, [outcome for outcome in outcomes if outcome.job.key == key]))
    return "\n".join(lines) + "\n"


def _line(key: str, outcomes: Sequence[Outcome]) -> str:
    results = [outcome.result for outcome in outcomes]
    network = _NETWORKS[outcomes[0].job.config.network]
    units = ["-".join(map(str, list(result.small["units"].values())[:-1])) for result in results]
    cells = [
        network,
        key,
        ", ".join(units),
        plus_minus([100 * (1 - result.accuracy) for result in results]),
        plus_minus([100 * result.params_kept for result in results], 3),
        plus_minus([100 * outcome.small_params for outcome in outcomes], 3),
        plus_minus([100 * outcome.small_flops for outcome in outcomes]),
        str(len(results)),
    ]
    return f"| {' | '.join(cells)} |"
