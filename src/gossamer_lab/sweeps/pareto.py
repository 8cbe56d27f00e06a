"""The Pareto figure of a search: error against the weights that are kept."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from gossamer_lab.reporting.style import log_percent, new_figure, save, tidy
from gossamer_lab.sweeps.search import Result

__all__ = ["pareto_figure", "pareto_front"]


def pareto_front(results: Sequence[Result]) -> list[Result]:
    """The results that no other result beats in both numbers, by weights kept."""
    front: list[Result] = []
    least = math.inf
    with_values = [(*result.values, result) for result in results if result.values is not None]
    for error, _, result in sorted(with_values, key=lambda each: (each[1], each[0])):
        if error < least:
            least = error
            front.append(result)
    return front


def pareto_figure(results: Sequence[Result], path: Path) -> Path:
    """Draw all results and the front; networks without any weight have no place on the logarithmic axis."""
    every, front = _percentages(results), _percentages(pareto_front(results))
    with new_figure(6.0, 4.0) as figure:
        axes = figure.add_subplot()
        axes.scatter([kept for kept, _ in every], [accuracy for _, accuracy in every], color="#bdbdbd", s=18)
        axes.plot(
            [kept for kept, _ in front], [accuracy for _, accuracy in front], "o-", color="#006b4e", label="front"
        )
        axes.set_xscale("log")
        log_percent(axes.xaxis)
        axes.set_xlabel("weights kept (%)")
        axes.set_ylabel("validation accuracy (%)")
        axes.legend(frameon=False)
        tidy(axes)
        return save(figure, path)


def _percentages(results: Sequence[Result]) -> list[tuple[float, float]]:
    """Weights kept and accuracy."""
    values = [result.values for result in results if result.values is not None]
    return [(100 * kept, 100 * (1 - error)) for error, kept in values if kept > 0]
