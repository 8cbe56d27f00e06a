"""Whether the sizes that a layer of torch.nn has as attributes go with the shapes of its tensors."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import TypeAlias

from torch import nn

from gossamer.errors import GossamerError
from gossamer.layers import CompactMultiheadAttention, LayerKind, kind_of
from gossamer.layers.kind import Shape

__all__ = ["Shape", "Size", "check_layer", "is_torch_layer", "size_attributes", "torch_kind"]

Size: TypeAlias = int | tuple[int, ...]


def is_torch_layer(module: nn.Module) -> bool:
    """Whether the class of `module` is torch's own, or ours: then we know what its attributes mean."""
    return type(module).__module__.startswith("torch.") or type(module) is CompactMultiheadAttention


def torch_kind(module: nn.Module) -> LayerKind | None:
    """The kind of a layer of torch.nn; None for layers without sizes and for classes of the user's own."""
    return kind_of(module) if is_torch_layer(module) else None


def size_attributes(module: nn.Module) -> tuple[str, ...]:
    """The attributes that change with the size of a layer of torch, or of a subclass of one; none of other modules."""
    kind = kind_of(module)
    return kind.sizes if kind else ()


def check_layer(path: str, module: nn.Module, sizes: Mapping[str, Size], shapes: Mapping[str, Shape]) -> None:
    """Check that the layer at `path`, with the attributes `sizes`, can have the tensors of the network's `shapes`."""
    kind = torch_kind(module)
    if kind is None:
        return
    attributes = SimpleNamespace(**{**vars(module), **sizes})
    for whole, parts in kind.divisible:
        _check_division(path, whole, getattr(attributes, whole), parts, getattr(attributes, parts))
    for name, expected in kind.shapes(attributes).items():
        full_name = f"{path}.{name}" if path else name
        shape = shapes.get(full_name)
        if shape is not None and shape != tuple(expected):
            said = ", ".join(f"{size}={getattr(attributes, size)}" for size in kind.sizes)
            raise GossamerError(
                f"{full_name!r} has the shape {shape}, but a {type(module).__name__} with {said} "
                f"needs {tuple(expected)}. "
                "Set the attributes to the true sizes and save again."
            )


def _check_division(path: str, whole: str, total: int, parts: str, count: int) -> None:
    if count < 1 or total % count:
        raise GossamerError(
            f"{path!r} has {whole}={total} and {parts}={count}, which does not divide it. "
            "Set the attributes to the true sizes and save again."
        )
