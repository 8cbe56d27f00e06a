"""`fastest`: the model as it is, shrunk, and native, timed side by side on this machine."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

from gossamer.errors import GossamerError
from gossamer.example import Example, call_with
from gossamer.inference.compilation import native
from gossamer.measurement import latencies
from gossamer.shrinking import shrink

__all__ = ["Candidate", "Fastest", "fastest"]

# What is chosen instead of the model has to take at most this share of its time: noise must not decide.
_MARGIN = 0.95

AS_IT_IS = "as it is"


@dataclass(frozen=True)
class Candidate:
    """A form of the model and its time for one call; or why there is none."""

    name: str
    seconds: float | None
    reason: str = ""


@dataclass(frozen=True)
class Fastest:
    """The fastest form of a model, and what was measured."""

    model: nn.Module
    name: str
    table: tuple[Candidate, ...]

    def __str__(self) -> str:
        slowest = max(candidate.seconds for candidate in self.table if candidate.seconds is not None)
        width = max(len(candidate.name) for candidate in self.table)
        return "\n".join(_line(candidate, width, slowest, candidate.name == self.name) for candidate in self.table)


def _line(candidate: Candidate, width: int, slowest: float, chosen: bool) -> str:
    if candidate.seconds is None:
        return f"{candidate.name:{width}}  {candidate.reason}"
    times = slowest / candidate.seconds
    mark = "  <- fastest" if chosen else ""
    return f"{candidate.name:{width}}  {1e6 * candidate.seconds:10.1f} us  {times:5.1f}x{mark}"


def fastest(model: nn.Module, example: Example, threads: int | None = None, rounds: int = 50) -> Fastest:
    """The fastest form of `model` on this machine for inputs like the example, its batch size included.

    Measured are the model as it is, `shrink(model)` and `native(model)`, in turns, in evaluation mode. Another form is
    chosen only if it takes less than 95 % of the time of the model, so nothing slower is ever returned.

    Args:
        model: The network.
        example: What it will be called with: a tensor, a tuple of positional arguments, or a dictionary of keyword
            arguments.
        threads: Of the native form; None: as many as PyTorch uses.
        rounds: How often each is timed; the median counts.

    Returns:
        The fastest form, with the table of what was measured.
    """
    call = call_with(model, example)
    found: dict[str, nn.Module] = {AS_IT_IS: model}
    reasons: dict[str, str] = {}
    others: dict[str, Callable[[], nn.Module]] = {
        "shrunk": lambda: shrink(model, example),
        "native": lambda: native(model, example, threads),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, make in others.items():
            try:
                found[name] = make()
            except GossamerError as error:
                reasons[name] = str(error)
    seconds = dict(zip(found, latencies(list(found.values()), call.args or call.kwargs, rounds), strict=True))
    allowed = {name: time for name, time in seconds.items() if name == AS_IT_IS or time <= _MARGIN * seconds[AS_IT_IS]}
    best = min(allowed, key=allowed.__getitem__)
    names = (AS_IT_IS, *others)
    table = tuple(Candidate(name, seconds.get(name), reasons.get(name, "")) for name in names)
    return Fastest(found[best], best, table)
