from __future__ import annotations

import pytest
from rich.console import Console

from gossamer.errors import GossamerError
from gossamer_lab.paper.interpretation import interpretation_table, terminal_table
from gossamer_lab.paper.outcomes import Job, Outcome
from gossamer_lab.reporting.tables import print_tables
from gossamer_lab.training import RunResult, TrainingConfig


def outcome(key: str, seed: int, alive: int, hidden: int, output: int, accuracy: float = 0.97) -> Outcome:
    layers = [
        {"name": "conv.weight", "weights": 288, "nonzeros": 1, "units": 32, "units_alive": 1},
        {"name": "hidden.weight", "weights": 65536, "nonzeros": hidden, "units": 128, "units_alive": alive},
        {"name": "output.weight", "weights": 1280, "nonzeros": output, "units": 10, "units_alive": 10},
    ]
    small = {"units": {"hidden.weight": alive}}
    result = RunResult("digits", key, 1e-3, seed, 1, accuracy, 0.1, 0.1, 1.0, {"layers": layers}, small)
    return Outcome(Job(key, TrainingConfig("digits", key, 1e-3, seed=seed)), result, ())


def test_rows_are_in_the_papers_order_beside_its_figures() -> None:
    outcomes = [
        outcome("integrated-tl1", 0, alive=100, hidden=6553, output=640),
        outcome("group-lasso", 0, alive=64, hidden=32768, output=640),
        outcome("group-lasso", 1, alive=60, hidden=32768, output=640, accuracy=0.95),
    ]
    lines = interpretation_table(outcomes).markdown().splitlines()
    assert len(lines) == 4
    assert lines[2] == (
        "| group sparsity | λ 0.001 | 66.0 ± 2.8 of 128 | 64 of 128 | 50.00 ± 0.00 | 51.60 | 50.00 ± 0.00 "
        "| 50.00 ± 0.00 | 96.00 ± 1.41 | 2 |"
    )
    # 1 - (6,553 + 640) / (65,536 + 1,280)
    assert (
        lines[3] == "| integrated Tl1 | λ 0.001 | 28.0 of 128 | 12 of 128 | 89.23 | 76.88 | 90.00 | 50.00 | 97.00 | 1 |"
    )


def test_the_terminal_shows_the_same() -> None:
    console = Console(width=80)
    with console.capture() as capture:
        alive = (128, 28)
        table = terminal_table([outcome("group-lasso", seed, alive[seed], 6553, 640) for seed in (0, 1)])
        print_tables(console, [table])
    text = capture.get()
    assert "group sparsity" in text
    assert "50.0 ± 70.7 of 128 (64)" in text
    assert "(51.60)" in text
    assert "…" not in text


def test_other_regularizers_are_refused() -> None:
    with pytest.raises(GossamerError, match="received outcomes of l1"):
        interpretation_table([outcome("l1", 0, 1, 1, 1)])
