"""A program as one C99 file and its header: no libraries but `<math.h>`, no `malloc`, weights as constant data."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from torch import Tensor

from gossamer.inference.c_math import helper_texts
from gossamer.inference.codegen import Emission, emit
from gossamer.inference.kernel import C_TYPES, Array, Constants
from gossamer.inference.program import Program
from gossamer.inference.source import literal
from gossamer.inference.targets import portable_target

__all__ = ["PortableSource", "SelfTest", "portable_source"]

_WIDTH = 116


@dataclass(frozen=True)
class SelfTest:
    """The inputs of one sample, and the outputs of the model for them."""

    inputs: Sequence[Tensor]
    outputs: Sequence[Tensor]


@dataclass(frozen=True)
class PortableSource:
    """The text of the file and of its header, and how much memory the network takes.

    Attributes:
        source: The C file.
        header: What other files include.
        constants: Bytes of weights and tables: what `size -A` reports for the section .rodata of small processors.
        workspace: Bytes of memory for intermediate results: what `size -A` reports for .bss.
        checksum: SHA-256 of all constant arrays.
    """

    source: str = field(repr=False)
    header: str = field(repr=False)
    constants: int
    workspace: int
    checksum: str


def portable_source(program: Program, name: str, title: str, test: SelfTest) -> PortableSource:
    """Write the program under `name`, which all its global names start with."""
    constants = Constants()
    emission = emit(program, portable_target(name), constants)
    arrays = [_whole_words(array) for array in constants.arrays]
    interface = _Interface(program, name, max(emission.workspace, 1))
    checksum = hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()
    facts = PortableSource("", "", sum(array.nbytes for array in arrays), 4 * interface.workspace, checksum)
    parts = [
        _head(program, interface, title, facts, test),
        f'#include "{name}.h"\n\n#include <limits.h>\n#include <math.h>\n#include <stdint.h>',
        "#if INT_MAX < 2147483647\n#error an int has to have 32 bits\n#endif",
        *(_array(f"{name}_c{number}", array) for number, array in enumerate(arrays)),
        *helper_texts(emission.helpers, portable=True),
        *emission.functions,
        interface.definitions(emission),
        _self_test(interface, test),
    ]
    return PortableSource(
        "\n\n".join(parts) + "\n", interface.header(title), facts.constants, facts.workspace, checksum
    )


@dataclass(frozen=True)
class _Interface:
    """The functions that the file offers."""

    program: Program
    name: str
    workspace: int  # floats

    @property
    def inputs(self) -> list[str]:
        """The names of the inputs."""
        return _numbered("input", len(self.program.inputs))

    @property
    def outputs(self) -> list[str]:
        """The names of the outputs."""
        return _numbered("output", len(self.program.outputs))

    @property
    def sizes(self) -> dict[str, int]:
        """Floats of each, for one sample."""
        shapes = [*(value.shape for value in self.program.inputs), *self.program.shapes]
        return dict(zip([*self.inputs, *self.outputs], (math.prod(shape) for shape in shapes), strict=True))

    @property
    def parameters(self) -> str:
        """Of one sample, or of the first."""
        return ", ".join([*(f"const float *{own}" for own in self.inputs), *(f"float *{own}" for own in self.outputs)])

    def header(self, title: str) -> str:
        """The header file."""
        name, upper = self.name, self.name.upper()
        sizes = "\n".join(f"#define {upper}_{own.upper()} {size}" for own, size in self.sizes.items())
        return f"""\
/* {title}: see {name}.c */
#ifndef {upper}_H
#define {upper}_H

#ifdef __cplusplus
extern "C" {{
#endif

/* floats of one sample, and of the workspace */
{sizes}
#define {upper}_WORKSPACE {self.workspace}

/* One sample, in a workspace of the caller. All functions return 0, or 1 if an input was out of its range. */
int {name}_run_in(float *workspace, {self.parameters});

#ifndef {upper}_NO_STATIC_WORKSPACE
/* One sample; and `n` samples, one behind the other. Not for several threads at once: they share a workspace. */
int {name}_run({self.parameters});
int {name}_run_batch({self.parameters}, int n);

#ifndef {upper}_NO_SELFTEST
/* 0 if the network computes here what it computed where it was written. */
int {name}_selftest(void);
#endif
#endif

#ifdef __cplusplus
}}
#endif

#endif
"""

    def definitions(self, emission: Emission) -> str:
        """The functions that run the network."""
        name, upper = self.name, self.name.upper()
        calls = "\n".join(f"    {self._named(call)}" for call in emission.calls)
        start = "    int failed = 0;\n" if emission.reports_errors else ""
        unused = "" if "workspace" in calls else "    (void)workspace;\n"
        arguments = ", ".join(self.sizes)
        each = ", ".join(f"{own} + i * {upper}_{own.upper()}" for own in self.sizes)
        return f"""\
int {name}_run_in(float *workspace, {self.parameters})
{{
{start}{unused}{calls}
    return {"failed" if emission.reports_errors else "0"};
}}

