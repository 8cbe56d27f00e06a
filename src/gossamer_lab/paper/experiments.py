"""The experiments of the paper: which trainings each needs, and what it makes of their result files.

To add one: a function that takes a :class:`Request` and returns a :class:`Report`, and an entry in :data:`EXPERIMENTS`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from rich.console import RenderableType
from rich.markdown import Markdown

from gossamer.errors import GossamerError
from gossamer.files import write_atomically
from gossamer_lab.paper.boxplots import BOXPLOT_DATASETS, boxplots_figure
from gossamer_lab.paper.compared import DENSE, GROUP, ITL, L2, TABLE, TL1, Compared
from gossamer_lab.paper.contours import contours_figures, write_contours
from gossamer_lab.paper.convergence import convergence_figure, curves_lacking, curves_of
from gossamer_lab.paper.effect_of_a import effect_of_a_figure, effect_of_a_markdown
from gossamer_lab.paper.filters import collect_filters, filters_figure, has_filters
from gossamer_lab.paper.interpretation import interpretation_markdown, interpretation_table
from gossamer_lab.paper.levers import LEVERS, levers_markdown
from gossamer_lab.paper.outcomes import Job, Outcome
from gossamer_lab.paper.published import DATASETS
from gossamer_lab.paper.recipes import OURS, PLAIN, Recipe
from gossamer_lab.paper.references import reference_searches, references_markdown
from gossamer_lab.paper.runner import LackingError, Place, lacking, outcomes_of, run_of, train_job
from gossamer_lab.paper.searches import PLAIN_DATASETS, search_at, searches
from gossamer_lab.paper.table import rows, to_json
from gossamer_lab.paper.table_text import to_markdown, to_rich
from gossamer_lab.paper.tradeoff import TRADEOFF_DATASETS, TradeoffPoint, tradeoff_figure
from gossamer_lab.paper.tuning import Search, choose, trials_left, tune
from gossamer_lab.sweeps import Trial, in_processes

__all__ = ["EXPERIMENTS", "SEEDS", "Experiment", "Report", "Request", "Watcher"]


SEEDS = (0, 1, 2)

# The strengths of the trade-off, as parts of the chosen one; l2, which zeroes nothing, has only one.
_FACTORS = (1 / 8, 1 / 4, 1 / 2, 1.0, 2.0)
_L2 = {"strength": 1e-4}


class Watcher(Protocol):
    """Is told how far the work has come."""

    def begin(self, title: str, total: int) -> None:
        """A piece of work of so many parts begins; another may still go on."""

    def advance(self, text: str) -> None:
        """One more part of it is done, described by the text."""

    def say(self, text: str) -> None:
        """Something that is to be known."""


@dataclass(frozen=True)
class Request:
    """What is asked of an experiment.

    Attributes:
        place: Where it reads and writes.
        watcher: Is told how far it is.
        datasets: Only these, where the experiment has several; all if empty.
        seeds: Of the trainings.
        quick: A few epochs on a few images: shows that all works.
    """

    place: Place
    watcher: Watcher
    datasets: tuple[str, ...] = ()
    seeds: tuple[int, ...] = SEEDS
    quick: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether all data sets and all seeds are asked for."""
        return not self.datasets and self.seeds == SEEDS

    def folder(self, name: str) -> Path:
        """The folder of an experiment's result files."""
        return self.place.results / name

    def among(self, datasets: Sequence[str]) -> list[str]:
        """Those of the data sets that are asked for."""
        chosen = [dataset for dataset in datasets if not self.datasets or dataset in self.datasets]
        if not chosen:
            raise GossamerError(f"This experiment has {', '.join(datasets)}; asked for: {', '.join(self.datasets)}.")
        return chosen


@dataclass(frozen=True)
class Report:
    """What came of an experiment.

    Attributes:
        shown: For the terminal.
        files: Figures and tables that were written.
        json: For scripts.
    """

    shown: tuple[RenderableType, ...]
    files: tuple[Path, ...]
    json: dict[str, Any] = field(default_factory=dict)


def _trained(request: Request, jobs: Sequence[Job], file: Path) -> list[Outcome]:
    if request.place.may_train:
        # Some of what the file lacks another experiment may have trained already.
        left = [job for job in lacking(jobs, file) if not run_of(job.config, request.place).result.exists()]
        request.watcher.begin("training", sum(job.config.epochs for job in left))
    return outcomes_of(jobs, file, request.place, request.watcher.advance)


def _tuned(request: Request, searches: Sequence[Search]) -> dict[Search, list[Trial]]:
    if request.place.may_train:
        request.watcher.begin("tuning", trials_left(searches, request.place))
    return tune(searches, request.place, request.watcher.advance)


