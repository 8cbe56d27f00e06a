"""Fewer passes over memory: what follows a layer is done while its sums are in registers.

- Constant factors and offsets of whole channels, as a BatchNorm in evaluation mode, go into weight and bias.
- Activations, and a pooling over windows that do not overlap, become part of the layer.
- Pointwise operations in a row become one pass.
"""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from gossamer.inference.operations.convolution import Convolution, Pooling
from gossamer.inference.operations.pointwise import Pointwise, Stage
from gossamer.inference.operations.pooling import Axis, Pool
from gossamer.inference.program import Constant, Operation, Program, Result, Step, Value, root

__all__ = ["fused"]

# A pooling window is summed in registers.
_LARGEST_WINDOW = 9


def fused(program: Program) -> Program:
    """The same program in fewer steps, and without steps that nothing reads."""
    program = _without_dead_steps(program)
    uses = program.uses()
    done: dict[Result, Operation] = {}
    for operation, output in program.steps:
        for value in _mergeable(operation, done, uses):
            earlier = done[value]
            if isinstance(earlier, Convolution) and isinstance(operation, Pointwise) and operation.x is value:
                done[value], operation = _absorbed(earlier, operation)
            joined = _joined(done[value], value, operation)
            if joined is not None:
                operation = joined
                del done[value]
        done[output] = operation
    return replace(program, steps=tuple(Step(operation, output) for output, operation in done.items()))


def _mergeable(operation: Operation, done: dict[Result, Operation], uses: dict[Value, int]) -> list[Result]:
    """The inputs that only this operation reads."""
    return [value for value in operation.inputs if isinstance(value, Result) and value in done and uses[value] == 1]


def _joined(earlier: Operation, value: Result, operation: Operation) -> Operation | None:
    """One operation instead of `earlier`, which computes `value`, and `operation`, which alone reads it."""
    if isinstance(operation, Pointwise):
        if isinstance(earlier, Convolution) and operation.x is value and not operation.stages:
            return earlier
        if isinstance(earlier, Pointwise) and operation.shape == value.shape:
            return _one_pass(earlier, value, operation)
    if isinstance(operation, Pool) and isinstance(earlier, Convolution) and operation.x is value:
        return _with_pooling(earlier, operation)
    return None


def _one_pass(earlier: Pointwise, value: Result, later: Pointwise) -> Pointwise | None:
    if later.x is value:
        return Pointwise(earlier.x, (*earlier.stages, *later.stages))
    first, *rest = later.stages
    if first.operand is value and later.x.shape == value.shape:
        swapped = Stage(first.function.swapped(), later.x)
        return Pointwise(earlier.x, (*earlier.stages, swapped, *rest))
    return None


def _absorbed(layer: Convolution, after: Pointwise) -> tuple[Convolution, Pointwise]:
    """The layer with as many of the stages as it can take, and the pass that is left."""
    if after.shape != layer.shape:
        return layer, after
    stages = list(after.stages)
    while stages:
        taken = _with_stage(layer, stages[0])
        if taken is None:
            break
        layer = taken
        stages.pop(0)
    return layer, Pointwise(after.x, tuple(stages))


def _with_stage(layer: Convolution, stage: Stage) -> Convolution | None:
    if stage.operand is None:
        if layer.pooling is None:
            return replace(layer, before=(*layer.before, stage.function))
        return replace(layer, after=(*layer.after, stage.function))
    if layer.before or layer.pooling is not None or not isinstance(stage.operand, Constant):
        return None
    numbers = _per_channel(stage.operand, layer)
    if numbers is None:
        return None
    weight, bias = layer.weight.double(), layer.bias.double()
    match stage.function.name:
        case "add":
            bias = bias + numbers
        case "sub":
            bias = bias - numbers
        case "mul":
            weight, bias = weight * numbers[:, None, None, None], bias * numbers
        case "div":
            weight, bias = weight / numbers[:, None, None, None], bias / numbers
        case _:
            return None
    if not (weight.isfinite().all() and bias.isfinite().all()):
        return None
    return replace(layer, weight=weight.float(), bias=bias.float())


def _per_channel(operand: Constant, layer: Convolution) -> Tensor | None:
    """A constant that is the same at all positions of a channel, as one number for each."""
    sizes = (*(1 for _ in range(len(layer.shape) - len(operand.shape))), *operand.shape)
    axis = len(sizes) - 1 if layer.is_linear else 1
    if any(size != 1 for dimension, size in enumerate(sizes) if dimension != axis):
        return None
    return operand.tensor.double().reshape(-1).expand(layer.weight.shape[0])


def _with_pooling(layer: Convolution, pool: Pool) -> Convolution | None:
    if layer.pooling is not None or layer.transposed or layer.is_linear or len(layer.shape) != 4:
        return None
    rows, columns = _window(pool.rows, layer.shape[2]), _window(pool.columns, layer.shape[3])
    if not rows or not columns or rows * columns > _LARGEST_WINDOW:
        return None
    if pool.kind == "mean" and pool.divisor not in (None, rows * columns):
        return None
    return replace(layer, pooling=Pooling(pool.kind, rows, columns))


def _window(axis: Axis, size: int) -> int:
    """The size of windows that lie side by side from the first position on; 0 if they do not."""
    window = axis.stops[0] - axis.starts[0]
    plain = axis.step == 1 and set(axis.divisors) == {window} and len(axis.starts) == size // window
    beside = all(start == number * window for number, start in enumerate(axis.starts))
    return window if plain and beside and axis.stops[-1] - axis.starts[-1] == window else 0


def _without_dead_steps(program: Program) -> Program:
    read = {root(value) for value in program.outputs}
    kept: list[Step] = []
    for step in reversed(program.steps):
        if step.output in read:
            kept.append(step)
            read |= {root(value) for value in step.operation.inputs}
    return replace(program, steps=tuple(reversed(kept)))
