"""Products of two activations, and scaled-dot-product attention as two of them.

`scores = q @ k.T` sums over the dimension of a head: there q_d and k_d go together, and a pair with a known zero on
either side may go. `scores @ v` sums over positions: the units of the result are those of v. What is left over
between the two is a unit for each head, which lives while one of its v-dimensions does.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx

from gossamer.layers.attention import is_compactable
from gossamer.shrinking.analysis import Analysis
from gossamer.shrinking.reading import Reads, Uniform
from gossamer.shrinking.rules.layers import matrix_product
from gossamer.shrinking.rules.pointwise import meet
from gossamer.shrinking.shadow import Shadow, as_matrix, settle, thin, unknown, varying

__all__ = ["einsum", "matmul", "scaled_dot_product_attention"]

aten = torch.ops.aten
_HEADS = "heads must stay equally wide"


def matmul(run: Analysis, node: fx.Node) -> Any:
    """With a parameter on the right it is a layer; else a product of two activations."""
    as_layer = matrix_product(run, node)
    if as_layer is not None:
        return as_layer
    if node.target is aten.addmm.default:
        return run.opaque(node, f"{node.target} is not understood")
    sides = [run.shadow(n) for n in node.all_input_nodes]
    result = _product(run, *sides) if len(sides) == 2 else None
    return run.opaque(node, f"{node.target} mixes its units") if result is None else result


def einsum(run: Analysis, node: fx.Node) -> Any:
    """A product of two activations in disguise, if one letter is summed over and each side has one of its own."""
    equation, operands = node.args[0], node.args[1]
    letters = _letters(str(equation).replace(" ", ""))
    if letters is None or not isinstance(operands, list | tuple) or len(operands) != 2:
        return run.opaque(node, f"{node.target} mixes its units")
    first, second, target = letters
    batch = [c for c in target if c in first and c in second]
    summed = [c for c in first if c in second and c not in target]
    mine, yours = [c for c in first if c not in second], [c for c in second if c not in first]
    if any(len(part) != 1 for part in (summed, mine, yours)) or any(n in run.traced.states for n in operands):
        return run.opaque(node, f"{node.target} mixes its units")
    left = _rearrange(run.shadow(operands[0]), first, [*batch, *mine, *summed])  # type: ignore[arg-type]
    right = _rearrange(run.shadow(operands[1]), second, [*batch, *summed, *yours])  # type: ignore[arg-type]
    result = _product(run, left, right)
    if result is None:
        return run.opaque(node, f"{node.target} mixes its units")
    return _rearrange(result, "".join([*batch, *mine, *yours]), list(target))


def _letters(equation: str) -> tuple[str, str, str] | None:
    """The three words of an equation in which no letter repeats within a word."""
    inputs, arrow, target = equation.partition("->")
    words = (*inputs.split(","), target)
    if not arrow or len(words) != 3 or "." in equation or any(len(set(w)) != len(w) for w in words):
        return None
    return words[0], words[1], words[2]


def _rearrange(shadow: Shadow, letters: str, order: list[str]) -> Shadow:
    places = [letters.index(letter) for letter in order]
    return Shadow(*(f.permute(places) for f in (shadow.labels, shadow.value, shadow.known)))


def scaled_dot_product_attention(run: Analysis, node: fx.Node) -> Any:
    """Two products with a mask between them."""
    named = run.arguments(node)
    query, key, value = (run.shadow(named[part]) for part in ("query", "key", "value"))
    heads = query.shape[-3] if query.labels.dim() > 3 else 1
    shared = key.shape[-3] if key.labels.dim() > 3 else 1
    if named["enable_gqa"] and heads != shared:
        key, value = (_repeat_heads(s, heads // shared) for s in (key, value))
    scores = _product(run, query, _transpose(key))
    if scores is not None and named["attn_mask"] is not None:
        mask = run.shadow(named["attn_mask"])
        scores = unknown(meet(run, node, [scores, mask], tuple(scores.shape)))
    result = None if scores is None else _product(run, scores, value)
    if result is None or scores is None:
        return run.opaque(node, f"{node.target} mixes its units")
    if named["enable_gqa"] and heads != shared:
        _keep_sharing(run, scores, shared)
    if named["scale"] is None and not run.rewrites_graph and not is_compactable(run.calling_module(node)):
        # the scale is one over the root of the width of a head, which therefore must not change
        wide = query.labels
        run.labels.tie(wide, wide.narrow(-1, 0, 1))
    return result


def _repeat_heads(shadow: Shadow, times: int) -> Shadow:
    fields = (shadow.labels, shadow.value, shadow.known)
    return Shadow(*(settle(f.repeat_interleave(times, dim=-3)) for f in fields))


def _keep_sharing(run: Analysis, scores: Shadow, shared: int) -> None:
    """Each key head keeps equally many query heads."""
    heads = scores.labels[(0,) * (scores.labels.dim() - 3)][:, 0, 0].view(shared, -1)
    run.uniforms.append(Uniform((heads,), "each key head must serve equally many query heads"))


def _transpose(shadow: Shadow) -> Shadow:
    return Shadow(*(f.transpose(-1, -2) for f in (shadow.labels, shadow.value, shadow.known)))


def _zeros(shadow: Shadow, dim: int, rows: list[int]) -> Tensor:
    """Which units along `dim` are zero wherever they occur, as rows by units."""
    zero = (shadow.known & (shadow.value == 0)).expand(shadow.shape)
    for other in range(zero.dim()):
        if other not in (*rows, dim):
            zero = zero.all(other, keepdim=True)
    return as_matrix(zero, rows, [dim])


def _product(run: Analysis, left: Shadow, right: Shadow) -> Shadow | None:
    """`left @ right`; None when the units lie so that this is not understood."""
    rank = left.labels.dim()
    if rank != right.labels.dim() or rank < 2 or left.shape[:-2] != right.shape[:-2]:
        return unknown(_no_labels(_shape(left, right))) if not (left.labelled or right.labelled) else None
    moves = (varying(left.labels), varying(right.labels))
    rows = sorted({d for dims in moves for d in dims if d < rank - 2})
    inner = (rank - 1 in moves[0] and left.labelled, rank - 2 in moves[1] and right.labelled)
    outer = (rank - 2 in moves[0], rank - 1 in moves[1])
    if all(inner) and not any(outer):
        return _over_units(run, left, right, rows)
    if any(inner) or all(outer):
        return None
    return _over_positions(run, (left, right), rows, outer)


def _shape(left: Shadow, right: Shadow) -> tuple[int, ...]:
    batch = torch.broadcast_shapes(left.shape[:-2], right.shape[:-2])  # type: ignore[no-untyped-call]
    return (*batch, left.shape[-2], right.shape[-1])


def _no_labels(shape: tuple[int, ...]) -> Tensor:
    return torch.zeros((), dtype=torch.long).expand(shape)


def _over_units(run: Analysis, left: Shadow, right: Shadow, rows: list[int]) -> Shadow:
    """The units of a head are summed over: left and right go together, a head is what remains."""
    shape, rank = _shape(left, right), left.labels.dim()
    ours = as_matrix(left.labels, rows, [rank - 1])
    theirs = as_matrix(right.labels, rows, [rank - 2])
    run.labels.tie(ours, theirs)
    if run.whole_heads:
        run.labels.tie(ours, ours[:, :1])
    spared = _zeros(left, rank - 1, rows) | _zeros(right, rank - 2, rows)
    heads = torch.zeros(1, 1, dtype=torch.long)
    labels = _no_labels(shape)
    if rows:
        labels = _heads(run, ours, rows, shape)
        heads = as_matrix(labels, rows, [rank - 1])[:, :1]
        run.uniforms.append(Uniform((ours, theirs, heads), _HEADS))
    everything = torch.ones(ours.size(0), 1, ours.size(1), dtype=torch.bool)
    run.reads.append(Reads(heads, ours, everything, spared))
    return unknown(labels, left.value.dtype)


def _heads(run: Analysis, units: Tensor, rows: list[int], shape: tuple[int, ...]) -> Tensor:
    """A new unit for each distinct row of labels (heads recur when the batch is folded into them)."""
    _, which = torch.unique(units, dim=0, return_inverse=True)
    fresh = run.labels.fresh(int(which.max()) + 1)[which]
    sizes = [shape[d] if d in rows else 1 for d in range(len(shape))]
    return settle(fresh.view(sizes).expand(shape))


def _over_positions(
    run: Analysis, sides: tuple[Shadow, Shadow], rows: list[int], outer: tuple[bool, bool]
) -> Shadow | None:
    """Positions are summed over: the units of the result are those that lie across, or the heads alone."""
    shape, rank = _shape(*sides), sides[0].labels.dim()
    across, along = sides if outer[0] else (sides[1], sides[0])
    dim = rank - 2 if outer[0] else rank - 1
    fine = as_matrix(across.labels, rows, [dim])
    coarse = as_matrix(along.labels, rows, [dim])[:, :1]
    if rows and (bool((fine == 0).any()) != bool((coarse == 0).any())):
        return None
    if rows and run.whole_heads:
        run.labels.tie(fine, fine[:, :1])
    if any(outer) and rows:
        run.uniforms.append(Uniform((fine, coarse), _HEADS))
        everything = torch.ones(fine.size(0), fine.size(1), 1, dtype=torch.bool)
        run.reads.append(Reads(fine, coarse, everything, torch.zeros_like(coarse, dtype=torch.bool)))
    elif rows:
        run.labels.tie(fine[:, :1], coarse)
    inner = -1 if outer[0] else -2
    labels = settle(across.labels.narrow(inner, 0, 1).expand(shape))
    zero = across.known & (across.value == 0)
    known = thin(zero.all(inner, keepdim=True))[0].expand(shape)
    return Shadow(labels, torch.zeros((), dtype=across.value.dtype).expand(shape), settle(known))
