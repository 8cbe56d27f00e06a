"""Question c: how much faster is a network once its zeros are taken out?"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from gossamer.measurement import measure
from gossamer.shrinking import shrink
from gossamer.store import export_onnx
from gossamer_lab.bench.models import Block, lenet, perceptron, residual_network
from gossamer_lab.bench.result import Machine, Result, Value
from gossamer_lab.bench.rivals import NOT_INSTALLED, rival, torch_pruning_removal
from gossamer_lab.bench.timing import Timing, take_turns

__all__ = ["CASES", "Case", "inference"]

_Removed = dict[nn.Module, list[int]]


@dataclass(frozen=True)
class Case:
    """A network, which output channels of which layers are dead, and the network that was built without them."""

    name: str
    build: Callable[[], nn.Module]
    build_small: Callable[[], nn.Module]
    removed: Callable[[nn.Module], _Removed]
    image: tuple[int, ...]


def _lenet_removed(model: nn.Module) -> _Removed:
    kept = {"0": 6, "3": 12, "7": 50}
    return {model.get_submodule(name): _after(count, model.get_submodule(name)) for name, count in kept.items()}


def _residual_removed(model: nn.Module) -> _Removed:
    blocks = [module for module in model.modules() if isinstance(module, Block)]
    return {block.first: _after(block.first.out_channels // 4, block.first) for block in blocks}


def _half_of_residual(model: nn.Module) -> _Removed:
    """Half of the channels everywhere: those inside the blocks, and those that go round them, which live together."""
    stem, stem_norm = model.get_submodule("0"), model.get_submodule("1")
    removed = {stem: _half(stem), stem_norm: _half(stem)}
    for block in (module for module in model.modules() if isinstance(module, Block)):
        removed |= dict.fromkeys((block.first, block.first_norm), _half(block.first))
        removed |= dict.fromkeys((block.second, block.second_norm, *_layers_around(block)), _half(block.second))
    return removed


def _layers_around(block: Block) -> list[nn.Module]:
    return list(block.around) if isinstance(block.around, nn.Sequential) else []


def _half_of_perceptron(model: nn.Module) -> _Removed:
    *hidden, _ = (module for module in model.modules() if isinstance(module, nn.Linear))
    return {layer: _half(layer) for layer in hidden}


def _half(layer: nn.Module) -> list[int]:
    return _after(layer.get_parameter("weight").shape[0] // 2, layer)


def _after(kept: int, layer: nn.Module) -> list[int]:
    """All output channels of the layer but `kept`, drawn at random: what training leaves is not in order."""
    channels = layer.get_parameter("weight").shape[0]
    return torch.randperm(channels, generator=torch.Generator().manual_seed(0))[kept:].tolist()


CASES = (
    Case("LeNet-5, 6-12-50 of 20-50-500", lenet, lambda: lenet(6, 12, 50), _lenet_removed, (1, 28, 28)),
    Case(
        "ResNet-18 shape, 1/4 of the channels in blocks",
        residual_network,
        lambda: residual_network(inner=0.25),
        _residual_removed,
        (3, 64, 64),
    ),
    Case(
        "ResNet-18 shape, half of all channels",
        residual_network,
        lambda: residual_network(width=32),
        _half_of_residual,
        (3, 64, 64),
    ),
    Case("perceptron, 2048 of 4096", perceptron, lambda: perceptron(2048), _half_of_perceptron, (784,)),
)


def inference(cases: Sequence[Case] = CASES, batches: Sequence[int] = (1, 64), seconds: float = 2.0) -> Result:
    """Forward passes of the dense network with zeros, of the shrunk one, and of others of the same size.

    Args:
        cases: networks with dead channels.
        batches: batch sizes.
        seconds: of measuring for each candidate.
    """
    rows = [row for case in cases for row in _rows(case, batches, seconds)]
    return Result(
        question="c",
        title="dense against shrunk inference",
        note=(
            "ms: the shrunk network. dense, built small, Torch-Pruning: their time over that. built small: the same "
            "network made without the channels in the first place. Torch-Pruning: the same channels removed by it. "
            "promised: the multiply-adds of the dense network over those of the shrunk one."
        ),
        machine=Machine.here(),
        rows=tuple(rows),
    )


def _rows(case: Case, batches: Sequence[int], seconds: float) -> list[dict[str, Value]]:
    torch.manual_seed(0)
    dense = case.build().eval()
    _silence(dense, case.removed(dense))
    example = torch.randn(2, *case.image)
    networks = {"dense": dense, "shrunk": shrink(dense, example).eval(), "built small": case.build_small().eval()}
    promised = measure(dense, example).total.macs / measure(networks["shrunk"], example).total.macs
    theirs = torch_pruning_removal(dense, example, case.removed)
    if theirs is not None:
        networks["Torch-Pruning"] = theirs.eval()

    rows = []
    for batch in batches:
        images = torch.randn(batch, *case.image)
        rows.append(_row(case.name, batch, "PyTorch", _in_torch(networks, images), seconds))
        if rival("onnxruntime") is not None:
            rows.append(_row(case.name, batch, "ONNX Runtime", _in_onnx(networks, images), seconds))
    return [{**row, "promised": promised} for row in rows]


@torch.no_grad()
def _silence(model: nn.Module, removed: _Removed) -> None:
    """Zero what the channels receive, and the shift that a batch norm would add."""
    norms = {block.first: block.first_norm for block in model.modules() if isinstance(block, Block)}
    for layer, channels in removed.items():
        for parameter in (*layer.parameters(), *(norms[layer].parameters() if layer in norms else ())):
            parameter[channels] = 0.0


def _row(
    name: str, batch: int, engine: str, candidates: dict[str, Callable[[], object]], seconds: float
) -> dict[str, Value]:
    times: dict[str, Timing] = take_turns(candidates, seconds=seconds)
    own = times["shrunk"].median
    row: dict[str, Value] = {"network": name, "batch": batch, "engine": engine, **times["shrunk"].cells()}
    for other in ("dense", "built small", "Torch-Pruning"):
        row[other] = times[other].median / own if other in times else NOT_INSTALLED
    return row


def _in_torch(networks: dict[str, nn.Module], images: Tensor) -> dict[str, Callable[[], object]]:
    def forward(network: nn.Module) -> Callable[[], object]:
        @torch.inference_mode()
        def call() -> object:
            return network(images)

        return call

    return {name: forward(network) for name, network in networks.items()}


def _in_onnx(networks: dict[str, nn.Module], images: Tensor) -> dict[str, Callable[[], object]]:
    runtime = rival("onnxruntime")
    assert runtime is not None  # asked before
    options = runtime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()

    def forward(network: nn.Module) -> Callable[[], object]:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "network.onnx")
            export_onnx(network, path, images[:2] if len(images) > 1 else images.expand(2, *images.shape[1:]))
            session = runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        inputs = {session.get_inputs()[0].name: images.numpy()}
        return lambda: session.run(None, inputs)

    return {name: forward(network) for name, network in networks.items()}
