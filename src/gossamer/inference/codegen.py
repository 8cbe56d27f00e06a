"""A program as C: one function for each operation, and the calls that run them on one workspace.

Functions know shapes and strides and nothing of addresses, so layers of the same shape share one function. Weights
reach them through pointers: a portable file holds them as constant arrays, the compiled runtime as one block of memory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from gossamer.errors import GossamerError
from gossamer.inference.kernel import FLOATS_IN_A_LINE, Constants, Kernel, Operand, compact
from gossamer.inference.layout import (
    NO_BORDER,
    Block,
    Border,
    Placement,
    choose_borders,
    contiguous,
    pack_blocks,
    placement,
    size,
)
from gossamer.inference.program import Constant, Input, Program, Result, Step, Value, root
from gossamer.inference.source import nest
from gossamer.inference.targets import Target

__all__ = ["Emission", "emit"]

_LARGEST_WORKSPACE = 2**31 - 1  # elements


@dataclass
class Emission:
    """The C of a program for one target.

    The calls use the names `input0`, `input1`, ..., `output0`, ..., `c0`, `c1`, ... (constant arrays), `workspace`,
    `failed` (an int), and in batch code `n`, the number of samples.
    """

    functions: list[str] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    helpers: set[tuple[str, str]] = field(default_factory=set)
    workspace: int = 0  # elements
    reports_errors: bool = False


def emit(program: Program, target: Target, constants: Constants) -> Emission:
    """Write the functions and calls of `program`; its weights are added to `constants`."""
    emitter = _Emitter(program, target, constants)
    emitter.run()
    return emitter.emission


class _Emitter:
    def __init__(self, program: Program, target: Target, constants: Constants) -> None:
        self.program = program
        self.target = target
        self.constants = constants
        wanted = [pair for operation, _ in program.steps for pair in operation.borders()] if target.borders else []
        self.borders = choose_borders(program, wanted)
        self.emission = Emission()
        self.offsets: dict[object, int] = {}
        self.names: dict[str, str] = {}

    def run(self) -> None:
        kernels = [self._kernel(step) for step in self.program.steps]
        self._plan(kernels)
        for number, value in enumerate(self.program.inputs):
            if value in self.offsets:
                self._load(number, value)
        for kernel, step in zip(kernels, self.program.steps, strict=True):
            self._clear_border(step.output)
            inputs = [self._address(value) for value in step.operation.inputs]
            self._call(kernel, step.operation.describe(), inputs, self._address(step.output))
        if self.target.is_batch:
            for number, output in enumerate(self.program.outputs):
                elements = math.prod(output.shape)
                call = f"{self.target.prefix}unpack({self._address(output)}, {elements}, n, output{number});"
                self.emission.calls.append(call)

    def _kernel(self, step: Step) -> Kernel:
        operands = [self._operand(f"x{number}", value) for number, value in enumerate(step.operation.inputs)]
        kernel = Kernel(self.target, self.constants, operands, self._operand("y", step.output))
        step.operation.emit(kernel)
        return kernel

    def _operand(self, name: str, value: Value) -> Operand:
        if isinstance(value, Constant):
            return Operand(name, value.shape, compact(value.tensor)[1], is_constant=True)
        where = placement(value, self._border(value))
        return Operand(name, where.shape, where.strides, where.border)

    def _border(self, value: Value) -> Border:
        return self.borders.get(root(value), NO_BORDER)

    def _in_workspace(self, value: Value) -> bool:
        if self.target.is_batch:
            return True
        return value in self.borders if isinstance(value, Input) else value not in self.program.outputs

    def _plan(self, kernels: Sequence[Kernel]) -> None:
        """Give inputs, results and scratch memory their offsets in the workspace."""
        steps = self.program.steps
        first: dict[Value, int] = dict.fromkeys(self.program.inputs, 0)
        last: dict[Value, int] = {}
        for number, step in enumerate(steps):
            first[step.output] = number
            last |= {root(value): number for value in (*step.operation.inputs, step.output)}
        last |= dict.fromkeys(self.program.outputs, len(steps))
        blocks: dict[object, Block] = {
            value: Block(size(value, self._border(value)), first[value], last[value])
            for value in first
            if value in last and self._in_workspace(value)
        }
        for number, kernel in enumerate(kernels):
            if kernel.scratch_elements:
                blocks[kernel] = Block(kernel.scratch_elements, number, number)
        self.offsets, self.emission.workspace = pack_blocks(blocks, 1 if self.target.is_batch else FLOATS_IN_A_LINE)
        if self.emission.workspace > _LARGEST_WORKSPACE:
            raise GossamerError(
                f"one sample needs a workspace of {4 * self.emission.workspace:,} bytes, and indices have 32 bits. "
                "Give an example with smaller samples."
            )

    def _load(self, number: int, value: Input) -> None:
        """Bring an input into the workspace."""
        self._clear_border(value)
        where = placement(value, self._border(value))
        if self.target.is_batch:
            self.emission.calls.append(f"{self.target.prefix}pack({_rows(number, where)}, {self._address(value)});")
            return
        plain = Operand("x0", value.shape, contiguous(value.shape))
        kernel = Kernel(self.target, self.constants, [plain], self._operand("y", value))
        with nest(kernel.code, where.shape, [plain.strides, where.strides]) as (source, target):
            kernel.code.add(f"y[{target}] = x0[{source}];")
        self._call(kernel, "copy of the input, with zeros around its planes", [f"input{number}"], self._address(value))

    def _clear_border(self, value: Value) -> None:
        border = self._border(value)
        if border == NO_BORDER:
            return
        kernel = Kernel(self.target, self.constants, [], Operand("y", (), ()))
        _write_border(kernel, placement(value, border), size(value, border))
        self._call(kernel, "zeros around the planes of a tensor", [], f"workspace + {self.offsets[value]}")

    def _call(self, kernel: Kernel, comment: str, inputs: Sequence[str], output: str) -> None:
        arguments = [*inputs, *(f"c{number}" for number in kernel.constants)]
        if kernel.scratch_elements:
            arguments.append(f"workspace + {self.offsets[kernel]}")
        if kernel.reports_errors:
            arguments.append("&failed")
        name = self._function(kernel, comment)
        self.emission.calls.append(f"{name}({', '.join([*arguments, output])});")
        self.emission.helpers |= kernel.helpers
        self.emission.reports_errors |= kernel.reports_errors

    def _function(self, kernel: Kernel, comment: str) -> str:
        """The name of the function with this text, which is written out if it is new."""
        text = f"({kernel.parameters()})\n{{\n{kernel.code}\n}}"
        if text not in self.names:
            self.names[text] = f"{self.target.scope}step{len(self.names)}"
            self.emission.functions.append(f"/* {comment} */\nstatic void {self.names[text]}{text}")
        return self.names[text]

    def _address(self, value: Value) -> str:
        if isinstance(value, Constant):
            return f"c{self.constants.add(compact(value.tensor)[0])}"
        base, start = root(value), placement(value, self._border(value)).offset
        if base in self.offsets:
            return f"workspace + {self.offsets[base] + start}"
        name = (
            f"input{self.program.inputs.index(base)}"
            if isinstance(base, Input)
            else f"output{_position(self.program.outputs, base)}"
        )
        return f"{name} + {start}" if start else name


def _position(outputs: Sequence[Result], value: Value) -> int:
    return next(number for number, output in enumerate(outputs) if output is value)


def _rows(number: int, where: Placement) -> str:
    """The arguments of the call that puts the samples of input `number` into the lanes of vectors, row by row."""
    elements = math.prod(where.shape)
    planes, rows, columns, plane, pitch = 1, 1, elements, 0, 0
    if where.border != NO_BORDER:
        columns, rows = where.shape[-1], where.shape[-2] if len(where.shape) > 3 else 1
        planes = elements // (rows * columns)
        pitch = where.strides[-2]
        plane = where.strides[-3] if len(where.shape) > 3 else pitch
    return f"input{number}, {elements}, n, {planes}, {rows}, {columns}, {plane}, {pitch}"


def _write_border(kernel: Kernel, where: Placement, elements: int) -> None:
    """Zero what surrounds the rows and columns; `y` is the start of the block."""
    code, border, zero = kernel.code, where.border, kernel.target.splat("0.0f")
    columns = where.shape[-1] + border.left + border.right
    rows = (where.shape[-2] if len(where.shape) > 3 else 1) + border.top + border.bottom
    inner = where.shape[-1]
    with code.loop("p", elements // (rows * columns)):
        code.add(f"{kernel.target.element} *plane = y + p * {rows * columns};")
        if head := border.top * columns + border.left:
            with code.loop("i", head):
                code.add(f"plane[i] = {zero};")
        # between two rows: the right end of one and the left end of the next
        if gap := border.left + border.right:
            with code.loop("r", rows - border.top - border.bottom - 1), code.loop("i", gap):
                code.add(f"plane[{head + inner} + r * {columns} + i] = {zero};")
        tail = border.bottom * columns + border.right
        if tail:
            with code.loop("i", tail):
                code.add(f"plane[{rows * columns - tail} + i] = {zero};")
