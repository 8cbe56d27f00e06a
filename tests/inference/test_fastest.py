"""`fastest`: what is returned follows from what is measured, and is never slower than the model."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import gossamer
from gossamer.inference import selection

from .test_native import Chain, network

EXAMPLE = torch.randn(4, 2, 12, 12)


def measured(monkeypatch: pytest.MonkeyPatch, *seconds: float) -> None:
    """Let the clock say so, for the model, the shrunk and the native one."""
    monkeypatch.setattr(selection, "latencies", lambda models, example, rounds: list(seconds[: len(models)]))


@pytest.mark.parametrize(
    ("seconds", "name"),
    [
        ((3.0, 2.0, 1.0), "native"),
        ((3.0, 1.0, 2.0), "shrunk"),
        ((1.0, 2.0, 3.0), "as it is"),
        ((1.0, 0.97, 0.96), "as it is"),  # within the noise
        ((1.0, 0.94, 0.96), "shrunk"),
    ],
)
def test_the_fastest_is_chosen(monkeypatch: pytest.MonkeyPatch, seconds: tuple[float, ...], name: str) -> None:
    model = network()
    measured(monkeypatch, *seconds)
    found = gossamer.fastest(model, EXAMPLE)
    assert found.name == name
    assert (found.model is model) == (name == "as it is")
    assert [(row.name, row.seconds) for row in found.table] == list(
        zip(("as it is", "shrunk", "native"), seconds, strict=True)
    )
    assert f"{name}" in next(line for line in str(found).splitlines() if "<- fastest" in line)


def test_what_cannot_be_made_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    measured(monkeypatch, 2.0, 1.0)
    found = gossamer.fastest(Chain(lambda x: x.cumsum(1)).eval(), torch.randn(3, 4))
    assert found.name == "shrunk"
    assert found.table[2].seconds is None
    assert "aten.cumsum" in found.table[2].reason
    assert "aten.cumsum" in str(found)


def test_it_really_measures() -> None:
    model = nn.Sequential(nn.Linear(30, 30), nn.ReLU(), nn.Linear(30, 3)).eval()
    found = gossamer.fastest(model, torch.randn(2, 30), rounds=3)
    x = torch.randn(5, 30)
    with torch.no_grad():
        torch.testing.assert_close(found.model(x), model(x), rtol=1e-5, atol=1e-5)
    assert all(row.seconds is not None and row.seconds > 0 for row in found.table)
