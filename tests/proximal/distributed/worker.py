"""Run by torchrun from test_distributed.py: every way to spread a model over processes against one process."""

import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.tensor import Replicate, Shard, init_device_mesh
from torch.distributed.tensor.placement_types import _StridedShard

from .checkpoints import check_checkpoint, check_gathered
from .models import alone, fully_sharded, own_part, tensor_parallel
from .optimizers import check_every_recipe, check_zero_redundancy
from .placements import check_masks, check_placements
from .refusals import check_refusals
from .stages import check_stage_refusals, check_stage_targets, check_stages
from .targets import check_failure, check_resumed_zero, check_targets, check_unknown_structure
from .traffic import (
    check_bytes,
    check_bytes_of_exclusive,
    check_bytes_of_kept_norms,
    check_bytes_of_stages,
    check_bytes_of_targets,
    check_bytes_of_units,
    check_bytes_of_zero,
)
from .trainings import check_trainings
from .units import check_units
from .warned import check_warnings


def main(folder):
    dist.init_process_group("gloo")
    torch.set_default_dtype(torch.float64)  # rounding does not decide about zeros
    world = dist.get_world_size()
    flat = init_device_mesh("cpu", (world,))
    meshes = [(flat, [Shard(0)]), (flat, [Shard(1)])]
    if world == 4:
        square = init_device_mesh("cpu", (2, 2))
        strided = [_StridedShard(0, split_factor=2), Shard(0)]  # `fully_shard` on top of tensor parallelism
        meshes = [
            (square, [Shard(0), Shard(1)]),
            (square, strided),
            (square, [Replicate(), Shard(0)]),
            (flat, [Shard(0)]),
        ]
    part(check_masks, meshes)
    part(check_placements, meshes)
    part(check_refusals, flat)
    part(check_trainings, flat)
    part(check_bytes)
    part(check_bytes_of_exclusive)
    part(check_bytes_of_units)
    part(check_bytes_of_kept_norms)
    part(check_bytes_of_stages)
    part(check_bytes_of_zero)
    part(check_bytes_of_targets)
    part(check_stages)
    part(check_stage_targets)
    part(check_stage_refusals)
    part(check_zero_redundancy)
    part(check_every_recipe, flat)
    part(check_units, flat)
    part(check_targets, flat)
    part(check_unknown_structure)
    part(check_failure)
    layouts = [(fully_sharded, own_part), (lambda model: tensor_parallel(flat, model), alone)]
    part(check_gathered, folder, layouts)
    if world == 2:
        part(check_warnings, flat)
        part(check_checkpoint, folder, [*layouts, (alone, alone)])
        part(check_resumed_zero)
    dist.barrier()
    dist.destroy_process_group()


def part(check, *args):
    begin = time.perf_counter()
    check(*args)
    if dist.get_rank() == 0:
        print(f"{check.__name__}: {time.perf_counter() - begin:.1f} s", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
