"""Save a network to one safetensors file, without pickle."""

from __future__ import annotations

import os
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from gossamer.errors import GossamerError
from gossamer.files import write_atomically
from gossamer.layers import require_whole
from gossamer.store import strict_json
from gossamer.store.archive import LARGEST_CHECKSUM, archive_bytes, checksum
from gossamer.store.layer_checks import check_layer
from gossamer.store.manifest import Manifest, ModuleRecord, TensorRecord, check_dtype, class_name, gossamer_version
from gossamer.store.sizes import largest_size, public_sizes, within
from gossamer.store.slots import derived_buffers, slots
from gossamer.store.sparse import Encoded, Encoding, dense, smallest
from gossamer.store.strict_json import Json

__all__ = ["manifest_of", "most_bytes", "save"]


def save(
    model: nn.Module,
    path: str | os.PathLike[str],
    *,
    sparse: bool = False,
    provenance: Mapping[str, Json] | None = None,
) -> None:
    """Write `model` to the safetensors file `path`, from which `load(path, Net())` rebuilds it.

    The file holds the parameters and persistent buffers at the sizes that they have now, each tied weight once,
    and a JSON manifest of what `load` needs to give a fresh network of the same class those sizes. It appears
    whole or not at all; an existing file survives a failure.

    Args:
        model: A network of any class of yours.
        path: Where to write; what is there is replaced.
        sparse: Store each tensor without its zeros where that is smaller. Bit for bit the same after loading.
        provenance: Anything that JSON can say about where the network comes from; `read_manifest` gives it back.
    """
    tensors, ties = _tensors_and_ties(model)
    encoded = _encoded(tensors, sparse=sparse)
    checksums = {name: checksum(code.parts) for name, code in encoded.items()}
    content = archive_bytes(_manifest(model, _records(tensors, encoded, checksums), ties, provenance), _stored(encoded))
    write_atomically(path, content)


def most_bytes(model: nn.Module) -> int:
    """The most bytes that `save(model, path, sparse=True)` may write: it depends on where the zeros are alone.

    Checksums have as many digits as they can have; the values decide how many they do have.
    """
    tensors, ties = _tensors_and_ties(model)
    encoded = _encoded(tensors, sparse=True)
    checksums = dict.fromkeys(encoded, LARGEST_CHECKSUM)
    manifest = _manifest(model, _records(tensors, encoded, checksums), ties, None)
    return len(archive_bytes(manifest, _stored(encoded), LARGEST_CHECKSUM))


def manifest_of(model: nn.Module, provenance: Mapping[str, Json] | None = None) -> Manifest:
    """What `model` is made of, as in the file that `save` writes; without encodings and checksums."""
    tensors, ties = _tensors_and_ties(model)
    records = {
        name: TensorRecord(tuple(tensor.shape), tensor.dtype, Encoding.DENSE, 0) for name, tensor in tensors.items()
    }
    return _manifest(model, records, ties, provenance)


def _encoded(tensors: Mapping[str, Tensor], *, sparse: bool) -> dict[str, Encoded]:
    return {name: (smallest if sparse else dense)(tensor) for name, tensor in tensors.items()}


def _records(
    tensors: Mapping[str, Tensor], encoded: Mapping[str, Encoded], checksums: Mapping[str, int]
) -> dict[str, TensorRecord]:
    return {
        name: TensorRecord(tuple(tensor.shape), tensor.dtype, encoded[name].encoding, checksums[name])
        for name, tensor in tensors.items()
    }


def _stored(encoded: Mapping[str, Encoded]) -> dict[str, Tensor]:
    """What the file has for each tensor, by the names of its parts."""
    return {
        name + part: tensor
        for name, code in encoded.items()
        for part, tensor in zip(code.encoding.parts, code.parts, strict=True)
    }


def _manifest(
    model: nn.Module,
    records: Mapping[str, TensorRecord],
    ties: Mapping[str, str],
    provenance: Mapping[str, Json] | None,
) -> Manifest:
    return Manifest(
        gossamer=gossamer_version(),
        torch=str(torch.__version__),
        modules=_module_records(model, largest_size(record.shape for record in records.values())),
        tensors=records,
        ties=ties,
        derived={name: tuple(buffer.shape) for name, buffer in derived_buffers(model).items()},
        provenance=_checked_provenance(provenance or {}),
    )


def _tensors_and_ties(model: nn.Module) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors of `model`, each under its first name, and its further names; an error if it cannot be saved."""
    places = slots(model)
    require_whole(model, "save")
    tensors: dict[str, Tensor] = {}
    ties: dict[str, str] = {}
    first_names: dict[object, str] = {}
    for name, slot in places.items():
        if slot.tensor is None:
            continue
        _check_storable(name, slot.tensor)
        first = first_names.setdefault(_memory(slot.tensor), name)
        if first == name:
            tensors[name] = slot.tensor
        else:
            ties[name] = first
    _check_can_be_rebuilt(model, tensors)
    return tensors, ties


def _memory(tensor: Tensor) -> object:
    """Equal for two tensors that are the same numbers in the same memory."""
    if tensor.numel() == 0:
        return id(tensor)
    return (tensor.device, tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype)


def _module_records(model: nn.Module, limit: int) -> dict[str, ModuleRecord]:
    # A number that is larger than any size in the network can be, such as a step counter, is not a size.
    return {
        path: ModuleRecord(
            class_name(module), {name: size for name, size in public_sizes(module).items() if within(size, limit)}
        )
        for path, module in model.named_modules(remove_duplicate=False)
    }


def _checked_provenance(provenance: Mapping[str, Json]) -> Mapping[str, Json]:
    try:
        return strict_json.mapping(strict_json.parse(strict_json.dump(provenance)), "it")
    except GossamerError as error:
        raise GossamerError(
            f"save(provenance=...) was given something that the file cannot hold: {error}. "
            "Give a dictionary of texts, finite numbers, lists and dictionaries."
        ) from error


def _check_storable(name: str, tensor: Tensor) -> None:
    if is_lazy(tensor):
        raise GossamerError(f"{name!r} has no shape yet. Run the model once on an example, then save it.")
    if tensor.layout is not torch.strided or tensor.is_quantized:
        raise GossamerError(
            f"{name!r} is a tensor of layout {tensor.layout}, which cannot be stored. "
            "Save the model before its layers are replaced by sparse or quantized ones; "
            "save(..., sparse=True) leaves the zeros out of the file."
        )
    if tensor.is_meta:
        raise GossamerError(f"{name!r} is on the meta device and has no values. Load or initialize the model first.")
    check_dtype(name, tensor.dtype)


def _check_can_be_rebuilt(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    for path, module in model.named_modules(remove_duplicate=False):
        if isinstance(module, torch.fx.GraphModule | torch.jit.ScriptModule):
            raise GossamerError(
                f"{path or 'the model'!r} is a {type(module).__name__}: a traced graph, which no class can rebuild. "
                "Save its program with torch.export.save(torch.export.export(model, (x,)), 'net.pt2') and get it back "
                "with torch.export.load('net.pt2').module(), write it with gossamer.export_onnx(model, path, x), or "
                'shrink with form="module" to keep your class.'
            )
        if type(module).get_extra_state is not nn.Module.get_extra_state:
            raise GossamerError(
                f"{path or 'the model'!r} ({class_name(module)}) has extra state, which could be anything. "
                "Keep it in buffers, or save it on your own and replace get_extra_state."
            )
        check_layer(path, module, {}, shapes)
