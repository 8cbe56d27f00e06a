"""Shrink one network and check the result: `check.py CASE zeros|constants` prints one row as JSON.

In every layer half of the output units, drawn at random, get zero weights. With `zeros` their biases are zero too, and
so are the shifts of batch norms: a dead unit is zero. With `constants` biases and shifts are random numbers: a dead
unit is some constant, which has to be folded.

The outputs are compared at the example and at another batch size and another length or image size, as far as the full
network accepts these, in evaluation mode after `shrink` and in training mode after `shrink_`.

The time of `plan` is divided by that of `torch.export` and five forward passes, taken in forks of this process, so that
none finds the caches of another. A graph takes other sizes than those of the example: its time is also divided by that
of the export with the same dynamic sizes and five forward passes.
"""

from __future__ import annotations

import copy
import functools
import json
import sys
import time
import warnings
from typing import Any

import numpy as np
import torch
from forks import Fork
from models import CASES, Case
from torch import Tensor, fx, nn
from torch.export import Dim
from torch.utils import _pytree as pytree

import gossamer
from gossamer.errors import GossamerError
from gossamer.example import Call, call_with

SECONDS = 300
"""An export that takes longer is an error."""

TOLERANCE = 1e-3
"""The largest difference over the largest output, in single precision."""


@torch.no_grad()
def kill_half(model: nn.Module, *, constants: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    for layer in model.modules():
        own = layer._parameters
        weight, bias = own.get("weight"), own.get("bias")
        if isinstance(layer, nn.modules.batchnorm._BatchNorm) and weight is not None and bias is not None:
            bias.normal_(generator=generator) if constants else bias.zero_()
            weight.masked_fill_(weight == 0, 1.0)  # some packages start with closed residual branches
        elif _is_layer(layer) and weight is not None:
            outputs = (
                1 if isinstance(layer, nn.modules.conv._ConvTransposeNd) or type(layer).__name__ == "Conv1D" else 0
            )
            units = weight.shape[outputs]
            dead = torch.randperm(units, generator=generator)[: units // 2]
            weight.index_fill_(outputs, dead, 0)
            if bias is not None and len(bias) == units:
                bias[dead] = torch.randn(len(dead), generator=generator) if constants else 0.0
        for name in ("gate_up_proj", "down_proj"):  # the layers of all experts in one parameter: the same units die
            experts = own.get(name)
            if experts is not None and experts.dim() == 3:
                dead = torch.randperm(experts.shape[1], generator=generator)[: experts.shape[1] // 2]
                experts.index_fill_(1, dead, 0)


def _is_layer(layer: nn.Module) -> bool:
    return isinstance(layer, nn.Linear | nn.modules.conv._ConvNd) or type(layer).__name__ == "Conv1D"


def outputs_of(model: nn.Module, inputs: Any) -> list[Tensor]:
    """The tensors that the model returns; the same random numbers every time."""
    torch.manual_seed(0)
    np.random.seed(0)
    with torch.no_grad():
        found = model(**inputs) if isinstance(inputs, dict) else model(inputs)
    return [leaf for leaf in pytree.tree_leaves(found) if isinstance(leaf, Tensor) and leaf.is_floating_point()]


def compare(full: nn.Module, small: nn.Module, inputs: dict[str, Any]) -> dict[str, str]:
    """For each kind of input: "same", the difference, or why there is nothing to compare."""
    found = {}
    for name, each in inputs.items():
        before = [b.clone() for b in full.buffers()]
        try:
            expected = outputs_of(full, each)
        except Exception:  # the network does not take this size
            found[name] = "not accepted"
            continue
        finally:
            for buffer, value in zip(full.buffers(), before, strict=True):
                buffer.data.copy_(value)
        try:
            found[name] = _difference(expected, outputs_of(small, each))
        except gossamer.GuardError:  # a graph refuses sizes that it was not made for
            found[name] = "refused"
        except Exception as error:
            found[name] = f"{type(error).__name__}: {error}"[:200]
    return found


def _difference(expected: list[Tensor], found: list[Tensor]) -> str:
    if [e.shape for e in expected] != [f.shape for f in found]:
        return "other shapes"
    worst = 0.0
    for e, f in zip(expected, found, strict=True):
        finite = e.isfinite()
        if not torch.equal(finite, f.isfinite()):
            return "not finite"
        if finite.any():
            worst = max(worst, float((e - f)[finite].abs().max() / e[finite].abs().max().clamp(min=1e-12)))
    return "same" if worst <= TOLERANCE else f"{worst:.1e}"


def without_dropout(model: nn.Module) -> nn.Module:
    """Disable dropout and stochastic depth, so that training outputs can be compared."""
    for module in model.modules():
        if isinstance(module, nn.modules.dropout._DropoutNd):
            module.p = 0.0
        for name, value in vars(module).items():
            if isinstance(value, float) and ("drop" in name or name == "p"):
                setattr(module, name, 0.0)
    return model


def check(case: Case, kind: str) -> dict[str, Any]:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = case.make().eval()
    kill_half(model, constants=kind == "constants")
    size, other = case.sizes
    example = case.inputs(2, size)
    inputs = {"example": case.inputs(2, size), "batch": case.inputs(3, size), "size": case.inputs(2, other)}
    row: dict[str, Any] = {"package": case.package, "network": case.network, "dead units": kind}
    call = call_with(model, example)
    forward = Fork(functools.partial(seconds_of_forward, model, example), SECONDS)()
    export = functools.partial(seconds_of_export, model, call)
    plain, dynamic = Fork(export, SECONDS), Fork(export, SECONDS)
    seconds_of_plain = plain(None)
    started = time.process_time()
    try:
        plan = gossamer.plan(model, example)
    except GossamerError as error:
        return {**row, "error": str(error)[:300]}
    seconds = time.process_time() - started
    reasons = {reason for channels in plan.channels for reason in channels.reasons}
    row |= {
        "form": plan.form,
        "parameters": plan.weights_before,
        "left": plan.weights_after,
        "seconds": round(seconds, 2),
        "over export and five forwards": round(seconds / (seconds_of_plain + 5 * forward), 2),
        "evaluation": compare(model, plan.apply(), inputs),
        "unexplained": sum("please report" in reason for reason in reasons),
    }
    if plan.form == "graph":
        over = dynamic(free_dims(plan.apply())) + 5 * forward
        row["over export with the same dynamic sizes and five forwards"] = round(seconds / over, 2)
    else:
        dynamic.close()
    return row | in_training(model, inputs)


def seconds_of_forward(model: nn.Module, example: Any) -> float:
    """The shorter of two forward passes."""
    times = []
    for _ in range(2):
        started = time.process_time()
        outputs_of(model, example)
        times.append(time.process_time() - started)
    return min(times)


def seconds_of_export(model: nn.Module, call: Call, dims: list[tuple[int, ...]] | None) -> float:
    """The time of `torch.export`, with these dimensions of every input dynamic; 0 if it cannot be exported."""
    waiting = iter(dims or [])
    shapes = (
        pytree.tree_map(lambda _: dict.fromkeys(next(waiting), Dim.AUTO), (call.args, call.kwargs)) if dims else None
    )
    named = None if shapes is None else shapes[1] or shapes[0]
    started = time.process_time()
    try:
        torch.export.export(model, call.args, call.kwargs, dynamic_shapes=named, strict=False)
    except Exception:  # `plan` reports that it cannot be exported
        return 0.0
    return time.process_time() - started


def free_dims(graph: nn.Module) -> list[tuple[int, ...]]:
    """For each input of a shrunk graph, the dimensions that may have another size than in the example."""
    assert isinstance(graph, fx.GraphModule)
    shapes = [node.meta["val"].shape for node in graph.graph.find_nodes(op="placeholder")]
    return [tuple(dim for dim, size in enumerate(shape) if not isinstance(size, int)) for shape in shapes]


def in_training(model: nn.Module, inputs: dict[str, Any]) -> dict[str, Any]:
    full = without_dropout(model).train()
    small = copy.deepcopy(full)
    started = time.process_time()
    try:
        plan = gossamer.shrink_(small, inputs["example"])
    except GossamerError as error:
        return {"training": {"shrink_": f"refused: {error}"[:300]}}
    seconds = round(time.process_time() - started, 2)
    return {
        "training": compare(full, small, inputs),
        "left in training": plan.weights_after,
        "seconds in training": seconds,
    }


if __name__ == "__main__":
    print(json.dumps(check(CASES[sys.argv[1]], sys.argv[2])))
