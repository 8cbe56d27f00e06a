"""Results on MNIST that are stronger than the paper's own, and ours beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gossamer_lab.paper.compared import ITL, TL1, Compared
from gossamer_lab.paper.outcomes import Outcome, plus_minus
from gossamer_lab.paper.published import REFERENCES
from gossamer_lab.paper.recipes import Recipe
from gossamer_lab.paper.rules import MostAccurate
from gossamer_lab.paper.tuning import Search, Shape

__all__ = ["reference_searches", "references_markdown"]

# Small networks that learn for long come to know their training images by heart: slanted ones they never see twice.
_LONG = (("hold_learning_rate", 0.05), ("slant", 0.15))

# A short first phase decides which units stay; then all weights of the small network learn, for long, which is cheap.
_UNITS = Recipe(
    "units",
    (
        *_LONG,
        ("epochs", 100),
        ("hold_fraction", 0.88),
        ("warm_up_fraction", 0.5),
        ("cost_exponent", 0.05),
        ("compact_every", 1),
        ("regrow", True),
    ),
)
# One strength for all layers: the number of weights alone counts.
_WEIGHTS = Recipe("weights", (*_LONG, ("epochs", 100), ("hold_fraction", 0.4), ("cost_exponent", 0.0)))
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

# The network of another seed may be a little larger than that of the trial.
_ROOM = 0.97

_NETWORKS = {None: "LeNet-5-Caffe", "lenet-300-100": "LeNet-300-100"}


def reference_searches(quick: bool = False) -> dict[str, Search]:
    """What stands beside the references, by its name there: the most accurate network of the reference's size."""
    # Where no multiply-adds were published, nearly all of them are small enough.
    units, weights, perceptron = (
        MostAccurate(_ROOM * (reference.flops_kept or 1), _ROOM * reference.params_kept)
        for reference in (REFERENCES[number] for number in (0, 3, 4))
    )

    def search(
        recipe: Recipe, method: Compared, rule: MostAccurate, strengths: tuple[float, ...], shape: Shape
    ) -> Search:
        recipe = replace(recipe, quick=quick)
        strengths = strengths[:2] if quick else strengths
        return Search("mnist", method, recipe, strengths, len(strengths), rule, validation=0.1, shape=shape)

    return {
        "ours, whole units": search(_UNITS, ITL, units, (4e-3, 4.2e-3), (("a", 1.0), ("s", 0.3))),
        "ours, single weights": search(_WEIGHTS, TL1, weights, (5.8e-4, 6.5e-4), (("a", 0.01),)),
        "ours, single weights of the perceptron": search(
            _PERCEPTRON, ITL, perceptron, (8.5e-4, 9.5e-4), (("a", 0.02), ("s", 0.1))
        ),
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
