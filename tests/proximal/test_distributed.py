"""Two real processes under torchrun: the same weights, and the same zeros, on both."""

import subprocess
import sys

import pytest

DATA_PARALLEL = """
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import gossamer

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 3)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
handle = gossamer.attach(optimizer, gossamer.integrated_tl1(model, 3e-3, a=0.5))
torch.manual_seed(rank)  # other data on each process
for step in range(60):
    if step == 40:
        handle.hold()
    x = torch.randn(32, 6)
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x), (x @ torch.ones(6, 3).cumsum(1)).argmax(1)).backward()
    optimizer.step()
for parameter in model.parameters():
    other = [torch.empty_like(parameter) for _ in range(2)]
    dist.all_gather(other, parameter.detach())
    assert torch.equal(*other)
kept = gossamer.measure(model, torch.zeros(1, 6)).params_kept
assert 0 < kept < 0.9, kept
dist.barrier()
dist.destroy_process_group()
"""

# ZeRO: each process has a part of the optimizer's state, and all have the same weights as with one optimizer.
ZERO = """
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

import gossamer

dist.init_process_group("gloo")

def trained(make):
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 3)))
    optimizer = make(list(model.parameters()))
    handle = gossamer.attach(optimizer, gossamer.integrated_tl1(model, 3e-3, a=0.5), schedule=gossamer.warm_up(20))
    torch.manual_seed(1)
    for step in range(40):
        x = torch.randn(32, 6)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), (x @ torch.ones(6, 3).cumsum(1)).argmax(1)).backward()
        optimizer.step()
    assert handle.steps == 40
    return model, optimizer, handle

for base, options in ((torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}), (torch.optim.Adam, {"lr": 1e-2})):
    plain, _, _ = trained(lambda params: base(params, **options))
    model, optimizer, handle = trained(lambda params: ZeroRedundancyOptimizer(params, base, **options))
    for expected, received in zip(plain.parameters(), model.parameters()):
        torch.testing.assert_close(received, expected)
    kept = gossamer.measure(model, torch.zeros(1, 6)).params_kept
    assert 0 < kept < 0.9, kept
    handle.hold()
    optimizer.consolidate_state_dict(0)
    saved = [optimizer.state_dict() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(saved)
    handle.remove()
    _, other, again = trained(lambda params: ZeroRedundancyOptimizer(params, base, **options))
    assert not again.held
    other.load_state_dict(saved[0])
    assert again.held and again.steps == 40
dist.barrier()
dist.destroy_process_group()
"""

# Sharded tensors: every penalty gives what it gives on the whole tensor.
SHARDED = """
import torch
import torch.distributed as dist
from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh

from gossamer.penalties import L1, Exclusive, Group, L1MinusL2, Lp, TransformedL1

dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (2,))
torch.manual_seed(0)
weight = torch.randn(8, 6)
steps = torch.tensor(0.1, dtype=torch.float64), 0.1 * torch.rand(8, 6)
for penalty in (Exclusive(), Exclusive(False), L1(), Lp(0.3), Group(L1()), Group(TransformedL1()), L1MinusL2()):
    for step in steps[:1] if isinstance(penalty, L1MinusL2) else steps:
        for dimension in (0, 1):
            shard = lambda tensor: distribute_tensor(tensor, mesh, [Shard(dimension)])
            received = penalty.kernel(shard(weight), shard(step) if step.dim() else step).full_tensor()
            torch.testing.assert_close(received, penalty.kernel(weight, step))
dist.barrier()
dist.destroy_process_group()
"""


@pytest.mark.parametrize(
    "worker", [DATA_PARALLEL, ZERO, SHARDED], ids=["data parallel", "zero redundancy", "sharded tensors"]
)
def test_two_processes_stay_together(tmp_path, worker):
    script = tmp_path / "worker.py"
    script.write_text(worker)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(script)]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    assert result.returncode == 0, result.stderr
