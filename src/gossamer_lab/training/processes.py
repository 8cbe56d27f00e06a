"""A training over the processes of torchrun: each computes a part of every batch, the first one writes the files.

Without a process group all of this does nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from gossamer.errors import GossamerError

__all__ = ["data_parallel", "from_leader", "leads", "own_part", "process_count", "process_group", "summed"]

_Result = TypeVar("_Result")


@contextmanager
def process_group(wanted: bool) -> Iterator[None]:
    """The processes that torchrun has started, connected by gloo.

    Raises:
        GossamerError: If this process was not started by torchrun.
    """
    if not wanted:
        yield
        return
    if "RANK" not in os.environ:
        raise GossamerError(
            "`--distributed` needs several processes, and this one was started alone. Start them by torchrun: "
            "`torchrun --nproc-per-node=2 -m gossamer_lab train DATASET --distributed`."
        )
    dist.init_process_group("gloo")
    try:
        yield
    finally:
        dist.destroy_process_group()


def process_count() -> int:
    """Number of processes."""
    return dist.get_world_size() if dist.is_initialized() else 1


def leads() -> bool:
    """Whether this is the first process."""
    return not dist.is_initialized() or dist.get_rank() == 0


def from_leader(call: Callable[[], _Result]) -> _Result:
    """Call a function in the first process, and return its result in all of them."""
    if not dist.is_initialized():
        return call()
    results: list[_Result | None] = [call() if leads() else None]
    dist.broadcast_object_list(results)
    return results[0]  # type: ignore[return-value]


def data_parallel(model: nn.Module) -> nn.Module:
    """The model with gradients averaged over all processes. Wrapped anew where parameters have changed."""
    return nn.parallel.DistributedDataParallel(model) if dist.is_initialized() else model


def own_part(batch: Tensor) -> Tensor:
    """The part of a batch that this process computes."""
    return torch.tensor_split(batch, process_count())[dist.get_rank()] if dist.is_initialized() else batch


def summed(*numbers: float) -> list[float]:
    """Sums over all processes."""
    if not dist.is_initialized():
        return list(numbers)
    totals = torch.tensor(numbers, dtype=torch.float64)
    dist.all_reduce(totals)
    return [float(total) for total in totals]
