"""Check that a file describes this network: classes, names, numbers of dimensions, dtypes, ties."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from torch import nn
from torch.nn.parameter import is_lazy

from gossamer.errors import GossamerError
from gossamer.store.layer_checks import torch_kind
from gossamer.store.manifest import Manifest, TensorRecord, class_name
from gossamer.store.slots import Slot, derived_buffers

__all__ = ["check_structure"]


def check_structure(manifest: Manifest, model: nn.Module, places: Mapping[str, Slot]) -> None:
    """Check that `manifest` describes a network of the class of `model`, whose tensors are at `places`."""
    _check_modules(manifest, model)
    _check_ties(manifest, places)
    named = dict(manifest.tensors) | {name: manifest.tensors[same] for name, same in manifest.ties.items()}
    present = {name for name, slot in places.items() if slot.tensor is not None}
    _check_same_names("tensors", present | (named.keys() & places.keys()), named)
    for name, record in named.items():
        _check_tensor(name, record, places[name])
    _check_shared_places(manifest, places)
    _check_derived(manifest, model)


def _check_modules(manifest: Manifest, model: nn.Module) -> None:
    modules = dict(model.named_modules(remove_duplicate=False))
    saved_class = manifest.modules[""].type if "" in manifest.modules else "nothing"
    if not _same_class(saved_class, model):
        raise GossamerError(
            f"it holds a {saved_class!r:.80}, and the model is a {class_name(model)!r}. "
            "Give a model of the saved class."
        )
    _check_same_names("modules", modules, manifest.modules)
    for path, module in modules.items():
        saved = manifest.modules[path].type
        if not _same_class(saved, module):
            raise GossamerError(
                f"the module {path!r} is a {saved!r:.80} in the file and a {class_name(module)!r} in the model. "
                "Replace it in the model, in the same way as before saving, and load again."
            )


def _same_class(saved: str, module: nn.Module) -> bool:
    # A class may be seen as `__main__.Net` by the program that saves and as `net.Net` by the one that loads.
    name = type(module).__qualname__
    return saved == name or saved.endswith(f".{name}")


def _check_same_names(what: str, present: Iterable[str], saved: Iterable[str]) -> None:
    missing, unknown = sorted(set(present) - set(saved)), sorted(set(saved) - set(present))
    if missing or unknown:
        raise GossamerError(
            f"file and model have different {what}: only in the model {_some(missing)}, only in the file "
            f"{_some(unknown)}. Give a model made with the same settings as the saved one."
        )


def _check_ties(manifest: Manifest, places: Mapping[str, Slot]) -> None:
    for name, same in manifest.ties.items():
        if name in manifest.tensors or same not in manifest.tensors:
            raise GossamerError(f"the file ties {name!r:.80} to {same!r:.80}, which it does not store. Save again.")
        here, there = places.get(name), places.get(same)
        if here is not None and there is not None and here.is_parameter is not there.is_parameter:
            raise GossamerError(f"the file ties the parameter and buffer {name!r} and {same!r}. Save again.")


def _check_tensor(name: str, record: TensorRecord, slot: Slot) -> None:
    tensor = slot.tensor
    if tensor is None:
        # What shrinking adds is a bias; anything else would change what a module of yours does.
        if torch_kind(slot.owner) is None or not record.dtype.is_floating_point:
            raise GossamerError(
                f"the file has a tensor {name!r}, which the model has left out. Make the model with that tensor."
            )
        return
    if is_lazy(tensor):
        raise GossamerError(f"{name!r} has no shape yet. Run the model once on an example, then load into it.")
    if tensor.dim() != len(record.shape):
        raise GossamerError(
            f"{name!r} has the shape {record.shape!s:.80} in the file and {tuple(tensor.shape)} in the model. "
            "Give a model made with the same settings as the saved one."
        )
    if tensor.dtype is not record.dtype and not (tensor.is_floating_point() and record.dtype.is_floating_point):
        raise GossamerError(
            f"{name!r} is a {record.dtype} in the file and a {tensor.dtype} in the model. "
            "Give a model made with the same settings as the saved one."
        )


def _check_shared_places(manifest: Manifest, places: Mapping[str, Slot]) -> None:
    """A module that has two names in the model has one tensor for both: the file must say so too."""
    stored_as: dict[tuple[int, str], str] = {}
    for name in (*manifest.tensors, *manifest.ties):
        slot = places[name]
        first = manifest.ties.get(name, name)
        other = stored_as.setdefault((id(slot.owner), slot.attribute), first)
        if other != first:
            raise GossamerError(
                f"{name!r} and {other!r} are one tensor in the model and two in the file. "
                "Give a model made with the same settings as the saved one."
            )


def _check_derived(manifest: Manifest, model: nn.Module) -> None:
    """Buffers that no file holds must come out of the class as they were, or the network would not be the saved one."""
    present = derived_buffers(model)
    for name, shape in manifest.derived.items():
        buffer = present.get(name)
        if buffer is None or tuple(buffer.shape) != shape or buffer.is_meta:
            found = "missing" if buffer is None else f"{tuple(buffer.shape)} on {buffer.device}"
            raise GossamerError(
                f"the buffer {name!r:.80}, which is registered as not persistent and so not stored, had the shape "
                f"{shape!s:.80} and is {found} in the model. Register it with persistent=True and save again."
            )


def _some(names: list[str]) -> str:
    shown = ", ".join(f"{name!r:.80}" for name in names[:3])
    return f"{shown or 'nothing'}{f' and {len(names) - 3} more' if len(names) > 3 else ''}"
