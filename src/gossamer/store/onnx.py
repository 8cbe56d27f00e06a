"""Export to ONNX, verified in ONNX Runtime."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from gossamer.errors import GossamerError
from gossamer.example import Call, Example, call_with, disagreement, evaluating
from gossamer.files import staged

__all__ = ["export_onnx"]

_NEEDED = ("onnx", "onnxscript", "onnxruntime")

# A protobuf file ends at 2 GiB; the graph itself needs some of that.
_LARGEST_SINGLE_FILE = 2**31 - 2**24

_ADVICE = (
    "Check that the model gives the same output twice in evaluation mode, and convert model and example to float32; "
    "if that does not help, the exporter is at fault."
)
_ADVICE_ON_BATCH = (
    "It works with the batch size of `example`, and not with twice that. "
    "Choose another `batch_dimension`, or None to fix all sizes."
)


@dataclass(frozen=True)
class _Check:
    """Inputs, the outputs that the exported model must give for them, and what to do if it does not."""

    call: Call
    wanted: list[Tensor]
    advice: str

    def run(self, file: Path) -> None:
        """Run `file` in ONNX Runtime."""
        try:
            difference = disagreement(_outputs(file, self.call), [tensor.cpu() for tensor in self.wanted])
        # ONNX Runtime has no common class of errors, and torch raises its own for types that numpy lacks.
        except Exception as error:
            raise GossamerError(
                f"ONNX Runtime cannot run the exported model: {_first_line(error)}. Nothing was written. {self.advice}"
            ) from error
        if difference:
            raise GossamerError(
                f"the exported model, run by ONNX Runtime, disagrees with the model: {difference}. "
                f"Nothing was written. {self.advice}"
            )


def export_onnx(
    model: nn.Module, path: str | os.PathLike[str], example: Example, *, batch_dimension: int | None = 0
) -> None:
    """Write `model` in evaluation mode to the ONNX file `path`, and check it in ONNX Runtime on the example.

    The file appears only if ONNX Runtime gives the outputs of `model`, to rounding, on `example` and on a batch of
    `example` twice. The weights are inside; above 2 GB, which ONNX cannot hold in one file, they lie beside it in
    `<name>.data`.

    Args:
        model: The network; its training mode is afterwards as before.
        path: Where to write; what is there is replaced.
        example: A tensor, a tuple of positional arguments, or a dictionary of keyword arguments.
        batch_dimension: The dimension whose size stays free, in every input that has there the size that the
            first input has; None fixes all sizes to those of the example.
    """
    _check_installed()
    call = call_with(model, example)
    with evaluating(model):
        checks = [_Check(call, call.run(model), _ADVICE)]
        program = _export(model, call, batch_dimension)
        if batch_dimension is not None:
            larger = _twice(call, batch_dimension)
            checks.append(_Check(larger, larger.run(model), _ADVICE_ON_BATCH))
    with staged(path) as place:
        _write(program, place)
        for check in checks:
            check.run(place)


def _check_installed() -> None:
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise GossamerError(
            f"export_onnx needs {', '.join(missing)}, which is not installed. Run: pip install 'gossamer[onnx]'"
        )


def _export(model: nn.Module, call: Call, batch_dimension: int | None) -> Any:
    shapes = None if batch_dimension is None else _free_batch(call, batch_dimension)
    try:
        with _quiet():
            program = torch.onnx.export(
                model,
                call.args,
                kwargs=call.kwargs,
                dynamo=True,
                dynamic_shapes=shapes,
                verbose=False,
            )
    except Exception as error:
        raise GossamerError(
            f"torch.onnx cannot export this model: {_first_line(error)}. "
            "If it is about sizes, choose another `batch_dimension`, or None to fix all sizes."
        ) from error
    assert program is not None
    inputs = program.model.graph.inputs
    if len(inputs) != len(call.tensors()):
        raise GossamerError(
            f"the exported model takes {[value.name for value in inputs]}, and `example` has {len(call.tensors())} "
            "tensors. Leave out what the model does not use."
        )
    if batch_dimension is not None:
        _check_free(inputs, call, batch_dimension)
    return program


def _free_batch(call: Call, dimension: int) -> Any:
    batch = torch.export.Dim("batch")
    free = {id(tensor) for tensor in _batched(call, dimension)}

    def shape(leaf: object) -> dict[int, Any] | None:
        return {dimension: batch} if id(leaf) in free else None

    return pytree.tree_map(shape, call.args or call.kwargs)


def _batched(call: Call, dimension: int) -> list[Tensor]:
    """The inputs that have a batch dimension: as large there as the first input."""
    first, *_ = tensors = call.tensors()
    if not 0 <= dimension < first.dim():
        raise GossamerError(
            f"`batch_dimension` is {dimension}, and the first input has the shape {tuple(first.shape)}. "
            "Give one of its dimensions, or None to fix all sizes."
        )
    size = first.shape[dimension]
    return [tensor for tensor in tensors if tensor.dim() > dimension and tensor.shape[dimension] == size]


def _check_free(inputs: Sequence[Any], call: Call, dimension: int) -> None:
    """Where the model works with one size only, the exporter fixes it without a word."""
    free = {id(tensor) for tensor in _batched(call, dimension)}
    for value, tensor in zip(inputs, call.tensors(), strict=True):
        if id(tensor) in free and isinstance(value.shape[dimension], int):
            raise GossamerError(
                f"the model works only with the size {value.shape[dimension]} in dimension {dimension} of its input "
                f"{value.name!r}. Choose another `batch_dimension`, or None to fix all sizes."
            )


def _twice(call: Call, dimension: int) -> Call:
    free = {id(tensor) for tensor in _batched(call, dimension)}

    def double(leaf: Any) -> Any:
        return torch.cat([leaf, leaf], dimension) if id(leaf) in free else leaf

    return Call(pytree.tree_map(double, call.args), pytree.tree_map(double, call.kwargs))


def _write(program: Any, place: Path) -> None:
    weights = sum(value.const_value.nbytes for value in program.model.graph.initializers.values())
    program.save(place, external_data=weights > _LARGEST_SINGLE_FILE)


def _outputs(file: Path, call: Call) -> list[Tensor]:
    # Imported here, by name: the library works without it, and it has no types to check.
    runtime = importlib.import_module("onnxruntime")
    options = runtime.SessionOptions()
    options.log_severity_level = 4  # what goes wrong is in our error, not on the terminal
    session = runtime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    inputs = zip(session.get_inputs(), call.tensors(), strict=True)
    outputs = session.run(None, {value.name: tensor.detach().cpu().numpy() for value, tensor in inputs})
    return [torch.as_tensor(output) for output in outputs]


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what the exporter says about itself: deprecations inside torch, and torchvision not being there."""
    registration = logging.getLogger("torch.onnx._internal.exporter._registration")
    level = registration.level
    registration.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            warnings.simplefilter("ignore", DeprecationWarning)
            warnings.filterwarnings("ignore", message="# The axis name")
            yield
    finally:
        registration.setLevel(level)


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0].rstrip(".") if lines else type(error).__name__
