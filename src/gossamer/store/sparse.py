"""Lossless sparse encodings of a tensor.

A tensor is stored in the smallest of three encodings:

- dense: all elements;
- mask: the non-zero values, and one bit per element that marks their positions;
- gaps: the non-zero values, and for each the number of zeros before it, in a byte. The byte 255 means 255 zeros, and
  the gap continues in the next byte. A last gap runs from the last value to the end of the tensor.

Gaps are smaller below a density of about 1/8, the mask above it. Zero means that all bits are zero: a negative zero
counts as a value, so decoding restores the tensor bit by bit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gossamer.errors import GossamerError

__all__ = ["Encoded", "Encoding", "decode", "dense", "smallest"]

Bits: TypeAlias = npt.NDArray[np.generic]


class Encoding(StrEnum):
    """How the elements of a tensor are stored."""

    DENSE = "dense"
    MASK = "mask"
    GAPS = "gaps"

    @property
    def parts(self) -> tuple[str, ...]:
        """What is appended to the tensor's name to name each stored part.

        A network with a tensor `fc.weight` cannot also have one called `fc.weight.values`, so names never clash.
        """
        return ("",) if self is Encoding.DENSE else (".values", f".{self.value}")


@dataclass(frozen=True)
class Encoded:
    """A tensor as it is stored: one tensor for each of `encoding.parts`."""

    encoding: Encoding
    parts: tuple[Tensor, ...]

    @property
    def nbytes(self) -> int:
        """Bytes on the disk, with the entry that each part needs in the header."""
        return sum(part.nbytes + _HEADER_ENTRY for part in self.parts)


_LONG_GAP = 255

# Bytes of a pattern that are decoded at a time: positions take eight bytes each, far more than the pattern itself.
_CHUNK = 2**13

_HEADER_ENTRY = 80
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def dense(tensor: Tensor) -> Encoded:
    """`tensor` as it is, off its device and out of the autograd graph."""
    return Encoded(Encoding.DENSE, (tensor.detach().cpu().contiguous(),))


def smallest(tensor: Tensor) -> Encoded:
    """`tensor` in the way that takes the fewest bytes; tensors that are not of a float type stay dense."""
    plain = dense(tensor)
    if not tensor.is_floating_point() or tensor.numel() == 0:
        return plain
    bits = _bits(plain.parts[0])
    places = np.flatnonzero(bits)
    values = torch.from_numpy(bits[places]).view(tensor.dtype)
    candidates = (
        plain,
        Encoded(Encoding.MASK, (values, torch.from_numpy(np.packbits(bits != 0)))),
        Encoded(Encoding.GAPS, (values, torch.from_numpy(_gaps(places, bits.size)))),
    )
    return min(candidates, key=lambda encoded: encoded.nbytes)


def decode(encoding: Encoding, parts: tuple[Tensor, ...], shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """The tensor that was encoded, in memory of its own; an error when the parts contradict each other."""
    if encoding is Encoding.DENSE:
        (tensor,) = parts
        if tensor.shape != shape or tensor.dtype is not dtype:
            raise GossamerError(
                f"it is a {tensor.dtype} of shape {tuple(tensor.shape)}, not a {dtype} of shape {shape}"
            )
        return tensor.clone()
    values, pattern = parts
    if values.dtype is not dtype or values.dim() != 1 or pattern.dtype is not torch.uint8 or pattern.dim() != 1:
        raise GossamerError(f"its values or its {encoding.value} are not lists of {dtype} and of bytes")
    stored = _bits(values)
    bits = np.zeros(math.prod(shape), dtype=stored.dtype)
    done = 0
    for places in _PLACES[encoding](pattern.numpy(), bits.size):
        piece = stored[done : done + len(places)]
        bits[places[: len(piece)]] = piece
        done += len(places)
    if done != stored.size:
        raise GossamerError(f"its {encoding.value} has room for {done} values, and {stored.size} are stored")
    return torch.from_numpy(bits).view(dtype).reshape(shape)


def _bits(tensor: Tensor) -> Bits:
    bits: Bits = tensor.reshape(-1).view(_BITS[tensor.itemsize]).numpy()
    return bits


def _gaps(places: npt.NDArray[np.intp], count: int) -> npt.NDArray[np.uint8]:
    zeros = np.diff(places, prepend=-1, append=count) - 1
    last_bytes = np.cumsum(zeros // _LONG_GAP + 1) - 1
    gaps = np.full(last_bytes[-1] + 1, _LONG_GAP, dtype=np.uint8)
    gaps[last_bytes] = zeros % _LONG_GAP
    return gaps


def _places_from_gaps(gaps: npt.NDArray[np.uint8], count: int) -> Iterator[npt.NDArray[np.intp]]:
    end = -1  # the last element passed so far
    for first in range(0, gaps.size, _CHUNK):
        chunk = gaps[first : first + _CHUNK]
        ends = chunk != _LONG_GAP
        # A byte below 255 also steps over the value that follows its zeros.
        passed = end + np.cumsum(chunk, dtype=np.intp) + np.cumsum(ends, dtype=np.intp)
        end = int(passed[-1])
        if end == count and ends[-1] and first + _CHUNK >= gaps.size:
            yield passed[ends][:-1]
            return
        if end >= count:
            break
        yield passed[ends]
    raise GossamerError(f"its gaps do not end at its {count} elements")


def _places_from_mask(mask: npt.NDArray[np.uint8], count: int) -> Iterator[npt.NDArray[np.intp]]:
    if mask.size != -(-count // 8):
        raise GossamerError(f"its mask has {mask.size} bytes for {count} elements")
    for first in range(0, mask.size, _CHUNK):
        places = 8 * first + np.flatnonzero(np.unpackbits(mask[first : first + _CHUNK]))
        if places.size and places[-1] >= count:
            raise GossamerError(f"its mask marks element {places[-1]} of {count}")
        yield places


_PLACES = {Encoding.MASK: _places_from_mask, Encoding.GAPS: _places_from_gaps}
