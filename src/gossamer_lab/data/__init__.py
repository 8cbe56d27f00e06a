"""The data sets of the paper as tensors.

To add one: write a function that returns a `Dataset`, describe its files in `sources.py`, and add it to `LOADERS`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from gossamer.errors import GossamerError
from gossamer_lab.data.augmentation import random_affine, random_affine_points, random_flip, random_shift
from gossamer_lab.data.cifar import cifar_10
from gossamer_lab.data.dataset import Dataset, hold_out
from gossamer_lab.data.digits import digits
from gossamer_lab.data.fetching import fetch, obtain
from gossamer_lab.data.files import FileState, find, inspect, search_path
from gossamer_lab.data.mnist import fashion_mnist, mnist
from gossamer_lab.data.pendigits import pendigits
from gossamer_lab.data.sdd import sdd
from gossamer_lab.data.sources import SOURCES, Source, source

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
    "hold_out",
    "inspect",
    "load",
    "mnist",
    "obtain",
    "pendigits",
    "random_affine",
    "random_affine_points",
    "random_flip",
    "random_shift",
    "sdd",
    "search_path",
    "source",
]

# By name; each takes the folder to search first.
LOADERS: dict[str, Callable[[Path | None], Dataset]] = {
    "digits": lambda folder: digits(),
    "mnist": mnist,
    "fashion-mnist": fashion_mnist,
    "pendigits": pendigits,
    "sdd": sdd,
    "cifar-10": cifar_10,
}


def load(name: str, folder: Path | None = None) -> Dataset:
    """Load a data set from local files.

    The files are searched in `folder`, then in the folder named by the environment variable GOSSAMER_DATA, in the
    user's cache and in Debian's data directory. Nothing is downloaded; see `obtain`.
    """
    if name not in LOADERS:
        raise GossamerError(f"Unknown data set {name!r}. Available: {', '.join(LOADERS)}.")
    return LOADERS[name](folder)
