"""What the callbacks of all trainers share: attach, hold, compact, measure, shrink."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils import _pytree as pytree

from gossamer.adapters.compaction import CarriedSizes, compact_
from gossamer.adapters.target import SizeToReach, as_target, options_for
from gossamer.errors import GossamerError
from gossamer.example import Example
from gossamer.measurement import Measurement, measure
from gossamer.proximal import ProximalStep, attach
from gossamer.regularizers import Regularizer
from gossamer.shrinking import plan, shrink
from gossamer.targets import Reached

__all__ = ["SparseTraining", "WithTraining"]

_ATTACH_OPTIONS = inspect.signature(attach).parameters.keys() - {"optimizer", "regularizer", "target", "steps"}


class SparseTraining:
    """One training with a regularizer, in the order in which a trainer reports its events.

    `prepare` before a state dict is loaded; `start` once the optimizer is there; `advance` before each step;
    `end_epoch`; `finish` at the end of the training; `stop` at its end or on an error.

    Attributes:
        handle: What `gossamer.attach` returned; None when no training runs.
        small: The shrunk network after the training; None before.
        reached: How the target was reached, once it is.
    """

    def __init__(
        self,
        regularizer: Callable[[nn.Module], Regularizer],
        *,
        target: SizeToReach | None = None,
        hold_at: float | None = 0.75,
        compact_every: int | None = None,
        shrink: bool = True,
        **options: Any,
    ) -> None:
        if not callable(regularizer):
            raise GossamerError(
                "`regularizer` must be a function from the model to a regularizer, such as "
                f"`lambda model: gossamer.l1(model, 1e-4)`; received a {type(regularizer).__name__}."
            )
        if hold_at is not None and not 0 <= hold_at <= 1:
            raise GossamerError(f"`hold_at` is a fraction of the training, from 0 to 1; received {hold_at!r}.")
        if compact_every is not None and compact_every < 1:
            raise GossamerError(f"`compact_every` is a number of epochs, 1 or more; received {compact_every!r}.")
        if unknown := sorted(options.keys() - _ATTACH_OPTIONS):
            raise GossamerError(
                f"`gossamer.attach` has no option {', '.join(unknown)}; it takes {', '.join(sorted(_ATTACH_OPTIONS))}."
            )
        self.handle: ProximalStep | None = None
        self.small: nn.Module | None = None
        self.reached: Reached | None = None
        self._target = as_target(target)
        self._regularizer = regularizer
        self._hold_at = hold_at
        self._compact_every = compact_every
        self._shrinks = shrink
        self._options = options
        self._carried: CarriedSizes | None = None

    def prepare(self, model: nn.Module) -> None:
        """Let the state dict of the model carry its sizes, if units are to leave during the training."""
        if self._compact_every is not None and (self._carried is None or self._carried.model is not model):
            self._carried = CarriedSizes(model)

    def start(self, model: nn.Module, example: Example, optimizer: Optimizer, steps: float) -> ProximalStep:
        """Attach the regularizer; what the end of the training would refuse is refused now.

        Args:
            model: The network.
            example: An input of it.
            optimizer: What trains it.
            steps: How long the training will be, in optimizer steps; infinite if it has no end.
        """
        self.stop()
        self.prepare(model)
        self.small = self.reached = None
        self._require_end(steps)
        aim = options_for(self._target, self._hold_at, steps)
        self._model, self._optimizer = model, optimizer
        self._example = pytree.tree_map_only(Tensor, lambda tensor: tensor.to(_device(model)), example)
        if self._shrinks or self._carried is not None:
            plan(model, self._example)
        resumed = None if self._carried is None else self._carried.full
        self._full = measure(model, self._example) if resumed is None else resumed
        self.handle = attach(optimizer, self._regularizer(model), **aim, **self._options)
        return self.handle

    def _require_end(self, total: float) -> None:
        if self._hold_at is not None and not math.isfinite(total):
            raise GossamerError(
                f"`hold_at={self._hold_at!r}` is a fraction of the training, and this training has no end. Set its "
                "number of epochs or steps, or `hold_at=None`."
            )

    def advance(self, done: float, total: float) -> None:
        """Hold the zeros once `hold_at` of the training is done; `total` steps or epochs are all of it.

        A target is reached, and its zeros are held, by the step itself.
        """
        if (
            self.handle is not None
            and self._target is None
            and self._hold_at is not None
            and done >= self._hold_at * total
            and not self.handle.held
        ):
            self.handle.hold()

    def end_epoch(self, epochs: int) -> None:
        """Remove dead units, every so many epochs."""
        if self._carried is None or self._compact_every is None or epochs % self._compact_every:
            return
        measured = measure(self._model, self._example)
        if measured.total.macs_compact < measured.total.macs:  # otherwise there is no zero row or column
            compact_(self._model, self._example, self._optimizer)
            self._carried.full = self._full

    def measure(self) -> Measurement:
        """The counts of the network now, relative to the full one."""
        return measure(self._model, self._example).against(self._full)

    def finish(self) -> None:
        """Shrink into a new network in evaluation mode, if that is wanted; the trained one stays as it is."""
        if self._shrinks:
            self.small = shrink(self._model, self._example).eval()

    def stop(self) -> None:
        """Detach the regularizer."""
        if self.handle is not None:
            self.reached = self.handle.reached
            self.handle.remove()
            self.handle = None


class WithTraining:
    """What a callback shows of its training, under the same names with every trainer."""

    _training: SparseTraining

    @property
    def small(self) -> nn.Module | None:
        """The shrunk network, once the training has ended; None before."""
        return self._training.small

    @property
    def handle(self) -> ProximalStep | None:
        """What `gossamer.attach` returned; None when no training runs."""
        return self._training.handle

    @property
    def reached(self) -> Reached | None:
        """How the target was reached, once the training has ended; None without a target."""
        return self._training.reached


def _device(model: nn.Module) -> torch.device:
    return next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
