"""Results on MNIST that are stronger than the paper's own, and ours beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gossamer.paper.compared import ITL
from gossamer.paper.outcomes import Outcome, plus_minus
from gossamer.paper.published import REFERENCES
from gossamer.paper.recipes import Recipe
from gossamer.paper.searches import ladder
from gossamer.paper.tuning import Search

__all__ = ["reference_searches", "references_markdown"]

# A short first phase decides which units stay; then all weights of the small network learn, for long, which is cheap.
_UNITS = Recipe(
    "units",
    (
        ("epochs", 80),
        ("hold_fraction", 0.85),
        ("warm_up_fraction", 0.5),
        ("hold_learning_rate", 0.05),
        ("cost_exponent", 0.08),
        ("compact_every", 1),
        ("regrow", True),
    ),
)
# One strength for all layers: the number of weights alone counts.
_WEIGHTS = Recipe("weights", (("epochs", 40), ("hold_fraction", 0.6), ("cost_exponent", 0.0)))
_PERCEPTRON = Recipe(
    "perceptron",
    (
        ("network", "lenet-300-100"),
        ("epochs", 60),
        ("hold_fraction", 0.6),
        ("hold_learning_rate", 0.05),
        ("cost_exponent", 0.0),
    ),
)

# The validation images of MNIST are harder: the settings of the table are 0.44 to 0.51 points better on the others.
_HARDER = 0.0045

_NETWORKS = {None: "LeNet-5-Caffe", "lenet-300-100": "LeNet-300-100"}


def reference_searches(quick: bool = False) -> dict[str, Search]:
    """What stands beside the references, by its name there: the smallest network with the reference's error."""
    units, weights, perceptron = (REFERENCES[number].error for number in (0, 3, 4))
    return {
        "ours, whole units": _search(_UNITS, units, ladder(2e-3, 0.45, 13), a=1.0, s=0.3, quick=quick),
        "ours, single weights": _search(_WEIGHTS, weights, ladder(1.5e-4, 0.6, 7), a=0.01, s=0.1, quick=quick),
        "ours, single weights of the perceptron": _search(
            _PERCEPTRON, perceptron, ladder(2.5e-4, 0.6, 7), a=0.02, s=0.1, quick=quick
        ),
    }


def _search(recipe: Recipe, error: float, rungs: tuple[float, ...], a: float, s: float, quick: bool) -> Search:
    return Search(
        "mnist",
        ITL,
        replace(recipe, quick=quick),
        rungs,
        trials=2 if quick else len(rungs).bit_length(),  # what it takes to halve them to one
        drop=_HARDER,
        validation=0.1,
        shape=(("a", a), ("s", s)),
        aim=1 - error,
    )


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
