"""Bad input: one clear error, and model and optimizer as they were."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

import gossamer.shrinking.calls as shrinking
from gossamer.errors import GossamerError
from gossamer.shrinking import shrink, shrink_


def prunable() -> nn.Sequential:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    with torch.no_grad():
        model[0].weight[1] = 0
    return model


class Branching(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) if x.sum() > 0 else x


class Noisy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) + torch.rand(())


def test_a_model_that_cannot_be_exported() -> None:
    with pytest.raises(GossamerError, match="could not be traced"):
        shrink(Branching(), torch.ones(2, 3))


@pytest.mark.parametrize("example", [torch.randn(2, 5), (torch.randn(2, 3), 1), {"y": torch.randn(2, 3)}, "text"])
def test_an_example_that_does_not_fit(example: object) -> None:
    with pytest.raises(GossamerError, match="example"):
        shrink(prunable(), example)  # type: ignore[arg-type]


def test_a_forward_that_is_random() -> None:
    with pytest.raises(GossamerError, match="different outputs for the same input"):
        shrink(Noisy(), torch.randn(2, 3))


def test_an_unknown_form() -> None:
    with pytest.raises(GossamerError, match="form"):
        shrink(prunable(), torch.randn(2, 3), form="onnx")  # type: ignore[arg-type]


def test_an_optimizer_of_another_model() -> None:
    model, other = prunable(), prunable()
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(GossamerError, match="does not own"):
        shrink_(model, torch.randn(2, 3), optimizer=torch.optim.SGD(other.parameters(), lr=0.1))
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())


def test_a_failure_in_the_optimizer_undoes_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    model = prunable()
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.randn(2, 3)).sum().backward()
    optimizer.step()
    before = copy.deepcopy(model.state_dict())

    def fail(*_: object) -> None:
        raise RuntimeError("no")

    monkeypatch.setattr(shrinking, "OptimizerCut", fail)
    with pytest.raises(RuntimeError, match="no"):
        shrink_(model, torch.randn(2, 3), optimizer=optimizer)
    assert model[0].out_features == 4
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert all(
        parameter.grad is not None and parameter.grad.shape == parameter.shape for parameter in model.parameters()
    )


def test_what_is_not_understood_stays() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.last(torch.linalg.matrix_exp(self.first(x)))

    model = Odd()
    with torch.no_grad():
        model.last.weight[:, 1] = 0
    found = shrinking.plan(model, torch.randn(4, 4))
    assert found.empty
    assert "not understood" in str(found)
