"""Inference engines: a network and a batch become a function that runs the network on the batch.

All functions take a network, images and a number of threads; PyTorch's own number of threads has to be set by the
caller. Those of optional packages return None where the package is not installed, or cannot run the network.
"""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import lru_cache
from io import StringIO
from pathlib import Path

import torch
from torch import Tensor, nn

from gossamer.inference import native
from gossamer.store import export_onnx
from gossamer_lab.bench.alternatives import optional_import

__all__ = [
    "Call",
    "Engine",
    "in_native",
    "in_onnx_runtime",
    "in_openvino",
    "in_pytorch",
    "in_sparselab",
    "in_sparseprop",
    "in_torch_compile",
]

Call = Callable[[], object]
Engine = Callable[[nn.Module, Tensor, int], Call | None]


def in_pytorch(network: nn.Module, images: Tensor, threads: int) -> Call:
    """PyTorch as it is."""
    del threads  # a setting of the process
    network.eval()

    @torch.inference_mode()
    def call() -> object:
        return network(images)

    return call


def in_torch_compile(network: nn.Module, images: Tensor, threads: int) -> Call:
    """Inductor, compiled for this batch size by the first call."""
    torch.compiler.reset()  # or it falls back to PyTorch after eight networks of a class
    return in_pytorch(torch.compile(network.eval(), dynamic=False), images, threads)  # type: ignore[arg-type]


def in_native(network: nn.Module, images: Tensor, threads: int) -> Call:
    """`gossamer.native`, which computes no gradients in any mode."""
    module = _native(network, images.shape[1:], threads)
    return lambda: module(images)


def in_onnx_runtime(network: nn.Module, images: Tensor, threads: int) -> Call | None:
    """ONNX Runtime, with all of its optimizations."""
    runtime = optional_import("onnxruntime")
    if runtime is None:
        return None
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    exported = _exported(network, images.shape[1:])
    session = runtime.InferenceSession(exported, options, providers=["CPUExecutionProvider"])
    inputs = {session.get_inputs()[0].name: images.numpy()}
    return lambda: session.run(None, inputs)[0]


def in_openvino(network: nn.Module, images: Tensor, threads: int) -> Call | None:
    """OpenVINO in float32, for this batch size, with inputs and outputs that are not copied."""
    library = optional_import("openvino")
    if library is None:
        return None
    core = library.Core()
    model = core.read_model(_exported(network, images.shape[1:]))
    model.reshape(list(images.shape))
    settings = {
        "INFERENCE_NUM_THREADS": threads,
        "INFERENCE_PRECISION_HINT": "f32",
        "PERFORMANCE_HINT": "LATENCY",
    }
    compiled = core.compile_model(model, "CPU", settings)
    array = images.numpy()
    return lambda: compiled({0: array}, share_inputs=True, share_outputs=True)[0]


def in_sparseprop(network: nn.Module, images: Tensor, threads: int) -> Call | None:
    """SparseProp, in the layers in which it finds itself faster than PyTorch."""
    if threads != 1:
        return None  # it reads its number of threads once, from the environment
    library = optional_import("sparseprop.utils")
    if library is None:
        return None
    with redirect_stdout(StringIO()), torch.enable_grad():
        swapped = library.swap_modules_with_sparse(copy.deepcopy(network), tuple(images.shape))
    return in_pytorch(swapped, images, threads)


def in_sparselab(network: nn.Module, images: Tensor, threads: int) -> Call | None:
    """SparseLab, which has linear layers only, in all of them."""
    library = optional_import("sparselab")
    if library is None or threads != 1 or not _chain_of_linear_layers(network):
        return None
    copied = copy.deepcopy(network)
    for name, layer in list(copied.named_modules()):
        if isinstance(layer, nn.Linear):
            parent, _, own = name.rpartition(".")
            setattr(copied.get_submodule(parent), own, _sparselab_layer(library, layer))
    return in_pytorch(copied, images, threads)


def _sparselab_layer(library: object, layer: nn.Linear) -> nn.Module:
    sparse: nn.Module = library.SparseLinear(layer.in_features, layer.out_features)  # type: ignore[attr-defined]
    matrix = library.PaddedCSR.from_dense(layer.weight.detach())  # type: ignore[attr-defined]
    sparse._csr = matrix
    sparse._values = nn.Parameter(torch.from_numpy(matrix.values))
    sparse.bias = layer.bias
    return sparse


def _chain_of_linear_layers(network: nn.Module) -> bool:
    """Whether all weights are those of linear layers."""
    weights = [module for module in network.modules() if any(p.dim() > 1 for p in module.parameters(recurse=False))]
    return all(isinstance(module, nn.Linear) for module in weights)


# The last networks are kept: they are measured at several batch sizes.
@lru_cache(maxsize=2)
def _exported(network: nn.Module, shape: torch.Size) -> bytes:
    """The ONNX file of a network, for any batch size."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "network.onnx")
        export_onnx(network, path, torch.zeros(2, *shape))
        return path.read_bytes()


@lru_cache(maxsize=2)
def _native(network: nn.Module, shape: torch.Size, threads: int) -> nn.Module:
    return native(network, torch.randn(2, *shape, generator=torch.Generator().manual_seed(0)), threads=threads)
