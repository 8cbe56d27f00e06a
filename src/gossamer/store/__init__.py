"""Networks as files: safetensors with a manifest of shapes, and ONNX."""

from gossamer.store.archive import read_manifest
from gossamer.store.loading import load, resize_
from gossamer.store.manifest import Manifest, ModuleRecord, TensorRecord
from gossamer.store.onnx import export_onnx
from gossamer.store.saving import manifest_of, most_bytes, save

__all__ = [
    "Manifest",
    "ModuleRecord",
    "TensorRecord",
    "export_onnx",
    "load",
    "manifest_of",
    "most_bytes",
    "read_manifest",
    "resize_",
    "save",
]
