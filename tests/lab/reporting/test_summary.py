from __future__ import annotations

from pathlib import Path

import pytest

from gossamer.errors import GossamerError
from gossamer_lab.reporting.summary import summary_figure
from gossamer_lab.training import EpochMetrics, RunDirectory, RunResult, TrainingConfig, open_run

PNG = b"\x89PNG\r\n"


def finished(path: Path, regularizer: str = "integrated-tl1", epochs: int = 4, kept: float = 0.04) -> RunDirectory:
    """A run made of files alone, as a figure finds it."""
    run = open_run(path, TrainingConfig(dataset="digits", regularizer=regularizer, epochs=epochs))
    for epoch in range(1, epochs + 1):
        phase = "sparsify" if epoch <= epochs / 2 else "hold"
        run.append_metrics(EpochMetrics(epoch, phase, 1.0, 0.0, 0.5, 0.5, kept, kept, {"conv": 3}, 0.1, 0.1))
    layer = {"name": "conv", "weights": 100, "nonzeros": int(100 * kept), "units": 8, "units_alive": 3}
    run.write_result(RunResult("digits", regularizer, 1e-3, 0, epochs, 0.97, kept, kept, 1.0, {"layers": [layer]}, {}))
    return run


@pytest.mark.parametrize("count", [1, 2, 3])
def test_is_drawn_from_the_files_into_the_first_folder(tmp_path: Path, count: int) -> None:
    names = ("integrated-tl1", "none", "l1")[:count]
    figure = summary_figure([finished(tmp_path / name, name) for name in names])
    assert figure == tmp_path / "integrated-tl1" / "summary.png"
    assert figure.read_bytes().startswith(PNG)


@pytest.mark.parametrize(("epochs", "kept"), [(1, 1.0), (3, 0.0)])
def test_short_and_collapsed_runs_are_drawn_too(tmp_path: Path, epochs: int, kept: float) -> None:
    assert summary_figure([finished(tmp_path, epochs=epochs, kept=kept)]).read_bytes().startswith(PNG)


def test_unfinished_runs_and_too_many_are_refused(tmp_path: Path) -> None:
    config = TrainingConfig(dataset="digits")
    with pytest.raises(GossamerError, match="not a finished run"):
        summary_figure([open_run(tmp_path / "unfinished", config)])
    with pytest.raises(GossamerError, match="received 4"):
        summary_figure([RunDirectory(tmp_path)] * 4)
