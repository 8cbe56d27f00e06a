"""`native`: a model compiled for this machine, checked against the model, as a module."""

from __future__ import annotations

import ctypes
import math
import time
import warnings

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from gossamer.compiler import find_compiler, load_library
from gossamer.errors import GossamerError
from gossamer.example import Call, Example, call_with
from gossamer.inference.lowering import lower
from gossamer.inference.machine import Machine
from gossamer.inference.module import Library, NativeModule, Signature
from gossamer.inference.program import Program
from gossamer.inference.runtime import FLAGS, library_source, runtime
from gossamer.inference.tracing import TENSOR, Traced, first_sample, trace
from gossamer.inference.verification import Expectation, check_model, check_outputs, expect, repeated
from gossamer.shrinking import shrink

__all__ = ["lowered", "native"]

_CALIBRATION = 0.02  # seconds of the processor
# Below, in seconds of work for each, another thread costs more than it saves: to wake it up takes some microseconds.
_WORTH_A_THREAD = 1.2e-5
_LONG = 0.01  # seconds of a vector of samples, from which on a larger batch is not timed
_SHORT = 1e-4  # below, a batch is timed that is much larger: the difference has to stand out from the time of a call
_MOST_THREADS = 1024
_NEVER = 2**62


def native(model: nn.Module, example: Example, threads: int | None = None) -> NativeModule:
    """`model` in evaluation mode, compiled for this machine into code that multiplies only its non-zeros.

    The compiled module has been seen to return what the model returns, to rounding, on the example and on random inputs
    like it. Weights are those of now: what is changed in the model afterwards does not change it.

    Args:
        model: A network of float32 on the CPU. Dead units are left out, as `shrink` does.
        example: A tensor, a tuple of positional arguments, or a dictionary of keyword arguments; the first dimension of
            each tensor is the batch. Later calls may have any batch size.
        threads: Among which a batch is split, the one that calls included; None: as many as PyTorch uses. The others
            are shared by all native modules of a process.

    Returns:
        A module for inference, called like the model.

    Raises:
        GossamerError: If there is no compiler or it fails, if an operation of the model has no C, if the output of a
            sample depends on the others in its batch, or if the outputs do not agree.
    """
    if threads is not None and (not isinstance(threads, int) or not 1 <= threads <= _MOST_THREADS):
        raise GossamerError(
            f"`threads` is {threads!r}. Give a number from 1 to {_MOST_THREADS}, or None for as many as PyTorch uses."
        )
    compiler = find_compiler("c")
    call = call_with(model, example)
    traced, program = lowered(model, call)
    machine = Machine.here(compiler)
    built = runtime(program, machine, "network")
    run = load_library(library_source([built], machine), "native", FLAGS).network_run
    pointers = [ctypes.c_void_p] * (len(program.inputs) + len(program.outputs))
    run.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long, *pointers]
    run.restype = ctypes.c_int
    expected = expect(model, call, samples=machine.lanes + 1)
    library = Library(run, built.constants, built.workspace, machine.lanes)
    module = NativeModule(library, _signature(traced, program, expected), threads or torch.get_num_threads())
    _verify(module, expected, machine.lanes)
    _calibrate(module, expected, machine.lanes)
    return module


def lowered(model: nn.Module, call: Call) -> tuple[Traced, Program]:
    """The program of a model without its dead units; as it is, where these cannot be removed."""
    check_model(model, call)
    sample = first_sample(call)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            small = shrink(model, call.args or call.kwargs)
        traced = trace(small, sample)
        return traced, lower(traced)
    except GossamerError:
        traced = trace(model, sample)
        return traced, lower(traced)


def _signature(traced: Traced, program: Program, expected: Expectation) -> Signature:
    leaves, structure = pytree.tree_flatten((expected.call.args, expected.call.kwargs))
    tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
    shapes = [
        (*shape[:dimension], *shape[dimension + 1 :])
        for shape, dimension in zip(program.shapes, expected.batch_dimensions, strict=True)
    ]
    return Signature(
        inputs=tuple((tuple(tensor.shape[1:]), tensor.dtype) for tensor in tensors),
        arguments=tuple(TENSOR if isinstance(leaf, Tensor) else leaf for leaf in leaves),
        structure=structure,
        outputs=tuple(shapes),
        batch_dimensions=expected.batch_dimensions,
        results=traced.results,
        result_structure=traced.structure,
    )


def _verify(module: NativeModule, expected: Expectation, lanes: int) -> None:
    """A whole vector of samples and one with a single sample; the same sample by sample; the same with threads."""
    for vector_from, samples_per_thread in ((1, _NEVER), (lanes + 1, _NEVER), (1, 1)):
        module.run_as(vector_from, samples_per_thread)
        check_outputs(expected, expected.call.run(module))


def _calibrate(module: NativeModule, expected: Expectation, lanes: int) -> None:
    """Find out from how many samples on a vector with empty lanes pays, instead of sample by sample; and a thread.

    Once for a batch of one vector and once for larger ones, which do not stay in the caches between two layers.
    """
    vector_from, seconds = _vector_from(module, expected.call, lanes, 1)
    large, sample = vector_from, seconds / lanes
    if seconds < _LONG:
        large, _ = _vector_from(module, expected.call, lanes, 4)
        module.run_as(vector_from, large=large)
        if module.threads > 1:
            sample = _seconds_of_a_sample(module, expected.call, lanes, 16 if seconds < _SHORT else 4)
    module.run_as(vector_from, math.ceil(_WORTH_A_THREAD / sample), large)


def _vector_from(module: NativeModule, call: Call, lanes: int, vectors: int) -> tuple[int, float]:
    """From how many samples on a vector pays in a batch of so many whole vectors, and the seconds of the batch."""
    batch, seconds = repeated(call, vectors * lanes), {}
    for vector_from in (1, lanes + 1):
        module.run_as(vector_from)
        seconds[vector_from] = _fastest_of(module, batch)
    pays = math.ceil(seconds[1] / seconds[lanes + 1] * lanes)
    return min(lanes + 1, max(1, pays)), min(seconds.values())


def _seconds_of_a_sample(module: NativeModule, call: Call, lanes: int, vectors: int) -> float:
    """What another sample adds to a batch of up to so many vectors, without the time that a call takes in Python."""
    few, many = (_fastest_of(module, repeated(call, number * lanes)) for number in (2, vectors))
    return max(many - few, 1e-9) / ((vectors - 2) * lanes)


def _fastest_of(module: NativeModule, call: Call) -> float:
    """Seconds of the processor for a call in one thread: the fewest of several, without what else the machine does."""
    best, now = math.inf, time.thread_time()
    end = now + _CALIBRATION
    while now < end:
        started = now
        call.run(module)
        now = time.thread_time()
        best = min(best, now - started)
    return best
