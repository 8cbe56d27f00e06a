"""The codec gives back the bits that it got, in no more bytes than dense."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from gossamer.errors import GossamerError
from gossamer.store.sparse import Encoding, decode, dense, smallest

DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2]
INTEGERS = {1: np.uint8, 2: np.int16, 4: np.int32, 8: np.int64}


@st.composite
def tensors(draw: st.DrawFn) -> Tensor:
    """Random bits (so every nan, infinity, negative zero) at random places, zeros elsewhere."""
    dtype = draw(st.sampled_from(DTYPES))
    shape = draw(st.lists(st.integers(0, 40), max_size=3).filter(lambda shape: np.prod(shape) <= 4000))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    raw = rng.integers(0, 256, (*shape, dtype.itemsize), dtype=np.uint8)
    raw[rng.random(shape) >= draw(st.sampled_from([0, 0.001, 0.02, 0.1, 0.3, 0.7, 1]))] = 0
    bits = np.ascontiguousarray(raw).view(INTEGERS[dtype.itemsize]).reshape(shape)
    return torch.from_numpy(bits).view(dtype)


def bits(tensor: Tensor) -> Tensor:
    return tensor.reshape(-1).view(torch.uint8)


@settings(deadline=None)  # machines are sometimes busy
@given(tensors())
def test_bits_come_back(tensor: Tensor) -> None:
    encoded = smallest(tensor)
    decoded = decode(encoded.encoding, encoded.parts, tuple(tensor.shape), tensor.dtype)
    assert decoded.shape == tensor.shape
    assert bits(decoded).equal(bits(tensor))
    assert encoded.nbytes <= dense(tensor).nbytes


@pytest.mark.parametrize(
    ("share", "encoding"), [(0, Encoding.GAPS), (0.03, Encoding.GAPS), (0.5, Encoding.MASK), (1, Encoding.DENSE)]
)
def test_the_smallest_way_is_taken(share: float, encoding: Encoding) -> None:
    tensor = torch.randn(100, 100)
    tensor[torch.rand_like(tensor) >= share] = 0
    assert smallest(tensor).encoding is encoding


def test_negative_zero_is_a_value() -> None:
    tensor = torch.zeros(10_000)
    tensor[77] = -0.0
    encoded = smallest(tensor)
    assert encoded.encoding is Encoding.GAPS
    assert decode(encoded.encoding, encoded.parts, (10_000,), torch.float32).signbit().nonzero().item() == 77


@pytest.mark.parametrize("zeros", [0, 1, 254, 255, 256, 509, 510, 511, 1000])
def test_gaps_around_the_largest_byte(zeros: int) -> None:
    tensor = torch.zeros(5000)
    tensor[[zeros, 4999 - zeros]] = 1
    encoded = smallest(tensor)
    assert encoded.encoding is Encoding.GAPS
    assert decode(encoded.encoding, encoded.parts, (5000,), torch.float32).equal(tensor)


def uint8(*numbers: int) -> Tensor:
    return torch.tensor(numbers, dtype=torch.uint8)


@pytest.mark.parametrize(
    ("encoding", "values", "pattern", "message"),
    [
        (Encoding.MASK, [1.0], uint8(128), "mask has 1 bytes for 12"),
        (Encoding.MASK, [1.0], uint8(128, 64), "room for 2 values, and 1"),
        (Encoding.MASK, [1.0], uint8(0, 1), "marks element 15 of 12"),
        (Encoding.GAPS, [1.0], uint8(), "do not end"),
        (Encoding.GAPS, [1.0], uint8(3, 255), "do not end"),
        (Encoding.GAPS, [1.0], uint8(3, 3), "do not end"),
        (Encoding.GAPS, [1.0], uint8(3, 9), "do not end"),
        (Encoding.GAPS, [1.0, 2.0], uint8(3, 8), "room for 1 values, and 2"),
        (Encoding.GAPS, [1.0], uint8(3, 8).float(), "are not lists"),
        (Encoding.GAPS, [[1.0]], uint8(3, 8), "are not lists"),
    ],
)
def test_parts_that_contradict_each_other(encoding: Encoding, values: list, pattern: Tensor, message: str) -> None:
    with pytest.raises(GossamerError, match=message):
        decode(encoding, (torch.tensor(values), pattern), (3, 4), torch.float32)


@pytest.mark.parametrize("encoding", [Encoding.GAPS, Encoding.MASK])
def test_memory_of_decoding_is_that_of_the_tensor(encoding: Encoding) -> None:
    count = 2**21
    values = torch.ones(count if encoding is Encoding.GAPS else 8 * count, dtype=torch.uint8).view(torch.float8_e5m2)
    pattern = torch.zeros(count + 1, dtype=torch.uint8) if encoding is Encoding.GAPS else torch.full((count,), 255)
    tracemalloc.start()
    decoded = decode(encoding, (values, pattern.to(torch.uint8)), tuple(values.shape), values.dtype)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert bits(decoded).all()
    assert peak < 1.5 * decoded.nbytes + 4 * 2**20
