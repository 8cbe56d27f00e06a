"""The C source of the compiled runtime: a program for batches and for single samples, and the loop over a batch.

The library knows shapes, not weights: those lie in one block of memory that every call is given. So a network that was
trained further, or another one of the same shape and number of non-zeros, finds its library in the cache.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from gossamer.compiler import Compiler, predefined_macros
from gossamer.inference.emission import Emission, emit
from gossamer.inference.helpers import helper_texts
from gossamer.inference.kernel import C_TYPES, Constants
from gossamer.inference.program import Program
from gossamer.inference.targets import batch_target, sample_target

__all__ = ["FLAGS", "Machine", "Source", "runtime_source"]

_PRELUDE = Path(__file__).with_name("prelude.c")
_LINE = 64  # bytes

_STRICT = ["-shared", "-fPIC", "-std=gnu11", "-O3", "-fno-math-errno", "-fno-trapping-math", "-pthread", "-Wno-psabi"]
# The best first: a compiler may not know this processor.
FLAGS = ([*_STRICT, "-march=native"], [*_STRICT, "-mcpu=native"], _STRICT)


@dataclass(frozen=True)
class Machine:
    """What the code is tuned to: lanes of a vector, and vector registers."""

    lanes: int
    registers: int

    @classmethod
    def here(cls, compiler: Compiler) -> Machine:
        """This machine, as its compiler sees it."""
        macros = predefined_macros(compiler, ["-march=native"]) or predefined_macros(compiler, ["-mcpu=native"])
        if "__AVX512VL__" in macros:
            return cls(lanes=8, registers=32)
        if "__AVX__" in macros:
            return cls(lanes=8, registers=16)
        return cls(lanes=4, registers=32 if "__aarch64__" in macros else 16)


@dataclass(frozen=True)
class Source:
    """The text of a library, the constants that it is called with, and the bytes that one thread works in."""

    text: str
    constants: npt.NDArray[np.uint8]
    workspace: int


def runtime_source(program: Program, machine: Machine, name: str = "gossamer") -> Source:
    """The library of a program: `NAME_run(constants, workspace, n, threads, few, inputs..., outputs...)`."""
    constants = Constants()
    batch = emit(program, batch_target(machine.registers), constants)
    sample = emit(program, sample_target(machine.registers, machine.lanes), constants)
    block, offsets = _block(constants)
    workspace = max(4 * machine.lanes * batch.workspace, 4 * sample.workspace)
    workspace = -(-max(workspace, 1) // _LINE) * _LINE
    texts = [
        f"#define LANES {machine.lanes}",
        _interleave(machine.lanes),
        _PRELUDE.read_text(),
        *helper_texts(batch.helpers | sample.helpers, portable=False),
        *batch.functions,
        *sample.functions,
        *(
            f"#define c{number} ((const {C_TYPES[str(array.dtype)]} *)(constants + {offset}))"
            for number, (array, offset) in enumerate(zip(constants.arrays, offsets, strict=True))
        ),
        _program(program, batch, f"{name}_batch", "V", "int n, "),
        _program(program, sample, f"{name}_sample", "float", ""),
        _driver(program, name, workspace),
    ]
    return Source("\n\n".join(texts) + "\n", block, workspace)


def _interleave(lanes: int) -> str:
    """Macros, as the places of a shuffle have to be written out."""

    def places(start: int) -> str:
        return ", ".join(f"{start + place}, {start + place + lanes}" for place in range(lanes // 2))

    return "\n".join(
        [
            f"#define v_interleave_low(a, b) __builtin_shufflevector(a, b, {places(0)})",
            f"#define v_interleave_high(a, b) __builtin_shufflevector(a, b, {places(lanes // 2)})",
        ]
    )


def _block(constants: Constants) -> tuple[npt.NDArray[np.uint8], list[int]]:
    """All constant arrays behind each other, each at the start of a cache line; and where each starts."""
    offsets, end = [], 0
    for array in constants.arrays:
        offsets.append(end)
        end += -(-array.nbytes // _LINE) * _LINE
    block = aligned(end)
    for array, offset in zip(constants.arrays, offsets, strict=True):
        block[offset : offset + array.nbytes] = array.view(np.uint8)
    return block, offsets


def aligned(count: int) -> npt.NDArray[np.uint8]:
    """So many bytes, from the start of a cache line."""
    memory = np.zeros(count + _LINE, dtype=np.uint8)
    return memory[-memory.ctypes.data % _LINE :][:count]


def _pointers(program: Program) -> list[str]:
    inputs = [f"const float *input{number}" for number in range(len(program.inputs))]
    return [*inputs, *(f"float *output{number}" for number in range(len(program.outputs)))]


def _program(program: Program, emission: Emission, name: str, element: str, extra: str) -> str:
    """The function that runs all steps."""
    calls = "\n".join(f"    {call}" for call in emission.calls)
    parameters = f"const char *constants, {element} *workspace, {extra}{', '.join(_pointers(program))}"
    return (
        f"static int {name}({parameters})\n{{\n    int failed = 0;\n    (void)constants;\n    (void)workspace;\n"
        f"{calls}\n    return failed;\n}}"
    )


def _driver(program: Program, name: str, workspace: int) -> str:
    """The loop over a batch: whole vectors of samples, then what is left; and its split into threads.

    From `few` samples on, what is left is computed as a vector with empty lanes, below that sample by sample.
    """
    names = [pointer.split("*")[-1] for pointer in _pointers(program)]
    sizes = [math.prod(value.shape) for value in program.inputs]
    sizes += [math.prod(shape) for shape in program.shapes]

    def at(sample: str) -> str:
        return ", ".join(f"{own} + {sample} * {size}" for own, size in zip(names, sizes, strict=True))

    fields = "\n".join(f"    {pointer};" for pointer in _pointers(program))
    job = ", ".join(f"job->{own}" for own in names)
    return f"""\
