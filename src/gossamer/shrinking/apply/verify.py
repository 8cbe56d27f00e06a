"""Verification: the outputs of the full and of the smaller model, on the example and on random inputs.

Some random inputs have the shapes of the example, one has another batch size, length or image size, as far as the model
accepts them (`other_sizes`), and some have `further` sizes. Evaluation mode is compared, or the mode in which the model
is, with dropout disabled and with equal random numbers. Two outputs agree if they differ by rounding only
(`gossamer.example.disagreement`).
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from gossamer.errors import GossamerError
from gossamer.example import Call, disagreement, evaluating
from gossamer.shrinking.apply.conditioning import well_conditioned
from gossamer.shrinking.apply.dims import is_like
from gossamer.shrinking.apply.further import at_further_sizes, with_other_lengths, with_other_numbers
from gossamer.shrinking.apply.guards import GuardError
from gossamer.shrinking.apply.other_sizes import at_other_sizes, at_size_one
from gossamer.shrinking.apply.probes import IndexRanges, Probe, random_calls, run
from gossamer.shrinking.decide import Rejected

__all__ = ["Reference", "evaluation_reference", "training_reference"]

_SEEDS = 16
"""How often a training forward that is random is compared."""

_WITH_DROPOUT = {
    functional.dropout,
    functional.dropout1d,
    functional.dropout2d,
    functional.dropout3d,
    functional.alpha_dropout,
    functional.feature_alpha_dropout,
    functional.multi_head_attention_forward,
}


@dataclass(frozen=True)
class Reference:
    """Calls with the outputs of the full model, in evaluation mode or in the mode in which its modules are.

    The first call is the example, unless it fails in training mode. `other_sizes` is the call whose inputs have other
    sizes than the example, if the model accepts any; `further` calls have still other sizes, or other numbers among
    their arguments. `dropout` if some of it is active in that mode.
    """

    example: Call
    probes: tuple[Probe, ...]
    ranges: IndexRanges
    training: bool = False
    dropout: bool = False
    other_sizes: Call | None = None
    further: tuple[Probe, ...] = ()

    def matches(self, model: nn.Module) -> bool:
        """Whether a model gives these outputs; false if it fails. A graph may refuse other sizes than the example's."""
        return self.differs_at(model) is None

    def differs_at(self, model: nn.Module) -> Call | None:
        """The first call at which a model gives other outputs or fails; None if there is none."""
        with _training(model) if self.training else evaluating(model):
            probes = (*self.probes, *self.further)
            return next((probe.call for probe in probes if not self._agrees(model, probe)), None)

    def verified(
        self, build: Callable[[], nn.Module], otherwise: Callable[[nn.Module], None] | None = None
    ) -> nn.Module | Rejected:
        """The model that `build` returns, if it gives these outputs, or does after `otherwise` has changed it."""
        try:
            model = build()
        except GossamerError:
            raise
        except Exception:  # a plan that cannot be carried out, such as a graph that cannot be rewritten
            return Rejected(None)
        rejected = self.rejected(model)
        if rejected is None or otherwise is None:
            return rejected or model
        otherwise(model)
        return self.rejected(model) or model

    def rejected(self, model: nn.Module) -> Rejected | None:
        """Why a model does not hold, or None if it gives these outputs."""
        if self.matches(model):
            return None
        call = self.differs_at(model)
        return Rejected(None if call is None or is_like(self.example, call) else call)

    def with_size_one(self, model: nn.Module) -> Reference:
        """With further calls whose batch, or whose other free dimensions, have the size one."""
        if self.other_sizes is None:
            return self
        with evaluating(model):
            ones = at_size_one(model, self.example, self.other_sizes, self.ranges)
        return replace(self, further=(*self.further, *ones))

    def _agrees(self, model: nn.Module, probe: Probe) -> bool:
        try:
            found = _run_seeded(model, probe.call, probe.seed) if self.training else run(model, probe.call)
        except Exception as error:  # a forward that does not run with the smaller sizes, or a guard
            return isinstance(error.__cause__, GuardError) and not is_like(self.example, probe.call)
        return disagreement(found, probe.outputs) is None


def evaluation_reference(model: nn.Module, call: Call) -> Reference:
    """The outputs of the model in evaluation mode, on the example and on those random inputs that it accepts.

    Raises:
        GossamerError: when the model fails on the example, or its outputs are random or not finite.
    """
    ranges = IndexRanges()
    _check_layouts("`example` has", call.tensors())
    with evaluating(model):
        with ranges:  # which makes `nn.TransformerEncoder` avoid its fused path, that has other outputs at padding
            watched = run(model, call)
        _check_layouts(f"`model` ({type(model).__name__}) returns", watched)
        probes = [Probe(call, run(model, call))]
        same = disagreement(watched, probes[0].outputs) is None
        if not same and disagreement(run(model, call), probes[0].outputs) is not None:
            raise GossamerError(
                f"`model` ({type(model).__name__}) gives different outputs for the same input in evaluation mode, so "
                "nothing can be verified. Remove the randomness from its forward, or make it depend on `self.training`."
            )
        for candidate in random_calls(call, ranges):
            try:
                probes.append(Probe(candidate, run(model, candidate)))
            except GossamerError:
                continue  # a model whose inputs have to be sorted, say, or positive definite
        _check_finite(model, probes)
        other = at_other_sizes(model, call, ranges)
        further = [] if other is None else at_further_sizes(model, call, other, ranges)
        further += with_other_numbers(model, probes[0], other, ranges) + with_other_lengths(model, call, ranges)
        further = well_conditioned(model, further, call, lambda probe: run(model, probe.call))
    probes += [Probe(other.call, other.outputs)] if other is not None else []
    return Reference(
        call, tuple(probes), ranges, other_sizes=None if other is None else other.call, further=tuple(further)
    )


