"""`einsum` of two operands: a layer if one of them is a parameter, a product of two activations otherwise."""

from __future__ import annotations

import string
from typing import Any

from torch import fx

from gossamer.shrinking.analyse.domain import AbstractValue
from gossamer.shrinking.analyse.facts import Analysis
from gossamer.shrinking.analyse.rules.attention import mixes_units, product_of_values
from gossamer.shrinking.analyse.rules.products import contraction
from gossamer.shrinking.trace import caller_path, shape_of

__all__ = ["einsum"]


def einsum(analysis: Analysis, node: fx.Node) -> Any:
    """A matrix product, if one index is summed over and each operand has one index of its own."""
    equation, operands = node.args[0], node.args[1]
    if not isinstance(operands, list | tuple) or len(operands) != 2:
        return mixes_units(analysis, node)
    indices = _indices(str(equation).replace(" ", ""), [len(shape_of(n)) for n in operands])  # type: ignore[arg-type]
    if indices is None:
        return mixes_units(analysis, node)
    first, second, target = indices
    as_layer = contraction(analysis, node, operands[0], operands[1], indices)
    if as_layer is None:
        as_layer = contraction(analysis, node, operands[1], operands[0], (second, first, target))
    if as_layer is not None:
        return as_layer
    batch = [c for c in target if c in first and c in second]
    summed = [c for c in first if c in second and c not in target]
    rows, columns = [c for c in first if c not in second], [c for c in second if c not in first]
    single = all(len(part) == 1 for part in (summed, rows, columns))
    if not single or any(n in analysis.traced.states for n in operands):
        return mixes_units(analysis, node)
    left = _rearrange(analysis.value(operands[0]), first, [*batch, *rows, *summed])  # type: ignore[arg-type]
    right = _rearrange(analysis.value(operands[1]), second, [*batch, *summed, *columns])  # type: ignore[arg-type]
    result = product_of_values(analysis, caller_path(node), left, right)
    if result is None:
        return mixes_units(analysis, node)
    return _rearrange(result, "".join([*batch, *rows, *columns]), list(target))


def _indices(equation: str, ranks: list[int]) -> tuple[str, str, str] | None:
    """The indices of both operands and of the result, if none repeats within one of them.

    An ellipsis stands for the same indices in one operand and in the result.
    """
    inputs, arrow, target = equation.partition("->")
    words = inputs.split(",")
    if not arrow or len(words) != 2:
        return None
    lengths = {rank - len(word) + 3 for word, rank in zip(words, ranks, strict=True) if "..." in word}
    unused = [letter for letter in string.ascii_letters if letter not in equation]
    if len(lengths) > 1 or (target.count("...") and not lengths):
        return None
    dots = "".join(unused[: lengths.pop()]) if lengths else ""
    first, second, result = (word.replace("...", dots) for word in (*words, target))
    return (first, second, result) if all(len(set(w)) == len(w) for w in (first, second, result)) else None


def _rearrange(value: AbstractValue, indices: str, order: list[str]) -> AbstractValue:
    places = [indices.index(index) for index in order]
    return AbstractValue(*(f.permute(places) for f in (value.labels, value.constant, value.known)))
