"""Inference that executes only the non-zeros: a network as C, compiled for this machine or written as a file.

    tracing       model and example -> one ATen graph, for a batch of one
    lowering      graph -> program: operations on tensors of fixed shape (`operations`), fused (`fusion`)
    layout        strides, borders of zeros, and one workspace planned by lifetime
    codegen       program -> C functions and their calls, for one of three targets (`targets`)
    portable      a C99 file for any compiler: `export_c` (`export`)
    runtime       a library for this machine, with vectors and threads: `native` (`compilation`, `module`)
    verification  outputs of the model and of what was made from it, compared
    selection     `fastest`: the model, shrunk and native, timed side by side

The C that a microcontroller runs and the library that this machine loads come from the same program.
"""

from gossamer.inference.compilation import native
from gossamer.inference.export import export_c
from gossamer.inference.module import NativeModule
from gossamer.inference.portable import PortableSource
from gossamer.inference.selection import Candidate, Fastest, fastest

__all__ = ["Candidate", "Fastest", "NativeModule", "PortableSource", "export_c", "fastest", "native"]