#ifndef {upper}_NO_STATIC_WORKSPACE
static float {name}_workspace[{upper}_WORKSPACE];

int {name}_run({self.parameters})
{{
    return {name}_run_in({name}_workspace, {arguments});
}}

int {name}_run_batch({self.parameters}, int n)
{{
    int failed = 0;
    for (long i = 0; i < n; i++) failed |= {name}_run({each});
    return failed;
}}
#endif"""

    def _named(self, call: str) -> str:
        """A call with the names of this file."""
        call = re.sub(r"\bc(\d+)\b", rf"{self.name}_c\1", call)
        for word, names in (("input", self.inputs), ("output", self.outputs)):
            if len(names) == 1:
                call = re.sub(rf"\b{word}0\b", word, call)
        return call


def _numbered(word: str, count: int) -> list[str]:
    return [word] if count == 1 else [f"{word}{number}" for number in range(count)]


def _head(program: Program, interface: _Interface, title: str, facts: PortableSource, test: SelfTest) -> str:
    name, steps = interface.name, [step.operation.describe() for step in program.steps]
    sizes = ", ".join(f"{own} {size} floats" for own, size in interface.sizes.items())
    expected = ", ".join(f"{number:.6g}" for number in test.outputs[0].flatten()[:8].tolist())
    shown = "its first outputs are" if test.outputs[0].numel() > 8 else "its outputs are"
    lines = [
        f"{title}, written by gossamer.",
        "",
        *(f"{number + 1}. {step}" for number, step in enumerate(steps)),
        "",
        f"One sample: {sizes}.",
        "Tensors are contiguous, in the order of PyTorch; integers and booleans are given as floats.",
        f"Constants (flash): {facts.constants} bytes, the section .rodata without the self-test; and the code.",
        f"Workspace (RAM): {facts.workspace} bytes, the section .bss without the self-test.",
        f"SHA-256 of the constants: {facts.checksum}",
        "",
        f"Compile: cc -std=c99 -O3 -c {name}.c, and link with -lm.",
        f"Check:   {name}_selftest() runs the sample in {name}_test_{interface.inputs[0]} and returns 0 if the result",
        f"         agrees; {shown}",
        f"         {expected}.",
        f"Define {name.upper()}_NO_SELFTEST to leave the self-test out, {name.upper()}_NO_STATIC_WORKSPACE to give",
        f"{name}_run_in a workspace of your own.",
    ]
    return "\n".join(["/*", *(f" * {line}".rstrip() for line in lines), " */"])


def _whole_words(array: Array) -> Array:
    """An array of a multiple of four bytes: so linkers put no gaps between arrays, and the sum of sizes is exact.

    C has no empty arrays, so one without elements gets some as well.
    """
    return np.pad(array, (0, (-array.nbytes % 4 if array.size else 4) // array.itemsize))


def _array(name: str, array: Array) -> str:
    """A constant array, some numbers a line."""
    numbers = array.tolist()
    words = [literal(number) for number in numbers] if array.dtype == np.float32 else [str(n) for n in numbers]
    lines, line = [], ""
    for word in words:
        if len(line) + len(word) + 2 > _WIDTH:
            lines.append(line)
            line = ""
        line += f"{word}, " if line else f"    {word}, "
    lines.append(line)
    body = "\n".join(text.rstrip() for text in lines)
    return f"static const {C_TYPES[str(array.dtype)]} {name}[{len(words)}] = {{\n{body}\n}};"


def _self_test(interface: _Interface, test: SelfTest) -> str:
    name, upper = interface.name, interface.name.upper()
    tensors = [*test.inputs, *test.outputs]
    arrays = [
        _array(f"{name}_test_{own}", tensor.detach().float().numpy().reshape(-1))
        for own, tensor in zip(interface.sizes, tensors, strict=True)
    ]
    results = "\n".join(f"    static float {own}[{upper}_{own.upper()}];" for own in interface.outputs)
    arguments = ", ".join([*(f"{name}_test_{own}" for own in interface.inputs), *interface.outputs])
    checks = "\n".join(
        f"    if (!{name}_agrees({own}, {name}_test_{own}, {upper}_{own.upper()})) return 1;"
        for own in interface.outputs
    )
    return "\n\n".join(
        [
            f"#if !defined({upper}_NO_SELFTEST) && !defined({upper}_NO_STATIC_WORKSPACE)",
            *arrays,
            f"""\
/* whether two tensors differ by no more than rounding: 1e-4 of the largest element */
static int {name}_agrees(const float *found, const float *expected, int count)
{{
    float largest = 0.0f;
    for (int i = 0; i < count; i++) largest = fabsf(expected[i]) > largest ? fabsf(expected[i]) : largest;
    for (int i = 0; i < count; i++) {{
        if (!(fabsf(found[i] - expected[i]) <= 1e-4f * largest)) return 0;
    }}
    return 1;
}}

int {name}_selftest(void)
{{
{results}
    if ({name}_run({arguments})) return 1;
{checks}
    return 0;
}}""",
            "#endif",
        ]
    )
