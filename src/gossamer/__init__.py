"""Train networks whose weights become exactly zero, then remove the zeros.

In your own training loop:

    regularizer = gossamer.integrated_tl1(model)
    gossamer.attach(optimizer, regularizer, target=gossamer.Target(params=0.05), steps=10_000)

and afterwards:

    print(gossamer.measure(model, example))      # weights, units and MACs, layer by layer
    small = gossamer.shrink(model, example)      # a smaller module with the same outputs
    fast = gossamer.native(small, example)       # inference that multiplies only the non-zeros
    gossamer.save(small, "net.safetensors")      # gossamer.load(path, Net()) rebuilds it
"""

from gossamer import penalties
from gossamer.errors import GossamerError
from gossamer.inference import export_c, fastest, native
from gossamer.measurement import Measurement, measure
from gossamer.proximal import Path, ProximalStep, SparsityWarning, attach, constant, copy_zeros, warm_up
from gossamer.regularizers import (
    Regularizer,
    UnregularizedWarning,
    combined_group_exclusive,
    group_lasso,
    group_transformed_l1,
    integrated_tl1,
    l1,
    l2,
    sparse_group_lasso,
    transformed_l1,
    unit_tl1,
)
from gossamer.shrinking import GraphFormWarning, GuardError, Plan, plan, shrink, shrink_, zero_dead_biases
from gossamer.store import export_onnx, load, save
from gossamer.targets import Reached, Target
from gossamer.visualization import report

__all__ = [
    "GossamerError",
    "GraphFormWarning",
    "GuardError",
    "Measurement",
    "Path",
    "Plan",
    "ProximalStep",
    "Reached",
    "Regularizer",
    "SparsityWarning",
    "Target",
    "UnregularizedWarning",
    "attach",
    "combined_group_exclusive",
    "constant",
    "copy_zeros",
    "export_c",
    "export_onnx",
    "fastest",
    "group_lasso",
    "group_transformed_l1",
    "integrated_tl1",
    "l1",
    "l2",
    "load",
    "measure",
    "native",
    "penalties",
    "plan",
    "report",
    "save",
    "shrink",
    "shrink_",
    "sparse_group_lasso",
    "transformed_l1",
    "unit_tl1",
    "warm_up",
    "zero_dead_biases",
]
__version__ = "0.2.0"
