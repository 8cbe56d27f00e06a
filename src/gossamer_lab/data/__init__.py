"""The data sets of the paper, in memory.

To add one: a file with a function that returns a :class:`Dataset`, what its files are in ``sources.py``, and a line in
:data:`LOADERS`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from gossamer.errors import GossamerError
from gossamer_lab.data.cifar import cifar_10
from gossamer_lab.data.dataset import Dataset, hold_out
from gossamer_lab.data.digits import digits
from gossamer_lab.data.fetching import fetch, obtain
from gossamer_lab.data.files import FileState, find, inspect, roots
from gossamer_lab.data.mnist import fashion_mnist, mnist
from gossamer_lab.data.pendigits import pendigits
from gossamer_lab.data.sdd import sdd
from gossamer_lab.data.sources import SOURCES, Source, source
from gossamer_lab.data.variation import flip, shift, slant, slant_images

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
