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
    """Draw all results and the front."""
    points = [result.values for result in results if result.values is not None]
    front = [result.values for result in pareto_front(results) if result.values is not None]
    with new_figure(6.0, 4.0) as figure:
        axes = figure.add_subplot()
        axes.scatter([kept for _, kept in points], [100 * (1 - error) for error, _ in points], color="#bdbdbd", s=18)
        axes.plot(
            [kept for _, kept in front], [100 * (1 - error) for error, _ in front], "o-", color="#006b4e", label="front"
        )
        axes.set_xscale("log")
        log_percent(axes.xaxis)
        axes.set_xlabel("weights kept")
        axes.set_ylabel("validation accuracy (%)")
        axes.legend(frameon=False)
        tidy(axes)
        return save(figure, path)
