"""Memory: blocks that are in use at the same time do not overlap, and zeros around tensors are where they should be."""

from __future__ import annotations

from random import Random

import pytest
import torch

from gossamer.inference.layout import NO_BORDER, Block, Border, contiguous, pack_blocks, placement
from gossamer.inference.program import Input, viewed


@pytest.mark.parametrize("seed", range(20))
def test_blocks_do_not_overlap(seed: int) -> None:
    draw = Random(seed)
    blocks: dict[object, Block] = {}
    for name in range(draw.randint(1, 30)):
        first = draw.randrange(20)
        blocks[name] = Block(draw.randint(1, 500), first, first + draw.randrange(6))
    offsets, total = pack_blocks(blocks, 16)
    assert all(offset % 16 == 0 for offset in offsets.values())
    assert total % 16 == 0
    for step in range(26):
        live = [name for name, block in blocks.items() if block.first <= step <= block.last]
        taken = [cell for name in live for cell in range(offsets[name], offsets[name] + blocks[name].elements)]
        assert len(taken) == len(set(taken))
        assert max(taken, default=-1) < total


def test_memory_is_used_again() -> None:
    blocks: dict[object, Block] = {name: Block(100, name, name + 1) for name in range(50)}
    assert pack_blocks(blocks, 1)[1] == 200


def test_a_with_border_tensor() -> None:
    value = Input((1, 3, 4, 5))
    where = placement(value, Border(1, 2, 3, 4))
    assert where.strides == (3 * 7 * 12, 7 * 12, 12, 1)
    assert where.offset == 1 * 12 + 3
    inner = placement(viewed(value, lambda x: x[:, 1:, :, 2]), Border(1, 2, 3, 4))
    assert (inner.shape, inner.strides) == ((1, 2, 4), (3 * 7 * 12, 7 * 12, 12))
    assert inner.offset == where.offset + 7 * 12 + 2
    with pytest.raises(RuntimeError):
        placement(viewed(value, lambda x: x.view(1, -1)), Border(0, 0, 1, 1))


def test_strides() -> None:
    for shape in ((), (3,), (2, 3), (1, 4, 1, 5)):
        assert contiguous(shape) == torch.empty(shape).stride()
        assert placement(Input(shape), NO_BORDER).strides == torch.empty(shape).stride()
