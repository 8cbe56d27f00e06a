"""Run by torchrun from test_distributed.py: one of two data-parallel processes cannot compile the kernel."""

import os
import warnings

import torch
import torch.distributed as dist
from torch import nn

import gossamer

from .models import data_parallel


def main():
    dist.init_process_group("gloo")
    if dist.get_rank() == 1:
        os.environ["CXX"] = "/no/compiler"
    for recipe, options in (("integrated_tl1", {}), ("unit_tl1", {"example": True})):
        check_same_bits(recipe, options)
    dist.destroy_process_group()


def check_same_bits(recipe, options):
    """All weights are the same bit by bit after some steps."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 3))
    x, y = torch.randn(16, 64), torch.randint(0, 3, (16,))
    options = {"example": x} if options else {}
    regularizer = getattr(gossamer, recipe)(model, 0.05, **options)
    spread = data_parallel(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        handle = gossamer.attach(optimizer, regularizer, compile=True)
        for _ in range(3):
            optimizer.zero_grad()
            nn.functional.cross_entropy(spread(x), y).backward()
            optimizer.step()
    assert handle.fused is None
    assert handle.fused_units is None
    assert dist.get_rank() == 1 or any("all processes take" in str(warning.message) for warning in seen)
    for weight in model.parameters():
        parts = [torch.empty_like(weight) for _ in range(2)]
        dist.all_gather(parts, weight.detach())
        assert torch.equal(*parts), recipe


if __name__ == "__main__":
    main()