def _chosen(
    request: Request, recipe: Recipe, dataset: str, methods: Sequence[Compared]
) -> dict[Compared, dict[str, float]]:
    """Strength and shape of each method on a data set."""
    trials = _tuned(request, [one for compared in methods for one in searches(dataset, compared, recipe)])
    return {
        compared: choose({one: found for one, found in trials.items() if one.compared == compared})
        for compared in methods
    }


def _compared(request: Request, recipe: Recipe, datasets: Sequence[str], folder: Path) -> list[Outcome]:
    """The four methods with their tuned settings, on all seeds, and the first without a penalty.

    Where nothing may be trained, the data sets that the result files have all of.
    """
    recipe = replace(recipe, quick=request.quick)
    outcomes, errors = [], []
    for dataset in request.among(datasets):
        try:
            outcomes += _compared_on(request, recipe, dataset, folder / f"{dataset}.jsonl")
        except LackingError as error:
            request.watcher.say(str(error))
            errors.append(error)
    if errors and not outcomes:
        raise errors[0]
    return outcomes


def _compared_on(request: Request, recipe: Recipe, dataset: str, file: Path) -> list[Outcome]:
    chosen = _chosen(request, recipe, dataset, TABLE)
    jobs = [
        Job(compared.key, recipe.configuration(dataset, compared, parameters, seed))
        for seed in request.seeds
        for compared, parameters in chosen.items()
    ]
    jobs.append(Job(DENSE.key, recipe.configuration(dataset, DENSE, {}, request.seeds[0])))
    return _trained(request, jobs, file)


def table(request: Request) -> Report:
    """Accuracy, multiply-adds and weights of the four methods on the five data sets, beside the published."""
    return _table(request, "table", OURS, DATASETS)


def plain(request: Request) -> Report:
    """The same by the paper's plain recipe, on two data sets."""
    return _table(request, "plain", PLAIN, PLAIN_DATASETS)


def _table(request: Request, name: str, recipe: Recipe, datasets: Sequence[str]) -> Report:
    folder = request.folder(name)
    measured = rows(_compared(request, recipe, datasets, folder))
    # A part is shown, and leaves the page of the whole as it is.
    files = (_written(folder / "table.md", to_markdown(measured)),) if request.is_whole else ()
    return Report(tuple(to_rich(measured)), files, to_json(measured))


def boxplots(request: Request) -> Report:
    """Box plots of the table's trainings on PENDIGITS and CIFAR-10."""
    outcomes = _compared(request, OURS, BOXPLOT_DATASETS, request.folder("table"))
    figure = request.folder("boxplots") / "boxplots.png"
    boxplots_figure(outcomes, figure)
    return Report((), (figure,))


def tradeoff(request: Request) -> Report:
    """Accuracy over multiply-adds and over weights, along strengths around those of the table."""
    recipe = replace(OURS, quick=request.quick)
    folder = request.folder("tradeoff")
    outcomes = []
    for dataset in request.among(TRADEOFF_DATASETS):
        chosen = {L2: _L2, **_chosen(request, recipe, dataset, TABLE)}
        jobs = [
            Job(compared.key, recipe.configuration(dataset, compared, {**parameters, "strength": strength}))
            for compared, parameters in chosen.items()
            for factor in ((1.0,) if request.quick or compared == L2 else _FACTORS)
            for strength in [factor * parameters["strength"]]
        ]
        outcomes += _trained(request, jobs, folder / f"{dataset}.jsonl")
    points = [
        TradeoffPoint(result.dataset, outcome.job.key, result.accuracy, result.flops_kept, result.params_kept)
        for outcome in outcomes
        for result in [outcome.result]
    ]
    tradeoff_figure(points, folder / "tradeoff.png", measured_on="test images")
    return Report((), (folder / "tradeoff.png",))


def convergence(request: Request) -> Report:
    """Test accuracy over the first steps on MNIST, under the strengths of the table."""
    recipe = replace(OURS, quick=request.quick)
    steps, every = (40, 10) if request.quick else (1600, 100)
    jobs = [
        Job(compared.key, recipe.configuration("mnist", compared, parameters, seed))
        for compared, parameters in {L2: _L2, **_chosen(request, recipe, "mnist", TABLE)}.items()
        for seed in request.seeds
    ]
    file = request.folder("convergence") / "curves.jsonl"
    if request.place.may_train:
        request.watcher.begin("training", len(curves_lacking(jobs, steps, every, file)))
    curves_of(jobs, steps, every, file, request.place, request.watcher.advance)
    return Report((), (convergence_figure(file, file.with_name("convergence.png")),))


