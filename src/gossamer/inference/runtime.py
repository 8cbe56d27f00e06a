"""The C source of the compiled runtime: a program for batches and for single samples, and the loop over a batch.

The library knows shapes, not weights: those lie in one block of memory that every call is given. So a network that was
trained further, or another one of the same shape and number of non-zeros, finds its library in the cache.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from gossamer.inference.c_math import helper_texts
from gossamer.inference.codegen import Emission, emit
from gossamer.inference.kernel import C_TYPES, Constants
from gossamer.inference.machine import Machine
from gossamer.inference.memory import aligned, far_apart, whole_lines
from gossamer.inference.program import Program
from gossamer.inference.targets import batch_target, sample_target

__all__ = ["FLAGS", "Runtime", "library_source", "runtime"]

_PRELUDE = Path(__file__).with_name("prelude.c")
_VECTORS = Path(__file__).with_name("vectors.c")

_STRICT = ["-shared", "-fPIC", "-std=gnu11", "-O3", "-fno-math-errno", "-fno-trapping-math", "-Wno-psabi"]
# The best first: a compiler may not know this processor.
FLAGS = ([*_STRICT, "-march=native"], [*_STRICT, "-mcpu=native"], _STRICT)


@dataclass(frozen=True)
class Runtime:
    """A program for the compiled runtime.

    Attributes:
        functions: Its C functions; the last is `NAME_run`.
        helpers: The helper functions that they call.
        constants: What it is called with.
        workspace: Bytes that one thread works in.
    """

    functions: tuple[str, ...]
    helpers: frozenset[tuple[str, str]]
    constants: npt.NDArray[np.uint8]
    workspace: int


def runtime(program: Program, machine: Machine, name: str) -> Runtime:
    """The program as `int NAME_run(settings, workspace, n, inputs..., outputs...)`."""
    constants = Constants()
    batch = emit(program, batch_target(machine, name), constants)
    sample = emit(program, sample_target(machine, name), constants)
    block, offsets = _block(constants)
    addresses = [
        f"(const {C_TYPES[str(array.dtype)]} *)(constants + {offset})"
        for array, offset in zip(constants.arrays, offsets, strict=True)
    ]
    workspace = whole_lines(max(4 * machine.lanes * batch.workspace, 4 * sample.workspace, 1))
    functions = (
        *batch.functions,
        *sample.functions,
        _program(program, batch, f"{name}_batch", f"V{machine.lanes}", "int n, ", addresses),
        _program(program, sample, f"{name}_sample", "float", "", addresses),
        _driver(program, name, workspace, machine.lanes),
    )
    return Runtime(functions, frozenset(batch.helpers | sample.helpers), block, workspace)


def library_source(runtimes: Sequence[Runtime], machine: Machine) -> str:
    """The source of a library with these programs."""
    helpers = {helper for own in runtimes for helper in own.helpers}
    texts = [
        _PRELUDE.read_text(),
        *(_vectors(lanes) for lanes in sorted({machine.lanes, *machine.vectors})),
        *helper_texts(helpers, portable=False),
        *(function for own in runtimes for function in own.functions),
    ]
    return "\n\n".join(texts) + "\n"


def _vectors(lanes: int) -> str:
    """The functions on vectors of so many floats."""

    def lane_pairs(start: int) -> str:
        return ", ".join(f"{start + lane}, {start + lane + lanes}" for lane in range(lanes // 2))

    text = _VECTORS.read_text().replace("$LOW", lane_pairs(0)).replace("$HIGH", lane_pairs(lanes // 2))
    return text.replace("$L", str(lanes))


def _block(constants: Constants) -> tuple[npt.NDArray[np.uint8], list[int]]:
    """All constant arrays behind each other, each at the start of a cache line; and where each starts."""
    offsets, end = [], 0
    for array in constants.arrays:
        offsets.append(end)
        end += whole_lines(array.nbytes)
    block = aligned(end)
    for array, offset in zip(constants.arrays, offsets, strict=True):
        block[offset : offset + array.nbytes] = array.view(np.uint8)
    return block, offsets


def _pointers(program: Program) -> list[str]:
    inputs = [f"const float *input{number}" for number in range(len(program.inputs))]
    return [*inputs, *(f"float *output{number}" for number in range(len(program.outputs)))]


def _program(
    program: Program, emission: Emission, name: str, element: str, extra: str, constants: Sequence[str]
) -> str:
    """The function that runs all steps."""
    calls = re.sub(
        r"\bc(\d+)\b", lambda number: constants[int(number[1])], "\n".join(f"    {call}" for call in emission.calls)
    )
    parameters = f"const char *constants, {element} *workspace, {extra}{', '.join(_pointers(program))}"
    return (
        f"static int {name}({parameters})\n{{\n    int failed = 0;\n    (void)constants;\n    (void)workspace;\n"
        f"{calls}\n    return failed;\n}}"
    )


def _driver(program: Program, name: str, workspace: int, lanes: int) -> str:
    """The loop over a batch: whole vectors of samples, then the rest; and its split into threads.

    The rest is computed as a vector with empty lanes from `settings->vector_from` samples on, below that one by one.
    """
    names = [pointer.split("*")[-1] for pointer in _pointers(program)]
    sizes = [math.prod(value.shape) for value in program.inputs]
    sizes += [math.prod(shape) for shape in program.shapes]

    def at(sample: str) -> str:
        return ", ".join(f"{own} + {sample} * {size}" for own, size in zip(names, sizes, strict=True))

    fields = "\n".join(f"    {pointer};" for pointer in _pointers(program))
    job = ", ".join(f"job->{own} + first * {size}" for own, size in zip(names, sizes, strict=True))
    parameters = f"const Settings *settings, char *workspace, long n, {', '.join(_pointers(program))}"
    return f"""\
static int {name}_serial({parameters})
{{
    const char *constants = settings->constants;
    int failed = 0;
    long i = 0;
    for (; n - i >= settings->vector_from && settings->vector_from <= {lanes}; i += {lanes}) {{
        const int count = n - i < {lanes} ? (int)(n - i) : {lanes};
        failed |= {name}_batch(constants, (V{lanes} *)workspace, count, {at("i")});
    }}
    for (; i < n; i++) failed |= {name}_sample(constants, (float *)workspace, {at("i")});
    return failed;
}}

typedef struct {{
    const Settings *settings;
    char *workspace;
    long n;
{fields}
}} {name}_job;

/* One vector of samples, in the workspace of a thread. */
static int {name}_block(void *argument, int thread, long block)
{{
    const {name}_job *job = argument;
    const long first = block * {lanes}, left = job->n - first;
    char *workspace = job->workspace + thread * {far_apart(workspace)}L;
    return {name}_serial(job->settings, workspace, left < {lanes} ? left : {lanes}, {job});
}}

/* 0: all is well; 1: an input was out of its range. The workspace has {workspace} bytes for one thread, and
   {far_apart(workspace)} more for each further one. */
int {name}_run({parameters})
{{
    const long vectors = (n + {lanes - 1}) / {lanes};
    long threads = n / settings->samples_per_thread;
    if (threads > settings->threads) threads = settings->threads;
    if (threads < 2) return {name}_serial(settings, workspace, n, {", ".join(names)});
    {name}_job job = {{settings, workspace, n, {", ".join(names)}}};
    return settings->run_in_threads((int)threads, vectors, {name}_block, &job);
}}"""
