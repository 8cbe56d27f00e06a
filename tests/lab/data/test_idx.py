from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from gossamer_lab.data.idx import parse_idx


def packed(array: np.ndarray) -> bytes:
    return bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


ARRAYS = arrays(np.uint8, array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=5))


@given(ARRAYS)
def test_what_was_packed_comes_back(array: np.ndarray) -> None:
    parsed = parse_idx(packed(array))
    assert parsed.shape == array.shape
    assert np.array_equal(parsed, array)


@given(ARRAYS, st.data())
def test_every_truncation_is_noticed(array: np.ndarray, data: st.DataObject) -> None:
    whole = packed(array)
    with pytest.raises(ValueError, match=r"it begins with|it ends inside|values follow"):
        parse_idx(whole[: data.draw(st.integers(0, len(whole) - 1))])


@pytest.mark.parametrize("start", ["1f8b0808", "00000d01", "01000801"])
def test_another_magic_number_is_said(start: str) -> None:
    with pytest.raises(ValueError, match=f"it begins with {start[:2]} {start[2:4]}"):
        parse_idx(bytes.fromhex(start) + bytes(12))


def test_bytes_too_many_are_said() -> None:
    with pytest.raises(ValueError, match=r"its header states the shape \(2,\), but 3 values follow"):
        parse_idx(packed(np.zeros(2, np.uint8)) + b"x")
