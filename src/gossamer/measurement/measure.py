"""Counts of a network, layer by layer: weights, units, MACs.

Zero means == 0.0. Biases are not counted. For each weight tensor, with n MACs on the example:

    units         output units; alive if any ingoing weight is non-zero
    macs          n: all weights, zero or not
    macs_nonzero  n * (non-zero weights / weights)
    macs_compact  n * (size of the weight without its zero rows and columns / weights); with `removal`, the MACs of the
                  network that `shrink` returns
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, get_args

import torch
import torch.distributed as dist
from torch import Tensor, nn

from gossamer.errors import GossamerError
from gossamer.example import Example
from gossamer.layers import (
    Convention,
    Layout,
    Weight,
    find_weights,
    multiply_adds,
    nonzero_mask,
    original_module,
    require_supported,
)
from gossamer.shrinking import shrink

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

__all__ = ["LayerMeasurement", "Measurement", "compact_part", "measure"]


@dataclass(frozen=True)
class LayerMeasurement:
    """The counts of one weight."""

    name: str
    weights: int
    nonzeros: int
    units: int
    units_alive: int
    macs: int
    macs_nonzero: int
    macs_compact: int


@dataclass(frozen=True)
class Measurement:
    """Counts of every weight of a model, in order of execution, and in total. Prints as a table."""

    layers: tuple[LayerMeasurement, ...]
    convention: Convention = "true"
    removal: bool = False

    @property
    def total(self) -> LayerMeasurement:
        """All layers together."""
        counts = [asdict(layer) for layer in self.layers]
        return LayerMeasurement("total", **{key: sum(c[key] for c in counts) for key in counts[0] if key != "name"})

    @property
    def params_kept(self) -> float:
        """Non-zero weights over all weights."""
        return _ratio(self.total.nonzeros, self.total.weights)

    @property
    def flops_kept(self) -> float:
        """MACs with non-zero weights over all MACs."""
        return _ratio(self.total.macs_nonzero, self.total.macs)

    @property
    def flops_kept_compact(self) -> float:
        """`macs_compact` over all MACs: what dense kernels compute after structured removal."""
        return _ratio(self.total.macs_compact, self.total.macs)

    def against(self, full: Measurement) -> Measurement:
        """These counts relative to the network `full`, from which units were removed: removed weights are not kept."""
        whole = {layer.name: layer for layer in full.layers}
        layers = (
            replace(
                layer, weights=whole[layer.name].weights, units=whole[layer.name].units, macs=whole[layer.name].macs
            )
            for layer in self.layers
        )
        return replace(self, layers=tuple(layers))

    def with_removal(self, small: Measurement) -> Measurement:
        """The same counts with the MACs of the shrunk network, measured as `small`, as `macs_compact`."""
        left = {layer.name: layer.macs for layer in small.layers}
        return replace(self, layers=tuple(replace(x, macs_compact=left[x.name]) for x in self.layers), removal=True)

    def to_dict(self) -> dict[str, Any]:
        """Numbers and strings, for JSON."""
        return {
            "params_kept": self.params_kept,
            "flops_kept": self.flops_kept,
            "flops_kept_compact": self.flops_kept_compact,
            "convention": self.convention,
            "layers": [asdict(layer) for layer in self.layers],
            "total": asdict(self.total),
        }

    def __str__(self) -> str:
        last = "after shrink" if self.removal else "without zero rows, columns"
        header = ("layer", "weights", "non-zero", "kept", "units alive", "MACs", "non-zero", last)
        rows = [header, *(_row(layer) for layer in (*self.layers, self.total))]
        widths = [max(len(row[column]) for row in rows) for column in range(len(header))]
        lines = ["  ".join(_align(row, widths)) for row in rows]
        rule = "-" * len(lines[0])
        return "\n".join([lines[0], rule, *lines[1:-1], rule, lines[-1]])


@torch.no_grad()
def measure(
    model: nn.Module,
    example: Example,
    *,
    convention: Convention = "true",
    removal: bool = False,
    group: ProcessGroup | None = None,
) -> Measurement:
    """Count the non-zero weights, live units and MACs of a model.

    Args:
        model: any module with weight layers; it is run in evaluation mode.
        example: an input (a tensor, a tuple of arguments, a dict of keyword arguments). MACs are those of
            this input: pass a single sample for counts per sample.
        convention: "true" counts at the sizes that are computed. "cges" counts padded convolutions as if they had no
            padding, like the published code that the paper's FLOP column stems from; for comparison with the paper
            only.
        removal: call `shrink` to find what structured removal leaves, which takes a second or more. Otherwise
            `macs_compact` looks at every weight alone and counts its non-zero rows and columns.
        group: the processes of a pipeline, of which each one gives its stage as `model` and what the stage is called
            with as `example`; all of them have to call this. The counts are those of all stages, in the order of the
            processes.
    """
    if convention not in get_args(Convention):
        raise GossamerError(f"`convention` must be one of {', '.join(get_args(Convention))}; received {convention!r}.")
    if removal and group is not None:
        raise GossamerError(
            "`removal=True` shrinks the whole model, and the processes of `group` have a stage each. Gather the stages "
            "first: docs/scaling.md has the lines. Or leave out `removal`."
        )
    model = original_module(model)
    weights = find_weights(model, example)
    for weight in weights:
        require_supported(weight)
    macs = multiply_adds(model, example, convention)
    layers = [_measure(weight, macs.get(weight.parameter, 0)) for weight in weights]
    found = Measurement(tuple(layers if group is None else _of_stages(layers, group)), convention)
    return found.with_removal(measure(shrink(model, example, form="module"), example)) if removal else found


def _of_stages(layers: list[LayerMeasurement], group: ProcessGroup) -> list[LayerMeasurement]:
    """The layers of all processes; those that several processes have (data-parallel pipelines) once."""
    parts: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(parts, layers, group)
    return list({layer.name: layer for part in reversed(parts) for layer in reversed(part)}.values())[::-1]


def compact_part(weight: Weight) -> float:
    """The part of a weight that is left without its zero rows and columns."""
    pairs, all_pairs = _pairs(weight.layout, *_alive(weight.layout, nonzero_mask(weight.parameter)))
    return pairs / all_pairs


def _alive(layout: Layout, present: Tensor) -> tuple[Tensor, Tensor]:
    """For each output and each input whether it has a weight that is not zero."""
    outputs, inputs = (layout.as_groups(present, groups).any(dim=-1) for groups in ("outputs", "inputs"))
    return outputs, inputs


def _pairs(layout: Layout, outputs: Tensor, inputs: Tensor) -> tuple[int, int]:
    """The pairs of a live output and a live input, and all pairs."""
    blocks = layout.sizes[0] if layout.axes[0] == "block" else 1
    # A grouped convolution connects the outputs of a block with the inputs of the same block only.
    pairs = int((outputs.reshape(blocks, -1).sum(-1) * inputs.reshape(blocks, -1).sum(-1)).sum())
    return pairs, max(len(outputs) * len(inputs) // blocks, 1)


def _measure(weight: Weight, macs: int) -> LayerMeasurement:
    present = nonzero_mask(weight.parameter)
    outputs, inputs = _alive(weight.layout, present)
    pairs, all_pairs = _pairs(weight.layout, outputs, inputs)
    size, nonzeros = present.numel(), int(torch.count_nonzero(present))
    return LayerMeasurement(
        name=weight.name,
        weights=size,
        nonzeros=nonzeros,
        units=len(outputs),
        units_alive=int(outputs.sum()),
        macs=macs,
        macs_nonzero=macs * nonzeros // max(size, 1),
        macs_compact=macs * pairs // all_pairs,
    )


def _row(layer: LayerMeasurement) -> tuple[str, ...]:
    return (
        layer.name,
        f"{layer.weights:,}",
        f"{layer.nonzeros:,}",
        f"{_ratio(layer.nonzeros, layer.weights):.2%}",
        f"{layer.units_alive:,} of {layer.units:,}",
        f"{layer.macs:,}",
        f"{layer.macs_nonzero:,}",
        f"{layer.macs_compact:,}",
    )


def _align(row: Iterable[str], widths: list[int]) -> Iterable[str]:
    name, *numbers = row
    return [name.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(numbers, widths[1:], strict=True))]


def _ratio(part: int, whole: int) -> float:
    return part / whole if whole else 1.0
