"""The file: tensors in the safetensors format, with the manifest in its header."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from gossamer.errors import GossamerError
from gossamer.files import open_plain
from gossamer.store import strict_json
from gossamer.store.manifest import Manifest
from gossamer.store.sparse import decode

__all__ = ["LARGEST_CHECKSUM", "Archive", "archive_bytes", "checksum", "open_archive", "read_manifest"]

LARGEST_CHECKSUM = 2**32 - 1

# One entry, "CRC-32 of the manifest, space, manifest": safetensors writes several in an order that changes from run to
# run, and the same network should give the same file.
_MANIFEST = "gossamer"

# Far more than any network needs; parsed JSON takes many times its length in memory.
_LARGEST_HEADER = 16 * 2**20

# What safetensors and torch raise on a header that contradicts itself.
_UNREADABLE = (safetensors.SafetensorError, OSError, KeyError, TypeError, ValueError, RuntimeError)

# The names that the safetensors format gives to the types.
_TYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64,
    "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool,
    "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2, "C64": torch.complex64,
}  # fmt: skip


def checksum(parts: tuple[Tensor, ...]) -> int:
    """CRC-32 over the bytes of `parts`: finds damage, and proves nothing about who wrote the file."""
    total = 0
    for part in parts:
        if part.numel() == 0:
            continue  # no bytes, and torch does not always give it a layout that can be seen as bytes
        total = zlib.crc32(part.contiguous().reshape(-1).view(torch.uint8).numpy().data, total)
    return total


def archive_bytes(manifest: Manifest, stored: Mapping[str, Tensor], own_checksum: int | None = None) -> bytes:
    """A file with `manifest` and the `stored` parts; the checksum of the manifest is given by those who only count."""
    text = manifest.to_json()
    if len(text) > _LARGEST_HEADER // 2:
        raise GossamerError(
            f"the description of the network has {len(text)} characters, and a file holds {_LARGEST_HEADER // 2}. "
            "Give a shorter `provenance`."
        )
    own_checksum = zlib.crc32(text.encode()) if own_checksum is None else own_checksum
    return safetensors.torch.save(_in_own_memory(stored), {_MANIFEST: f"{own_checksum} {text}"})


@dataclass(frozen=True)
class Archive:
    """The content of a file whose manifest fits its list of tensors."""

    manifest: Manifest
    nbytes: int
    stored: Mapping[str, Any]

    def tensor(self, name: str) -> Tensor:
        """The tensor `name`, in memory of its own, checked against the manifest."""
        record = self.manifest.tensors[name]
        try:
            parts = tuple(_as_tensor(self.stored[name + part]) for part in record.encoding.parts)
            if checksum(parts) != record.checksum:
                raise GossamerError("its bytes do not match their checksum")
            # Any byte but 0 and 1 in a tensor of truth values is undefined behaviour for torch.
            if any(part.dtype is torch.bool and bool((part.view(torch.uint8) > 1).any()) for part in parts):
                raise GossamerError("it has truth values other than 0 and 1")
            return decode(record.encoding, parts, record.shape, record.dtype)
        except _UNREADABLE as error:
            raise _damaged(f"the tensor {name!r}", error) from error


@contextmanager
def open_archive(path: str | os.PathLike[str]) -> Iterator[Archive]:
    """Open the file at `path`; every error inside the block then says which file it is about."""
    try:
        content = _read(path)
        try:
            stored = dict(safetensors.deserialize(content))  # type: ignore[no-untyped-call]
        except _UNREADABLE as error:
            raise _damaged("the header", error) from error
        manifest = _manifest(content)
        expected = {name + part for name, record in manifest.tensors.items() for part in record.encoding.parts}
        if set(stored) != expected:
            differing = sorted(expected.symmetric_difference(stored))
            raise _damaged("the list of tensors", f"file and manifest differ in {differing[0]!r:.80}")
        yield Archive(manifest, len(content), stored)
    except GossamerError as error:
        raise GossamerError(f"cannot load {os.fspath(path)!r}: {error}") from error


def read_manifest(path: str | os.PathLike[str]) -> Manifest:
    """What the file at `path` says about itself: versions, modules, shapes, provenance; no tensor is read."""
    with open_archive(path) as archive:
        return archive.manifest


def _read(path: str | os.PathLike[str]) -> bytes:
    """The bytes of the file, if it is a plain file with a header of a sane length.

    Read, not mapped into memory: a mapped file that another process truncates kills the reader with SIGBUS.
    """
    try:
        with open_plain(path) as file:
            start = file.read(8)
            length, nbytes = int.from_bytes(start, "little"), os.fstat(file.fileno()).st_size
            if nbytes < 8 or length > min(nbytes - 8, _LARGEST_HEADER):
                raise _damaged("the header", f"it claims {length} bytes in a file of {nbytes}")
            return start + file.read(nbytes - 8)
    except (OSError, ValueError) as error:
        if isinstance(error, GossamerError):
            raise
        raise GossamerError(f"{error}. Give the path of a file that gossamer saved.") from error


def _as_tensor(entry: Mapping[str, Any]) -> Tensor:
    dtype = _TYPES[entry["dtype"]]
    if not entry["data"]:
        return torch.empty(entry["shape"], dtype=dtype)
    return torch.frombuffer(entry["data"], dtype=dtype).reshape(entry["shape"])


def _manifest(content: bytes) -> Manifest:
    header = content[8 : 8 + int.from_bytes(content[:8], "little")]
    try:
        metadata = strict_json.mapping(strict_json.parse(header.decode()), "the header").get("__metadata__")
    except (GossamerError, UnicodeDecodeError) as error:
        raise _damaged("the header", error) from error
    entry = (metadata or {}).get(_MANIFEST)
    if entry is None:
        raise GossamerError(
            "it is a safetensors file without a manifest of gossamer. "
            "Load its tensors with safetensors.torch.load_file, or give a file that gossamer.save wrote."
        )
    expected, _, text = entry.partition(" ")
    if expected != str(zlib.crc32(text.encode())):
        raise _damaged("the manifest", "it does not match its checksum")
    try:
        return Manifest.from_json(text)
    except GossamerError as error:
        raise _damaged("the manifest", error) from error


def _in_own_memory(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors, copied where two of them look at the same memory: safetensors refuses to write those."""
    seen: set[int] = set()
    separate: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        memory = tensor.untyped_storage().data_ptr()
        separate[name] = tensor.clone() if memory in seen else tensor
        seen.add(memory)
    return separate


def _damaged(what: str, reason: object) -> GossamerError:
    return GossamerError(
        f"{what} cannot be used: {reason}. Get an undamaged copy, or save the network again with this gossamer."
    )
