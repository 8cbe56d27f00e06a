"""Many programs in one library: compiled once, run in every way in which a program runs."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gossamer.compiler import load_library
from gossamer.inference.machine import Machine
from gossamer.inference.memory import aligned, far_apart
from gossamer.inference.module import Settings
from gossamer.inference.portable import SelfTest, portable_source
from gossamer.inference.program import Program
from gossamer.inference.runtime import library_source, runtime
from gossamer.inference.workers import run_in_threads

__all__ = ["MACHINES", "Ways", "ways"]

MACHINES = (
    Machine(16, (8, 16), 32, 48 * 1024),
    Machine(8, (8,), 16, 32 * 1024),
    Machine(4, (4,), 16, 2 * 1024),  # so small a cache that inputs are cut into blocks
)
# Compiled quickly: what the optimizer makes of it is seen where `native` itself is tested, and in the soak.
FLAGS = [
    ["-shared", "-fPIC", "-std=gnu11", "-O0", "-Wno-psabi", "-pthread", *machine] for machine in (["-march=native"], [])
]


@dataclass(frozen=True)
class Ways:
    """The ways to run one program, each a function from inputs to outputs; batches of any size."""

    batch: Callable[[Sequence[Tensor]], list[Tensor]]
    sample: Callable[[Sequence[Tensor]], list[Tensor]]
    threads: Callable[[Sequence[Tensor]], list[Tensor]]
    portable: Callable[[Sequence[Tensor]], list[Tensor]]

    def items(self) -> list[tuple[str, Callable[[Sequence[Tensor]], list[Tensor]]]]:
        return list(vars(self).items())


def ways(programs: Sequence[Program], machine: Machine) -> list[Ways]:
    """Compile them all."""
    built = [runtime(program, machine, f"net{number}") for number, program in enumerate(programs)]
    native = load_library(library_source(built, machine), "test", FLAGS)
    texts = []
    for number, program in enumerate(programs):
        name = f"net{number}"
        source = portable_source(program, name, "a random network", _zeros(program))
        texts.append(source.source.replace(f'#include "{name}.h"', source.header))
    portable = load_library("\n".join(texts), "test", [["-shared", "-fPIC", "-std=c99", "-O0"]])
    found = []
    for number, (program, own) in enumerate(zip(programs, built, strict=True)):

        def run(
            inputs: Sequence[Tensor], vector_from: int, threads: int, number=number, program=program, own=own
        ) -> list[Tensor]:
            workspace = aligned(far_apart(own.workspace) * (threads - 1) + own.workspace)
            settings = Settings(own.constants.ctypes.data, vector_from, threads, 1, run_in_threads())
            outputs, pointers = _pointers(program, inputs)
            failed = getattr(native, f"net{number}_run")(
                ctypes.byref(settings),
                ctypes.c_void_p(workspace.ctypes.data),
                ctypes.c_long(len(inputs[0])),
                *pointers,
            )
            assert failed == 0
            return outputs

        def run_portable(inputs: Sequence[Tensor], number=number, program=program) -> list[Tensor]:
            outputs, pointers = _pointers(program, inputs)
            assert getattr(portable, f"net{number}_run_batch")(*pointers, len(inputs[0])) == 0
            return outputs

        found.append(
            Ways(
                lambda inputs, run=run: run(inputs, 1, 1),
                lambda inputs, run=run: run(inputs, machine.lanes + 1, 1),
                lambda inputs, run=run: run(inputs, 1, 3),
                run_portable,
            )
        )
    return found


def _pointers(program: Program, inputs: Sequence[Tensor]) -> tuple[list[Tensor], list[ctypes.c_void_p]]:
    given = [tensor.float().contiguous() for tensor in inputs]
    outputs = [torch.full((len(given[0]), *shape), torch.nan) for shape in program.shapes]
    run_with = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (*given, *outputs)]
    run_with[0]._keep = given  # type: ignore[attr-defined]
    return outputs, run_with


def _zeros(program: Program) -> SelfTest:
    return SelfTest(
        [torch.zeros(value.shape) for value in program.inputs], [torch.zeros(shape) for shape in program.shapes]
    )