def training_reference(model: nn.Module, evaluation: Reference) -> Reference:
    """The outputs in the mode in which the model is, on those inputs that it accepts in that mode.

    If they are random, they are taken several times, with different random numbers: a branch may be rare.

    Raises:
        GossamerError: when it accepts none of them.
    """
    failure: GossamerError | None = None

    def probe_at(call: Call) -> list[Probe]:
        nonlocal failure
        try:
            return [Probe(call, _run_seeded(model, call, 0))]
        except GossamerError as error:  # such as batch statistics of a single element
            failure = failure or error
            return []

    with _training(model) as without_dropout:
        probes = [probe for each in evaluation.probes for probe in probe_at(each.call)]
        further = [probe for each in evaluation.further for probe in probe_at(each.call)]
        further = well_conditioned(
            model, further, evaluation.example, lambda probe: _run_seeded(model, probe.call, probe.seed)
        )
        is_random = _random_states() != _seed_all(0)
        if probes and is_random:
            call = probes[0].call
            probes += [Probe(call, _run_seeded(model, call, seed), seed) for seed in range(1, _SEEDS)]
    if not probes and not further:
        raise GossamerError(
            f"`model` is in training mode, and fails in that mode: {failure} More than one sample, or model.eval() "
            "before shrink_, may be what it needs."
        )
    dropout = is_random or without_dropout.disabled_any
    return replace(evaluation, probes=tuple(probes), further=tuple(further), training=True, dropout=dropout)


def _check_layouts(holder: str, tensors: list[Tensor]) -> None:
    """Raise an error for sparse and nested tensors, of which no random ones can be drawn and compared."""
    for tensor in tensors:
        if tensor.is_nested or tensor.layout is not torch.strided:
            kind = "nested tensor" if tensor.is_nested else f"tensor with the layout {tensor.layout}"
            raise GossamerError(
                f"{holder} a {kind}, on which nothing can be verified. Shrink the submodules that take and return "
                "dense tensors, or let the forward build it from a dense one."
            )


def _check_finite(model: nn.Module, probes: list[Probe]) -> None:
    """Raise an error if no output has a finite element: NaN agrees with NaN, whatever was removed."""
    if not any(probe.outputs for probe in probes):
        raise GossamerError(
            f"`model` ({type(model).__name__}) returns no tensor that can be found, so nothing can be verified. Return "
            "tensors in tuples, lists and dictionaries, or register your class with torch.export.register_dataclass."
        )
    if not any(output.numel() for probe in probes for output in probe.outputs):
        raise GossamerError(
            f"no output of `model` ({type(model).__name__}) on `example` has an element, so nothing can be verified. "
            "Give an example of at least one sample, and of a length or an image size of at least one."
        )
    outputs = [output for probe in probes for output in probe.outputs]
    outputs = [output for output in outputs if output.is_floating_point() or output.is_complex()]
    if outputs and not any(bool(output.isfinite().any()) for output in outputs):
        raise GossamerError(
            f"all outputs of `model` ({type(model).__name__}) are NaN or infinite, on `example` and on random inputs, "
            "so nothing can be verified. Check its parameters and running statistics."
        )


def _run_seeded(model: nn.Module, call: Call, seed: int) -> list[Tensor]:
    """The outputs of one call; what is random in it is random in the same way every time."""
    _seed_all(seed)
    return run(model, call)


def _seed_all(seed: int) -> list[object]:
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)
    return _random_states()


def _random_states() -> list[object]:
    numbers = np.random.get_state()
    tensors = [torch.get_rng_state(), *(torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [])]
    return [[t.tolist() for t in tensors], random.getstate(), [np.asarray(part).tolist() for part in numbers]]


@contextmanager
def _training(model: nn.Module) -> Iterator[_WithoutDropout]:
    """The mode in which the model is, without dropout. Random states are restored."""
    states = random.getstate(), np.random.get_state()
    devices = {p.device.index for p in model.parameters() if p.device.type == "cuda"}
    try:
        with torch.no_grad(), torch.random.fork_rng(sorted(devices)), _WithoutDropout() as mode:
            yield mode
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])


class _WithoutDropout(TorchFunctionMode):
    """Disable dropout in modules, in functions and inside attention. `disabled_any` if one had a probability."""

    disabled_any = False

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        del types
        named = dict(kwargs or {})
        if func in _WITH_DROPOUT:
            given = inspect.signature(func).bind(*args, **named)
            given.apply_defaults()
            share = given.arguments.get("p", given.arguments.get("dropout_p"))
            self.disabled_any |= bool(given.arguments["training"] and share)
            named["training"] = False
        elif func is functional.scaled_dot_product_attention and len(args) > 4:
            self.disabled_any |= bool(args[4])
            args = (*args[:4], 0.0, *args[5:])
        elif func is functional.scaled_dot_product_attention:
            self.disabled_any |= bool(named.get("dropout_p"))
            named["dropout_p"] = 0.0
        return func(*args, **named)
