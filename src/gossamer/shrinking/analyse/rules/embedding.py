"""Embeddings: the columns of the table are units; its rows are indexed by the input and stay."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx

from gossamer.layers.kinds import EMBEDDING
from gossamer.shrinking.analyse.domain import AbstractValue, expand_along
from gossamer.shrinking.analyse.facts import Analysis
from gossamer.shrinking.analyse.rules.views import parameter_view
from gossamer.shrinking.trace import arguments, shape_of

__all__ = ["embedding", "embedding_bag"]


def embedding(analysis: Analysis, node: fx.Node) -> Any:
    """A column is constant if all of its entries are equal."""
    found = _table(analysis, node)
    if found is None:
        return analysis.opaque(node, "its embedding table is computed, not a parameter")
    columns, table = found
    shape = shape_of(node)
    vectors = (columns, table[0], (table == table[:1]).all(0))
    return AbstractValue(*(expand_along(vector, shape, len(shape) - 1) for vector in vectors))


def embedding_bag(analysis: Analysis, node: fx.Node) -> Any:
    """Sums, means or maxima of rows: a column of zeros gives zeros, whatever the bags are (an empty one gives zero)."""
    found = _table(analysis, node)
    if found is None:
        return analysis.opaque(node, "its embedding table is computed, not a parameter")
    columns, table = found
    bags, *others = analysis.unknown_result(node)
    vectors = (columns, torch.zeros_like(table[0]), (table == 0).all(0))
    return AbstractValue(*(expand_along(vector, bags.shape, 1) for vector in vectors)), *others


def _table(analysis: Analysis, node: fx.Node) -> tuple[Tensor, Tensor] | None:
    """The labels of the columns of a table, and the table itself; None if it is no parameter."""
    named = arguments(node)
    view = parameter_view(analysis, named["weight"])
    if view is None or view.dims != (0, 1):
        return None
    _pin_indices(analysis, named["indices"])
    table = analysis.tensor(view.name)
    rows, columns = analysis.labels.fresh(table.size(0)), analysis.labels.fresh(table.size(1))
    analysis.labels.pin(rows, f"the rows of {view.name} are indexed by the input")
    analysis.bind(view, 0, rows)
    analysis.bind(view, 1, columns)
    for path in analysis.owners(view.name):
        analysis.count_units(path, EMBEDDING, outputs=columns)
    return columns, table


def _pin_indices(analysis: Analysis, indices: fx.Node) -> None:
    """Indices that are computed from a buffer (position numbers plus an offset) keep all elements of that buffer."""
    value = analysis.values.get(indices)
    if isinstance(value, AbstractValue):
        analysis.labels.pin(value.labels, "it is an index into an embedding table")
