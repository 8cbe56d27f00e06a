"""Checkpoints in one layout that are read in another; gather, shrink, save."""

from itertools import pairwise

import torch
import torch.distributed as dist
from torch.distributed.checkpoint import load as load_checkpoint
from torch.distributed.checkpoint import save as save_checkpoint
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)

import gossamer

from .models import TOKENS, Tokens, batch, built, fully_sharded, optimizer_of, own_part, refuses, same, train


def half(spread, whole_batch=False):
    model = spread(built(Tokens))
    optimizer = optimizer_of("Adam", model.parameters())
    handle = gossamer.attach(optimizer, gossamer.integrated_tl1(model, 0.3), schedule=gossamer.warm_up(4))
    x, y = batch(TOKENS[1])
    return model, optimizer, handle, (x, y) if whole_batch else (own_part(x), own_part(y))


def check_checkpoint(folder, layouts):
    """A checkpoint that is written in one layout and read in another continues like one process."""
    expected, optimizer, _, data = half(lambda model: model, whole_batch=True)
    train(expected, optimizer, *data, 4)
    expected = {name: parameter.detach() for name, parameter in expected.named_parameters()}
    writers = [*layouts, layouts[0]]
    for number, (writer, reader) in enumerate(pairwise(writers)):
        model, optimizer, handle, data = half(*writer)
        train(model, optimizer, *data, 2)
        save_checkpoint(states(model, optimizer), checkpoint_id=folder / str(number))
        model, optimizer, handle, data = half(*reader)
        loaded = states(model, optimizer)
        load_checkpoint(loaded, checkpoint_id=folder / str(number))
        set_model_state_dict(model, loaded["model"])
        set_optimizer_state_dict(model, optimizer, loaded["optimizer"])
        assert handle.steps == 2, handle.steps
        train(model, optimizer, *data, 2)
        same(expected, model, (writer, reader))


def states(model, optimizer):
    return {"model": get_model_state_dict(model), "optimizer": get_optimizer_state_dict(model, optimizer)}


def check_gathered(folder):
    """Gather, shrink, save: the lines of docs/scaling.md."""
    model, optimizer, _, data = half(fully_sharded)
    train(model, optimizer, *data, 3)
    refuses("docs/scaling.md", gossamer.shrink, model, data[0])
    refuses("docs/scaling.md", gossamer.save, model, folder / "net.safetensors")
    state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    if dist.get_rank() == 0:
        net = Tokens()
        net.load_state_dict(state)
        small = gossamer.shrink(net, torch.arange(8))
        gossamer.save(small, folder / "net.safetensors")
        loaded = gossamer.load(folder / "net.safetensors", Tokens())
        assert sum(p.numel() for p in loaded.parameters()) < sum(p.numel() for p in net.parameters())
        torch.testing.assert_close(loaded(torch.arange(8)), net(torch.arange(8)))
