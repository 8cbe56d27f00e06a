"""A lowered network as a module: a compiled library, its weights, and a cheap call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from gossamer.errors import GossamerError
from gossamer.inference.memory import aligned

__all__ = ["Library", "NativeModule", "Signature"]

# Below, in seconds of work for each, another thread costs more than it saves.
_WORTH_A_THREAD = 1e-4


@dataclass(frozen=True)
class Library:
    """A compiled program: its function, the constants it is called with, and the workspace of a thread."""

    run: Callable[..., int]
    constants: npt.NDArray[np.uint8]
    workspace: int
    lanes: int


@dataclass(frozen=True)
class Signature:
    """How the model is called and what it returns.

    Attributes:
        inputs: The shape of a sample of each input, and its dtype.
        arguments: The example's arguments, (args, kwargs), flattened; None for a tensor.
        structure: How they are nested.
        outputs: The shape of each output for one sample, without its batch dimension.
        batch_dimensions: Which dimension of each output is the batch.
        results: What is returned, flattened; None for an output.
        result_structure: How it is nested.
    """

    inputs: tuple[tuple[tuple[int, ...], torch.dtype], ...]
    arguments: tuple[Any, ...]
    structure: pytree.TreeSpec
    outputs: tuple[tuple[int, ...], ...]
    batch_dimensions: tuple[int, ...]
    results: tuple[Any, ...]
    result_structure: pytree.TreeSpec


class NativeModule(nn.Module):
    """Inference by a compiled library that multiplies only non-zeros; made by `gossamer.native`.

    It is called like the model it was made from, with batches of any size, and returns what the model returns in
    evaluation mode. It has no parameters and computes no gradients. Calls from several threads run at the same time.

    Args:
        library: The compiled program.
        signature: How the model is called.
        threads: Among which a batch is split.
    """

    def __init__(self, library: Library, signature: Signature, threads: int) -> None:
        super().__init__()
        self.threads = threads
        # What is left of a batch is computed as a vector with empty lanes if it has at least so many samples.
        self.least = 1
        self.seconds_per_sample = 0.0
        self._library = library
        self._signature = signature
        self._run = library.run
        self._constants = library.constants.ctypes.data
        self._idle: list[npt.NDArray[np.uint8]] = []  # append and pop are atomic
        self._one_tensor = len(signature.arguments) == 1 and len(signature.inputs) == 1
        self.eval()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the model returns for these inputs."""
        signature = self._signature
        given: Sequence[Tensor]
        given = args if self._one_tensor and len(args) == 1 and not kwargs else self._leaves(args, kwargs)
        tensors = [
            _checked(tensor, *wanted, number)
            for number, (tensor, wanted) in enumerate(zip(given, signature.inputs, strict=True))
        ]
        n = tensors[0].shape[0]
        outputs = [torch.empty((n, *shape)) for shape in signature.outputs]
        if n:
            self._call(tensors, outputs, n)
        results = [
            output.movedim(0, place) if place else output
            for output, place in zip(outputs, signature.batch_dimensions, strict=True)
        ]
        if signature.results == (None,):
            return results[0] if signature.result_structure.is_leaf() else self._nested(results)
        return self._nested(results)

    def _call(self, tensors: Sequence[Tensor], outputs: Sequence[Tensor], n: int) -> None:
        if any(len(tensor) != n for tensor in tensors):
            raise GossamerError(f"the inputs have batches of {[len(tensor) for tensor in tensors]} samples.")
        threads = 1
        if self.threads > 1:
            worth = int(n * self.seconds_per_sample / _WORTH_A_THREAD)
            threads = max(1, min(self.threads, worth, -(-n // self._library.lanes)))
        workspace = self._workspace()
        pointers = [tensor.data_ptr() for tensor in tensors] + [output.data_ptr() for output in outputs]
        failed = self._run(self._constants, workspace.ctypes.data, n, self.least, threads, *pointers)
        self._idle.append(workspace)
        if failed:
            raise GossamerError("an index in the input is outside of its embedding table.")

    def _workspace(self) -> npt.NDArray[np.uint8]:
        """Memory for one call, of an earlier call if there is any."""
        try:
            return self._idle.pop()
        except IndexError:
            return aligned(self.threads * self._library.workspace)

    def _leaves(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Tensor]:
        """The tensors among the arguments; everything else has to be as in the example."""
        leaves, structure = pytree.tree_flatten((args, kwargs))
        wanted = self._signature.arguments
        if structure != self._signature.structure:
            raise GossamerError("the arguments are not nested as those of the example were. Call it as in the example.")
        for leaf, right in zip(leaves, wanted, strict=True):
            if right is not None and (isinstance(leaf, Tensor) or leaf != right):
                raise GossamerError(f"an argument is {leaf!r}; it was {right!r} in the example, and is fixed to that.")
        return [leaf for leaf, right in zip(leaves, wanted, strict=True) if right is None]

    def _nested(self, outputs: list[Tensor]) -> Any:
        waiting = iter(outputs)
        leaves = [next(waiting) if leaf is None else leaf for leaf in self._signature.results]
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


def _checked(tensor: Any, shape: tuple[int, ...], dtype: torch.dtype, number: int) -> Tensor:
    """An input in the form that the library reads: float32, one sample behind the other."""
    if not isinstance(tensor, Tensor) or tensor.dtype is not dtype or tensor.shape[1:] != shape or not tensor.is_cpu:
        found = f"a {type(tensor).__name__}"
        if isinstance(tensor, Tensor):
            found = f"a {tensor.dtype} of shape {tuple(tensor.shape)} on {tensor.device}"
        raise GossamerError(
            f"input {number} is {found}; it has to be a {dtype} of shape (batch, {', '.join(map(str, shape))}) on the "
            "CPU, as in the example."
        )
    if tensor.requires_grad and torch.is_grad_enabled():
        raise GossamerError(
            f"input {number} requires a gradient, and a native module computes none. "
            "Call it under torch.no_grad(), or give input.detach()."
        )
    if dtype is not torch.float32:
        tensor = tensor.float()
    plain: Tensor = tensor if tensor.is_contiguous() else tensor.contiguous()
    return plain
