"""Inference that executes only the non-zeros: a network as C, compiled for this machine or written as a file."""

from gossamer.inference.choice import Candidate, Fastest, fastest
from gossamer.inference.compiled import native
from gossamer.inference.exporting import export_c
from gossamer.inference.module import NativeModule
from gossamer.inference.portable import PortableSource

__all__ = ["Candidate", "Fastest", "NativeModule", "PortableSource", "export_c", "fastest", "native"]
