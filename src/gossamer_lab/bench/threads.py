"""Benchmark `threads`: one batch in two threads of `gossamer.native`, against one thread.

No other engine runs in the process: the threads of most of them wait actively, and would take the second core. A burst
is long: its first calls wake the second thread up, which on an idle machine takes as long as tens of small batches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch

from gossamer.inference import native
from gossamer_lab.bench.journal import Journal, Row
from gossamer_lab.bench.networks import NETWORKS, SparseNetwork
from gossamer_lab.bench.result import Machine, Result
from gossamer_lab.bench.timing import time_bursts

__all__ = ["two_threads"]

_BATCH = 256
_BURST = 0.02  # seconds


def two_threads(
    networks: Sequence[SparseNetwork] = NETWORKS, seconds: float = 2.0, journal: Journal | None = None
) -> Result:
    """Time batches of 256 samples, as calls from Python and in C alone.

    Args:
        networks: Networks with zeros.
        seconds: Time budget per candidate.
        journal: Where measurements are written as they come.
    """
    journal = journal or Journal()
    rows = [journal.measured(network.name, partial(_row, network, seconds)) for network in networks]
    return Result(
        name="threads",
        title=f"`gossamer.native` in two threads against one, batches of {_BATCH}",
        note=(
            "ms: lower quartiles of interleaved bursts of calls. call: from Python, with the check of the input and "
            "the allocation of the output; C: the compiled function alone, on the same memory every time. threads: how "
            "many the call uses of two; less work than 12 µs for each is left to one."
        ),
        machine=Machine.here(),
        rows=tuple(rows),
    )


def _row(network: SparseNetwork, seconds: float) -> Row:
    _, shrunk = network.build()
    images = torch.randn(_BATCH, *network.shape, generator=torch.Generator().manual_seed(0))
    modules = {threads: native(shrunk, images[:2], threads=threads) for threads in (1, 2)}
    output = modules[1](images)
    candidates: dict[str, Callable[[], object]] = {}
    for threads, module in modules.items():
        candidates[f"call {threads}"] = partial(module, images)
        candidates[f"C {threads}"] = partial(module.call_compiled, _BATCH, images.data_ptr(), output.data_ptr())
    burst = min(_BURST, seconds)
    with torch.inference_mode():
        low = {name: 1e3 * timing.low for name, timing in time_bursts(candidates, seconds=seconds, burst=burst).items()}
    return {
        "network": network.name,
        "threads": modules[2].threads_for(_BATCH),
        "call, ms, 1 thread": low["call 1"],
        "call, ms, 2 threads": low["call 2"],
        "call, times faster": low["call 1"] / low["call 2"],
        "C, ms, 1 thread": low["C 1"],
        "C, ms, 2 threads": low["C 2"],
        "C, times faster": low["C 1"] / low["C 2"],
    }
