"""Run by torchrun from test_distributed.py: half of a training, whose checkpoint another number of processes reads.

torchrun ... -m distributed.resumed FOLDER write|read
"""

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.checkpoint import load as load_checkpoint
from torch.distributed.checkpoint import save as save_checkpoint
from torch.distributed.checkpoint.state_dict import set_model_state_dict, set_optimizer_state_dict

from .checkpoints import half, states
from .models import fully_sharded, same, train


def main(folder, part):
    dist.init_process_group("gloo")
    torch.set_default_dtype(torch.float64)  # rounding does not decide about zeros
    model, optimizer, handle, data = half(fully_sharded)
    if part == "write":
        train(model, optimizer, *data, 2)
        save_checkpoint(states(model, optimizer), checkpoint_id=folder)
    else:
        loaded = states(model, optimizer)
        load_checkpoint(loaded, checkpoint_id=folder)
        set_model_state_dict(model, loaded["model"])
        set_optimizer_state_dict(model, optimizer, loaded["optimizer"])
        assert handle.steps == 2, handle.steps
        train(model, optimizer, *data, 2)
        one, its_optimizer, _, whole = half(lambda model: model, whole_batch=True)
        train(one, its_optimizer, *whole, 4)
        weights = {name: weight.detach() for name, weight in one.named_parameters()}
        assert any(bool((weight == 0).any()) for weight in weights.values())
        same(weights, model, f"read by {dist.get_world_size()}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
