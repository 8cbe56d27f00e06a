"""What `shrink` would leave of a model, computed many times while the model trains.

The model is traced once. After that only the analysis runs, on the present values of the weights: milliseconds for a
small network. Nothing is built, so nothing is verified: units that a verified plan has to keep (hard-coded sizes) are
counted as removed. `verified` has the last word.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch
from torch import Tensor, nn

from gossamer.example import Example, call_with
from gossamer.shrinking.analyse import Analysis, analyse
from gossamer.shrinking.api import shrink
from gossamer.shrinking.apply import biases_of_dead_units, smaller_copy, take
from gossamer.shrinking.decide import decide, kept_indices, make_plan
from gossamer.shrinking.trace import TracedModel, state_tensors, trace

__all__ = ["Remaining"]

Result = TypeVar("Result")


class Remaining:
    """The part of a model that `shrink` would leave, once the biases of its dead units are zero.

    Args:
        model: the model; its tensors are the same after every call.
        example: what the model is called with.
    """

    def __init__(self, model: nn.Module, example: Example) -> None:
        self._model, self._example = model, example
        self._call = call_with(model, example)
        self._traced: TracedModel | None = None
        self._shapes: list[torch.Size] = []

    def name_of(self, tensor: Tensor) -> str:
        """The first name of a parameter or buffer of the model."""
        return next(name for name, own in state_tensors(self._model).items() if own is tensor)

    def evaluate(self, work: Callable[[Remaining], Result]) -> Result:
        """What `work` returns; of a sharded model, another object of this class answers for it."""
        return work(self)

    def parts(self, names: Iterable[str]) -> dict[str, Tensor]:
        """The parts that are left of parameters, given by their names."""
        with self._without_dead_biases() as analysis:
            indices, traced = kept_indices(analysis, decide(analysis)), analysis.traced.tensors
            kept, tensors = {traced[name]: own for name, own in indices.items()}, state_tensors(self._model)
            return {name: take(tensors[name].detach(), kept.get(tensors[name], {})) for name in names}

    def network(self) -> nn.Module:
        """A copy of the model with the part that is left."""
        with self._without_dead_biases() as analysis:
            return smaller_copy(self._model, make_plan(analysis)[0])

    def verified(self) -> nn.Module:
        """What `shrink` does leave now, as a module, after building and verifying it."""
        return shrink(self._model, self._example, form="module")

    def dead_biases(self) -> list[tuple[Tensor, Tensor]]:
        """The biases, norm shifts and running means of dead units, each with a mask of these entries."""
        return list(biases_of_dead_units(self._analysis()))

    @contextmanager
    def _without_dead_biases(self) -> Iterator[Analysis]:
        """The analysis of the model with the biases of its dead units at zero; they are restored at the end."""
        analysis = self._analysis()
        restore = [
            (tensor, tensor.detach().clone()) for tensor, dead in biases_of_dead_units(analysis) if _any(tensor, dead)
        ]
        with torch.no_grad():
            try:
                if restore:
                    for tensor, dead in biases_of_dead_units(analysis):
                        tensor[dead] = 0
                    analysis = self._analysis()
                yield analysis
            finally:
                for tensor, before in restore:
                    tensor.copy_(before)

    def _analysis(self) -> Analysis:
        shapes = [tensor.shape for tensor in (*self._model.parameters(), *self._model.buffers())]
        if self._traced is None or shapes != self._shapes:  # units have been removed since
            self._traced, self._shapes = trace(self._model, self._call), shapes
        return analyse(self._model, self._traced)


def _any(tensor: Tensor, entries: Tensor) -> bool:
    return bool((tensor.detach()[entries] != 0).any())
