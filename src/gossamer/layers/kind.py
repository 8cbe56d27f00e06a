"""One kind of layer: what is known about a class of layers, as data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from types import SimpleNamespace
from typing import Literal, TypeAlias, get_args

from torch import Tensor, nn

from gossamer.errors import GossamerError
from gossamer.layers.layout import Axis, Layout

__all__ = ["LayerKind", "Shape", "Shapes", "no_tensors", "require_complete"]

Shape: TypeAlias = tuple[int, ...]
Shapes: TypeAlias = Callable[[SimpleNamespace], Mapping[str, Shape]]


def no_tensors(a: SimpleNamespace) -> dict[str, Shape]:
    """The `shapes` of layers whose tensors are not checked."""
    del a
    return {}


@dataclass(frozen=True)
class LayerKind:
    """One kind of layer.

    Attributes:
        layers: The classes of this kind; their subclasses count too. A class of a package that is not imported here
            is given by its full name, `"package.module.Class"`.
        shapes: From the attributes to the shape of every tensor that the layer may have; checked for layers of torch.
        axes: The axes of each weight in the order in which it is stored, by its name or a pattern of names. Empty for
            layers without weights in our sense: biases, normalisation scales and slopes are not regularized.
        inputs: The attribute that holds the number of input units.
        outputs: The attribute that holds the number of output units.
        parts: The attribute that holds the number of blocks, groups or heads.
        gates: Gates of a recurrent layer, which share their hidden unit; they are stacked in the first dimension.
        candidate: Which of the gates computes the new value of the hidden unit: where it is zero, a unit that starts at
            zero stays zero.
        other_sizes: Further attributes that change with the size of the layer.
        divisible: Pairs (size, parts) of attributes: the size is split into so many equal parts.
        uses: A call uses each weight once for each position of the layer's `"output"` or `"input"`: its elements over
            its units. None where the layer multiplies nothing (an embedding) or uses its weights at different rates
            (attention).
        takes_bias: Whether a layer that was built without a bias can be given one.
    """

    layers: tuple[type[nn.Module] | str, ...]
    shapes: Shapes = no_tensors
    axes: Mapping[str, tuple[Axis, ...]] = field(default_factory=dict)
    inputs: str | None = None
    outputs: str | None = None
    parts: str | None = None
    gates: int = 1
    candidate: int = 0
    other_sizes: tuple[str, ...] = ()
    divisible: tuple[tuple[str, str], ...] = ()
    uses: Literal["input", "output"] | None = "output"
    takes_bias: bool = False

    @property
    def sizes(self) -> tuple[str, ...]:
        """The attributes that change when the layer gets smaller."""
        named = (self.inputs, self.outputs, self.parts)
        return (*(name for name in named if name is not None), *self.other_sizes)

    def includes(self, module: nn.Module) -> bool:
        """Whether the class of the module, or a base class of it, is of this kind."""
        return any(
            name in (f"{base.__module__}.{base.__qualname__}" for base in type(module).__mro__)
            if isinstance(name, str)
            else isinstance(module, name)
            for name in self.layers
        )

    def weights(self, module: nn.Module) -> Iterator[tuple[str, Tensor, tuple[Axis, ...]]]:
        """The weights that a layer of this kind has: name, tensor, axes."""
        for pattern, axes in self.axes.items():
            names = [name for name in module._parameters if fnmatch(name, pattern)] if "*" in pattern else [pattern]
            for name in names:
                path, _, attribute = name.rpartition(".")
                try:
                    weight = getattr(module.get_submodule(path), attribute)
                except AttributeError as error:
                    raise GossamerError(
                        f"`axes` of the kind of {type(module).__name__} names {name!r}, which the layer does not "
                        "have. Name its weights as they are called in the layer."
                    ) from error
                if weight is not None:
                    yield name, weight, axes

    def layout(self, module: nn.Module, name: str, weight: Tensor, axes: tuple[Axis, ...]) -> Layout:
        """The axes of a weight with their sizes."""
        parts = {"block": getattr(module, self.parts) if self.parts else 1, "gate": self.gates}.get(axes[0], 1)
        shape = tuple(weight.shape)
        dimensions = len(axes) - (axes[0] in ("block", "gate"))
        if len(shape) < dimensions or (len(shape) > dimensions and axes[-1] != "tap") or shape[0] % parts:
            raise GossamerError(
                f"`{name}` of a {type(module).__name__} has the shape {shape}, which its axes "
                f"{', '.join(axes)} do not describe. Register the kind with the axes in the order of the dimensions."
            )
        return Layout.split(axes, shape, parts)


def require_complete(kind: LayerKind) -> None:
    """Raise `GossamerError` unless the kind can be registered: it names its layers, their weights and the axes."""
    if not (kind.layers and kind.axes):
        raise GossamerError(f"A layer kind needs `layers` and the `axes` of their weights; received {kind!r}.")
    for name, axes in kind.axes.items():
        if not {"in", "out"} <= set(axes) <= set(get_args(Axis)) or len(set(axes)) < len(axes):
            raise GossamerError(
                f"`axes[{name!r}]` must order 'in' and 'out', and the others of {', '.join(get_args(Axis))} that the "
                f"weight has; received {axes!r}."
            )
        if set(axes[1:]) & {"block", "gate"} or "tap" in axes[:-1]:
            raise GossamerError(
                f"`axes[{name!r}]`: 'block' and 'gate' are stacked in the first dimension, 'tap' stands for all last "
                f"dimensions; received {axes!r}."
            )
        if "block" in axes and kind.parts is None:
            raise GossamerError(f"`axes[{name!r}]` has blocks: name the attribute that holds their number as `parts`.")
