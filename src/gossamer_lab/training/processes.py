"""A training over the processes of torchrun: each computes a part of every batch, the first one writes the files.

Without a process group all of this does nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from gossamer.errors import GossamerError

__all__ = [
    "data_parallel", "from_leader", "in_all", "launcher", "leads", "own_part", "process_count", "process_group",
    "summed",
]  # fmt: skip

_Result = TypeVar("_Result")

_PORT = 29500  # torchrun's own default


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


def launcher() -> list[str]:
    """The words that start this program again with as many processes, on as many machines."""
    if not dist.is_initialized():
        return ["gossamer"]
    # Other launchers than torchrun set the rank only: one machine then, unless they say more.
    per_machine = f"--nproc-per-node={os.environ.get('LOCAL_WORLD_SIZE', process_count())}"
    machines, first = os.environ.get("GROUP_WORLD_SIZE", "1"), os.environ.get("MASTER_ADDR", "localhost")
    over = ["--rdzv-backend=c10d", f"--rdzv-endpoint={first}:{_PORT}"]
    several = ["--standalone"] if machines == "1" else [f"--nnodes={machines}", *over]
    return ["torchrun", *several, per_machine, "-m", "gossamer_lab"]


def in_all(call: Callable[[], _Result]) -> _Result:
    """Call a function in every process, and return its result there. An error in any of them is raised in all.

    A process that ended alone would leave the others in their next exchange, which fails without the reason.
    """
    if not dist.is_initialized():
        return call()
    results: list[_Result] = []
    own: Exception | None = None
    try:
        results.append(call())
    except Exception as error:
        own = error
    told: list[Any] = [None] * process_count()
    # The text only: some exceptions cannot be sent.
    dist.all_gather_object(told, None if own is None else _text(own))
    if own is not None:
        raise own
    for text in told:
        if text is not None:
            raise GossamerError(text)
    return results[0]


def _text(error: Exception) -> str:
    """What other processes are told: an error of the user's as it is, any other one with its kind and where it is."""
    if isinstance(error, GossamerError):
        return str(error)
    return f"process {dist.get_rank()} failed with {type(error).__name__}: {error}"


def from_leader(call: Callable[[], _Result]) -> _Result:
    """Call a function in the first process, and return its result, or raise its error, in all of them."""
    results = [in_all(lambda: call() if leads() else None)]
    if dist.is_initialized():
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
