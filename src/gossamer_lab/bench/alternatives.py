"""Adapters to other libraries, for those that are installed."""

from __future__ import annotations

import copy
import importlib
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

__all__ = [
    "NOT_INSTALLED",
    "optional_import",
    "pat_group_lasso",
    "pat_steps",
    "pyproximal_steps",
    "skglm_steps",
    "torch_pruning_removal",
]

NOT_INSTALLED = "not installed"
_Steps = dict[str, Callable[[], object]]


def optional_import(name: str) -> Any | None:
    """Import a module, ignoring its warnings; None if it is not installed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return importlib.import_module(name)
        except ImportError:
            return None


def pat_steps(weight: Tensor, step: float) -> _Steps:
    """Return the in-place proximal maps of torchao's PAT for l1 and group lasso on rows."""
    optim = optional_import("torchao.prototype.pat.optim")
    if optim is None:
        return {}
    lasso, rows = optim.ProxLasso(step), optim.group_lasso.ProxGroupLassoVectorized(step, reduce_dim=1)
    return {
        "L1()": lambda: lasso.apply_(weight, 1.0),
        "Group(inner=L1())": lambda: rows.apply_(weight, 1.0),
    }


def pyproximal_steps(weight: Tensor, step: float) -> _Steps:
    """Return the operators of pyproximal on the same values as NumPy vectors."""
    library = optional_import("pyproximal")
    if library is None:
        return {}
    flat = weight.numpy().ravel()
    l21 = library.L21(ndim=weight.shape[1])
    columns = weight.t().contiguous().numpy().ravel()  # groups are the columns of a matrix (ndim, groups)
    return {
        "L0()": lambda: library.L0(1.0).prox(flat, step),
        "L1()": lambda: library.L1().prox(flat, step),
        "SCAD(knee=1.0, gamma=3.7)": lambda: library.SCAD(1.0, 3.7).prox(flat, step),
        "Log(gamma=1.0)": lambda: library.Log(1.0, 1.0).prox(flat, step),
        "Group(inner=L1())": lambda: l21.prox(columns, step),
    }


def skglm_steps(weight: Tensor, step: float) -> _Steps:
    """Return the compiled functions of skglm on the same values as NumPy arrays."""
    library = optional_import("skglm.utils.prox_funcs")
    if library is None:
        return {}
    array = weight.numpy()
    return {"L1()": lambda: library.ST_vec(array, step)}


def pat_group_lasso(model: nn.Module, strength: float, lr: float) -> torch.optim.Optimizer | None:
    """Return SGD with momentum wrapped by PAT: group lasso on the rows and filters of all weights."""
    optim = optional_import("torchao.prototype.pat.optim")
    if optim is None:
        return None
    weights = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() <= 1]
    groups: list[dict[str, Any]] = [
        {"params": weights, "group_type": "Dim0Grouper", "prox_type": "ProxGroupLasso", "reg_lambda": strength},
        {"params": others},
    ]
    optimizer: torch.optim.Optimizer = optim.PruneOptimizer(torch.optim.SGD(groups, lr=lr, momentum=0.9))
    return optimizer


def torch_pruning_removal(
    model: nn.Module, example: Tensor, removed: Callable[[nn.Module], dict[nn.Module, list[int]]]
) -> nn.Module | None:
    """Return a copy of the model from which Torch-Pruning has removed the given output channels."""
    library = optional_import("torch_pruning")
    if library is None:
        return None
    copied = copy.deepcopy(model)
    graph = library.DependencyGraph().build_dependency(copied, example_inputs=example)
    sizes = {layer: layer.get_parameter("weight").shape[0] for layer in removed(copied)}
    for layer, channels in removed(copied).items():
        # Batch norms follow their convolutions, and layers that are added lose their channels with the first of them.
        if isinstance(layer, nn.BatchNorm2d) or layer.get_parameter("weight").shape[0] < sizes[layer]:
            continue
        prune = library.prune_conv_out_channels if isinstance(layer, nn.Conv2d) else library.prune_linear_out_channels
        graph.get_pruning_group(layer, prune, idxs=channels).prune()
    return copied
