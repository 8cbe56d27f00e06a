"""The figure of `gossamer path`: accuracy over size, warm-started and from scratch, with their costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from gossamer_lab.reporting.style import RUNS, log_percent, new_figure, save, tidy
from gossamer_lab.training.path import TradeoffPoint

__all__ = ["path_figure"]

_SIZES = {"params_kept": "non-zero weights", "flops_kept": "non-zero MACs", "dense_flops": "MACs after shrinking"}


def path_figure(title: str, curves: Mapping[str, Sequence[TradeoffPoint]], path: Path) -> Path:
    """Draw the curves, by name, over each size."""
    with new_figure(11.5, 4.4) as figure:
        for axes, (field, label) in zip(figure.subplots(1, len(_SIZES), sharey=True), _SIZES.items(), strict=True):
            for (name, points), look in zip(curves.items(), RUNS, strict=False):
                epochs, seconds = (sum(getattr(point, cost) for point in points) for cost in ("epochs", "seconds"))
                axes.plot(
                    [100 * getattr(point, field) for point in points],
                    [100 * point.accuracy for point in points],
                    color=look.colour,
                    linestyle=look.line,
                    marker=look.marker,
                    label=f"{name}: {epochs:.0f} epochs, {seconds:.0f} s",
                )
            axes.set_xscale("log")
            log_percent(axes.xaxis)
            axes.set_xlabel(f"{label} (%), log scale")
            tidy(axes)
        figure.axes[0].set_ylabel("test accuracy (%)")
        figure.axes[0].legend(loc="lower right", frameon=False)
        figure.suptitle(title)
        return save(figure, path)
