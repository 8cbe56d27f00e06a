"""Comparison with published results on MNIST that are stronger than the paper's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gossamer_lab.paper.criteria import MostAccurateWithinSize
from gossamer_lab.paper.experiments import Experiment, Request, write_text
from gossamer_lab.paper.methods import ITL, TL1, Method
from gossamer_lab.paper.outcomes import Outcome
from gossamer_lab.paper.plan import Training
from gossamer_lab.paper.published import REFERENCES
from gossamer_lab.paper.recipes import Recipe
from gossamer_lab.paper.runner import OUTCOMES
from gossamer_lab.paper.tuning import Search, Shape
from gossamer_lab.reporting.tables import Table, mean_std

__all__ = ["EXPERIMENT", "reference_searches", "references_table"]

_FILE = "references/results.jsonl"

# Small networks overfit in long trainings; random affine maps counteract that.
_LONG = (("hold_learning_rate", 0.05), ("affine", 0.15))

# A short first phase selects the units; then all weights of the shrunk network train for long, which is cheap.
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
# One strength for all layers: only the number of weights counts.
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

# Fraction of the published size to aim for: networks of other seeds may be larger than that of the trial.
_SIZE_MARGIN = 0.97

_NETWORKS = {None: "LeNet-5-Caffe", "lenet-300-100": "LeNet-300-100"}

# Names in the table, by key in the result file.
_LABELS = {
    "ours, whole units": "ours, structured",
    "ours, single weights": "ours, unstructured",
    "ours, single weights of the perceptron": "ours, unstructured",
}


def reference_searches(quick: bool = False) -> dict[str, Search]:
    """Return the search for the most accurate network of each reference's size, by key in the result file."""
    # Where no MACs were published, any number is small enough.
    units, weights, perceptron = (
        MostAccurateWithinSize(_SIZE_MARGIN * (reference.flops_kept or 1), _SIZE_MARGIN * reference.params_kept)
        for reference in (REFERENCES[number] for number in (0, 3, 4))
    )

    def search(
        recipe: Recipe, method: Method, criterion: MostAccurateWithinSize, strengths: tuple[float, ...], shape: Shape
    ) -> Search:
        recipe = replace(recipe, quick=quick)
        strengths = strengths[:2] if quick else strengths
        return Search("mnist", method, recipe, strengths, len(strengths), criterion, validation=0.1, shape=shape)

    return {
        "ours, whole units": search(_UNITS, ITL, units, (4e-3, 4.2e-3), (("a", 1.0), ("s", 0.3))),
        "ours, single weights": search(_WEIGHTS, TL1, weights, (5.8e-4, 6.5e-4), (("a", 0.01),)),
        "ours, single weights of the perceptron": search(
            _PERCEPTRON, ITL, perceptron, (8.5e-4, 9.5e-4), (("a", 0.02), ("s", 0.1))
        ),
    }


def _trainings(request: Request) -> list[Training]:
    return [
        Training(_FILE, key, search.dataset, search.method, search.recipe, seed, searches=(search,))
        for key, search in reference_searches(request.quick).items()
        for seed in request.seeds
    ]


def references_table(outcomes: Sequence[Outcome]) -> Table:
    """Return the published results, then ours, mean ± standard deviation over the seeds.

    Published structured results count all weights of the shrunk network, unstructured ones the non-zero weights. Ours
    are counted both ways.
    """
    columns = (
        "network",
        "method",
        "units",
        "error (%)",
        "non-zero weights (%)",
        "weights after `shrink` (%)",
        "MACs after `shrink` (%)",
        "seeds",
    )
    rows = []
    for reference in REFERENCES:
        unstructured = not reference.units
        rows.append(
            [
                reference.network,
                f"{reference.method}, published",
                "-".join(map(str, reference.units)),
                f"{100 * reference.error:.2f}",
                f"{100 * reference.params_kept:.2f}" if unstructured else "",
                "" if unstructured else f"{100 * reference.params_kept:.2f}",
                "" if reference.flops_kept is None else f"{100 * reference.flops_kept:.1f}",
                "",
            ]
        )
    for key, label in _LABELS.items():
        group = sorted(
            (outcome for outcome in outcomes if outcome.job.key == key), key=lambda outcome: outcome.job.config.seed
        )
        if group:
            rows.append(_row(label, group))
    return Table(columns, rows, "Stronger references on MNIST", align="lll")


def _row(label: str, outcomes: Sequence[Outcome]) -> list[str]:
    results = [outcome.result for outcome in outcomes]
    units = ["-".join(map(str, list(result.small["units"].values())[:-1])) for result in results]
    return [
        _NETWORKS[outcomes[0].job.config.network],
        label,
        ", ".join(units),
        mean_std([100 * (1 - result.accuracy) for result in results]),
        mean_std([100 * result.params_kept for result in results], 3),
        mean_std([100 * outcome.small_params for outcome in outcomes], 3),
        mean_std([100 * outcome.small_flops for outcome in outcomes]),
        str(len(results)),
    ]


EXPERIMENT = Experiment(
    folder="references",
    datasets=("mnist",),
    trainings=_trainings,
    kind=lambda request: OUTCOMES,
    read=lambda request: request.outcomes(_FILE),
    outputs={"table.md": lambda outcomes, path: write_text(path, references_table(outcomes).markdown())},
    tables=lambda outcomes: [references_table(outcomes)],
)
