"""The methods that the paper compares."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CGES", "DENSE", "GROUP", "ITL", "L1", "L2", "METHODS", "PLOTTED", "SGL", "TABLE", "TL1", "Method"]


@dataclass(frozen=True)
class Method:
    """A method of the comparison.

    Attributes:
        key: Key in result files and on the command line.
        label: Name in tables.
        short: Name in figures.
        regularizer: Name in a training configuration.
    """

    key: str
    label: str
    short: str
    regularizer: str


L1 = Method("l1", "l1", "l1", "l1")
SGL = Method("sgl", "SGL", "SGL", "sparse-group-lasso")
CGES = Method("cges", "CGES", "CGES", "combined-group-exclusive")
ITL = Method("itl", "integrated Tl1", "ITL", "integrated-tl1")
GROUP = Method("group", "group sparsity", "group", "group-lasso")
TL1 = Method("tl1", "Tl1", "Tl1", "transformed-l1")
L2 = Method("l2", "l2", "l2", "l2")
DENSE = Method("dense", "no penalty", "dense", "none")

# The columns of the paper's table, in its order.
TABLE = (L1, SGL, CGES, ITL)

# The methods of the trade-off and convergence figures, with l2 as the baseline that produces no zeros.
PLOTTED = (L2, *TABLE)

METHODS: dict[str, Method] = {method.key: method for method in (*TABLE, L2, DENSE)}
