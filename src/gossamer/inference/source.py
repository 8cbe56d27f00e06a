"""C text: indented lines, loop nests over strided tensors, literals."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

__all__ = ["Code", "index", "literal", "nest"]


class Code:
    """Lines of C under construction."""

    def __init__(self, depth: int = 1) -> None:
        self._lines: list[str] = []
        self._depth = depth

    def add(self, *lines: str) -> None:
        """Append lines at the present depth."""
        self._lines.extend("    " * self._depth + line for line in lines)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """A statement with a body in braces."""
        self.add(f"{head} {{" if head else "{")
        self._depth += 1
        yield
        self._depth -= 1
        self.add("}")

    @contextmanager
    def loop(self, name: str, count: int | str, step: int = 1) -> Iterator[None]:
        """`for` over 0, step, 2 step, ... below `count`."""
        advance = f"{name}++" if step == 1 else f"{name} += {step}"
        with self.block(f"for (int {name} = 0; {name} < {count}; {advance})"):
            yield

    def __str__(self) -> str:
        return "\n".join(self._lines)


def literal(value: float) -> str:
    """A float32 constant that reads back as the same number."""
    if math.isnan(value):
        return "NAN"
    if math.isinf(value):
        return "INFINITY" if value > 0 else "-INFINITY"
    text = f"{value:.9g}"
    return f"{text}f" if any(mark in text for mark in ".e") else f"{text}.0f"


def index(names: Sequence[str], strides: Sequence[int], first: int = 0) -> str:
    """`first + names[0] * strides[0] + ...` as C, without what is zero."""
    terms = [
        name if stride == 1 else f"{name} * {stride}"
        for name, stride in zip(names, strides, strict=True)
        if stride != 0 and name != "0"
    ]
    if first or not terms:
        terms.append(str(first))
    return " + ".join(terms)


@contextmanager
def nest(
    code: Code, shape: Sequence[int], strides: Sequence[Sequence[int]], prefix: str = "i"
) -> Iterator[tuple[str, ...]]:
    """Loops over all elements of `shape`; yields for each operand, given by its strides, the index of the element.

    Dimensions that lie behind each other in every operand become one loop.
    """
    merged, merged_strides = _merge(shape, strides)
    names = [f"{prefix}{number}" for number in range(len(merged))]
    open_blocks = []
    for name, size in zip(names, merged, strict=True):
        block = code.loop(name, size)
        block.__enter__()
        open_blocks.append(block)
    yield tuple(index(names, operand) for operand in merged_strides)
    for block in reversed(open_blocks):
        block.__exit__(None, None, None)


def _merge(shape: Sequence[int], strides: Sequence[Sequence[int]]) -> tuple[list[int], list[list[int]]]:
    sizes: list[int] = []
    merged: list[list[int]] = [[] for _ in strides]
    for dimension, size in enumerate(shape):
        if size == 1:
            continue
        steps = [operand[dimension] for operand in strides]
        if sizes and all(own[-1] == step * size for own, step in zip(merged, steps, strict=True)):
            sizes[-1] *= size
            for own, step in zip(merged, steps, strict=True):
                own[-1] = step
        else:
            sizes.append(size)
            for own, step in zip(merged, steps, strict=True):
                own.append(step)
    return sizes, merged
