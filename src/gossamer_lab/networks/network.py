"""What the networks of the paper have in common."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import nn

__all__ = ["Network"]


class Network(nn.Module):
    """A network that knows the shape of one input; its first weights are drawn by the generator it is given."""

    input_shape: ClassVar[tuple[int, ...]]

    def __init__(self, generator: torch.Generator | None = None) -> None:
        del generator  # for the layers, which only a subclass has
        super().__init__()