def filters(request: Request) -> Report:
    """The filters of the first convolution on MNIST, of the table's first seed."""
    folder = request.folder("filters")
    values = folder / "filters.json"
    first = replace(request, datasets=("mnist",), seeds=request.seeds[:1])
    outcomes = _compared(first, OURS, ("mnist",), request.folder("table"))
    jobs = [outcome.job for outcome in outcomes if outcome.job.key != DENSE.key]
    if not has_filters(jobs, values):
        lost = [job for job in jobs if not run_of(job.config, request.place).result.exists()]
        if lost and not request.place.may_train:
            raise LackingError(f"{len(lost)} networks of the table are gone. Make them again by `--train`.")
        request.watcher.begin("training", sum(job.config.epochs for job in lost))
        list(in_processes(partial(train_job, request.place), lost, request.place.workers, request.watcher.advance))
        collect_filters({job: run_of(job.config, request.place).weights for job in jobs}, values)
    return Report((), (filters_figure(values, folder / "filters.png"),))


def effect_of_a(request: Request) -> Report:
    """Accuracy, multiply-adds and weights over the training on DIGITS, for six values of a."""
    recipe = replace(OURS, quick=request.quick)
    tried = {f"{a:g}": search_at(a, recipe) for a in (1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0)}
    trials = _tuned(request, list(tried.values()))
    jobs = [
        Job(key, recipe.configuration("digits", ITL, choose({one: trials[one]}), seed))
        for key, one in tried.items()
        for seed in request.seeds
    ]
    folder = request.folder("effect-of-a")
    outcomes = _trained(request, jobs, folder / "results.jsonl")
    page = _written(folder / "table.md", effect_of_a_markdown(outcomes))
    return Report((), (effect_of_a_figure(outcomes, folder / "effect-of-a.png"), page))


def interpretation(request: Request) -> Report:
    """Neurons and connections that group sparsity, transformed l1 and both together remove on DIGITS."""
    recipe = replace(OURS, quick=request.quick)
    jobs = [
        Job(compared.regularizer, recipe.configuration("digits", compared, parameters, seed))
        for compared, parameters in _chosen(request, recipe, "digits", (GROUP, TL1, ITL)).items()
        for seed in request.seeds
    ]
    folder = request.folder("interpretation")
    outcomes = _trained(request, jobs, folder / "results.jsonl")
    page = _written(folder / "table.md", interpretation_markdown(outcomes))
    return Report((interpretation_table(outcomes),), (page,))


def _written(page: Path, text: str) -> Path:
    page.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(page, text.encode())
    return page


def levers(request: Request) -> Report:
    """What each part of our recipe gives: integrated Tl1 on PENDIGITS with one thing changed at a time."""
    recipe = replace(OURS, quick=request.quick)
    chosen = _chosen(request, recipe, "pendigits", (ITL,))[ITL]
    jobs = [
        Job(lever, recipe.configuration("pendigits", ITL, chosen, seed, **changes))
        for lever, changes in LEVERS.items()
        for seed in request.seeds
    ]
    folder = request.folder("levers")
    page = _written(folder / "table.md", levers_markdown(_trained(request, jobs, folder / "results.jsonl")))
    return Report((Markdown(page.read_text(encoding="utf-8")),), (page,))


def references(request: Request) -> Report:
    """LeNet-5 and LeNet-300-100 on MNIST beside results of others that are stronger than the paper's."""
    tried = reference_searches(request.quick)
    trials = _tuned(request, list(tried.values()))
    jobs = [
        Job(name, one.recipe.configuration(one.dataset, one.compared, choose({one: trials[one]}), seed))
        for name, one in tried.items()
        for seed in request.seeds
    ]
    folder = request.folder("references")
    page = _written(folder / "table.md", references_markdown(_trained(request, jobs, folder / "results.jsonl")))
    return Report((Markdown(page.read_text(encoding="utf-8")),), (page,))


def contours(request: Request) -> Report:
    """Contour plots of nine penalties, and of transformed l1 for three values of a."""
    folder = request.folder("contours")
    folder.mkdir(parents=True, exist_ok=True)
    values = folder / "contours.json"
    write_contours(values)
    return Report((), tuple(contours_figures(values, folder)))


@dataclass(frozen=True)
class Experiment:
    """One of the paper's experiments, or of ours about it.

    Attributes:
        run: Does it.
        datasets: Those whose images it trains on.
    """

    run: Callable[[Request], Report]
    datasets: tuple[str, ...] = ()


EXPERIMENTS: dict[str, Experiment] = {
    "table": Experiment(table, DATASETS),
    "plain": Experiment(plain, PLAIN_DATASETS),
    "boxplots": Experiment(boxplots, BOXPLOT_DATASETS),
    "tradeoff": Experiment(tradeoff, TRADEOFF_DATASETS),
    "convergence": Experiment(convergence, ("mnist",)),
    "filters": Experiment(filters, ("mnist",)),
    "effect-of-a": Experiment(effect_of_a, ("digits",)),
    "interpretation": Experiment(interpretation, ("digits",)),
    "contours": Experiment(contours),
    "levers": Experiment(levers, ("pendigits",)),
    "references": Experiment(references, ("mnist",)),
}
