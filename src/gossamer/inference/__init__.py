"""Inference that executes only the non-zeros: a network as C, compiled for this machine or written as a file."""

from gossamer.inference.compilation import native
from gossamer.inference.export import export_c
from gossamer.inference.module import NativeModule
from gossamer.inference.portable import PortableSource
from gossamer.inference.selection import Candidate, Fastest, fastest

__all__ = ["Candidate", "Fastest", "NativeModule", "PortableSource", "export_c", "fastest", "native"]
