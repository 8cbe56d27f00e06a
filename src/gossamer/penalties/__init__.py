"""Penalties on weights, each with its exact proximal operator.

`value(w)` sums the penalty over `w`; `prox(w, step)` is argmin_x step * value(x) + 1/2 ||x - w||^2.
"""

from gossamer.penalties.base import Penalty, ScalarPenalty
from gossamer.penalties.capped_l1 import CappedL1
from gossamer.penalties.exclusive import Exclusive
from gossamer.penalties.group import Group
from gossamer.penalties.l0 import L0
from gossamer.penalties.l1 import L1
from gossamer.penalties.l1_minus_l2 import L1MinusL2
from gossamer.penalties.l2 import L2
from gossamer.penalties.log import Log
from gossamer.penalties.lp import Lp
from gossamer.penalties.mcp import MCP
from gossamer.penalties.scad import SCAD
from gossamer.penalties.transformed_l1 import TransformedL1

__all__ = [
    "L0",
    "L1",
    "L2",
    "MCP",
    "SCAD",
    "CappedL1",
    "Exclusive",
    "Group",
    "L1MinusL2",
    "Log",
    "Lp",
    "Penalty",
    "ScalarPenalty",
    "TransformedL1",
]
