"""Output of the command: progress on stderr, tables on stdout."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from gossamer.measurement import Measurement
from gossamer.targets import Reached
from gossamer_lab.cli.networks import Comparison
from gossamer_lab.data import Dataset
from gossamer_lab.reporting.tables import Table, percent, print_tables
from gossamer_lab.training import EpochMetrics, RunResult, TrainingConfig

__all__ = ["Display"]

# Number of progress lines of a training without a terminal.
_LOG_LINES = 10


class Display:
    """Progress bars on a terminal, a few plain lines in a log.

    Args:
        quiet: Whether to print nothing on stdout.
        silent: Whether to show no progress either.
    """

    def __init__(self, quiet: bool = False, silent: bool = False) -> None:
        self.quiet = quiet or silent
        self._out = Console(quiet=self.quiet, highlight=False, soft_wrap=True)
        self._err = Console(stderr=True, highlight=False, soft_wrap=True)
        self._silent = silent

    def message(self, text: str) -> None:
        """Print a line on stderr."""
        self._err.print(text, markup=False)

    def progress(self, text: str) -> None:
        """Print a line on stderr, unless silent."""
        if not self._silent:
            self.message(text)

    @contextmanager
    def training(self, config: TrainingConfig) -> Iterator[Callable[[EpochMetrics], None]]:
        """Yield a function to call with the metrics of each epoch."""
        if self._silent:
            yield lambda metrics: None
            return
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
            # A training that stopped early is complete as well.
            bars.update(bar, total=bars.tasks[0].completed)

    def _log(self, config: TrainingConfig, metrics: EpochMetrics) -> None:
        every = max(1, config.epochs // _LOG_LINES)
        if metrics.epoch == 1 or metrics.epoch % every == 0:
            self.message(
                f"{_label(config.regularizer)}: epoch {metrics.epoch} of {config.epochs}, {_figures(metrics, ', ')}"
            )

    def summary(self, dataset: Dataset, results: Sequence[RunResult]) -> None:
        """Print the runs and the layers of their networks."""
        rows = [
            [
                _label(result.regularizer),
                f"{result.strength:.3g}" if result.strength else "-",
                f"{percent(result.accuracy)} %",
                f"{percent(result.params_kept)} %",
                f"{percent(result.flops_kept)} %",
                str(result.epochs),
                f"{result.seconds:.1f}",
            ]
            for result in results
        ]
        title = (
            f"{dataset.name}: {len(dataset.train_images):,} training images, "
            f"{len(dataset.test_images):,} test images, seed {results[0].seed}"
        )
        columns = ("", "strength", "accuracy", "weights kept", "MACs kept", "epochs", "seconds")
        print_tables(self._out, [Table(columns, rows, title), _layers(results)])
        for result in results:
            if result.target is not None:
                self._out.print(f"{_label(result.regularizer)}: {Reached.from_dict(result.target)}", markup=False)
        for layer in results[0].measurement["layers"]:
            if layer["nonzeros"] == 0:
                self.message(f"warning: layer {layer['name']} has no weights left; lower `--strength`")

    def measurement(self, measurement: Measurement) -> None:
        """Print the counts of a network, layer by layer."""
        rows = [
            [
                layer.name.removesuffix(".weight"),
                f"{layer.weights:,}",
                f"{layer.nonzeros:,}",
                f"{percent(layer.nonzeros / max(layer.weights, 1))} %",
                f"{layer.units_alive:,} of {layer.units:,}",
                f"{layer.macs:,}",
                f"{layer.macs_nonzero:,}",
            ]
            for layer in (*measurement.layers, measurement.total)
        ]
        columns = ("", "weights", "non-zero", "kept", "units alive", "MACs", "non-zero MACs")
        print_tables(self._out, [Table(columns, rows, "Weights, units and MACs per layer")])

    def comparison(self, networks: Sequence[Comparison]) -> None:
        """Print networks with their sizes and latencies."""
        rows = [
            [
                network.name,
                f"{network.contender.weights:,}",
                f"{network.contender.macs:,}",
                _kilobytes(network.contender.size),
                *(_microseconds(seconds) for seconds in network.seconds.values()),
            ]
            for network in networks
        ]
        columns = ("", "weights", "MACs", "size", *(f"batch of {size}" for size in networks[0].seconds))
        print_tables(self._out, [Table(columns, rows, "Size and latency")])

    def table(self, table: Table) -> None:
        """Print a table."""
        print_tables(self._out, [table])

    def text(self, text: str) -> None:
        """Print text as it is."""
        self._out.print(text, markup=False)

    def files(self, path: Path, figure: Path) -> None:
        """Print where the files are."""
        self._out.print(f"run directory:    {path}", markup=False)
        self._out.print(f"summary figure:   {figure}", markup=False)


def _kilobytes(size: int | None) -> str:
    return "-" if size is None else f"{size / 1000:,.1f} kB"


def _microseconds(seconds: float) -> str:
    return f"{1e6 * seconds:,.{0 if seconds >= 1e-4 else 1}f} µs"


def _layers(results: Sequence[RunResult]) -> Table:
    rows = [
        [
            layers[0]["name"].removesuffix(".weight"),
            f"{layers[0]['weights']:,} / {layers[0]['units']:,}",
            *(f"{layer['nonzeros']:,} / {layer['units_alive']:,}" for layer in layers),
        ]
        for layers in zip(*(result.measurement["layers"] for result in results), strict=True)
    ]
    columns = ("", "total", *(_label(result.regularizer) for result in results))
    return Table(columns, rows, "Non-zero weights / live units per layer")


def _advance(bars: Progress, bar: TaskID, metrics: EpochMetrics) -> None:
    bars.update(bar, completed=metrics.epoch, figures=_figures(metrics, "  "))


def _figures(metrics: EpochMetrics, separator: str) -> str:
    return separator.join(
        (
            f"loss {metrics.loss:.4f}",
            f"accuracy {percent(metrics.test_accuracy)} %",
            f"weights {percent(metrics.params_kept)} %",
        )
    )


def _label(regularizer: str) -> str:
    return "dense" if regularizer == "none" else regularizer
