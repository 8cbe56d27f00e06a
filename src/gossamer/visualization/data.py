"""What a report shows, as plain numbers and strings: no tensor, no HTML.

`collect` makes a `Network` from a model, `charts` and `sections` draw it, `write_page` puts a `Page` into one file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gossamer.measurement import LayerMeasurement, Measurement

__all__ = [
    "Command",
    "Epoch",
    "Filter",
    "Filters",
    "Histogram",
    "Layer",
    "Network",
    "Page",
    "Pattern",
    "Removal",
    "Run",
    "Series",
    "Study",
    "UnitRow",
    "Variant",
]


@dataclass(frozen=True)
class Epoch:
    """The metrics at the end of one epoch; None for what was not recorded. `held`: the penalty was off."""

    epoch: int
    accuracy: float | None = None
    loss: float | None = None
    params_kept: float | None = None
    flops_kept: float | None = None
    held: bool = False


@dataclass(frozen=True)
class Run:
    """A training run: a point of the trade-off, and with a history also a curve.

    `dense_flops` is the fraction of the MACs after shrinking, zeros included; `settings` tell runs of a study apart.
    """

    label: str
    accuracy: float | None = None
    params_kept: float | None = None
    flops_kept: float | None = None
    history: tuple[Epoch, ...] = ()
    dense_flops: float | None = None
    settings: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Series:
    """Runs of a study that are drawn alike; joined by a line where each was trained from the one before."""

    label: str
    runs: tuple[Run, ...]
    joined: bool = False


@dataclass(frozen=True)
class Study:
    """Many trainings of one network: the trials of a search, or a path from dense to sparse.

    Attributes:
        series: The runs.
        name: What one run is called: trial, target.
        remarks: Sentences for the summary that the numbers do not say, such as trials without a result.
    """

    series: tuple[Series, ...]
    name: str = "run"
    remarks: tuple[str, ...] = ()

    @property
    def runs(self) -> tuple[Run, ...]:
        """The runs of all series that have an accuracy and a weight left."""
        return tuple(run for run in self._all if run.accuracy is not None and run.params_kept)

    @property
    def empty(self) -> int:
        """How many runs have no weight left."""
        return sum(run.params_kept == 0 for run in self._all)

    @property
    def _all(self) -> tuple[Run, ...]:
        return tuple(run for series in self.series for run in series.runs)


@dataclass(frozen=True)
class Histogram:
    """Weights by value. `counts[i]` of them lie between `edges[i]` and `edges[i + 1]`; zeros are counted apart."""

    zeros: int
    nonfinite: int
    edges: tuple[float, ...]
    counts: tuple[int, ...]


@dataclass(frozen=True)
class Pattern:
    """Where the non-zero weights of a layer are: rows are output units, columns their ingoing weights.

    `levels` holds `height * width` cells row by row. A cell covers one or more weights: level 0 if all of them are
    zero, 15 if none is, and at least 1 otherwise.
    """

    rows: int
    columns: int
    height: int
    width: int
    levels: bytes


@dataclass(frozen=True)
class Filter:
    """The ingoing weights of one unit as an image: `rgba` holds four bytes for each pixel."""

    unit: int
    nonzeros: int
    rgba: bytes


@dataclass(frozen=True)
class Filters:
    """The filters of the first layer: the first of `units`, each of `height` times `width` pixels."""

    layer: str
    units: int
    weights_per_unit: int
    height: int
    width: int
    colour: bool
    shown: tuple[Filter, ...]

    @property
    def alive(self) -> int:
        """How many of those shown have a non-zero weight."""
        return sum(one.nonzeros > 0 for one in self.shown)


@dataclass(frozen=True)
class Layer:
    """One weight: its counts before training, after it and after `shrink`, and what it looks like."""

    name: str
    shape: tuple[int, ...]
    dense: LayerMeasurement
    trained: LayerMeasurement
    shrunk: LayerMeasurement | None
    histogram: Histogram
    pattern: Pattern

    @property
    def label(self) -> str:
        """The name without the attribute, where that says nothing more."""
        return self.name.removesuffix(".weight")


@dataclass(frozen=True)
class UnitRow:
    """One row of the plan: units that run through the same parameter dimensions, and why some of them stay."""

    where: tuple[str, ...]
    before: int
    after: int
    unread: int
    constant: int
    reasons: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Removal:
    """The plan of `shrink`: parameters before and after, remarks, and one row for each set of units."""

    before: int
    after: int
    notes: tuple[str, ...]
    rows: tuple[UnitRow, ...]

    @property
    def units(self) -> int:
        """Units before removal."""
        return sum(row.before for row in self.rows)

    @property
    def units_removed(self) -> int:
        """Units that leave."""
        return sum(row.before - row.after for row in self.rows)


@dataclass(frozen=True)
class Variant:
    """One form of the network: weights and MACs with zeros included, bytes, and seconds of a forward pass by input.

    None for what cannot be counted in this form.
    """

    name: str
    weights: int | None
    macs: int | None
    memory_bytes: int | None
    file_bytes: int | None
    seconds: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Network:
    """A network, counted before training, after it and after `shrink`. `problem` says why there is no `removal`."""

    name: str
    dense: Measurement
    trained: Measurement
    shrunk: Measurement | None
    layers: tuple[Layer, ...]
    histogram: Histogram
    filters: Filters | None
    removal: Removal | None
    problem: str | None
    variants: tuple[Variant, ...]

    @property
    def deployed(self) -> Measurement:
        """What is left, as parts of the dense network: after `shrink` where that is possible, else as trained."""
        return (self.trained if self.shrunk is None else self.shrunk).against(self.dense)


@dataclass(frozen=True)
class Command:
    """A command line and what it does."""

    purpose: str
    line: str


@dataclass(frozen=True)
class Page:
    """Everything on one page.

    The first run is the one that the page is about; the others are compared with it. A page on a study is about all
    of its runs, and `runs` are those of them whose training is drawn.
    """

    title: str
    network: Network | None = None
    study: Study | None = None
    runs: tuple[Run, ...] = ()
    score: str = "accuracy"
    configuration: tuple[tuple[str, str], ...] = ()
    commands: tuple[Command, ...] = ()
