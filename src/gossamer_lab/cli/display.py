"""What the command shows: progress on stderr while it trains, tables on stdout when it is done."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table

from gossamer_lab.cli.networks import Comparison
from gossamer_lab.data import Dataset
from gossamer_lab.training import EpochMetrics, RunResult, TrainingConfig

__all__ = ["Display"]

# How often a training speaks where there is no terminal to draw a bar on.
_LINES_IN_A_LOG = 10


class Display:
    """Bars on a terminal; in a log, a few plain lines. ``quiet`` leaves stdout to the caller."""

    def __init__(self, quiet: bool = False) -> None:
        self._out = Console(quiet=quiet, highlight=False, soft_wrap=True)
        self._err = Console(stderr=True, highlight=False, soft_wrap=True)

    def say(self, text: str) -> None:
        """Say one line on stderr."""
        self._err.print(text, markup=False)

    @contextmanager
    def training(self, config: TrainingConfig) -> Iterator[Callable[[EpochMetrics], None]]:
        """Give a function to call with each epoch of a training."""
        if not self._err.is_terminal:
            yield lambda metrics: self._log(config, metrics)
            return
        columns = (
            TextColumn("{task.description:15}"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TextColumn("{task.fields[figures]}"),
            TimeRemainingColumn(compact=True),
        )
        with Progress(*columns, console=self._err, expand=True) as bars:
            bar = bars.add_task(_label(config.regularizer), total=config.epochs, figures="")
            yield lambda metrics: _advance(bars, bar, metrics)
            # A training that stopped early is whole, too.
            bars.update(bar, total=bars.tasks[0].completed)

    def _log(self, config: TrainingConfig, metrics: EpochMetrics) -> None:
        every = max(1, config.epochs // _LINES_IN_A_LOG)
        if metrics.epoch == 1 or metrics.epoch % every == 0:
            self.say(
                f"{_label(config.regularizer)}: epoch {metrics.epoch} of {config.epochs}, {_figures(metrics, ', ')}"
            )

    def summary(self, dataset: Dataset, results: Sequence[RunResult]) -> None:
        """Show the runs beside each other, then the layers of the first."""
        table = _table(
            f"{dataset.name}: {len(dataset.train_images):,} images to train on, "
            f"{len(dataset.test_images):,} to test on, seed {results[0].seed}"
        )
        headings = ("strength", "accuracy", "weights kept", "mult-adds kept", "epochs", "seconds")
        for heading in headings:
            table.add_column(heading, justify="right")
        for result in results:
            table.add_row(
                _label(result.regularizer),
                f"{result.strength:g}" if result.strength else "-",
                _percent(result.accuracy),
                _percent(result.params_kept),
                _percent(result.flops_kept),
                str(result.epochs),
                f"{result.seconds:.1f}",
            )
        self._out.print(table)
        self._layers(results)
        for layer in results[0].measurement["layers"]:
            if layer["nonzeros"] == 0:
                self.say(f"warning: layer {layer['name']} has no weights left; lower `--strength`")

    def _layers(self, results: Sequence[RunResult]) -> None:
        table = _table("weights and units that are left in each layer")
        table.add_column("of", justify="right")
        for result in results:
            table.add_column(_label(result.regularizer), justify="right")
        for layers in zip(*(result.measurement["layers"] for result in results), strict=True):
            table.add_row(
                layers[0]["name"].removesuffix(".weight"),
                f"{layers[0]['weights']:,} / {layers[0]['units']:,}",
                *(f"{layer['nonzeros']:,} / {layer['units_alive']:,}" for layer in layers),
            )
        self._out.print(table)

    def comparison(self, networks: Sequence[Comparison]) -> None:
        """Show networks beside each other: what they hold, their files, their speed."""
        table = _table("the network and its file")
        for heading in ("weights", "multiply-adds", "file", *(f"{n} at once" for n in networks[0].seconds)):
            table.add_column(heading, justify="right")
        for network in networks:
            table.add_row(
                network.name,
                f"{network.weights:,}",
                f"{network.macs:,}",
                f"{network.file_bytes / 1000:,.1f} kB",
                *(f"{1e6 * seconds:,.0f} µs" for seconds in network.seconds.values()),
            )
        self._out.print(table)

    def text(self, text: str) -> None:
        """Show lines as they are."""
        self._out.print(text, markup=False)

    def files(self, path: Path, figure: Path) -> None:
        """Say where the files are."""
        self._out.print(f"files of the run: {path}", markup=False)
        self._out.print(f"summary figure:   {figure}", markup=False)


def _table(title: str) -> Table:
    """An empty table whose first column holds names; narrow enough for a log of 80 columns."""
    table = Table(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD, pad_edge=False)
    table.add_column(no_wrap=True)
    return table


def _advance(bars: Progress, bar: TaskID, metrics: EpochMetrics) -> None:
    bars.update(bar, completed=metrics.epoch, figures=_figures(metrics, "  "))


def _figures(metrics: EpochMetrics, between: str) -> str:
    return between.join(
        (
            f"loss {metrics.loss:.4f}",
            f"accuracy {_percent(metrics.test_accuracy)}",
            f"weights {_percent(metrics.params_kept)}",
        )
    )


def _label(regularizer: str) -> str:
    return "dense" if regularizer == "none" else regularizer


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.2f} %"
