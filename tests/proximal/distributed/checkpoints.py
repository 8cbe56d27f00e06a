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

from .models import TOKENS, Tokens, alone, batch, built, optimizer_of, refuses, same, train
from .targets import DENSE, with_target


def by_strength(spread, share):
    model = spread(built(Tokens))
    optimizer = optimizer_of("Adam", model.parameters())
    handle = gossamer.attach(optimizer, gossamer.integrated_tl1(model, 0.3), schedule=gossamer.warm_up(4))
    x, y = batch(TOKENS[1])
    return model, optimizer, handle, (share(x), share(y))


def by_target(spread, share):
    return with_target(DENSE, spread, share)


# How a training is set up, the steps before its checkpoint, and those after it. The target is reached at 50.
HALVES = [(by_strength, 2, 2), (by_target, 30, 22)]


def expected_of(begin, steps):
    """The weights of one process, on the whole batch and without a checkpoint."""
    model, optimizer, _, data = begin(alone, alone)
    train(model, optimizer, *data, steps)
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def write(begin, steps, layout, folder):
    model, optimizer, _, data = begin(*layout)
    train(model, optimizer, *data, steps)
    save_checkpoint(states(model, optimizer), checkpoint_id=folder)


def read(begin, steps, layout, folder):
    """The optimizer's steps before the checkpoint, and the model after some more."""
    model, optimizer, handle, data = begin(*layout)
    loaded = states(model, optimizer)
    load_checkpoint(loaded, checkpoint_id=folder)
    set_model_state_dict(model, loaded["model"])
    set_optimizer_state_dict(model, optimizer, loaded["optimizer"])
    found = handle.steps
    train(model, optimizer, *data, steps)
    return found, model


def check_checkpoint(folder, layouts):
    """A checkpoint that is written in one layout and read in another continues like one process."""
    for begin, before, after in HALVES:
        expected = expected_of(begin, before + after)
        for number, (writer, reader) in enumerate(pairwise([*layouts, layouts[0]])):
            place = folder / f"{begin.__name__}-{number}"
            write(begin, before, writer, place)
            steps, model = read(begin, after, reader, place)
            assert steps == before
            same(expected, model, (begin, writer, reader))


def states(model, optimizer):
    return {"model": get_model_state_dict(model), "optimizer": get_optimizer_state_dict(model, optimizer)}


def check_gathered(folder, layouts):
    """Gather, shrink, save: the lines of docs/scaling.md."""
    for number, layout in enumerate(layouts):
        model, optimizer, _, data = by_strength(*layout)
        train(model, optimizer, *data, 3)
        file = folder / f"{number}.safetensors"
        refuses("docs/scaling.md", gossamer.shrink, model, data[0])
        refuses("docs/scaling.md", gossamer.save, model, file)
        state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
        if dist.get_rank() == 0:
            net = Tokens()
            net.load_state_dict(state)
            small = gossamer.shrink(net, torch.arange(8))
            gossamer.save(small, file)
            loaded = gossamer.load(file, Tokens())
            assert sum(p.numel() for p in loaded.parameters()) < sum(p.numel() for p in net.parameters())
            torch.testing.assert_close(loaded(torch.arange(8)), net(torch.arange(8)))
