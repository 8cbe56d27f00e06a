"""Variants of the facts of an analysis that ask more of attention heads.

By themselves, queries and keys of a head may lose other dimensions than its values, and as many as they like. Many
classes cannot have that: they split q, k and v by one attribute (`head_dim`). The variants, in the order in which the
planner tries them:

    as it is       q and k of one width, v of another
    equal widths   q, k and v of one width in all heads of an attention
    whole heads    heads leave as a whole, or not at all
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from gossamer.shrinking.analyse import Analysis
from gossamer.shrinking.analyse.constraints import EqualCounts

__all__ = ["variants"]


def variants(analysis: Analysis) -> list[Callable[[], Analysis]]:
    """What can be tried in place of an analysis with heads."""
    whole = functools.partial(_whole_heads, analysis)
    if any(True for _ in _same_width(analysis)):
        return [functools.partial(_equal_widths, analysis), whole]
    return [whole]


def _equal_widths(analysis: Analysis) -> Analysis:
    found = copy.copy(analysis)
    reason = "queries, keys and values of an attention must keep the same width"
    found.equal_counts = [
        *analysis.equal_counts,
        *(EqualCounts((rows,), reason) for rows in _same_width(analysis)),
    ]
    return found


def _same_width(analysis: Analysis) -> Iterator[Tensor]:
    """For each attention its query and value units, one row per head; none where the widths differ from the start."""
    classes = analysis.labels.classes()
    queries = [heads for heads in analysis.heads if heads.are_keys]
    for values in analysis.heads:
        of_head = set(classes[values.heads].tolist())
        if values.are_keys:
            continue
        for keys in queries:
            if keys.units.size(1) == values.units.size(1) and of_head == set(classes[keys.heads].tolist()):
                yield torch.cat([keys.units, values.units])


def _whole_heads(analysis: Analysis) -> Analysis:
    found = copy.copy(analysis)
    found.labels = analysis.labels.copy()
    for heads in analysis.heads:
        found.labels.unify(heads.units, heads.units[:, :1])
    return found
