"""`export_c`: a model as a C file that has been seen to compute what the model computes."""

from __future__ import annotations

import ctypes
import os
import re
from pathlib import Path

import torch
from torch import Tensor, nn

from gossamer.compiler import find_compiler, load_library
from gossamer.errors import GossamerError
from gossamer.example import Example, call_with
from gossamer.files import check_can_write, staged
from gossamer.inference.compilation import lowered
from gossamer.inference.portable import PortableSource, SelfTest, portable_source
from gossamer.inference.program import Program
from gossamer.inference.verification import Expectation, check_outputs, expect

__all__ = ["export_c"]

_SAMPLES = 3
_FLAGS = (["-shared", "-fPIC", "-std=c99", "-O1"],)
# A compiler takes minutes for constants beyond this, in bytes.
_LARGEST_TO_COMPILE = 2**25


def export_c(model: nn.Module, path: str | os.PathLike[str], example: Example) -> PortableSource:
    """Write `model` in evaluation mode to the C99 file `path` and its header beside it.

    The file needs nothing but `<math.h>`. It holds the non-zero weights and the code that multiplies them, for one
    sample (`NAME_run`) and for many (`NAME_run_batch`), and a test (`NAME_selftest`); NAME is that of the file. Before
    it is written, the lowered network is compared with the model on three samples; where there is a C compiler, the
    file itself is compiled and run.

    Args:
        model: A network of float32 on the CPU. Dead units are left out, as `shrink` does.
        path: Where to write, ending in ".c"; what is there is replaced.
        example: A tensor, a tuple of positional arguments, or a dictionary of keyword arguments; the first dimension of
            each tensor is the batch. Its first sample becomes the self-test.

    Returns:
        The texts, and how many bytes constants and workspace take.
    """
    target = Path(path)
    name = _identifier(target)
    for file in (target, target.with_suffix(".h")):
        check_can_write(file)
    call = call_with(model, example)
    _, program = lowered(model, call)
    expected = expect(model, call, _SAMPLES)
    _check_references(program, expected)
    inputs = [tensor[:1] for tensor in expected.call.tensors()]
    source = portable_source(program, name, type(model).__name__, SelfTest(inputs, _samples(expected, 0)))
    _check_compiled(source, name, program, expected)
    with staged(target) as staging:
        staging.write_text(source.source)
        staging.with_suffix(".h").write_text(source.header)
    return source


def _identifier(path: Path) -> str:
    """The name of the network in C: that of the file."""
    if path.suffix != ".c" or not re.fullmatch(r"[A-Za-z]\w*", path.stem, re.ASCII):
        raise GossamerError(
            f"`path` is {str(path)!r}. The functions are named after the file: give letters, digits and underscores, "
            'starting with a letter, and ".c".'
        )
    return path.stem


def _samples(expected: Expectation, number: int) -> list[Tensor]:
    """The outputs of one sample."""
    pairs = zip(expected.outputs, expected.batch_dimensions, strict=True)
    return [output.narrow(dimension, number, 1) for output, dimension in pairs]


def _check_references(program: Program, expected: Expectation) -> None:
    """Run the program by the references of its operations."""
    with torch.no_grad():
        found = [
            program.run([tensor[number : number + 1] for tensor in expected.call.tensors()])
            for number in range(_SAMPLES)
        ]
    _compare(found, expected)


def _compare(found: list[list[Tensor]], expected: Expectation) -> None:
    dimensions = expected.batch_dimensions
    outputs = [
        torch.cat([sample[number] for sample in found], dimension) for number, dimension in enumerate(dimensions)
    ]
    check_outputs(expected, outputs)


def _check_compiled(source: PortableSource, name: str, program: Program, expected: Expectation) -> None:
    """Compile the file and run it, where there is a compiler."""
    try:
        find_compiler("c")
    except GossamerError:
        return
    if source.constants > _LARGEST_TO_COMPILE:
        return
    text = source.source.replace(f'#include "{name}.h"', source.header)
    library = load_library(text, "export", _FLAGS)
    found = []
    for number in range(_SAMPLES):
        inputs = [tensor[number : number + 1].float().contiguous() for tensor in expected.call.tensors()]
        outputs = [torch.empty(shape) for shape in program.shapes]
        run = getattr(library, f"{name}_run")
        failed = run(*(ctypes.c_void_p(tensor.data_ptr()) for tensor in (*inputs, *outputs)))
        assert failed == 0, "the model itself takes these inputs"
        found.append(outputs)
    _compare(found, expected)
    if getattr(library, f"{name}_selftest")() != 0:
        raise GossamerError("the compiled file does not pass its own test; nothing was written.")
