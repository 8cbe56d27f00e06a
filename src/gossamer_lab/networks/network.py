"""Base class of the networks."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import nn

__all__ = ["Network"]


class Network(nn.Module):
    """A network with a known input shape, initialised from a given generator."""

    input_shape: ClassVar[tuple[int, ...]]

    def __init__(self, generator: torch.Generator | None = None) -> None:
        del generator  # used by subclasses, which have layers to initialise
        super().__init__()
