"""The metrics of a training, given as one mapping for each epoch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from gossamer.errors import GossamerError
from gossamer.visualization.data import Epoch

__all__ = ["fraction", "read_history"]

_FRACTIONS = ("accuracy", "params_kept", "flops_kept")
_KEYS = ("epoch", *_FRACTIONS, "loss", "held")


def read_history(history: Sequence[Mapping[str, float]]) -> tuple[Epoch, ...]:
    """Check the entries of `history` and return them as epochs; those without a number are counted from 1."""
    return tuple(_read(entry, number) for number, entry in enumerate(history, start=1))


def fraction(name: str, value: float | None) -> float | None:
    """Return `value`, which must lie between 0 and 1, or be None."""
    if value is None:
        return None
    if not _is_number(value) or not 0 <= value <= 1:
        raise GossamerError(f"{name} must be a fraction between 0 and 1; received {value!r}.")
    return float(value)


def _read(entry: Mapping[str, float], number: int) -> Epoch:
    if not isinstance(entry, Mapping):
        raise GossamerError(
            f"`history` must be a list of dictionaries, one for each epoch; entry {number} is {entry!r:.80}."
        )
    if unknown := sorted(str(key) for key in set(entry) - set(_KEYS)):
        raise GossamerError(
            f"entry {number} of `history` has the keys {', '.join(unknown)}; known are {', '.join(_KEYS)}."
        )
    found = {name: fraction(f"`{name}` in entry {number} of `history`", entry.get(name)) for name in _FRACTIONS}
    epoch, loss = entry.get("epoch", number), entry.get("loss")
    if not _is_number(epoch) or epoch != int(epoch):
        raise GossamerError(f"`epoch` in entry {number} of `history` must be a whole number; received {epoch!r}.")
    if loss is not None and not isinstance(loss, int | float):
        raise GossamerError(f"`loss` in entry {number} of `history` must be a number; received {loss!r:.80}.")
    return Epoch(
        epoch=int(epoch),
        loss=float(loss) if loss is not None and math.isfinite(loss) else None,
        held=bool(entry.get("held", False)),
        **found,
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
