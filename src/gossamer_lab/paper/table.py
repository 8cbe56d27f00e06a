"""The paper's table in figures: means over seeds, ranks, and ours against the published ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from math import prod
from statistics import fmean, stdev
from typing import Any

from gossamer.errors import GossamerError
from gossamer_lab.paper.compared import COMPARED, ITL, TABLE
from gossamer_lab.paper.outcomes import Outcome
from gossamer_lab.paper.published import (
    DATASETS,
    MEASURES,
    PUBLISHED,
    Measure,
    Published,
    best_published_accuracy,
)

__all__ = [
    "RANKED",
    "Floor",
    "FloorLine",
    "Row",
    "average_ranks",
    "by_dataset",
    "by_method",
    "complete_groups",
    "floor_check",
    "mean_of",
    "rows",
    "to_json",
]

# The methods that compete with each other.
RANKED = tuple(compared.key for compared in TABLE)


@dataclass(frozen=True)
class Row:
    """One method on one data set: means over its seeds, and the setting that all of them share.

    Standard deviations are those of a sample (divided by n - 1), and 0 for one seed. ``small_flops`` and
    ``small_params`` are those of the network without its dead units, zeros among them included; its file has
    ``small_bytes``, and leaves them out.
    """

    dataset: str
    method: str
    seeds: int
    accuracy: float
    accuracy_std: float
    flops_kept: float
    flops_kept_std: float
    params_kept: float
    params_kept_std: float
    small_flops: float
    small_params: float
    small_bytes: float
    strength: float
    a: float | None
    s: float | None
    cost_exponent: float


@dataclass(frozen=True)
class FloorLine:
    """Integrated Tl1 on one data set, against the best published accuracy of all and its own published sizes."""

    dataset: str
    accuracy: float
    accuracy_floor: float
    flops_kept: float
    flops_ceiling: float
    params_kept: float
    params_ceiling: float

    @property
    def accuracy_holds(self) -> bool:
        """Whether ours is at least the best of the paper's four methods."""
        return self.accuracy >= self.accuracy_floor

    @property
    def flops_hold(self) -> bool:
        """Whether ours are at most those of the paper's integrated Tl1."""
        return self.flops_kept <= self.flops_ceiling

    @property
    def params_hold(self) -> bool:
        """Whether ours are at most those of the paper's integrated Tl1."""
        return self.params_kept <= self.params_ceiling


@dataclass(frozen=True)
class Floor:
    """All data sets that the paper has, too.

    Attributes:
        lines: One for each.
        flops_ratio: Geometric mean over them of ours / published.
        params_ratio: The same for the parameters.
    """

    lines: tuple[FloorLine, ...]
    flops_ratio: float
    params_ratio: float


def by_method(outcomes: Iterable[Outcome]) -> dict[tuple[str, str], list[Outcome]]:
    """Gather the seeds of each data set and method, both in the paper's order; they may differ in nothing else."""
    groups: dict[tuple[str, str], list[Outcome]] = {}
    for outcome in outcomes:
        config = outcome.job.config
        place = (config.dataset, outcome.job.key)
        _check(outcome, groups.setdefault(place, []))
        groups[place].append(outcome)
    ordered = sorted(groups, key=lambda place: (_dataset_order(place[0]), list(COMPARED).index(place[1])))
    return {place: sorted(groups[place], key=lambda outcome: outcome.job.config.seed) for place in ordered}


def _dataset_order(dataset: str) -> tuple[int, str]:
    return (DATASETS.index(dataset) if dataset in DATASETS else len(DATASETS), dataset)


def _check(outcome: Outcome, before: Sequence[Outcome]) -> None:
    key, config = outcome.job.key, outcome.job.config
    if key not in COMPARED:
        raise GossamerError(f"The table compares {', '.join(COMPARED)}; received an outcome of {key!r}.")
    where = f"{config.dataset}, {key}, seed {config.seed}"
    if config.validation_fraction:
        raise GossamerError(
            f"{where} was measured on validation images (`validation_fraction` {config.validation_fraction}); "
            "the table takes trainings on all training images."
        )
    for other in before:
        if other.job.config.seed == config.seed:
            raise GossamerError(f"{where} is there twice. Leave one of the two outcomes out.")
    if before:
        differences = config.differences(replace(before[0].job.config, seed=config.seed))
        if differences:
            raise GossamerError(
                f"{where} has another setting than seed {before[0].job.config.seed}: {', '.join(differences)}. "
                "A row of the table is one setting; leave the outcomes of the other out."
            )


