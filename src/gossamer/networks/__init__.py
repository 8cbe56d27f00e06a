"""The networks of the paper, one for each data set.

To add one: a file with its class, whose constructor takes the generator that draws its weights, and a line in
:data:`NETWORKS` under the name of its data set.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from gossamer.errors import GossamerError
from gossamer.networks.digits import DigitsNetwork
from gossamer.networks.initialise import xavier_

__all__ = ["NETWORKS", "DigitsNetwork", "build", "xavier_"]

NETWORKS: dict[str, Callable[[torch.Generator | None], nn.Module]] = {"digits": DigitsNetwork}


def build(dataset: str, generator: torch.Generator | None = None) -> nn.Module:
    """Build the network for the data set of this name, its weights drawn by ``generator``."""
    if dataset not in NETWORKS:
        raise GossamerError(f"No network for data set {dataset!r}. There is one for: {', '.join(NETWORKS)}.")
    return NETWORKS[dataset](generator)
