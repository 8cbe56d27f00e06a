from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import gossamer
from gossamer.errors import GossamerError
from gossamer.visualization import Run

from .conftest import Net


@pytest.fixture(autouse=True)
def _without_bundle(without_bundle: None) -> None:
    pass


def test_it_writes_the_page_and_returns_its_path(model: Net, example: Tensor, tmp_path: Path) -> None:
    path = gossamer.report(
        model,
        example,
        tmp_path / "net.html",
        title="my network",
        history=[{"accuracy": 0.5, "params_kept": 1.0}, {"accuracy": 0.75, "params_kept": 0.4, "held": True}],
        runs=[Run("dense", 0.8, 1.0)],
        configuration={"lr": 0.1},
        commands={"Train": "python train.py"},
        rounds=1,
    )
    assert path == tmp_path / "net.html"
    html = path.read_text(encoding="utf-8")
    for text in ("<h1>my network</h1>", "75.00%", "python train.py", "penalty off", "Pareto front", "the example"):
        assert text in html
    assert list(tmp_path.iterdir()) == [path]


def test_the_defaults_are_enough(model: Net, example: Tensor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert gossamer.report(model, example) == Path("report.html")
    assert "<h1>Net</h1>" in Path("report.html").read_text(encoding="utf-8")


def test_without_latency_the_same_model_gives_the_same_bytes(model: Net, example: Tensor, tmp_path: Path) -> None:
    first, second = (gossamer.report(model, example, tmp_path / name, rounds=0) for name in ("a", "b"))
    assert first.read_bytes() == second.read_bytes()


def test_any_call_can_be_an_example(tmp_path: Path) -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(10, 4)
            self.linear = nn.Linear(4, 2)

        def forward(self, tokens: Tensor, scale: Tensor) -> Tensor:
            output: Tensor = self.linear(self.embedding(tokens).mean(1)) * scale
            return output

    inputs = {"scale": torch.ones(2), "tokens": torch.zeros(1, 3, dtype=torch.long)}
    html = gossamer.report(Two(), inputs, tmp_path / "page.html", rounds=1).read_text(encoding="utf-8")
    assert 'id="filters"' not in html
    assert "Sparsity pattern of embedding" in html


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"accuracy": 97.0}, "`accuracy` must be a fraction between 0 and 1; received 97.0"),
        ({"history": [{"accuracy": 97.0}]}, "`accuracy` in entry 1 of `history`"),
        ({"rounds": -1}, "`rounds` must be 0 or more; received -1"),
        ({"example": torch.zeros(1, 7)}, "fails on `example`"),
        ({"path": "nowhere/page.html"}, "there is no folder"),
    ],
)
def test_bad_arguments_leave_nothing_behind(
    model: Net, example: Tensor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: dict, complaint: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(GossamerError, match=complaint):
        gossamer.report(**{"model": model, "example": example, "path": "page.html", **arguments})
    assert list(tmp_path.iterdir()) == []


def test_an_old_page_survives_a_failure(
    model: Net, example: Tensor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "page.html"
    page.write_text("old")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(GossamerError, match="No space left"):
        gossamer.report(model, example, page, rounds=0)
    assert page.read_text() == "old"
    assert list(tmp_path.iterdir()) == [page]
