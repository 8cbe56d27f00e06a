"""The trade-off between size and accuracy from one training: one target after the other, from dense to sparse.

Every target starts from the network and the strength of the one before, so it needs a fraction of the steps of a
training from scratch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from gossamer.errors import GossamerError
from gossamer.proximal.approach import checked_steps, require_reachable
from gossamer.proximal.attach import attach
from gossamer.proximal.handle import ProximalStep
from gossamer.regularizers import Regularizer
from gossamer.targets import Reached, Target

__all__ = ["Path", "PathPoint", "checked_targets"]


@dataclass
class PathPoint:
    """One target of a path.

    Attributes:
        target: the target.
        steps: the number of optimizer steps to train for it: until it is reached, and recovery.
        handle: the handle of `attach`.
        reached: the report, once the steps have been trained and the next point is asked for.
        state: the model's state dict at that moment: a snapshot on the CPU.
    """

    target: Target
    steps: int
    handle: ProximalStep
    reached: Reached | None = None
    state: dict[str, Tensor] | None = None


class Path:
    """Targets for one training, reached one after the other. Iterate over it, and train in the loop:

        targets = [gossamer.Target(params=size) for size in (0.5, 0.2, 0.1)]
        path = gossamer.Path(optimizer, regularizer, targets, steps=500, recovery=200)
        for point in path:
            for batch in islice(batches, point.steps):
                ...                                   # your training step
            print(point.target, evaluate(model))

    After the loop `points` holds the reports and the snapshots. The model should have been trained without a penalty
    before; the steps of the first target do not suffice to learn.

    Args:
        optimizer: the optimizer that trains the weights.
        regularizer: the regularizer; its strength, if any, is that of the first step.
        targets: targets of one kind, from large to small.
        steps: optimizer steps until a target is reached.
        recovery: optimizer steps after that, with the zeros held.
        **options: further arguments of `attach`.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        regularizer: Regularizer,
        targets: Sequence[Target],
        *,
        steps: int,
        recovery: int,
        **options: Any,
    ) -> None:
        self.points: list[PathPoint] = []
        self._optimizer = optimizer
        self._regularizer = regularizer
        self._targets = checked_targets(targets)
        checked_steps(self._targets[-1], regularizer, steps)
        require_reachable(self._targets[-1], regularizer)
        if not isinstance(recovery, int) or recovery < 0:
            raise GossamerError(f"`recovery` must be a number of steps, at least 0; received {recovery!r}.")
        self._steps, self._recovery, self._options = steps, recovery, options

    def __iter__(self) -> Iterator[PathPoint]:
        """Attach one target after the other; the last handle stays attached."""
        regularizer, full = self._regularizer, None
        for target in self._targets:
            handle = attach(self._optimizer, regularizer, target=target, steps=self._steps, **self._options)
            full = handle.refer_to(full)
            point = PathPoint(target, self._steps + self._recovery, handle)
            yield point
            self._finish(point)
            if target is not self._targets[-1]:
                handle.remove()
            assert point.reached is not None
            regularizer = replace(regularizer, strength=point.reached.strength)

    def _finish(self, point: PathPoint) -> None:
        point.reached = point.handle.reached
        if point.reached is None:
            raise GossamerError(
                f"{point.handle.steps} steps were trained for the target {point.target}, which takes {point.steps}. "
                "Train for `point.steps` steps before the next point."
            )
        model = self._regularizer.model
        if model is not None:
            point.state = {name: tensor.detach().to("cpu", copy=True) for name, tensor in model.state_dict().items()}
        self.points.append(point)


def checked_targets(targets: Sequence[Target]) -> list[Target]:
    """The targets of a path.

    Raises:
        GossamerError: If they are none, of several kinds, or do not fall.
    """
    listed = list(targets)
    if not listed or not all(isinstance(target, Target) for target in listed):
        raise GossamerError(f"`targets` must be a list of gossamer.Target, at least one; received {targets!r}.")
    if len({target.kind for target in listed}) > 1:
        raise GossamerError(f"The targets of a path must be of one kind; received {', '.join(map(str, listed))}.")
    values = [target.value for target in listed]
    if values != sorted(set(values), reverse=True):
        raise GossamerError(f"The targets of a path must fall from large to small; received {values}.")
    return listed
