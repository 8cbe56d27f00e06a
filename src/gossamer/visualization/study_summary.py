"""The summary of a study: the most accurate run, and the smallest that is nearly as accurate."""

from __future__ import annotations

from gossamer.visualization.data import Page, Run, Study
from gossamer.visualization.formatting import percent
from gossamer.visualization.summary import KeyFigure
from gossamer.visualization.tradeoff import pareto_front

__all__ = ["study_figures", "study_sentences"]

_LOSS = 0.01  # of accuracy, that a smaller network may cost


def study_figures(page: Page, study: Study) -> list[KeyFigure]:
    """The numbers that a reader looks for first."""
    runs = study.runs
    if not runs:
        return []
    best, small = _best(study), _smallest_near(study)
    number = KeyFigure(f"{study.name.capitalize()}s", str(len(runs)), f"{len(pareto_front(runs))} on the Pareto front")
    return [
        KeyFigure(f"Best {page.score}", percent(best.accuracy), f"{percent(best.params_kept)} of the weights"),
        KeyFigure("Smallest within 1 point", percent(small.params_kept), f"{page.score} {percent(small.accuracy)}"),
        number,
    ]


def study_sentences(page: Page, study: Study) -> list[str]:
    """What came out of the study, in a few sentences."""
    if not study.runs:
        return [f"No {study.name} has a result.", *study.remarks]
    best, small = _best(study), _smallest_near(study)
    found = [
        f"The best {page.score} is {percent(best.accuracy)}, with {percent(best.params_kept)} of the weights "
        f"({_called(best)})."
    ]
    if small is not best:
        found.append(
            f"Within one percentage point of it, the smallest network keeps {percent(small.params_kept)} of the "
            f"weights and has {percent(small.accuracy)} ({_called(small)})."
        )
    if study.empty:
        found.append(f"No weight is left in {study.empty} more, which are in the table and not in the chart.")
    return [*found, *study.remarks]


def _best(study: Study) -> Run:
    """The most accurate run, the smallest of those that are equal."""
    return pareto_front(study.runs)[-1]


def _smallest_near(study: Study) -> Run:
    front = pareto_front(study.runs)
    least = (front[-1].accuracy or 0.0) - _LOSS
    return next(run for run in front if (run.accuracy or 0.0) >= least)


def _called(run: Run) -> str:
    return ", ".join([run.label, *(f"{name} {value}" for name, value in run.settings)])
