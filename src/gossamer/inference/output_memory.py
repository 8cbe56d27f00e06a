"""Memory for large outputs, which is used again as soon as nothing refers to the output any more.

The system maps a fresh block of megabytes page by page while it is written for the first time, which can take longer
than a sparse layer computes. A block that was used before is mapped already.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gossamer.inference.memory import aligned

__all__ = ["LARGE", "OutputMemory"]

LARGE = 2**20  # bytes; smaller blocks are kept by the allocator of the system itself
_LARGEST = 2**26
_MOST_IDLE = 4

Block = npt.NDArray[np.float32]


class OutputMemory:
    """Tensors of float32, the large ones in blocks that were used before.

    At most four idle blocks of up to 64 MiB are kept. There is no lock, because a tensor may be freed at any moment, in
    any thread, also while this very object is used: each operation on the queue is atomic, and a block is either in the
    queue or in one pair of hands.
    """

    def __init__(self) -> None:
        self._idle: deque[Block] = deque(maxlen=_MOST_IDLE)  # the oldest is dropped

    def empty(self, *shape: int) -> Tensor:
        """A tensor with any content; like `torch.empty`, but that a large one cannot be resized."""
        count = math.prod(shape)
        if not LARGE <= 4 * count <= _LARGEST:
            return torch.empty(shape)
        block = self._idle_block(count)
        lent = _Lent(aligned(4 * count).view(np.float32) if block is None else block, self._idle)
        return torch.from_numpy(np.asarray(lent)[:count].reshape(shape))

    def _idle_block(self, count: int) -> Block | None:
        for _ in range(len(self._idle)):
            try:
                block = self._idle.popleft()
            except IndexError:  # another thread was faster
                return None
            if count <= block.size <= 2 * count:
                return block
            self._idle.append(block)
        return None


class _Lent:
    """A block in use. The array over it, and so the tensor over the array and all views of it, keep this object."""

    def __init__(self, block: Block, idle: deque[Block]) -> None:
        self.__array_interface__: dict[str, Any] = block.__array_interface__
        self._block = block
        self._idle = idle

    def __del__(self) -> None:
        self._idle.append(self._block)
