"""A lowered network as a module: a compiled library, its weights, and a cheap call."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from gossamer.errors import GossamerError
from gossamer.inference.memory import aligned, far_apart
from gossamer.inference.output_memory import LARGE, OutputMemory
from gossamer.inference.tracing import TENSOR
from gossamer.inference.workers import run_in_threads

__all__ = ["Library", "NativeModule", "Settings", "Signature"]

_NEVER = 2**62
_LARGEST_INTEGER = 2**24


class Settings(ctypes.Structure):
    """How a compiled network is run; the struct of the same name in `prelude.c`."""

    _fields_: ClassVar = [
        ("constants", ctypes.c_void_p),
        ("vector_from", ctypes.c_long),
        ("threads", ctypes.c_long),
        ("samples_per_thread", ctypes.c_long),
        ("run_in_threads", ctypes.c_void_p),
    ]


@dataclass(frozen=True)
class Library:
    """A compiled program: its function, the constants it is called with, and the workspace of a thread in bytes."""

    run: Callable[..., int]
    constants: npt.NDArray[np.uint8]
    workspace: int
    lanes: int


@dataclass(frozen=True)
class Signature:
    """How the model is called and what it returns.

    Attributes:
        inputs: The shape of a sample of each input, and its dtype.
        arguments: The example's arguments, (args, kwargs), flattened; `TENSOR` for a tensor.
        structure: How they are nested.
        outputs: The shape of each output for one sample, without its batch dimension.
        batch_dimensions: Which dimension of each output is the batch.
        results: What is returned, flattened; `TENSOR` for an output.
        result_structure: How it is nested.
    """

    inputs: tuple[tuple[tuple[int, ...], torch.dtype], ...]
    arguments: tuple[Any, ...]
    structure: pytree.TreeSpec
    outputs: tuple[tuple[int, ...], ...]
    batch_dimensions: tuple[int, ...]
    results: tuple[Any, ...]
    result_structure: pytree.TreeSpec

    @property
    def is_plain(self) -> bool:
        """Whether it is one positional tensor and one tensor that is returned, both with the batch in front."""
        takes_one = self.structure == pytree.tree_structure(((0,), {})) and self.arguments == (TENSOR,)
        return takes_one and self.result_structure.is_leaf() and self.batch_dimensions == (0,)


class NativeModule(nn.Module):
    """Inference by a compiled library that multiplies only non-zeros; made by `gossamer.native`.

    It is called like the model it was made from, with batches of any size, and returns what the model returns in
    evaluation mode. It has no parameters and computes no gradients. Calls from several threads run at the same time.
    Large outputs lie in memory of earlier ones that nothing refers to any more, and cannot be resized in place.

    Args:
        library: The compiled program.
        signature: How the model is called.
        threads: Among which a batch is split at most.
    """

    def __init__(self, library: Library, signature: Signature, threads: int) -> None:
        super().__init__()
        self.threads = threads
        self._library = library
        self._signature = signature
        settings = library.constants.ctypes.data, 1, threads, _NEVER, run_in_threads() if threads > 1 else None
        self._small = Settings(*settings)  # for a batch of at most one vector of samples
        self._large = Settings(*settings)
        self._run, self._lanes = library.run, library.lanes
        self._addresses = ctypes.addressof(self._small), ctypes.addressof(self._large)
        # The memory of the constants itself, for whoever counts bytes; it is of no use in a file.
        self.register_buffer("constants", torch.from_numpy(library.constants), persistent=False)
        self._idle: list[tuple[int, object]] = []  # addresses and their memory; append and pop are atomic
        self._memory = OutputMemory()
        self._is_plain = signature.is_plain
        self._input, self._output = signature.inputs[0], signature.outputs[0]
        self._large_from = LARGE / (4 * max(1, math.prod(self._output)))  # samples
        self.eval()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the model returns for these inputs."""
        if len(args) == 1 and not kwargs and self._is_plain:
            return self._forward_one(args[0])
        signature = self._signature
        given = self._leaves(args, kwargs)
        tensors = [_checked(tensor, wanted) for tensor, wanted in zip(given, signature.inputs, strict=True)]
        n = tensors[0].size(0)
        if len(tensors) > 1 and any(tensor.size(0) != n for tensor in tensors):
            raise GossamerError(f"the inputs have batches of {[len(tensor) for tensor in tensors]} samples.")
        outputs = [self._memory.empty(n, *shape) for shape in signature.outputs]
        if n:
            self.call_compiled(n, *[tensor.data_ptr() for tensor in (*tensors, *outputs)])
        return self._nested(outputs)

    def _forward_one(self, x: Any) -> Tensor:
        """The same for one tensor in and one out; small networks take less time than the general way."""
        x = _checked(x, self._input)
        n = x.size(0)
        output = torch.empty(n, *self._output) if n < self._large_from else self._memory.empty(n, *self._output)
        if n:
            self.call_compiled(n, x.data_ptr(), output.data_ptr())
        return output

    def run_as(self, vector_from: int, samples_per_thread: int = _NEVER, large: int | None = None) -> None:
        """Choose how batches are run.

        Args:
            vector_from: From how many samples on the rest of a batch is computed as one vector with empty lanes.
            samples_per_thread: How many samples are worth a thread.
            large: `vector_from` for batches of more than one vector; by default the same.
        """
        self._small.vector_from = vector_from
        self._large.vector_from = vector_from if large is None else large
        self._small.samples_per_thread = self._large.samples_per_thread = samples_per_thread

    def threads_for(self, samples: int) -> int:
        """How many threads share a batch of so many samples."""
        return max(1, min(self.threads, samples // int(self._large.samples_per_thread)))

    def call_compiled(self, n: int, *pointers: int) -> None:
        """The compiled function alone: `n` samples, from the addresses of inputs to those of outputs, unchecked."""
        try:
            workspace = self._idle.pop()
        except IndexError:
            memory = aligned(self.threads * far_apart(self._library.workspace))
            workspace = (memory.ctypes.data, memory)
        failed = self._run(self._addresses[n > self._lanes], workspace[0], n, *pointers)
        self._idle.append(workspace)
        if failed:
            raise GossamerError("an index in the input is outside of its embedding table.")

    def _leaves(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Tensor]:
        """The tensors among the arguments; everything else has to be as in the example."""
        leaves, structure = pytree.tree_flatten((args, kwargs))
        wanted = self._signature.arguments
        if structure != self._signature.structure:
            raise GossamerError("the arguments are not nested as those of the example were. Call it as in the example.")
        for leaf, right in zip(leaves, wanted, strict=True):
            if right is not TENSOR and (isinstance(leaf, Tensor) or leaf != right):
                raise GossamerError(f"an argument is {leaf!r}; it was {right!r} in the example, and is fixed to that.")
        return [leaf for leaf, right in zip(leaves, wanted, strict=True) if right is TENSOR]

    def _nested(self, outputs: list[Tensor]) -> Any:
        pairs = zip(outputs, self._signature.batch_dimensions, strict=True)
        waiting = iter([output.movedim(0, dimension) for output, dimension in pairs])
        leaves = [next(waiting) if leaf is TENSOR else leaf for leaf in self._signature.results]
        return pytree.tree_unflatten(leaves, self._signature.result_structure)

    def extra_repr(self) -> str:
        """What `print` shows."""
        return f"{self._library.constants.nbytes:,} bytes of weights, {self.threads} threads"

    def __deepcopy__(self, memo: dict[int, Any]) -> NativeModule:
        return self  # nothing in it changes

    def __reduce__(self) -> NoReturn:
        raise GossamerError(
            "a native module holds machine code for this machine and cannot be pickled. Save the model that it was "
            "made from (gossamer.save), and call gossamer.native again where it is loaded."
        )


def _checked(tensor: Any, wanted: tuple[tuple[int, ...], torch.dtype]) -> Tensor:
    """An input in the form that the library reads: float32, one sample behind the other."""
    shape, dtype = wanted
    if not isinstance(tensor, Tensor) or tensor.dtype is not dtype or tensor.shape[1:] != shape or not tensor.is_cpu:
        found = f"a {type(tensor).__name__}"
        if isinstance(tensor, Tensor):
            found = f"a {tensor.dtype} of shape {tuple(tensor.shape)} on {tensor.device}"
        raise GossamerError(
            f"an input is {found}; it has to be a {dtype} of shape (batch, {', '.join(map(str, shape))}) on the CPU, "
            "as in the example."
        )
    if tensor.requires_grad and torch.is_grad_enabled():
        raise GossamerError(
            "an input requires a gradient, and a native module computes none. "
            "Call it under torch.no_grad(), or give input.detach()."
        )
    if dtype is not torch.float32:
        if dtype is not torch.bool and tensor.numel():
            low, high = (int(bound) for bound in tensor.aminmax())
            if max(-low, high) > _LARGEST_INTEGER:
                raise GossamerError(
                    f"an input has integers from {low} to {high}. They are held as float32, which is exact up to "
                    f"{_LARGEST_INTEGER:,} only."
                )
        tensor = tensor.float()
    plain: Tensor = tensor if tensor.is_contiguous() else tensor.contiguous()
    return plain
