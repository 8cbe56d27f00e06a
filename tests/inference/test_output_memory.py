"""Memory of outputs that is used again: never while anything can still read the output."""

from __future__ import annotations

import copy
import gc
import io
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor, nn

import gossamer
from gossamer.inference.output_memory import LARGE, OutputMemory

SHAPE = (4, LARGE // 16)  # of the smallest large tensor


def filled(memory: OutputMemory, number: float, shape: tuple[int, ...] = SHAPE) -> Tensor:
    return memory.empty(*shape).fill_(number)


def test_a_dropped_output_is_used_again() -> None:
    memory = OutputMemory()
    first = memory.empty(*SHAPE)
    address = first.data_ptr()
    assert (first.shape, first.dtype, address % 64, first._is_view()) == (SHAPE, torch.float32, 0, False)
    second = memory.empty(*SHAPE)
    assert second.data_ptr() != address
    del first
    assert memory.empty(*SHAPE).data_ptr() == address


def test_small_and_huge_outputs_are_not_kept() -> None:
    memory = OutputMemory()
    for shape in ((3, 5), (0, 7), (LARGE // 4 - 1,), (2**24 + 1,)):
        assert memory.empty(*shape).shape == shape
    assert not memory._idle


@pytest.mark.parametrize(
    "keep",
    [
        lambda y: y[2:3],
        lambda y: y.view(-1)[::7],
        lambda y: y.detach().mT,
        lambda y: y.numpy(),
        lambda y: memoryview(y.numpy()),
        lambda y: torch.from_dlpack(y),
        lambda y: y.untyped_storage(),
        lambda y: [y.requires_grad_() * 2],  # kept for its gradient
        lambda y: copy.copy(y),
    ],
)
def test_a_view_keeps_the_memory(keep: Callable[[Tensor], object]) -> None:
    memory = OutputMemory()
    output = filled(memory, 1.0)
    address = output.data_ptr()
    kept = keep(output)
    del output
    others = [filled(memory, 2.0) for _ in range(3)]
    assert address not in [other.data_ptr() for other in others]
    del kept
    assert memory.empty(*SHAPE).data_ptr() == address


def test_copies_are_of_their_own() -> None:
    memory = OutputMemory()
    output, file = filled(memory, 1.0), io.BytesIO()
    torch.save(output, file)
    file.seek(0)
    copies = [output.clone(), copy.deepcopy(output), pickle.loads(pickle.dumps(output)), torch.load(file)]
    moved = filled(memory, 1.0).share_memory_()
    del output
    again = [filled(memory, 2.0) for _ in range(3)]
    assert all(tensor.eq(1.0).all() for tensor in (*copies, moved))
    assert all(tensor.eq(2.0).all() for tensor in again)


def test_garbage_that_refers_to_itself() -> None:
    memory = OutputMemory()
    ring: list[object] = [memory.empty(*SHAPE)]
    ring.append(ring)
    assert not memory._idle
    del ring
    gc.collect()
    assert len(memory._idle) == 1


def test_few_blocks_are_kept() -> None:
    memory = OutputMemory()
    outputs = [memory.empty(*SHAPE) for _ in range(9)]
    assert len({output.data_ptr() for output in outputs}) == 9
    outputs.clear()
    assert len(memory._idle) == 4


def test_a_block_serves_half_its_size() -> None:
    memory = OutputMemory()
    address = memory.empty(8, *SHAPE).data_ptr()
    assert memory.empty(3, *SHAPE).data_ptr() != address
    assert memory.empty(4, *SHAPE).data_ptr() == address
    assert memory.empty(8, *SHAPE).data_ptr() == address
    assert memory.empty(9, *SHAPE).data_ptr() != address


def test_an_output_outlives_its_memory() -> None:
    memory = OutputMemory()
    output = filled(memory, 1.0)
    del memory
    assert output.eq(1.0).all()


def test_many_threads() -> None:
    memory = OutputMemory()

    def use(number: int) -> bool:
        kept: list[Tensor] = []
        for turn in range(20):
            kept = [*kept[-2:], filled(memory, 100 * number + turn)]
            if any(output.ne(100 * number + turn - age).any() for age, output in enumerate(reversed(kept))):
                return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(use, range(8)))
    assert len(memory._idle) <= 4


class Twice(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 2.0


@pytest.mark.parametrize("positional", [True, False])
def test_outputs_of_a_module(positional: bool) -> None:
    width = LARGE // 64
    example = torch.randn(1, width)
    fast = gossamer.native(Twice(), example if positional else {"x": example}, threads=1)

    def call(module: nn.Module, x: Tensor) -> Tensor:
        return module(x) if positional else module(x=x)

    inputs = [torch.randn(16, width) for _ in range(3)]
    outputs = [call(fast, x) for x in inputs]
    rows = [output[5:9] for output in outputs[:2]]
    address = outputs[2].data_ptr()
    del outputs
    with torch.inference_mode():
        again = call(copy.deepcopy(fast), inputs[2])
    assert again.data_ptr() == address
    call(fast, inputs[0])
    call(fast, inputs[0][:3])  # less than a megabyte
    for row, x in zip(rows, inputs, strict=False):
        assert row.equal(2.0 * x[5:9])
    assert again.equal(2.0 * inputs[2])