static int {name}_serial(const char *constants, char *workspace, long n, int few, {", ".join(_pointers(program))})
{{
    int failed = 0;
    long i = 0;
    for (; n - i >= few && few <= LANES; i += LANES) {{
        const int count = n - i < LANES ? (int)(n - i) : LANES;
        failed |= {name}_batch(constants, (V *)workspace, count, {at("i")});
    }}
    for (; i < n; i++) failed |= {name}_sample(constants, (float *)workspace, {at("i")});
    return failed;
}}

typedef struct {{
    const char *constants;
    char *workspace;
    long n;
    int few;
    int failed;
{fields}
}} {name}_job;

static void *{name}_work(void *argument)
{{
    {name}_job *job = argument;
    job->failed = {name}_serial(job->constants, job->workspace, job->n, job->few, {job});
    return NULL;
}}

/* 0: all is well; 1: an input was out of its range. Each thread has {workspace} bytes of the workspace. */
int {name}_run(const char *constants, char *workspace, long n, int few, int threads, {", ".join(_pointers(program))})
{{
    if (threads < 2) return {name}_serial(constants, workspace, n, few, {", ".join(names)});
    {name}_job jobs[threads];
    pthread_t handles[threads];
    const long share = ((n + threads - 1) / threads + LANES - 1) / LANES * LANES;
    int failed = 0;
    for (int t = 0; t < threads; t++) {{
        const long first = t * share < n ? t * share : n;
        const long count = n - first < share ? n - first : share;
        jobs[t] = ({name}_job){{constants, workspace + t * {workspace}L, count, few, 0, {at("first")}}};
        if (t == 0 || pthread_create(&handles[t], NULL, {name}_work, &jobs[t])) {{
            handles[t] = pthread_self(); /* done by this thread, below */
        }}
    }}
    for (int t = 0; t < threads; t++) {{
        if (pthread_equal(handles[t], pthread_self())) {name}_work(&jobs[t]);
    }}
    for (int t = 0; t < threads; t++) {{
        if (!pthread_equal(handles[t], pthread_self())) pthread_join(handles[t], NULL);
        failed |= jobs[t].failed;
    }}
    return failed;
}}"""
