from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from gossamer.errors import GossamerError
from gossamer.shrinking import shrink_
from gossamer.store import save
from gossamer_lab.networks import MnistNetwork, example_input
from gossamer_lab.paper.filters import FilterFiles, _title, collect_filters, filters_figure
from gossamer_lab.paper.outcomes import Job
from gossamer_lab.training import TrainingConfig

PNG = b"\x89PNG\r\n"


def job(key: str, strength: float = 1e-3) -> Job:
    return Job(key, TrainingConfig("mnist", strength=strength))


def saved(path: Path, removed: int = 0, zeros: int = 0, compact: bool = False) -> torch.Tensor:
    """Save a network whose first filters are zero, and as many weights of the last filter; return its filters."""
    model = MnistNetwork(torch.Generator().manual_seed(0))
    with torch.no_grad():
        model.conv1.weight[:removed] = 0
        model.conv1.bias[:removed] = 0
        model.conv1.weight[-1].view(-1)[:zeros] = 0
    full = model.conv1.weight.detach().clone()
    if compact:
        shrink_(model, example_input("mnist"), optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
        assert len(model.conv1.weight) == 20 - removed
    save(model, path)
    return full


def test_zeros_are_counted_in_the_full_network_whether_filters_left_it_or_not(tmp_path: Path) -> None:
    full = saved(tmp_path / "stayed", removed=3, zeros=7)
    saved(tmp_path / "left", removed=3, zeros=7, compact=True)
    saved(tmp_path / "dense")
    weights = {"itl": tmp_path / "left", "cges": tmp_path / "stayed", "l1": tmp_path / "dense"}
    collect_filters({job(key): path for key, path in weights.items()}, tmp_path / "new" / "filters.json")
    content = json.loads((tmp_path / "new" / "filters.json").read_text())
    assert (content["filters"], content["shape"]) == (20, [5, 5])
    assert list(content["methods"]) == ["itl", "cges", "l1"]
    itl, cges, dense = (content["methods"][key] for key in weights)
    assert itl["sparsity"] == cges["sparsity"] == pytest.approx((3 * 25 + 7) / 500)
    assert dense["sparsity"] == 0
    assert len(itl["filters"]) == len(cges["filters"]) == 17
    torch.testing.assert_close(torch.tensor(itl["filters"]), full[3:, 0])
    assert itl["filters"] == cges["filters"]
    assert sum(x == 0 for row in itl["filters"] for line in row for x in line) == 7


def test_tiny_weights_are_not_zero(tmp_path: Path) -> None:
    model = MnistNetwork()
    torch.nn.init.constant_(model.conv1.weight, 1e-30)
    save(model, tmp_path / "tiny")
    collect_filters({job("l1"): tmp_path / "tiny"}, tmp_path / "filters.json")
    method = json.loads((tmp_path / "filters.json").read_text())["methods"]["l1"]
    assert method["sparsity"] == 0
    assert method["filters"][0][0][0] == pytest.approx(1e-30)


@pytest.mark.parametrize("removed", [[20], [0, 20, 5]])
def test_any_number_of_methods_is_drawn(tmp_path: Path, removed: list[int]) -> None:
    keys = ["l1", "sgl", "cges", "itl"][: len(removed)]
    for key, count in zip(keys, removed, strict=True):
        saved(tmp_path / key, removed=count, zeros=5)
    collect_filters({job(key): tmp_path / key for key in keys}, tmp_path / "filters.json")
    figure = filters_figure(json.loads((tmp_path / "filters.json").read_text()), tmp_path / "new" / "filters.png")
    assert figure.read_bytes().startswith(PNG)


def test_a_file_is_of_the_trainings_it_was_made_of(tmp_path: Path) -> None:
    saved(tmp_path / "weights")
    file = tmp_path / "filters.json"
    assert FilterFiles().missing([job("l1")], file) == [job("l1")]
    collect_filters({job("l1"): tmp_path / "weights"}, file)
    assert FilterFiles().missing([job("l1")], file) == []
    assert FilterFiles().missing([job("l1", 2e-3)], file) == [job("l1", 2e-3)]
    assert FilterFiles().missing([job("l1"), job("itl")], file) == [job("itl")]


def test_the_paper_stands_beside_ours() -> None:
    assert _title("itl", 0.5) == "integrated Tl1: 50.00 % zero (paper: 44.50 %)"
    assert _title("dense", 0.0) == "no penalty: 0.00 % zero"


def test_nothing_to_draw_is_said(tmp_path: Path) -> None:
    collect_filters({}, tmp_path / "filters.json")
    with pytest.raises(GossamerError, match="no filters"):
        filters_figure(json.loads((tmp_path / "filters.json").read_text()), tmp_path / "filters.png")
