"""The data sets of the paper, in memory.

To add one: a file with a function that returns a :class:`Dataset`, and a line in :data:`LOADERS`.
"""

from __future__ import annotations

from collections.abc import Callable

from gossamer.data.dataset import Dataset, hold_out
from gossamer.data.digits import digits
from gossamer.data.variation import shift
from gossamer.errors import GossamerError

__all__ = ["LOADERS", "Dataset", "digits", "hold_out", "load", "shift"]

LOADERS: dict[str, Callable[[], Dataset]] = {"digits": digits}


def load(name: str) -> Dataset:
    """Load the data set of this name."""
    if name not in LOADERS:
        raise GossamerError(f"Unknown data set {name!r}. There is: {', '.join(LOADERS)}.")
    return LOADERS[name]()
