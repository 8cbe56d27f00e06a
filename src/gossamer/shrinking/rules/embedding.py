"""Embeddings: the columns of the table are units, its rows are looked up by the input and stay."""

from __future__ import annotations

from typing import Any

from torch import fx

from gossamer.shrinking.analysis import Analysis
from gossamer.shrinking.rules.parameters import parameter_view
from gossamer.shrinking.shadow import Shadow, spread

__all__ = ["embedding"]


def embedding(run: Analysis, node: fx.Node) -> Any:
    """A column with the same number in every row is a constant."""
    named = run.arguments(node)
    view = parameter_view(run, named["weight"])
    if view is None or view.dims != (0, 1):
        return run.opaque(node, "looked up in a computed table")
    table = run.tensor(view.name)
    rows, columns = run.labels.fresh(table.size(0)), run.labels.fresh(table.size(1))
    run.labels.pin(rows, f"the rows of {view.name} are looked up by the input")
    run.bind(view, 0, rows)
    run.bind(view, 1, columns)
    run.note(run.owner(view.name), "embedding_dim", columns)
    shape, last = run.shape(node), len(run.shape(node)) - 1
    known = (table == table[:1]).all(0)
    return Shadow(spread(columns, shape, last), spread(table[0], shape, last), spread(known, shape, last))
