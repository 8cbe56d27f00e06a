"""The regularizers that the paper compares, under the short names of its tables and figures."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CGES", "COMPARED", "DENSE", "DRAWN", "GROUP", "ITL", "L1", "L2", "SGL", "TABLE", "TL1", "Compared"]


@dataclass(frozen=True)
class Compared:
    """One column of the comparison.

    Attributes:
        key: In result files and on the command line.
        label: In tables and figures.
        regularizer: Its name in a configuration.
    """

    key: str
    label: str
    regularizer: str


L1 = Compared("l1", "l1", "l1")
SGL = Compared("sgl", "SGL", "sparse-group-lasso")
CGES = Compared("cges", "CGES", "combined-group-exclusive")
ITL = Compared("itl", "integrated Tl1", "integrated-tl1")
GROUP = Compared("group", "group sparsity", "group-lasso")
TL1 = Compared("tl1", "Tl1", "transformed-l1")
L2 = Compared("l2", "l2", "l2")
DENSE = Compared("dense", "no penalty", "none")

# The columns of the paper's table, in its order.
TABLE = (L1, SGL, CGES, ITL)

# What is drawn in curves: l2, too, which zeroes nothing.
DRAWN = (L2, *TABLE)

COMPARED: dict[str, Compared] = {compared.key: compared for compared in (*TABLE, L2, DENSE)}
