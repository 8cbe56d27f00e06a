"""Two real processes under torchrun: the same weights, and the same zeros, on both."""

import subprocess
import sys

WORKER = """
import sys
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


def test_data_parallel_processes_stay_together(tmp_path):
    script = tmp_path / "worker.py"
    script.write_text(WORKER)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(script)]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    assert result.returncode == 0, result.stderr
