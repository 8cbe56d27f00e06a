"""Run by torchrun from test_distributed.py: half of a training, whose checkpoint another number of processes reads.

torchrun ... -m distributed.resumed FOLDER write|read
"""

import sys
from pathlib import Path

import torch
import torch.distributed as dist

from .checkpoints import HALVES, expected_of, read, write
from .models import fully_sharded, own_part, same


def main(folder, part):
    dist.init_process_group("gloo")
    torch.set_default_dtype(torch.float64)  # rounding does not decide about zeros
    layout = fully_sharded, own_part
    for begin, before, after in HALVES:
        place = folder / begin.__name__
        if part == "write":
            write(begin, before, layout, place)
        else:
            steps, model = read(begin, after, layout, place)
            assert steps == before
            weights = expected_of(begin, before + after)
            assert any(bool((weight == 0).any()) for weight in weights.values())
            same(weights, model, f"{begin.__name__}, read by {dist.get_world_size()}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
