"""What is exported runs in ONNX Runtime, also with another batch size; what does not agree is not written."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from torch import Tensor, nn

from gossamer.errors import GossamerError
from gossamer.store import export_onnx
from gossamer.store import onnx as store_onnx


def run(path: Path, **inputs: Tensor) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return session.run(None, {name: tensor.numpy() for name, tensor in inputs.items()})


def convolutional() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Dropout(), nn.Flatten(), nn.Linear(3 * 36, 2)
    )


@pytest.mark.parametrize("batch", [1, 3])
def test_runs_with_another_batch_size(batch: int, tmp_path: Path) -> None:
    model = convolutional().train()
    model[1].eval()
    export_onnx(model, tmp_path / "net.onnx", torch.randn(batch, 1, 8, 8))
    assert [module.training for module in model] == [True, False, True, True, True, True]
    assert [file.name for file in tmp_path.iterdir()] == ["net.onnx"]
    images = torch.randn(5, 1, 8, 8)
    (output,) = run(tmp_path / "net.onnx", input=images)
    np.testing.assert_allclose(output, model.eval()(images).detach(), rtol=1e-4, atol=1e-5)


class Several(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 4)

    def forward(self, sequence: Tensor, weight: Tensor, scale: float = 2.0) -> dict[str, Any]:
        hidden = self.layer(sequence)
        return {"hidden": hidden, "more": (hidden[:, -1] * weight * scale, weight.argmax(1), weight > 0)}


SEQUENCE, WEIGHT = torch.randn(2, 5, 3), torch.randn(2, 4)


@pytest.mark.parametrize(
    "example", [(SEQUENCE, WEIGHT), {"weight": WEIGHT, "sequence": SEQUENCE}], ids=["positional", "keyword"]
)
def test_several_inputs_and_outputs(example: Any, tmp_path: Path) -> None:
    model = Several()
    export_onnx(model, tmp_path / "net.onnx", example)
    sequence, weight = torch.randn(3, 5, 3), torch.randn(3, 4)
    outputs = run(tmp_path / "net.onnx", sequence=sequence, weight=weight)
    wanted = model(sequence, weight)
    for output, right in zip(outputs, [wanted["hidden"], *wanted["more"]], strict=True):
        np.testing.assert_allclose(output, right.detach(), rtol=1e-4, atol=1e-5)


def test_fixed_sizes(tmp_path: Path) -> None:
    export_onnx(nn.Linear(3, 2), tmp_path / "net.onnx", torch.randn(4, 3), batch_dimension=None)
    session = onnxruntime.InferenceSession(tmp_path / "net.onnx", providers=["CPUExecutionProvider"])
    assert session.get_inputs()[0].shape == [4, 3]


def test_size_that_the_model_fixes(tmp_path: Path) -> None:
    model = nn.LSTM(3, 4)  # time comes first here, and the exporter writes its length into the graph
    with pytest.raises(GossamerError, match="batch_dimension"):
        export_onnx(model, tmp_path / "net.onnx", torch.randn(3, 2, 3))
    export_onnx(model, tmp_path / "net.onnx", torch.randn(3, 2, 3), batch_dimension=1)
    assert run(tmp_path / "net.onnx", input=torch.randn(3, 7, 3))[0].shape == (3, 7, 4)


class Forgetful(nn.Module):
    def forward(self, used: Tensor, unused: Tensor) -> Tensor:
        return used * 2


def test_input_that_is_not_used(tmp_path: Path) -> None:
    export_onnx(Forgetful(), tmp_path / "net.onnx", (torch.randn(2, 3), torch.randn(2, 3)))
    (output,) = run(tmp_path / "net.onnx", used=torch.ones(5, 3), unused=torch.zeros(5, 3))
    assert (output == 2).all()


class Random(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + torch.rand_like(x)


def test_outputs_that_disagree_are_not_written(tmp_path: Path) -> None:
    (tmp_path / "net.onnx").write_text("old")
    with pytest.raises(GossamerError, match="disagrees with the model"):
        export_onnx(Random(), tmp_path / "net.onnx", torch.randn(2, 3))
    assert (tmp_path / "net.onnx").read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 1


class Branching(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + 1 if x.sum() > 0 else x


def test_model_that_cannot_be_exported(tmp_path: Path) -> None:
    with pytest.raises(GossamerError, match=r"torch\.onnx cannot export this model"):
        export_onnx(Branching(), tmp_path / "net.onnx", torch.randn(2, 3))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("example", "message"),
    [
        (torch.randn(2, 4), "`Linear` fails on `example`"),
        ((torch.randn(2, 3), torch.randn(2, 3)), "does not fit Linear.forward"),
        ({"x": torch.randn(2, 3)}, "does not fit Linear.forward"),
        ("2x3", "is a str"),
        ((), "does not fit"),
        (torch.tensor(1.0), "`Linear` fails on `example`"),
    ],
)
def test_example_that_does_not_fit(example: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(GossamerError, match=message):
        export_onnx(nn.Linear(3, 2), tmp_path / "net.onnx", example)
    assert not list(tmp_path.iterdir())


def test_dimension_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(GossamerError, match="`batch_dimension` is 2"):
        export_onnx(nn.Linear(3, 2), tmp_path / "net.onnx", torch.randn(2, 3), batch_dimension=2)


def test_weights_beside_a_graph_that_is_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_onnx, "_LARGEST_SINGLE_FILE", 1000)
    model = nn.Linear(50, 50)
    export_onnx(model, tmp_path / "net.onnx", torch.randn(2, 50))
    assert sorted(file.name for file in tmp_path.iterdir()) == ["net.onnx", "net.onnx.data"]
    example = torch.randn(3, 50)
    np.testing.assert_allclose(
        run(tmp_path / "net.onnx", input=example)[0], model(example).detach(), rtol=1e-4, atol=1e-5
    )


def test_missing_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(GossamerError, match=r"pip install 'gossamer\[onnx\]'"):
        export_onnx(nn.Linear(3, 2), tmp_path / "net.onnx", torch.randn(2, 3))
