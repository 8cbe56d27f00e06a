"""The paper's table: means over seeds, average ranks, and the comparison with the published figures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from math import prod
from statistics import fmean, stdev
from typing import Any

from gossamer.errors import GossamerError
from gossamer_lab.paper.experiments import Request
from gossamer_lab.paper.methods import ITL, METHODS, TABLE
from gossamer_lab.paper.outcomes import Outcome
from gossamer_lab.paper.published import (
    DATASETS,
    MEASURES,
    PUBLISHED,
    Measure,
    Published,
)

__all__ = [
    "RANKED",
    "Floor",
    "FloorLine",
    "Row",
    "average_ranks",
    "best_published_accuracy",
    "by_dataset",
    "by_method",
    "complete_groups",
    "floor_check",
    "mean_of",
    "read_rows",
    "rows",
    "to_json",
]

# The ranked methods, without the dense reference.
RANKED = tuple(method.key for method in TABLE)


@dataclass(frozen=True)
class Row:
    """One method on one data set: means over the seeds, and their common setting.

    Standard deviations are sample standard deviations (divided by n - 1), and 0 for one seed. `small_flops` and
    `small_params` are the fractions of the shrunk network, zeros included. `small_bytes` is the size of its file, which
    stores no zeros.
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
    """Integrated Tl1 on one data set against the best published accuracy and its published sizes."""

    dataset: str
    accuracy: float
    accuracy_floor: float
    flops_kept: float
    flops_ceiling: float
    params_kept: float
    params_ceiling: float

    @property
    def accuracy_holds(self) -> bool:
        """Whether the accuracy is at least the best of the paper's four methods."""
        return self.accuracy >= self.accuracy_floor

    @property
    def flops_hold(self) -> bool:
        """Whether the MACs are at most those of the paper's integrated Tl1."""
        return self.flops_kept <= self.flops_ceiling

    @property
    def params_hold(self) -> bool:
        """Whether the weights are at most those of the paper's integrated Tl1."""
        return self.params_kept <= self.params_ceiling


@dataclass(frozen=True)
class Floor:
    """The comparison with the paper on all common data sets.

    Attributes:
        lines: One line per data set.
        flops_ratio: Geometric mean of our MACs over the published ones.
        params_ratio: Geometric mean of our weights over the published ones.
    """

    lines: tuple[FloorLine, ...]
    flops_ratio: float
    params_ratio: float


def read_rows(request: Request, folder: str, datasets: Sequence[str]) -> list[Row]:
    """Read the rows of the requested data sets from the result files in a subfolder."""
    return rows(request.outcomes(*(f"{folder}/{dataset}.jsonl" for dataset in request.select(datasets))))


def by_method(outcomes: Iterable[Outcome]) -> dict[tuple[str, str], list[Outcome]]:
    """Group outcomes by data set and method, in the paper's order. Outcomes of a group may differ in the seed only."""
    groups: dict[tuple[str, str], list[Outcome]] = {}
    for outcome in outcomes:
        config = outcome.job.config
        group = (config.dataset, outcome.job.key)
        _check(outcome, groups.setdefault(group, []))
        groups[group].append(outcome)
    ordered = sorted(groups, key=lambda group: (_dataset_order(group[0]), list(METHODS).index(group[1])))
    return {group: sorted(groups[group], key=lambda outcome: outcome.job.config.seed) for group in ordered}


def _dataset_order(dataset: str) -> tuple[int, str]:
    return (DATASETS.index(dataset) if dataset in DATASETS else len(DATASETS), dataset)


def _check(outcome: Outcome, before: Sequence[Outcome]) -> None:
    key, config = outcome.job.key, outcome.job.config
    if key not in METHODS:
        raise GossamerError(f"The table compares {', '.join(METHODS)}; received an outcome of {key!r}.")
    where = f"{config.dataset}, {key}, seed {config.seed}"
    if config.validation_fraction:
        raise GossamerError(
            f"{where} was measured on validation images (`validation_fraction` {config.validation_fraction}); "
            "the table needs trainings on all training images."
        )
    for other in before:
        if other.job.config.seed == config.seed:
            raise GossamerError(f"{where} occurs twice. Remove one of the two outcomes.")
    if before:
        differences = config.differences(replace(before[0].job.config, seed=config.seed))
        if differences:
            raise GossamerError(
                f"{where} has another setting than seed {before[0].job.config.seed}: {', '.join(differences)}. "
                "A row of the table is one setting; remove the outcomes of the other."
            )


def rows(outcomes: Sequence[Outcome]) -> list[Row]:
    """Return one row per data set and method, in the paper's order."""
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
    """Return the mean rank of each method in each measure; 1 is the best, and ties share their mean rank.

    The mean is over the data sets with all four methods; empty if there is none.
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
    """Return the rows of the four methods by data set, for the data sets that have all four."""
    groups = {dataset: {row.method: row for row in group} for dataset, group in by_dataset(rows)}
    return {
        dataset: {method: group[method] for method in RANKED}
        for dataset, group in groups.items()
        if all(method in group for method in RANKED)
    }


def by_dataset(rows: Sequence[Row]) -> Iterator[tuple[str, list[Row]]]:
    """Yield the rows of each data set, in the paper's order."""
    for dataset in sorted({row.dataset for row in rows}, key=_dataset_order):
        yield dataset, [row for row in rows if row.dataset == dataset]


def _ranks(group: Mapping[str, Row], measure: Measure) -> dict[str, float]:
    sign = -1 if measure.more_is_better else 1
    badness = {method: sign * mean_of(row, measure) for method, row in group.items()}
    values = list(badness.values())
    # Ties take the ranks from 1 + better to better + ties; this is their mean.
    return {
        method: sum(other < value for other in values) + (values.count(value) + 1) / 2
        for method, value in badness.items()
    }


def mean_of(figures: Row | Published, measure: Measure) -> float:
    """Return the mean of a measure."""
    return float(getattr(figures, measure.key))


def floor_check(rows: Sequence[Row]) -> Floor | None:
    """Compare integrated Tl1 with the paper on the common data sets; None if there is none."""
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


def best_published_accuracy(dataset: str) -> float:
    """Return the highest mean accuracy of the methods in the paper's table."""
    return max(published.accuracy for (name, _), published in PUBLISHED.items() if name == dataset)


def to_json(rows: Sequence[Row]) -> dict[str, Any]:
    """Return `{"rows": [...]}` with the rows of the four methods, without their settings."""
    settings = {"strength", "a", "s", "cost_exponent"}
    names = [field.name for field in fields(Row) if field.name not in settings]
    return {"rows": [{name: getattr(row, name) for name in names} for row in rows if row.method in RANKED]}
