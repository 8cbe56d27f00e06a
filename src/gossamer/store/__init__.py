"""Networks as files: safetensors with a manifest of shapes, and ONNX; linear layers in CSR form."""

from gossamer.store.archive import read_manifest
from gossamer.store.csr import CSRLinear, LinearTiming, fastest_linear
from gossamer.store.loading import load, resize_
from gossamer.store.manifest import Manifest, ModuleRecord, TensorRecord
from gossamer.store.onnx import export_onnx
from gossamer.store.saving import manifest_of, save

__all__ = [
    "CSRLinear",
    "LinearTiming",
    "Manifest",
    "ModuleRecord",
    "TensorRecord",
    "export_onnx",
    "fastest_linear",
    "load",
    "manifest_of",
    "read_manifest",
    "resize_",
    "save",
]
