"""The inner loops of a layer: each output channel reads its non-zeros once, while a tile of sums is in registers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from gossamer.inference.kernel import C_TYPES, Array, Kernel
from gossamer.inference.operations.convolution.sparse_weight import SparseWeight
from gossamer.inference.source import Code

__all__ = ["InnerLoop", "tile_loop"]

# A multiply-add takes about four cycles, and one that adds to the same sum waits for it: so many sums at least.
_INDEPENDENT = 4


class InnerLoop:
    """One pass over all output channels for a tile of outputs.

    Args:
        kernel: The function under construction.
        weight: The non-zeros.
        bias: Of each output channel.
        reads: Where the input of each sum lies, relative to that of the first.
        kind: The C type of a sum.
        splat: The C expression that turns a number into a sum.
        load: The C expression that reads the input at a pointer expression.
    """

    def __init__(
        self,
        kernel: Kernel,
        weight: SparseWeight,
        bias: Array,
        reads: Sequence[int],
        kind: str,
        splat: Callable[[str], str],
        load: Callable[[str], str],
    ) -> None:
        self.kernel, self.weight, self.reads = kernel, weight, reads
        self.outputs = len(bias)
        self.output = "o" if weight.rows is None else "row"  # the variable with the number of the output channel
        self.sums = [f"s{number}" for number in range(len(reads))]
        self.kind, self.splat, self.load = kind, splat, load
        self._values = kernel.constant(weight.values)
        self._offsets = kernel.constant(weight.offsets)
        self._counts = kernel.constant(weight.counts)
        self._inputs = kernel.constant(weight.inputs) if weight.inputs is not None else ""
        self._rows = kernel.constant(weight.rows) if weight.rows is not None else ""
        ordered = bias if weight.rows is None else bias[weight.rows]
        self._bias = kernel.constant(ordered) if np.any(bias) else ""
        self._starts = [kernel.constant(starts) for starts in weight.block_starts] if weight.blocks > 1 else []

    def write(self, finish: Callable[[], None], partial: str = "", meanwhile: Sequence[str] = ()) -> None:
        """Write the loops.

        `base` points to the input of the first sum in this block, `block` is the number of the block if there are
        several, and `partial` the C expression for the address of the sums of the `o`-th list between two blocks.
        `finish` writes what is done with the sums of the output channel `self.output`. `meanwhile` are lines that are
        executed once for each list.
        """
        code, weight = self.kernel.code, self.weight
        from_value, from_offset = (f" + {starts}[block]" for starts in self._starts) if self._starts else ("", "")
        per_block = 1 if weight.is_dense else self.outputs
        from_count = f" + block * {per_block}" if self._starts else ""
        code.add(f"const float *v = {self._values}{from_value};")
        code.add(f"const {_c_type(weight.offsets)} *at = {self._offsets}{from_offset};")
        code.add(f"const {_c_type(weight.counts)} *count = {self._counts}{from_count};")
        with code.loop("o", self.outputs):
            code.add(*meanwhile)
            first = self.splat(f"{self._bias}[o]" if self._bias else "0.0f")
            code.add(f"{self.kind} {', '.join(f'{name} = {first}' for name in self.sums)};")
            if partial:
                code.add(f"{self.kind} *kept = {partial};")
                with code.block("if (block)"):
                    code.add(*(f"{name} = kept[{number}];" for number, name in enumerate(self.sums)))
            self._taps()
            if partial:
                with code.block(f"if (block < {weight.blocks - 1})"):
                    code.add(*(f"kept[{number}] = {name};" for number, name in enumerate(self.sums)))
                    code.add("continue;")
            if self._rows:
                code.add(f"const int row = (int){self._rows}[o];")
            finish()

    def _taps(self) -> None:
        """All non-zeros of an output channel."""
        code, copies, dense = self.kernel.code, self._copies(), self.weight.is_dense
        base, offsets = "base", "at"
        if self._inputs:
            base = "own"
            code.add(f"const {self.kernel.target.element} *own = base + {self._inputs}[o];")
        if dense:
            offsets = "offset"
            code.add(f"const {_c_type(self.weight.offsets)} *offset = at;")
        code.add(f"int k = (int)*count{'' if dense else '++'};")
        zero = self.splat("0.0f")
        for copy in range(1, copies):
            code.add(f"{self.kind} {', '.join(f'{name}_{copy} = {zero}' for name in self.sums)};")
        if copies > 1:
            with code.block(f"for (; k >= {copies}; k -= {copies}, v += {copies}, {offsets} += {copies})"):
                for copy in range(copies):
                    with code.block(""):
                        self._tap(base, offsets, copy)
        with code.block(f"for (; k > 0; k--, v++, {offsets}++)"):
            self._tap(base, offsets, 0)
        for copy in range(1, copies):
            code.add(*(f"{name} += {name}_{copy};" for name in self.sums))

    def _tap(self, base: str, offsets: str, copy: int) -> None:
        """One non-zero: its weight times the input of each sum."""
        code = self.kernel.code
        code.add(f"const {self.kind} w = {self.splat(f'v[{copy}]')};")
        code.add(f"const {self.kernel.target.element} *p = {base} + {offsets}[{copy}];")
        if self.kernel.target.fast:
            code.add("PIN(p);")
        suffix = f"_{copy}" if copy else ""
        for name, offset in zip(self.sums, self.reads, strict=True):
            code.add(f"{name}{suffix} += w * {self.load(f'p + {offset}' if offset else 'p')};")

    def _copies(self) -> int:
        """How many non-zeros are added to sums of their own, so that enough sums are independent."""
        return max(1, _INDEPENDENT // len(self.reads)) if self.kernel.target.fast else 1


def _c_type(array: Array) -> str:
    return C_TYPES[str(array.dtype)]


@contextmanager
def tile_loop(code: Code, name: str, size: int, tile: int) -> Iterator[tuple[str, str]]:
    """A loop over tiles; yields the C expressions for the first position of a tile and for its number.

    Where the size does not divide, the last tile overlaps the one before.
    """
    tiles = -(-size // tile)
    if tiles == 1:
        yield "0", "0"
        return
    with code.loop(f"{name}_tile", tiles):
        start = f"{name}_tile * {tile}"
        if size % tile:
            start = f"{name}_tile < {tiles - 1} ? {start} : {size - tile}"
        code.add(f"const int {name} = {start};")
        yield name, f"{name}_tile"
