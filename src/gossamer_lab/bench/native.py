"""Benchmark `native`: inference that multiplies only non-zeros, against engines that multiply all weights."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from gossamer.errors import GossamerError
from gossamer.measurement import measure
from gossamer_lab.bench.engines import (
    Call,
    Engine,
    in_native,
    in_onnx_runtime,
    in_openvino,
    in_pytorch,
    in_sparselab,
    in_sparseprop,
    in_torch_compile,
)
from gossamer_lab.bench.journal import Journal, Row
from gossamer_lab.bench.networks import NETWORKS, SparseNetwork
from gossamer_lab.bench.result import Machine, Result
from gossamer_lab.bench.timing import time_bursts

__all__ = ["native_networks"]

_DENSE: dict[str, Engine] = {"PyTorch dense": in_pytorch, "ONNX Runtime dense": in_onnx_runtime}
_SHRUNK: dict[str, Engine] = {
    "PyTorch": in_pytorch,
    "torch.compile": in_torch_compile,
    "ONNX Runtime": in_onnx_runtime,
    "OpenVINO": in_openvino,
    "SparseProp": in_sparseprop,
    "SparseLab": in_sparselab,
}
# With two threads, only what can be told how many to use, and compiles quickly.
_TWO_THREADS = ("PyTorch", "ONNX Runtime", "OpenVINO")
_ONE_THREAD = "native, 1 thread"
_PAUSE = 0.003  # seconds, in which waiting threads go to sleep
_COLUMNS = (_ONE_THREAD, *_DENSE, *_SHRUNK)

_CASES = tuple((batch, threads) for threads in (1, 2) for batch in (1, 64, 256))


def native_networks(
    networks: Sequence[SparseNetwork] = NETWORKS,
    cases: Sequence[tuple[int, int]] = _CASES,
    seconds: float = 0.3,
    journal: Journal | None = None,
) -> Result:
    """Time the call from Python of `gossamer.native` and of other engines, on trained and on random zeros.

    Args:
        networks: Networks with zeros.
        cases: Batch sizes and numbers of threads.
        seconds: Time budget per candidate.
        journal: Where measurements are written as they come.
    """
    journal = journal or Journal()
    rows = [
        journal.measured(
            f"{network.name}, batch {batch}, threads {threads}", _Measurement(network, batch, threads, seconds)
        )
        for network in networks
        for batch, threads in cases
    ]
    return Result(
        name="native",
        title="`gossamer.native` against other engines, times of whole calls from Python",
        note=(
            "ms: native. GMAC/s: its multiply-adds with weights that are not zero. Other columns: their time relative "
            "to it, in lower quartiles of interleaved bursts of calls. dense: the network before training. Others "
            "run the shrunk network, which for random zeros is the dense one. native, 1 thread: native itself, in one "
            "thread. SparseProp: in the layers it chooses. SparseLab: linear layers only. Empty: not available, or not "
            "measured (torch.compile, SparseProp and SparseLab with two threads). wrong outputs: they differ from "
            "PyTorch's by more than rounding."
        ),
        machine=Machine.here(),
        rows=tuple(rows),
    )


class _Measurement:
    """One row; called if it is not in the journal."""

    def __init__(self, network: SparseNetwork, batch: int, threads: int, seconds: float) -> None:
        self._network, self._batch, self._threads, self._seconds = network, batch, threads, seconds

    def __call__(self) -> Row:
        before = torch.get_num_threads()
        torch.set_num_threads(self._threads)
        try:
            return self._row()
        finally:
            torch.set_num_threads(before)

    def _row(self) -> Row:
        dense, shrunk = self._network.build()
        images = torch.randn(self._batch, *self._network.shape, generator=torch.Generator().manual_seed(0))
        calls = self._calls(shrunk, images)
        with torch.inference_mode():
            expected = shrunk(images)
        wrong = [name for name, call in calls.items() if _differs(call, expected)]
        if "native" in wrong:
            raise GossamerError(f"{self._network.name}: the outputs of `native` differ from PyTorch's.")
        right = {name: call for name, call in calls.items() if name not in wrong}
        candidates = right | self._dense_calls(dense, shrunk, images)
        times = time_bursts(candidates, seconds=self._seconds, pause=0.0 if self._threads == 1 else _PAUSE)
        own = measure(shrunk, images[:1])
        kept = own.against(measure(dense, images[:1]))
        row: Row = {
            "network": self._network.name,
            "weights %": 100 * kept.params_kept,
            "MACs %": 100 * kept.flops_kept,
            "batch": self._batch,
            "threads": self._threads,
            **times["native"].cells(),
            "GMAC/s": 1e-9 * self._batch * own.total.macs_nonzero / times["native"].low,
        }
        ratios = {name: timing.low / times["native"].low for name, timing in times.items()}
        cells = dict.fromkeys(_COLUMNS) | dict.fromkeys(wrong, "wrong outputs") | ratios
        return row | {name: cells[name] for name in _COLUMNS}

    def _calls(self, shrunk: nn.Module, images: Tensor) -> dict[str, Call]:
        engines = {name: own for name, own in _SHRUNK.items() if self._threads == 1 or name in _TWO_THREADS}
        made: dict[str, Call | None] = {name: make(shrunk, images, self._threads) for name, make in engines.items()}
        made["native"] = in_native(shrunk, images, self._threads)
        if self._threads > 1:
            made[_ONE_THREAD] = in_native(shrunk, images, 1)
        return {name: call for name, call in made.items() if call is not None}

    def _dense_calls(self, dense: nn.Module, shrunk: nn.Module, images: Tensor) -> dict[str, Call]:
        if dense is shrunk:
            return {}
        made = {name: make(dense, images, self._threads) for name, make in _DENSE.items()}
        return {name: call for name, call in made.items() if call is not None}


def _differs(call: Call, expected: Tensor) -> bool:
    """Whether a call computes something else than PyTorch does, beyond rounding."""
    found = call()
    outputs = found if isinstance(found, Tensor) else torch.from_numpy(np.array(found))
    return not float((outputs - expected).abs().max()) <= 1e-4 * float(expected.abs().max())
