"""Operations that only move values: they are executed on the shadows as they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, fx
from torch._ops import OpOverload

from gossamer.shrinking.analysis import Analysis
from gossamer.shrinking.labels import NEUTRAL
from gossamer.shrinking.reading import Product
from gossamer.shrinking.shadow import Shadow, settle, thin, varying

__all__ = ["PERMUTES", "VIEWS", "gather", "pad", "run_view", "view"]

aten = torch.ops.aten

PERMUTES: set[OpOverload] = {
    aten.permute.default,
    aten.transpose.int,
    aten.t.default,
    aten.movedim.int,
    aten.movedim.intlist,
    aten.swapaxes.default,
    aten.swapdims.default,
    aten.numpy_T.default,
    aten.mT.default,
}

VIEWS: set[OpOverload] = PERMUTES | {
    aten.view.default,
    aten._unsafe_view.default,
    aten.reshape.default,
    aten.flatten.using_ints,
    aten.unflatten.int,
    aten.squeeze.default,
    aten.squeeze.dim,
    aten.squeeze.dims,
    aten.unsqueeze.default,
    aten.expand.default,
    aten.expand_as.default,
    aten.slice.Tensor,
    aten.select.int,
    aten.narrow.default,
    aten.split.Tensor,
    aten.split.sizes,
    aten.split_with_sizes.default,
    aten.chunk.default,
    aten.unbind.int,
    aten.cat.default,
    aten.concat.default,
    aten.stack.default,
    aten.repeat.default,
    aten.tile.default,
    aten.repeat_interleave.self_int,
    aten.clone.default,
    aten.contiguous.default,
    aten.detach.default,
    aten.detach_.default,
    aten.alias.default,
    aten.lift_fresh_copy.default,
    aten.flip.default,
    aten.view_as.default,
    aten.reshape_as.default,
}

_AS_RESHAPE = {
    aten.view.default: aten.reshape.default,
    aten._unsafe_view.default: aten.reshape.default,
    aten.view_as.default: aten.reshape_as.default,
}
# A shadow is contiguous in other dimensions than its value, so what is a view of one may be a copy of the other.


def run_view(run: Analysis, node: fx.Node, tensors: Mapping[fx.Node, Tensor]) -> Any:
    """Execute a moving operation with these tensors in place of its inputs."""
    target: Any = node.target
    if target is aten.contiguous.default or target is aten.clone.default:
        return tensors[node.all_input_nodes[0]]

    def substitute(source: fx.Node) -> Any:
        return tensors[source] if source in tensors else run.shadows[source]

    args = fx.map_arg(node.args, substitute)
    kwargs = fx.map_arg(node.kwargs, substitute)
    return _AS_RESHAPE.get(target, target)(*args, **kwargs)


def view(run: Analysis, node: fx.Node) -> Any:
    """Run the operation on labels, constants and knowledge alike."""
    sources = [n for n in node.all_input_nodes if not isinstance(run.shadows.get(n), int)]
    shadows = {n: run.shadow(n) for n in sources}
    labels = run_view(run, node, {n: s.labels for n, s in shadows.items()})
    value = run_view(run, node, {n: s.value for n, s in shadows.items()})
    known = run_view(run, node, {n: s.known for n, s in shadows.items()})
    if node.target in PERMUTES:
        _keep_order(run, node, next(iter(shadows.values())).labels)
    if isinstance(labels, Tensor):
        return Shadow(settle(labels), settle(value), settle(known))
    parts = zip(labels, value, known, strict=True)
    return tuple(Shadow(settle(who), settle(what), settle(sure)) for who, what, sure in parts)


def _keep_order(run: Analysis, node: fx.Node, labels: Tensor) -> None:
    """Survivors may differ from row to row only while rows stay rows: if the order changes, ask for a product."""
    dims = varying(labels)
    if len(dims) < 2:
        return
    places = torch.empty(()).expand([d + 2 for d in range(labels.dim())])
    moved = run_view(run, node, {node.all_input_nodes[0]: places})
    after = [int(size) - 2 for size in moved.shape]
    if [d for d in after if d in dims] != list(dims):
        run.products.append(Product(labels, "units are interleaved, so the same ones must go from each part"))


def pad(run: Analysis, node: fx.Node) -> Shadow:
    """Padding in space keeps the units; padding among the units adds positions that belong to none."""
    source = run.shadow(node.all_input_nodes[0])
    named = run.arguments(node)
    amounts = run.number(named["pad"])
    padded = [source.labels.dim() - 1 - i // 2 for i, amount in enumerate(amounts) if amount != 0]
    shape = run.shape(node)
    if any(dim in varying(source.labels) for dim in padded):
        if node.target is not aten.constant_pad_nd.default and named.get("mode", "constant") != "constant":
            return run.opaque(node, "padded among its units")  # type: ignore[no-any-return]
        labels = torch.constant_pad_nd(source.labels, amounts, NEUTRAL)
    else:
        labels = source.labels
        for dim in padded:
            labels = labels.narrow(dim, 0, 1)
        labels = labels.expand(shape)
    if not bool(thin(source.known)[0].any()):
        return Shadow(labels, source.value.new_zeros(()).expand(shape), torch.tensor(False).expand(shape))
    target: Any = node.target
    others = tuple(run.number(node.args[1:])), run.number(node.kwargs)
    value = target(source.value, *others[0], **others[1])
    doubt = target((~source.known).to(source.value.dtype), *_without_value(node, others[0]), **{})
    return Shadow(labels, settle(value), settle(doubt == 0))


def _without_value(node: fx.Node, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments of a padding operation without the number that it fills in (padding is always known)."""
    return args[:1] if node.target is aten.constant_pad_nd.default else args[:2]


def gather(run: Analysis, node: fx.Node) -> Any:
    """`x[index]` with fixed integers: positions are looked up, so the units along that dimension stay together."""
    source_node, indices = node.args[0], node.args[1]
    assert isinstance(source_node, fx.Node)
    assert isinstance(indices, tuple | list)
    fixed = [None if i is None else _fixed(run, i) for i in indices]
    if any(i is not None and f is None for i, f in zip(indices, fixed, strict=True)):
        return run.opaque(node, "looked up by an index that is computed")
    source = run.shadow(source_node)
    for dim, index in enumerate(fixed):
        if index is not None:
            run.labels.tie(source.labels, source.labels.narrow(dim, 0, 1))
    target: Any = node.target
    fields = (source.labels, source.value, source.known)
    return Shadow(*(settle(target(f, fixed)) for f in fields))


def _fixed(run: Analysis, node: Any) -> Tensor | None:
    """An index that does not depend on the input."""
    own = run.value_of(node)
    if own is not None:
        return own
    shadow = run.shadow(node)
    return shadow.value if bool(shadow.known.all()) and not shadow.labelled else None
