from __future__ import annotations

from gossamer_lab.paper.ablation import CHANGES, ablation_table
from gossamer_lab.paper.outcomes import Job, Outcome
from gossamer_lab.training import RunResult, TrainingConfig


def outcome(key: str, accuracy: float) -> Outcome:
    total = {"weights": 400_000, "nonzeros": 1_600, "macs": 2_000_000, "macs_nonzero": 40_000}
    small = {"weights": 2_000, "macs": 30_000}
    result = RunResult("pendigits", "integrated-tl1", 1e-4, 0, 1, accuracy, 0.004, 0.02, 1.0, {"total": total}, small)
    return Outcome(Job(key, TrainingConfig("pendigits")), result, ())


def test_changes_come_in_their_order_and_only_those_with_outcomes() -> None:
    last, first = list(CHANGES)[-1], next(iter(CHANGES))
    lines = ablation_table([outcome(last, 0.9), outcome(first, 0.95)]).markdown().splitlines()
    assert [line.split(" | ")[0] for line in lines[2:]] == [f"| {first}", f"| {last}"]
    assert lines[2] == f"| {first} | 95.00 | 40000 | 1600 | 2000 | 1 |"
