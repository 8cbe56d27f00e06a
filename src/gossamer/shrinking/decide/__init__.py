"""Decide: from the facts of an analysis to a plan.

    liveness    which classes of labels are kept: a least fixed point, then shapes filled to rectangles
    hard_coded  integers in the user's forward that count units, and what follows from them
    plan        the `Plan`: what is removed, folded and kept, and why
    planner     how a plan is made from a decision
    search      the attempt loop: build, verify, on failure pin more

The map from units to parameters is `Analysis.axis_labels` and `Analysis.element_labels`, read through
`Decision.classes`: the slices of parameters that leave with a class are the positions at which these labels belong to
it. `kept_indices` is the complement, over all removed classes at once.
"""

from gossamer.shrinking.decide.liveness import Decision, decide
from gossamer.shrinking.decide.plan import Change, Channels, Fold, Indices, Plan, Size
from gossamer.shrinking.decide.planner import kept_indices, make_plan, weights_at_best
from gossamer.shrinking.decide.search import NOT_VERIFIED, Rejected, Verified, largest_verified_plan

__all__ = [
    "NOT_VERIFIED",
    "Change",
    "Channels",
    "Decision",
    "Fold",
    "Indices",
    "Plan",
    "Rejected",
    "Size",
    "Verified",
    "decide",
    "kept_indices",
    "largest_verified_plan",
    "make_plan",
    "weights_at_best",
]
