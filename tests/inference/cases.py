"""Operations by themselves: at least one case for each, with inputs that reach its branches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from gossamer.inference.operations.assemble import Assemble, Piece, concatenated, copied
from gossamer.inference.operations.convolution import Convolution, Pooling
from gossamer.inference.operations.embedding import Embedding
from gossamer.inference.operations.functions import BINARY, UNARY, Function
from gossamer.inference.operations.gather import Gather
from gossamer.inference.operations.matmul import Matmul
from gossamer.inference.operations.normalization import Normalization
from gossamer.inference.operations.pointwise import Pointwise, Stage
from gossamer.inference.operations.pooling import Pool, adaptive_windows, fixed_windows
from gossamer.inference.operations.recurrent import GruScan, LstmScan
from gossamer.inference.operations.reduction import Reduction, Softmax
from gossamer.inference.operations.upsampling import Upsample
from gossamer.inference.operations.where import Where
from gossamer.inference.program import Constant, Input, Operation, Program, Result, Step, Value, viewed

__all__ = ["CASES", "Case"]


def normal(shape: Sequence[int]) -> Tensor:
    return torch.randn(shape)


def positive(shape: Sequence[int]) -> Tensor:
    return torch.rand(shape) * 3 + 0.1


def whole(shape: Sequence[int]) -> Tensor:
    return torch.randint(-1, 2, shape).float()


def hidden(shape: Sequence[int]) -> Tensor:
    """Some elements, and some rows, are -inf."""
    return (
        torch.randn(shape)
        .masked_fill(torch.rand(shape) < 0.3, -torch.inf)
        .masked_fill(torch.rand((*shape[:-1], 1)) < 0.3, -torch.inf)
    )


COMPARISONS = ("eq", "ge", "gt", "le", "lt", "ne")


@dataclass(frozen=True)
class Case:
    """An operation as a program of one step."""

    name: str
    inputs: tuple[Input, ...]
    operation: Operation
    draw: Callable[[Sequence[int]], Tensor] = field(default=normal)

    @property
    def program(self) -> Program:
        result = Result(self.operation.shape)
        return Program(self.inputs, (Step(self.operation, result),), (result,), (self.operation.shape,))


def tensor(*shape: int, density: float = 1.0, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    numbers = torch.randn(shape, generator=generator)
    return numbers * (torch.rand(shape, generator=generator) < density)


def constant(*shape: int, density: float = 1.0) -> Constant:
    return Constant(shape, tensor(*shape, density=density))


def one(name: str, shape: Sequence[int], make: Callable[[Value], Operation], **more: object) -> Case:
    x = Input(tuple(shape))
    return Case(name, (x,), make(x), **more)  # type: ignore[arg-type]


Window = tuple[int, int, int, int, bool, bool]  # the arguments of `fixed_windows` behind the size


def windows(name: str, kind: str, rows: Window, columns: Window, divisor: int | None = None) -> Case:
    axes = fixed_windows(9, *rows), fixed_windows(12, *columns)
    return one(name, (1, 3, 9, 12), lambda x: Pool(x, kind, *axes, divisor))


def two(
    name: str, first: Sequence[int], second: Sequence[int], make: Callable[[Value, Value], Operation], **more: object
) -> Case:
    x, y = Input(tuple(first)), Input(tuple(second))
    return Case(name, (x, y), make(x, y), **more)  # type: ignore[arg-type]


PARAMETERS = {
    "clamp": (-0.5, 0.7),
    "elu": (1.3,),
    "leaky_relu": (0.2,),
    "pow": (1.7,),
    "softplus": (2.0, 3.0),
}
NEEDS_POSITIVE = {"log", "pow", "reciprocal", "rsqrt", "sqrt"}

RELU = Function("relu")


def convolution(name: str, shape: Sequence[int], weight: Sequence[int], density: float = 0.4, **fields: object) -> Case:
    """A convolution with every activation place used in some case."""
    outputs = weight[0]
    return one(
        f"convolution: {name}",
        shape,
        lambda x: Convolution(x, tensor(*weight, density=density), tensor(outputs, seed=1), **fields),  # type: ignore[arg-type]
    )


CONVOLUTIONS = [
    convolution("3x3", (1, 3, 9, 11), (5, 3, 3, 3)),
    convolution("of 1x1", (1, 4, 6, 8), (5, 4, 1, 1)),
    convolution("no zeros", (1, 3, 9, 11), (5, 3, 3, 3), 1.0),
    convolution("nothing but zeros", (1, 3, 9, 11), (5, 3, 3, 3), 0.0),
    convolution("padded", (1, 3, 9, 17), (5, 3, 3, 3), padding=(1, 1, 1, 1)),
    convolution("padded on one side", (1, 3, 9, 17), (5, 3, 3, 5), padding=(0, 2, 3, 0)),
    convolution("strided", (1, 3, 13, 19), (5, 3, 3, 4), padding=(1, 1, 2, 2), stride=(2, 3)),
    convolution("dilated", (1, 3, 13, 19), (5, 3, 3, 3), padding=(2, 2, 3, 3), dilation=(2, 3)),
    convolution(
        "strided and dilated", (1, 2, 15, 25), (4, 2, 3, 3), stride=(2, 2), dilation=(3, 2), padding=(3, 2, 1, 0)
    ),
    convolution("in groups", (1, 6, 9, 17), (4, 3, 3, 3), padding=(1, 1, 1, 1), groups=2),
    convolution("in groups, dense", (1, 6, 9, 17), (4, 3, 3, 3), 1.0, padding=(1, 1, 1, 1), groups=2),
    convolution("depthwise", (1, 6, 9, 17), (6, 1, 3, 3), 1.0, padding=(1, 1, 1, 1), groups=6),
    convolution("depthwise with a multiplier", (1, 3, 9, 17), (6, 1, 3, 3), 0.5, groups=3),
    convolution("small planes", (1, 8, 5, 5), (9, 8, 3, 3)),
    convolution("planes of one place", (1, 8, 3, 3), (9, 8, 3, 3)),
    convolution("few places", (1, 8, 2, 3), (9, 8, 3, 3), padding=(1, 1, 1, 1)),
    convolution("wide", (1, 2, 3, 70), (3, 2, 3, 3)),
    convolution("many channels", (1, 70, 9, 17), (12, 70, 3, 3), 0.3, padding=(1, 1, 1, 1)),
    # What the next rows need is fetched ahead.
    convolution("many rows", (1, 40, 40, 16), (24, 40, 3, 3), 0.1, padding=(1, 1, 1, 1)),
    convolution("many strided rows", (1, 16, 61, 40), (20, 16, 3, 3), 0.3, stride=(2, 2)),
    convolution("of one dimension", (1, 3, 37), (5, 3, 1, 4), padding=(0, 0, 2, 2)),
    convolution("of one dimension, strided", (1, 3, 37), (5, 3, 1, 4), stride=(1, 2), dilation=(1, 2)),
    convolution("with an activation", (1, 3, 9, 11), (5, 3, 3, 3), before=(Function("gelu"),)),
    convolution("max pooling", (1, 3, 11, 18), (5, 3, 3, 3), pooling=Pooling("max", 2, 2), before=(RELU,)),
    convolution("max pooling, flat", (1, 3, 7, 7), (5, 3, 2, 2), pooling=Pooling("max", 2, 2), after=(RELU,)),
    convolution("mean pooling", (1, 3, 11, 41), (5, 3, 3, 3), pooling=Pooling("mean", 2, 2), after=(Function("tanh"),)),
    convolution("pooling of 3x3", (1, 3, 14, 31), (5, 3, 3, 3), pooling=Pooling("max", 3, 3)),
    convolution("pooling of 1x3", (1, 3, 6, 70), (5, 3, 3, 3), pooling=Pooling("mean", 1, 3)),
    convolution("transposed", (1, 3, 5, 7), (4, 3, 3, 3), transposed=True, stride=(2, 2), padding=(1, 1, 1, 1)),
    convolution(
        "transposed, output padding", (1, 3, 5, 7), (4, 3, 3, 3), transposed=True, stride=(2, 2), padding=(1, 0, 1, 0)
    ),
    convolution("transposed, stride 3", (1, 3, 5, 7), (4, 3, 2, 2), transposed=True, stride=(3, 3)),
    convolution(
        "transposed in groups", (1, 4, 5, 7), (6, 2, 3, 3), transposed=True, stride=(1, 2), groups=2, dilation=(1, 2)
    ),
    convolution(
        "transposed, of one dimension", (1, 3, 17), (4, 3, 1, 4), transposed=True, stride=(1, 2), padding=(0, 0, 1, 1)
    ),
    convolution("linear", (1, 50), (33, 50, 1, 1), 0.2, leading=(1,)),
    convolution("linear, dense", (1, 50), (33, 50, 1, 1), 1.0, leading=(1,), before=(RELU,)),
    convolution("linear, a few places", (3, 50), (7, 50, 1, 1), 0.2, leading=(1, 3)),
    convolution("linear, many places", (19, 20), (7, 20, 1, 1), 0.2, leading=(1, 19)),
]

OTHERS = [
    one("copy of a permutation", (1, 4, 3, 5), lambda x: copied(viewed(x, lambda t: t.permute(0, 3, 1, 2)))),
    one("copy of a slice", (1, 4, 3, 5), lambda x: copied(viewed(x, lambda t: t[:, 1::2, :, 3:]))),
    one("copy of an expansion", (1, 4, 1, 5), lambda x: copied(viewed(x, lambda t: t.expand(1, 4, 6, 5)))),
    one("pad", (1, 4, 3, 5), lambda x: Assemble((Piece(x, (0, 1, 0, 2)),), (1, 6, 3, 9), 0.5)),
    two(
        "one over the other",
        (1, 4, 3),
        (1, 2, 3),
        lambda x, y: Assemble((Piece(x, (0, 0, 0)), Piece(y, (0, 1, 0))), x.shape),
    ),
    two("concatenation", (1, 4, 3, 5), (1, 2, 3, 5), lambda x, y: concatenated([x, constant(1, 3, 3, 5), y], 1)),
    one("softmax over channels", (1, 7, 3, 5), lambda x: Softmax(x, 1)),
    one("softmax over columns", (1, 7, 33), lambda x: Softmax(x, 2)),
    one("log-softmax", (1, 17), lambda x: Softmax(x, 1, log=True)),
    *(
        one(f"{kind} over rows and columns", (1, 7, 13, 5), lambda x, kind=kind: Reduction(x, kind, (2, 3)))
        for kind in ("sum", "mean", "amax")
    ),
    one("mean over channels", (1, 7, 13, 5), lambda x: Reduction(x, "mean", (1,))),
    one("mean over everything", (1, 7, 13), lambda x: Reduction(x, "mean", (0, 1, 2))),
    one("layer norm", (1, 7, 13), lambda x: Normalization(x, 1, 1e-5, constant(1, 7, 13), constant(1, 7, 13))),
    one("layer norm over two dimensions", (1, 7, 13), lambda x: Normalization(x, 2, 1e-5)),
    one("layer norm, bias only", (1, 7, 13), lambda x: Normalization(x, 1, 1e-5, None, constant(1, 7, 13))),
    one(
        "group norm",
        (1, 2, 3, 5, 4),
        lambda x: Normalization(x, 3, 1e-5, Constant((1, 2, 3, 5, 4), tensor(1, 2, 3, 1, 1).expand(1, 2, 3, 5, 4))),
    ),
    one("rms norm", (1, 7, 13), lambda x: Normalization(x, 1, 1e-5, constant(1, 7, 13), None, centred=False)),
    two("product of matrices", (1, 3, 7, 5), (1, 3, 5, 6), Matmul),
    two(
        "product with a transposed matrix",
        (1, 3, 7, 5),
        (1, 3, 6, 5),
        lambda x, y: Matmul(x, viewed(y, lambda t: t.transpose(2, 3))),
    ),
    two("product of matrices, broadcast", (1, 3, 7, 5), (1, 1, 5, 9), Matmul),
    one(
        "embedding",
        (1, 6),
        lambda x: Embedding(x, tensor(11, 5)),
        draw=lambda shape: torch.randint(0, 11, shape).float(),
    ),
    one(
        "sparse embedding",
        (1, 6),
        lambda x: Embedding(x, tensor(11, 5, density=0.2)),
        draw=lambda shape: torch.randint(0, 11, shape).float(),
    ),
    windows("max of windows", "max", (3, 2, 1, 1, False, False), (2, 2, 0, 1, False, False)),
    windows("max of windows with gaps", "max", (3, 1, 1, 2, False, False), (3, 2, 1, 2, True, False)),
    windows("mean of windows", "mean", (3, 2, 1, 1, True, True), (3, 2, 1, 1, True, True)),
    windows("mean of windows, own count", "mean", (3, 2, 1, 1, True, False), (3, 2, 1, 1, True, False)),
    windows("mean of windows, given count", "mean", (3, 3, 0, 1, False, True), (3, 3, 0, 1, False, True), 5),
    one("adaptive mean", (1, 3, 9, 12), lambda x: Pool(x, "mean", adaptive_windows(9, 4), adaptive_windows(12, 5))),
    one("nearest place", (1, 3, 5, 4), lambda x: Upsample(x, (10, 7), (0.5, 4 / 7))),
    one("interpolation", (1, 3, 5, 4), lambda x: Upsample(x, (10, 7), (0.5, 4 / 7), linear=True)),
    one(
        "interpolation between corners",
        (1, 3, 5, 4),
        lambda x: Upsample(x, (10, 7), (0.5, 4 / 7), linear=True, align_corners=True),
    ),
    two("choice", (1, 3, 4), (1, 3, 1), lambda x, y: Where(constant(3, 4, density=0.5), x, y)),
    one("choice of a constant", (1, 3, 4), lambda x: Where(constant(4, density=0.5), constant(3, 1), x)),
    two("choice by a mask", (1, 3, 4), (1, 3, 1), lambda x, y: Where(y, x, constant(4)), draw=whole),
    two("choice of constants by a mask", (1, 4), (1, 3, 1), lambda x, y: Where(y, constant(1), x), draw=whole),
    one("elements at places", (1, 3, 4), lambda x: Gather(x, torch.randint(12, (2, 5)))),
    one(
        "elements of a view", (1, 3, 4), lambda x: Gather(viewed(x, lambda t: t.transpose(1, 2)), torch.arange(12) // 2)
    ),
    one("softmax of what is hidden", (1, 3, 5), lambda x: Softmax(x, 2, safe=True), draw=hidden),
    *(
        two(
            f"lstm, density {density}, backward {backward}",
            (6, 20),
            (5,),
            lambda x, h, density=density, backward=backward: LstmScan(
                x, (h, constant(5)), tensor(20, 5, density=density), tensor(20), backward
            ),
        )
        for density, backward in ((0.4, False), (1.0, True))
    ),
    *(
        two(
            f"gru, density {density}, backward {backward}",
            (6, 15),
            (5,),
            lambda x, h, density=density, backward=backward: GruScan(
                x, (h,), tensor(15, 5, density=density), tensor(15), backward
            ),
        )
        for density, backward in ((0.4, True), (1.0, False))
    ),
]

POINTWISE = [
    *(
        one(
            f"function: {name}",
            (1, 3, 13),
            lambda x, name=name: Pointwise(x, (Stage(Function(name, PARAMETERS.get(name, ()))),)),
            draw=positive if name in NEEDS_POSITIVE else lambda shape: 4 * torch.randn(shape),
        )
        for name in UNARY
    ),
    *(
        two(
            f"function: {name}",
            (1, 3, 1, 5),
            (1, 4, 5),
            lambda x, y, name=name: Pointwise(x, (Stage(Function(name), y),)),
            draw=whole if name in COMPARISONS else positive,
        )
        for name in BINARY
    ),
    *(
        one(
            f"function: {name} with a constant",
            (1, 3, 5),
            lambda x, name=name: Pointwise(x, (Stage(Function(name), constant(3, 1)),)),
        )
        for name in BINARY
    ),
    *(
        one(
            f"function: {name} with a number",
            (1, 3, 5),
            lambda x, name=name: Pointwise(x, (Stage(Function(name), Constant((), torch.tensor(1.0))),)),
            draw=whole,
        )
        for name in COMPARISONS
    ),
    one(
        "several functions",
        (1, 3, 5),
        lambda x: Pointwise(
            x,
            (Stage(Function("mul"), Constant((), torch.tensor(0.5))), Stage(RELU), Stage(Function("add"), constant(5))),
        ),
    ),
]

CASES = [*CONVOLUTIONS, *OTHERS, *POINTWISE]
