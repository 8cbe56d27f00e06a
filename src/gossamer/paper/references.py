"""Results on MNIST that are stronger than the paper's own, and ours beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gossamer.paper.compared import GROUP_TL1, ITL
from gossamer.paper.outcomes import Outcome, plus_minus
from gossamer.paper.published import REFERENCES
from gossamer.paper.recipes import OURS, Recipe
from gossamer.paper.searches import ladder
from gossamer.paper.tuning import Search

__all__ = ["reference_searches", "references_markdown"]

# Whole units: a short first phase decides which, a long second one, cheap because the others are gone, trains them.
_UNITS = Recipe(
    "units",
    (
        ("epochs", 60),
        ("hold_fraction", 0.8),
        ("warm_up_fraction", 0.5),
        ("hold_learning_rate", 0.05),
        ("cost_exponent", 0.1),
        ("compact_every", 1),
    ),
)
# Single weights: one strength for all layers, as their number alone counts, and more time for both phases.
_WEIGHTS = Recipe("weights", (("epochs", 40), ("hold_fraction", 0.6), ("cost_exponent", 0.0)))
_PERCEPTRON = Recipe("perceptron", (("network", "lenet-300-100"), ("epochs", 40), ("hold_fraction", 0.5)))

_NETWORKS = {None: "LeNet-5-Caffe", "lenet-300-100": "LeNet-300-100"}


def reference_searches(quick: bool = False) -> dict[str, Search]:
    """What stands beside the references, by its name there; chosen by the rule of the paper's table."""
    searches = {
        "whole units, Tl1 of group norms": Search(
            "mnist", GROUP_TL1, _UNITS, ladder(1e-3, 1, 15), 4, 0.003, 0.1, (("a", 1.0),), against=OURS
        ),
        "single weights, integrated Tl1": Search(
            "mnist", ITL, _WEIGHTS, ladder(1e-4, 1, 15), 4, 0.001, 0.1, (("a", 0.01), ("s", 0.1)), against=OURS
        ),
        "single weights of the perceptron, integrated Tl1": Search(
            "mnist", ITL, _PERCEPTRON, ladder(1e-4, 1, 15), 4, 0.003, 0.1, (("a", 0.02), ("s", 0.5))
        ),
    }
    if not quick:
        return searches
    return {
        name: replace(one, recipe=replace(one.recipe, quick=True), against=None, trials=2)
        for name, one in searches.items()
    }


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
