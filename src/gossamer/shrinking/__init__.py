"""Take the zeros out: a really smaller network with the same outputs.

Trace (`torch.export`), run the graph on shadows that know who stands where and what is constant, decide who may go,
write it down as a plan, carry it out, verify. What is not understood stays, and the plan says why.
"""

from gossamer.shrinking.calls import GraphFormWarning, plan, shrink, shrink_
from gossamer.shrinking.cuts import take
from gossamer.shrinking.dead import zero_dead_biases
from gossamer.shrinking.optimizer import ParameterState, register_state
from gossamer.shrinking.plans import Channels, Fold, Plan, Size

__all__ = [
    "Channels",
    "Fold",
    "GraphFormWarning",
    "ParameterState",
    "Plan",
    "Size",
    "plan",
    "register_state",
    "shrink",
    "shrink_",
    "take",
    "zero_dead_biases",
]
