"""Load a saved network into a new instance of its class: check everything, then change it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

import torch
from torch import Tensor, nn

from gossamer.errors import GossamerError
from gossamer.layers import CompactMultiheadAttention, compact_attention, is_compactable, restore_attention
from gossamer.store.archive import Archive, open_archive
from gossamer.store.layer_checks import Size, check_layer
from gossamer.store.manifest import Manifest, class_name
from gossamer.store.sizes import SizeChange, changed_sizes, extent, largest_size, size_changes
from gossamer.store.slots import Slot, slots
from gossamer.store.structure import check_structure
from gossamer.store.written_sizes import WrittenSizes

__all__ = ["load", "resize_"]

_COMPACT_ATTENTION = class_name(CompactMultiheadAttention(1, 1))

Model = TypeVar("Model", bound=nn.Module)

# A file may unfold to so many times its own size, or to so many times the model that it is loaded into. The first lets
# a model of any size load a sparse network: with 2% of its weights (five bytes each, for value and gap), it unfolds to
# 40 times its file. Only sparser networks need a model of about their size.
_UNFOLDED_FILE = 64
_UNFOLDED_MODEL = 2


def load(path: str | os.PathLike[str], model: Model) -> Model:
    """Turn `model`, a fresh network of the saved class, into the network that was saved at `path`.

    The sizes that `model` was made with do not matter: its parameters and buffers get the saved shapes, types and
    values, its size attributes follow, biases that shrinking created are added, and tied weights are tied again.
    Parameters stay the same objects wherever possible, so that an optimizer made before still holds them. Device,
    training mode and `requires_grad` stay those of `model`.

    Nothing in the file is executed or trusted. All checks come first: on an error `model` is as it was.

    Args:
        path: A file that `save` wrote.
        model: A network of the class that was saved. It is changed in place, and returned.
    """
    places = slots(model)
    with open_archive(path) as archive, _attentions_compacted(archive.manifest, model):
        manifest = archive.manifest
        check_structure(manifest, model, places)
        changes = _check_sizes(manifest, model, places)
        _check_memory(archive, places)
        values = {name: archive.tensor(name).to(_device(places[name])) for name in manifest.tensors}
    for change in changes:
        change.apply()
    _fill(places, values, manifest.ties)
    return model


def resize_(model: nn.Module, manifest: Manifest) -> None:
    """Give `model` the sizes of the network that `manifest` describes, in place; its values are undefined afterwards.

    For state dicts of a smaller network, which are then loaded as usual. All checks come first, as in `load`.
    """
    places = slots(model)
    with _attentions_compacted(manifest, model):
        check_structure(manifest, model, places)
        changes = _check_sizes(manifest, model, places)
    for change in changes:
        change.apply()
    empty = {
        name: torch.empty(record.shape, dtype=record.dtype, device=_device(places[name]))
        for name, record in manifest.tensors.items()
    }
    _fill(places, empty, manifest.ties)


@contextmanager
def _attentions_compacted(manifest: Manifest, model: nn.Module) -> Iterator[None]:
    """Give attentions that were saved with fewer or narrower heads the class that can have them; undone on an error."""
    changed: list[nn.MultiheadAttention] = []
    try:
        for path, module in model.named_modules():
            record = manifest.modules.get(path)
            saved = _compact_sizes(record.sizes) if record and record.type == _COMPACT_ATTENTION else None
            if saved is not None and type(module) is nn.MultiheadAttention and is_compactable(module):
                width, heads, kept = saved
                compact_attention(module, full_head_dim=width, full_num_heads=heads, kept_heads=kept)
                changed.append(module)
        yield
    except BaseException:
        for module in changed:
            restore_attention(module)
        raise


def _compact_sizes(sizes: Mapping[str, Size]) -> tuple[int, int, tuple[int, ...]] | None:
    """Original width and number of heads, and the heads that are left; None if these are no such sizes."""
    width, heads, kept = (sizes.get(name) for name in ("full_head_dim", "full_num_heads", "kept_heads"))
    if not (isinstance(width, int) and isinstance(heads, int) and isinstance(kept, tuple)):
        return None
    ordered = list(kept) == sorted(set(kept)) and len(kept) == sizes.get("num_heads")
    return (width, heads, kept) if width > 0 and ordered and all(0 <= head < heads for head in kept) else None


def _check_sizes(manifest: Manifest, model: nn.Module, places: Mapping[str, Slot]) -> list[SizeChange]:
    shapes = {name: record.shape for name, record in manifest.tensors.items()}
    limit = largest_size(shapes.values())
    all_shapes = shapes | {name: shapes[same] for name, same in manifest.ties.items()}
    present = {name: tuple(slot.tensor.shape) for name, slot in places.items() if slot.tensor is not None}
    changed, written = changed_sizes(present, all_shapes), WrittenSizes(model)
    changes = []
    for path, module in model.named_modules(remove_duplicate=False):
        record = manifest.modules[path]
        changes += size_changes(path, module, record, limit, changed, written)
        check_layer(path, module, record.sizes, all_shapes)
    return changes


def _check_memory(archive: Archive, places: Mapping[str, Slot]) -> None:
    """A file of zeros is small, and so is a hostile one: what it unfolds to must be in proportion to something."""
    present = sum(slot.tensor.nbytes for slot in places.values() if slot.tensor is not None)
    needed = sum(extent(record.shape) * record.dtype.itemsize for record in archive.manifest.tensors.values())
    if needed > max(_UNFOLDED_FILE * archive.nbytes, _UNFOLDED_MODEL * present):
        raise GossamerError(
            f"its {archive.nbytes} bytes claim to unfold to {needed}, and the model has {present}. "
            "If you trust the file, load it into a model of the original, larger sizes."
        )


def _device(slot: Slot) -> torch.device:
    if slot.tensor is not None:
        here = slot.tensor.device
    else:
        # A new bias goes where the rest of its layer is.
        here = next((tensor.device for tensor in slot.owner.parameters()), torch.device("cpu"))
    return torch.device("cpu") if here.type == "meta" else here


def _fill(places: Mapping[str, Slot], values: Mapping[str, Tensor], ties: Mapping[str, str]) -> None:
    placed: dict[str, Tensor] = {}
    taken: set[int] = set()
    for name, value in values.items():
        slot = places[name]
        # Two names that share one parameter in the model, but not in the file: the second gets a new one.
        reusable = slot.tensor if id(slot.tensor) not in taken else None
        placed[name] = _refilled(reusable, value) if slot.is_parameter else value
        taken.add(id(placed[name]))
        slot.put(placed[name])
    for name, same in ties.items():
        places[name].put(placed[same])


def _refilled(parameter: Tensor | None, value: Tensor) -> nn.Parameter:
    """`parameter` with other numbers; a new one where torch cannot exchange them."""
    if type(parameter) is nn.Parameter and parameter.device.type == value.device.type:
        parameter.data = value
        parameter.grad = None
        return parameter
    trained = parameter.requires_grad if parameter is not None else value.is_floating_point()
    return nn.Parameter(value, requires_grad=trained)
