"""Linear layers in CSR form, where a measurement on this machine shows that they are faster."""

from __future__ import annotations

import copy
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import torch
from torch import Tensor, nn

from gossamer.errors import GossamerError
from gossamer.example import Call, Example, call_with, disagreement

__all__ = ["CSRLinear", "LinearTiming", "Seconds", "best_seconds", "fastest_linear"]

Seconds: TypeAlias = Callable[[Callable[[], object]], float]

# With more than this share of non-zeros no CSR product has a chance, so the time to measure it is saved.
_DENSEST = 0.5
# What torch multiplies in CSR form on every CPU.
_DTYPES = (torch.float32, torch.float64)
# Faster by less than this is noise.
_MARGIN = 0.9


class CSRLinear(nn.Module):
    """`x @ weight.T + bias` with the weight in CSR form, for inference."""

    weight: Tensor
    bias: Tensor | None

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features = linear.in_features
        self.out_features = linear.out_features
        with warnings.catch_warnings():
            # torch says once in each process that its CSR tensors are in beta state.
            warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
            self.register_buffer("weight", linear.weight.detach().to_sparse_csr())
        self.register_buffer("bias", None if linear.bias is None else linear.bias.detach().clone())

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - the name that nn.Linear has
        """The layer's output for inputs of shape (..., in_features)."""
        rows = input.reshape(-1, self.in_features)
        # The sparse matrix stands on the left: torch is several times slower with it on the right.
        product = (self.weight @ rows.t()).t()
        if self.bias is not None:
            product = product + self.bias
        return product.reshape(*input.shape[:-1], self.out_features)

    def extra_repr(self) -> str:
        """Sizes and number of non-zeros."""
        kept = self.weight.values().numel()
        return f"in_features={self.in_features}, out_features={self.out_features}, nonzero={kept}"


@dataclass(frozen=True)
class LinearTiming:
    """What was measured for one linear layer.

    Attributes:
        name: The layer's path in the network.
        density: Share of its weights that are not zero.
        dense_seconds: Time of its calls in one run of the example; None where it was not measured.
        csr_seconds: The same with the sparse weight; None where it was not measured.
        sparse: Whether it was replaced.
    """

    name: str
    density: float
    dense_seconds: float | None
    csr_seconds: float | None
    sparse: bool


def fastest_linear(
    model: nn.Module,
    example: Example,
    *,
    seconds: Seconds | None = None,
) -> tuple[nn.Module, tuple[LinearTiming, ...]]:
    """A copy of `model` for inference with linear layers in CSR form where that is faster, and the measurements.

    Every `nn.Linear` that is called and has at least half of its weights zero runs dense and sparse on the inputs
    that it gets from `example`, on this machine, with the number of threads that torch has now. It is replaced only
    if that is at least a tenth faster. The outputs agree to rounding. `model` itself is not touched.

    Args:
        model: A network on the CPU.
        example: A tensor, a tuple of positional arguments, or a dictionary of keyword arguments, with the batch
            size that will be used.
        seconds: How to time a call: takes a function, returns its seconds. The best of several runs by default.
    """
    call = call_with(model, example)
    if any(tensor.device.type != "cpu" for tensor in model.parameters()):
        raise GossamerError("fastest_linear measures on the CPU, and the model is elsewhere. Give model.cpu().")
    faster = copy.deepcopy(model).eval()
    with torch.no_grad():
        wanted = call.run(faster)
        timings, replacements = _compare_all(faster, _linear_inputs(faster, call), seconds or best_seconds)
        faster = _replaced(faster, replacements)
        _check_outputs(faster, call, wanted)
    return faster, timings


def _check_outputs(model: nn.Module, call: Call, wanted: list[Tensor]) -> None:
    try:
        difference = disagreement(call.run(model), wanted)
    except GossamerError as error:
        difference = str(error)
    if difference:
        raise GossamerError(
            f"with sparse linear layers the model does not give the same: {difference} "
            "Check that it gives the same output twice in evaluation mode; if it does, keep it dense."
        )


def _compare_all(
    model: nn.Module, inputs: Mapping[nn.Module, list[Tensor]], seconds: Seconds
) -> tuple[tuple[LinearTiming, ...], dict[nn.Module, nn.Module]]:
    timings = []
    replacements: dict[nn.Module, nn.Module] = {}
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear) and module in inputs:
            timing, replacement = _compare(name, module, inputs[module], seconds)
            timings.append(timing)
            if timing.sparse:
                replacements[module] = replacement
    return tuple(timings), replacements


def best_seconds(call: Callable[[], object]) -> float:
    """The shortest of the runs of `call` that fit into a twentieth of a second, but at least five."""
    call()
    best = float("inf")
    runs = 0
    start = time.perf_counter()
    while runs < 5 or time.perf_counter() - start < 0.05:
        begin = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - begin)
        runs += 1
    return best


def _linear_inputs(model: nn.Module, call: Call) -> dict[nn.Module, list[Tensor]]:
    """What each linear layer is called with. A layer whose weight is used without calling it does not appear."""
    inputs: dict[nn.Module, list[Tensor]] = {}

    def remember(module: nn.Module, args: tuple[Tensor, ...], kwargs: dict[str, Tensor]) -> None:
        inputs.setdefault(module, []).append((args[0] if args else kwargs["input"]).detach())

    # Subclasses may do more than multiply, so only the plain class is considered.
    plain = [module for module in model.modules() if type(module) is nn.Linear]
    hooks = [module.register_forward_pre_hook(remember, with_kwargs=True) for module in plain]
    try:
        call.run(model)
    finally:
        for hook in hooks:
            hook.remove()
    return inputs


def _compare(name: str, linear: nn.Linear, inputs: list[Tensor], seconds: Seconds) -> tuple[LinearTiming, nn.Module]:
    density = linear.weight.count_nonzero().item() / max(linear.weight.numel(), 1)
    if density > _DENSEST or linear.weight.numel() == 0 or linear.weight.dtype not in _DTYPES:
        return LinearTiming(name, density, None, None, sparse=False), linear
    csr = CSRLinear(linear).eval()
    dense_seconds = sum(seconds(partial(linear, x)) for x in inputs)
    csr_seconds = sum(seconds(partial(csr, x)) for x in inputs)
    timing = LinearTiming(name, density, dense_seconds, csr_seconds, sparse=csr_seconds < _MARGIN * dense_seconds)
    return timing, csr


def _replaced(model: nn.Module, replacements: Mapping[nn.Module, nn.Module]) -> nn.Module:
    if model in replacements:
        return replacements[model]
    for module in list(model.modules()):
        # Not `named_children`: it skips the second name of a module that has two.
        for name, child in list(module._modules.items()):
            if child is not None and child in replacements:
                setattr(module, name, replacements[child])
    return model
