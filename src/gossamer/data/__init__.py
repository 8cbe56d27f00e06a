"""The data sets of the paper, in memory.

To add one: a file with a function that returns a :class:`Dataset`, what its files are in ``sources.py``, and a line in
:data:`LOADERS`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from gossamer.data.cifar import cifar_10
from gossamer.data.dataset import Dataset, hold_out
from gossamer.data.digits import digits
from gossamer.data.fetching import fetch, obtain
from gossamer.data.files import FileState, find, inspect, roots
from gossamer.data.mnist import fashion_mnist, mnist
from gossamer.data.pendigits import pendigits
from gossamer.data.sdd import sdd
from gossamer.data.sources import SOURCES, Source, source
from gossamer.data.variation import flip, shift, slant, slant_images
from gossamer.errors import GossamerError

__all__ = [
    "LOADERS",
    "SOURCES",
    "Dataset",
    "FileState",
    "Source",
    "cifar_10",
    "digits",
    "fashion_mnist",
    "fetch",
    "find",
    "flip",
    "hold_out",
    "inspect",
    "load",
    "mnist",
    "obtain",
    "pendigits",
    "roots",
    "sdd",
    "shift",
    "slant",
    "slant_images",
    "source",
]

# Each takes the folder that is looked into first.
LOADERS: dict[str, Callable[[Path | None], Dataset]] = {
    "digits": lambda folder: digits(),
    "mnist": mnist,
    "fashion-mnist": fashion_mnist,
    "pendigits": pendigits,
    "sdd": sdd,
    "cifar-10": cifar_10,
}


def load(name: str, folder: Path | None = None) -> Dataset:
    """Load the data set of this name.

    Its files are looked for in ``folder``, then in the folder that the environment variable GOSSAMER_DATA names, in
    the user's cache and where Debian keeps data sets. Nothing is downloaded: :func:`obtain` does that.
    """
    if name not in LOADERS:
        raise GossamerError(f"Unknown data set {name!r}. There is: {', '.join(LOADERS)}.")
    return LOADERS[name](folder)
