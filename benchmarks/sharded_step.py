"""How the proximal step of a sharded model grows with the number of processes: time, memory and bytes sent.

    python benchmarks/sharded_step.py            # three minutes on an otherwise idle machine
    python benchmarks/sharded_step.py --write    # also writes benchmarks/results/sharded_step.json and docs/scaling.md

A model of 16.8 million weights under `fully_shard`, behind SGD. The steps with and without a penalty are taken in
turns; the smallest time of each counts. With more processes than cores, times are those of processes that wait for
each other.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from scaling import options, show
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard

import gossamer
from gossamer_lab.bench.memory import peak_extra_bytes
from gossamer_lab.bench.result import Value

_GROUPS = ("outputs", "inputs", "units")


def network(width: int) -> nn.Module:
    """Four blocks of two linear layers."""
    blocks = [nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width)) for _ in range(4)]
    return nn.Sequential(*blocks)


def measure(rank: int, processes: int, port: int, width: int, repeats: int, folder: str) -> None:
    """One row for each grouping, written by the first process."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=processes)
    rows = [row(groups, width, repeats) for groups in _GROUPS]
    if rank == 0:
        Path(folder, "rows.json").write_text(json.dumps(rows))
    dist.barrier()
    dist.destroy_process_group()


def row(groups: str, width: int, repeats: int) -> dict[str, Value]:
    """Time, memory and bytes of a step of SGD with and without a penalty on these groups."""
    model, x = network(width), torch.randn(8, width)
    weights = sum(parameter.numel() for parameter in model.parameters())
    regularizer = gossamer.group_lasso(model, 1e-6, groups=groups, example=x if groups == "units" else None)
    for block in model:
        fully_shard(block)
    fully_shard(model)
    model(x).square().mean().backward()
    plain = torch.optim.SGD(model.parameters(), lr=1e-3)
    with_penalty = torch.optim.SGD(model.parameters(), lr=1e-3)
    handle = gossamer.attach(with_penalty, regularizer)
    best = {plain: float("inf"), with_penalty: float("inf")}
    for _ in range(repeats):
        for optimizer in best:
            best[optimizer] = min(best[optimizer], seconds(optimizer.step))
    with counted() as sent:
        with_penalty.step()
    extra = peak_extra_bytes(with_penalty.step)
    handle.remove()
    return {
        "processes": dist.get_world_size(),
        "groups": groups,
        "weights per process": weights // dist.get_world_size(),
        "SGD (ms)": 1e3 * best[plain],
        "with penalty (ms)": 1e3 * best[with_penalty],
        "bytes sent": sum(sent),
        "temporary memory (MB)": None if extra is None else extra / 1e6,
    }


def seconds(call: Callable[[], object]) -> float:
    """The time of a call that all processes begin together."""
    dist.barrier()
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


@contextmanager
def counted() -> Iterator[list[int]]:
    """The bytes of each `all_reduce`."""
    sent: list[int] = []
    original = dist.all_reduce

    def all_reduce(tensor: Tensor, *args: object, **kwargs: object) -> object:
        sent.append(tensor.numel() * tensor.element_size())
        return original(tensor, *args, **kwargs)

    dist.all_reduce = all_reduce
    try:
        yield sent
    finally:
        dist.all_reduce = original


def main(width: int, repeats: int, *, write: bool) -> None:
    """Measure 1, 2 and 4 processes."""
    rows: list[dict[str, Value]] = []
    for processes in (1, 2, 4):
        with socket.socket() as free, TemporaryDirectory() as folder:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
            free.close()
            mp.spawn(measure, (processes, port, width, repeats, folder), nprocs=processes)
            rows += json.loads(Path(folder, "rows.json").read_text())
    torch.set_num_threads(1)
    show(
        name="sharded-step",
        title=f"a step of SGD under fully_shard with and without a group lasso, {16 * width**2:,} weights",
        note="the smallest time of the first process; temporary memory and bytes for each step and process.",
        rows=rows,
        write=write,
    )


if __name__ == "__main__":
    given = options(__doc__, width=1024, repeats=20)
    main(given.width, given.repeats, write=given.write)
