"""The IDX file format of MNIST: a big-endian header with the shape, then the values."""

from __future__ import annotations

import math
import struct

import numpy as np
from numpy.typing import NDArray

__all__ = ["parse_idx"]

_UNSIGNED_BYTE = 0x08


def parse_idx(data: bytes) -> NDArray[np.uint8]:
    """Parse an IDX array of unsigned bytes.

    The header is 0, 0, the type code and the number of dimensions, one byte each, then the length of each dimension
    in four bytes. The values follow in row-major order.

    Raises:
        ValueError: If the type is not unsigned byte, or the data does not have the length that the header states.
    """
    if len(data) < 4 or data[:3] != bytes((0, 0, _UNSIGNED_BYTE)):
        raise ValueError(f"it begins with {data[:4].hex(' ')}, not with 00 00 08 and the number of dimensions")
    start = 4 + 4 * data[3]
    if len(data) < start:
        raise ValueError("it ends inside its header")
    shape = struct.unpack(f">{data[3]}I", data[4:start])
    if len(data) - start != math.prod(shape):
        raise ValueError(f"its header states the shape {shape}, but {len(data) - start:,} values follow")
    return np.frombuffer(data, dtype=np.uint8, offset=start).reshape(shape)
