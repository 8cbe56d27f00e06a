"""The inner loops of a layer: for each output channel, walk its non-zeros once while a tile of sums is in registers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from gossamer.inference.ctext import Code
from gossamer.inference.kernel import C_TYPES, Array, Kernel
from gossamer.inference.operations.convolution.tables import Table

__all__ = ["Walk", "tile_loop"]

# A multiply-add takes about four cycles, and one that adds to the same sum waits for it: so many sums at least.
_INDEPENDENT = 4


@dataclass(frozen=True)
class Walk:
    """One pass over all output channels for a tile of outputs.

    Attributes:
        kernel: The function under construction.
        table: The non-zeros.
        bias: Of each output channel.
        reads: Where the input of each sum lies, relative to that of the first.
        kind: The C type of a sum, "float" or "V".
        load: The C expression that reads the input at a pointer expression.
        block_step: Elements between the blocks of input channels.
    """

    kernel: Kernel
    table: Table
    bias: Array
    reads: Sequence[int]
    kind: str
    load: Callable[[str], str]
    block_step: int = 0

    @property
    def sums(self) -> list[str]:
        """The variables with the sums."""
        return [f"s{number}" for number in range(len(self.reads))]

    def write(self, finish: Callable[[], None]) -> None:
        """Write the loops. `base` is the input of the first sum; `finish` uses the sums of output channel `o`."""
        code, table = self.kernel.code, self.table
        arrays = _Arrays.of(self.kernel, table, self.bias)
        code.add(f"const float *v = {arrays.values};")
        code.add(f"const {_c_type(table.offsets)} *at = {arrays.offsets};")
        code.add(f"const {_c_type(table.counts)} *count = {arrays.counts};")
        if table.blocks == 1:
            self._channels(arrays, finish)
            return
        partial = self.kernel.scratch(len(self.bias) * len(self.reads) * (self.kernel.target.vector))
        code.add(f"{self.kind} *partial = ({self.kind} *){partial};")
        with code.block(f"for (int block = 0; block < {table.blocks}; block++, base += {self.block_step})"):
            self._channels(arrays, finish)
            if table.is_dense:
                code.add("at += *count++;")

    def _channels(self, arrays: _Arrays, finish: Callable[[], None]) -> None:
        code, blocks, sums = self.kernel.code, self.table.blocks, self.sums
        with code.loop("o", len(self.bias)):
            first = self._splat(f"{arrays.bias}[o]" if arrays.bias else "0.0f")
            code.add(f"{self.kind} {', '.join(f'{name} = {first}' for name in sums)};")
            if blocks > 1:
                with code.block("if (block)"):
                    for number, name in enumerate(sums):
                        code.add(f"{name} = partial[o * {len(sums)} + {number}];")
            self._taps(arrays)
            if blocks > 1:
                with code.block(f"if (block < {blocks - 1})"):
                    for number, name in enumerate(sums):
                        code.add(f"partial[o * {len(sums)} + {number}] = {name};")
                    code.add("continue;")
            finish()

    def _taps(self, arrays: _Arrays) -> None:
        """All non-zeros of an output channel."""
        code, copies, dense = self.kernel.code, self._copies(), self.table.is_dense
        base, places = "base", "at"
        if arrays.starts:
            base = "own"
            code.add(f"const {self.kernel.target.element} *own = base + {arrays.starts}[o];")
        if dense:
            places = "place"
            code.add(f"const {_c_type(self.table.offsets)} *place = at;")
        code.add(f"int k = (int){'*count' if dense else '*count++'};")
        zero = self._splat("0.0f")
        for copy in range(1, copies):
            code.add(f"{self.kind} {', '.join(f'{name}_{copy} = {zero}' for name in self.sums)};")
        if copies > 1:
            with code.block(f"for (; k >= {copies}; k -= {copies}, v += {copies}, {places} += {copies})"):
                for copy in range(copies):
                    with code.block(""):
                        self._tap(base, places, copy)
        with code.block(f"for (; k > 0; k--, v++, {places}++)"):
            self._tap(base, places, 0)
        for copy in range(1, copies):
            code.add(*(f"{name} += {name}_{copy};" for name in self.sums))

    def _tap(self, base: str, places: str, copy: int) -> None:
        """One non-zero: its weight times the input of each sum."""
        code = self.kernel.code
        code.add(f"const {self.kind} w = {self._splat(f'v[{copy}]')};")
        code.add(f"const {self.kernel.target.element} *p = {base} + {places}[{copy}];")
        if self.kernel.target.fast:
            code.add("PIN(p);")
        suffix = f"_{copy}" if copy else ""
        for name, offset in zip(self.sums, self.reads, strict=True):
            code.add(f"{name}{suffix} += w * {self.load(f'p + {offset}' if offset else 'p')};")

    def _copies(self) -> int:
        """How many non-zeros are added to sums of their own, so that enough sums are independent."""
        return max(1, _INDEPENDENT // len(self.reads)) if self.kernel.target.fast else 1

    def _splat(self, number: str) -> str:
        return number if self.kind == "float" else f"v_splat({number})"


@dataclass(frozen=True)
class _Arrays:
    """The parameters that point to the arrays of a table; "" where there is none."""

    values: str
    offsets: str
    counts: str
    starts: str
    bias: str

    @classmethod
    def of(cls, kernel: Kernel, table: Table, bias: Array) -> _Arrays:
        return cls(
            kernel.constant(table.values),
            kernel.constant(table.offsets),
            kernel.constant(table.counts),
            kernel.constant(table.starts) if table.starts is not None else "",
            kernel.constant(bias) if np.any(bias) else "",
        )


def _c_type(array: Array) -> str:
    return C_TYPES[str(array.dtype)]


@contextmanager
def tile_loop(code: Code, name: str, size: int, tile: int) -> Iterator[None]:
    """A loop over tiles; `name` is the first place of each. The last one overlaps where the size does not divide."""
    if size % tile == 0:
        with code.loop(name, size, tile):
            yield
        return
    with code.loop(f"{name}_tile", size, tile):
        code.add(f"const int {name} = {name}_tile < {size - tile} ? {name}_tile : {size - tile};")
        yield
