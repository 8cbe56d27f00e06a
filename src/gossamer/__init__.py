"""Train networks whose weights become exactly zero, and take the zeros out.

regularizer = gossamer.integrated_tl1(model, strength=1e-4, a=0.1, s=0.1)
gossamer.attach(optimizer, regularizer)      # every optimizer.step() now ends in the proximal step
...                                          # the training loop, unchanged
print(gossamer.measure(model, example))
"""

from gossamer import penalties
from gossamer.errors import GossamerError
from gossamer.measurement import Measurement, measure
from gossamer.proximal import ProximalStep, attach, constant, warm_up
from gossamer.regularizers import (
    Regularizer,
    combined_group_exclusive,
    group_lasso,
    group_transformed_l1,
    integrated_tl1,
    l1,
    l2,
    sparse_group_lasso,
    transformed_l1,
)

__all__ = [
    "GossamerError",
    "Measurement",
    "ProximalStep",
    "Regularizer",
    "attach",
    "combined_group_exclusive",
    "constant",
    "group_lasso",
    "group_transformed_l1",
    "integrated_tl1",
    "l1",
    "l2",
    "measure",
    "penalties",
    "sparse_group_lasso",
    "transformed_l1",
    "warm_up",
]
__version__ = "0.1.0"