def rows(outcomes: Sequence[Outcome]) -> list[Row]:
    """Make one row of each data set and method, both in the paper's order, references last."""
    return [_row(dataset, method, seeds) for (dataset, method), seeds in by_method(outcomes).items()]


def _row(dataset: str, method: str, outcomes: Sequence[Outcome]) -> Row:
    figures: dict[str, float] = {}
    for measure in MEASURES:
        values = [float(getattr(outcome.result, measure.key)) for outcome in outcomes]
        figures[measure.key] = fmean(values)
        figures[f"{measure.key}_std"] = stdev(values) if len(values) > 1 else 0.0
    config = outcomes[0].job.config
    return Row(
        dataset,
        method,
        len(outcomes),
        **figures,
        small_flops=fmean(outcome.small_flops for outcome in outcomes),
        small_params=fmean(outcome.small_params for outcome in outcomes),
        small_bytes=fmean(outcome.result.small["file_bytes"] for outcome in outcomes),
        strength=config.strength,
        a=config.a,
        s=config.s,
        cost_exponent=config.cost_exponent,
    )


def average_ranks(rows: Sequence[Row]) -> dict[str, dict[str, float]]:
    """Mean rank of each of the paper's four methods in each measure, 1 the best, equal ones sharing their mean rank.

    Over the data sets in which all four are present; empty when there is none.
    """
    complete = complete_groups(rows)
    if not complete:
        return {}
    ranks = {measure.key: [_ranks(group, measure) for group in complete.values()] for measure in MEASURES}
    return {
        method: {key: fmean(per_dataset[method] for per_dataset in many) for key, many in ranks.items()}
        for method in RANKED
    }


def complete_groups(rows: Sequence[Row]) -> dict[str, dict[str, Row]]:
    """Rows of the four methods by data set, where all four are there."""
    groups = {dataset: {row.method: row for row in group} for dataset, group in by_dataset(rows)}
    return {
        dataset: {method: group[method] for method in RANKED}
        for dataset, group in groups.items()
        if all(method in group for method in RANKED)
    }


def by_dataset(rows: Sequence[Row]) -> Iterator[tuple[str, list[Row]]]:
    """The rows of each data set, in the paper's order."""
    for dataset in sorted({row.dataset for row in rows}, key=_dataset_order):
        yield dataset, [row for row in rows if row.dataset == dataset]


def _ranks(group: Mapping[str, Row], measure: Measure) -> dict[str, float]:
    sign = -1 if measure.more_is_better else 1
    badness = {method: sign * mean_of(row, measure) for method, row in group.items()}
    values = list(badness.values())
    # Equal ones take the places from 1 + better to better + equal: their mean is this.
    return {
        method: sum(other < value for other in values) + (values.count(value) + 1) / 2
        for method, value in badness.items()
    }


def mean_of(figures: Row | Published, measure: Measure) -> float:
    """The mean of one of the figures."""
    return float(getattr(figures, measure.key))


def floor_check(rows: Sequence[Row]) -> Floor | None:
    """Compare integrated Tl1 with what the paper reports, on the data sets that both have; none when there is none."""
    lines = []
    for row in rows:
        published = PUBLISHED.get((row.dataset, ITL.key))
        if row.method == ITL.key and published is not None:
            lines.append(
                FloorLine(
                    row.dataset,
                    row.accuracy,
                    best_published_accuracy(row.dataset),
                    row.flops_kept,
                    published.flops_kept,
                    row.params_kept,
                    published.params_kept,
                )
            )
    if not lines:
        return None
    return Floor(
        tuple(lines),
        prod(line.flops_kept / line.flops_ceiling for line in lines) ** (1 / len(lines)),
        prod(line.params_kept / line.params_ceiling for line in lines) ** (1 / len(lines)),
    )


def to_json(rows: Sequence[Row]) -> dict[str, Any]:
    """Return ``{"rows": [...]}`` with the rows of the paper's four methods, without their settings."""
    settings = {"strength", "a", "s", "cost_exponent"}
    names = [field.name for field in fields(Row) if field.name not in settings]
    return {"rows": [{name: getattr(row, name) for name in names} for row in rows if row.method in RANKED]}
