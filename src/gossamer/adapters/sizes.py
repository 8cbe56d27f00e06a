"""The sizes of a network as numbers to log.

log_sizes(SummaryWriter("runs/mine"), gossamer.measure(model, example), step)       # TensorBoard
log_sizes(logging.getLogger("training"), gossamer.measure(model, example), step)
"""

from __future__ import annotations

import logging
from typing import Protocol

from gossamer.measurement import Measurement

__all__ = ["ScalarWriter", "log_sizes", "sizes"]


class ScalarWriter(Protocol):
    """What takes numbers: `torch.utils.tensorboard.SummaryWriter`, or anything with its `add_scalar`."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> object:
        """Take one number."""
        ...


def sizes(measurement: Measurement) -> dict[str, float]:
    """The kept fractions of weights, MACs and units, by the names under which all adapters log them."""
    total = measurement.total
    return {
        "gossamer/params_kept": measurement.params_kept,
        "gossamer/flops_kept": measurement.flops_kept,
        "gossamer/units_alive": total.units_alive / max(total.units, 1),
    }


def log_sizes(destination: ScalarWriter | logging.Logger, measurement: Measurement, step: int) -> None:
    """Write the sizes as scalars to TensorBoard, or as one line to a logger at level INFO."""
    if isinstance(destination, logging.Logger):
        total = measurement.total
        destination.info(
            "step %d: %s of %s weights (%.2f%%), %.2f%% of the MACs, %d of %d units",
            step, f"{total.nonzeros:,}", f"{total.weights:,}", 100 * measurement.params_kept,
            100 * measurement.flops_kept, total.units_alive, total.units,
        )  # fmt: skip
        return
    for name, value in sizes(measurement).items():
        destination.add_scalar(name, value, step)
