"""The manifest of a saved network: everything but the numbers, as JSON in the header of the safetensors file."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from gossamer.errors import GossamerError
from gossamer.store import strict_json
from gossamer.store.layer_checks import Shape, Size
from gossamer.store.sparse import Encoding
from gossamer.store.strict_json import Json

__all__ = [
    "FORMAT",
    "Manifest",
    "ModuleRecord",
    "TensorRecord",
    "check_dtype",
    "class_name",
    "gossamer_version",
]

FORMAT = 1

_DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        torch.float64,
        torch.float32,
        torch.float16,
        torch.bfloat16,
        torch.float8_e4m3fn,
        torch.float8_e5m2,
        torch.complex64,
        torch.int64,
        torch.int32,
        torch.int16,
        torch.int8,
        torch.uint8,
        torch.bool,
    )
}


@dataclass(frozen=True)
class ModuleRecord:
    """A module: its class, and its public attributes that are whole numbers or tuples of them."""

    type: str
    sizes: Mapping[str, Size]


@dataclass(frozen=True)
class TensorRecord:
    """A stored tensor: shape, type, how it is written down, and the CRC-32 of the written bytes."""

    shape: Shape
    dtype: torch.dtype
    encoding: Encoding
    checksum: int


@dataclass(frozen=True)
class Manifest:
    """What a saved network is made of.

    Attributes:
        gossamer: Version of gossamer that wrote the file.
        torch: Version of torch that wrote the file.
        modules: Every module by its path in the network; the network itself has the path "".
        tensors: Every stored tensor by its name in the network.
        ties: Further names of a stored tensor: name -> the name that it is stored under.
        derived: Shapes of the buffers that are not stored, because the class computes them.
        provenance: What the caller told about where the network comes from.
    """

    gossamer: str
    torch: str
    modules: Mapping[str, ModuleRecord]
    tensors: Mapping[str, TensorRecord]
    ties: Mapping[str, str]
    derived: Mapping[str, Shape]
    provenance: Mapping[str, Json]

    def to_json(self) -> str:
        """The manifest as text."""
        return strict_json.dump(
            {
                "format": FORMAT,
                "gossamer": self.gossamer,
                "torch": self.torch,
                "modules": {path: [record.type, dict(record.sizes)] for path, record in self.modules.items()},
                "tensors": {name: _write_tensor(record) for name, record in self.tensors.items()},
                "ties": dict(self.ties),
                "derived": dict(self.derived),
                "provenance": dict(self.provenance),
            }
        )

    @classmethod
    def from_json(cls, source: str) -> Manifest:
        """The manifest that `to_json` wrote; a GossamerError for anything else."""
        members = strict_json.mapping(strict_json.parse(source), "it")
        # The version comes first: another version may have other fields, and that deserves its own words.
        version = members.get("format")
        if type(version) is not int or version != FORMAT:
            raise GossamerError(f"it has the format version {version!r:.40}, and this gossamer reads version {FORMAT}")
        names = ("format", "gossamer", "torch", "modules", "tensors", "ties", "derived", "provenance")
        _, gossamer, torch_version, modules, tensors, ties, derived, provenance = strict_json.fields(
            members, "it", names
        )
        return cls(
            gossamer=strict_json.text(gossamer, "gossamer"),
            torch=strict_json.text(torch_version, "torch"),
            modules={path: _read_module(record) for path, record in strict_json.mapping(modules, "modules").items()},
            tensors={name: _read_tensor(record) for name, record in strict_json.mapping(tensors, "tensors").items()},
            ties={name: strict_json.text(same, "a tie") for name, same in strict_json.mapping(ties, "ties").items()},
            derived={name: _read_shape(shape) for name, shape in strict_json.mapping(derived, "derived").items()},
            provenance=strict_json.mapping(provenance, "provenance"),
        )


def class_name(module: object) -> str:
    """Module path and qualified name of the class of `module`."""
    return f"{type(module).__module__}.{type(module).__qualname__}"


def gossamer_version() -> str:
    """The version of this library as installed."""
    return importlib.metadata.version("gossamer")


def check_dtype(name: str, dtype: torch.dtype) -> None:
    """Refuse a tensor type that a file cannot hold."""
    if dtype not in _DTYPES.values():
        raise GossamerError(
            f"{name!r} is a tensor of {dtype}, which cannot be stored. Convert it to one of {', '.join(_DTYPES)}."
        )


def _write_tensor(record: TensorRecord) -> list[Json]:
    dtype = str(record.dtype).removeprefix("torch.")
    return [list(record.shape), dtype, record.encoding.value, record.checksum]


def _read_module(record: Json) -> ModuleRecord:
    kind, sizes = _entries(record, "a module", 2)
    return ModuleRecord(
        strict_json.text(kind, "the class of a module"),
        {name: _read_size(size) for name, size in strict_json.mapping(sizes, "the sizes of a module").items()},
    )


def _read_size(size: Json) -> Size:
    if isinstance(size, list):
        return tuple(strict_json.integer(entry, "a size") for entry in size)
    return strict_json.integer(size, "a size")


def _read_tensor(record: Json) -> TensorRecord:
    shape, dtype, encoding, checksum = _entries(record, "a tensor", 4)
    if strict_json.text(dtype, "the type of a tensor") not in _DTYPES:
        raise GossamerError(f"a tensor has the unknown type {dtype!r:.40}")
    if strict_json.text(encoding, "the encoding of a tensor") not in {kind.value for kind in Encoding}:
        raise GossamerError(f"a tensor has the unknown encoding {encoding!r:.40}")
    return TensorRecord(
        _read_shape(shape), _DTYPES[dtype], Encoding(encoding), strict_json.integer(checksum, "a checksum", lowest=0)
    )


def _read_shape(shape: Json) -> Shape:
    return tuple(strict_json.integer(size, "a dimension", lowest=0) for size in strict_json.sequence(shape, "a shape"))


def _entries(record: Json, what: str, count: int) -> list[Json]:
    entries = strict_json.sequence(record, what)
    if len(entries) != count:
        raise GossamerError(f"{what} has {len(entries)} entries instead of {count}")
    return entries
