"""Numbers as text, with as many digits as a reader needs."""

from __future__ import annotations

import math

__all__ = ["count", "file_size", "measured_seconds", "percent", "shorten", "times"]

_UNKNOWN = "–"


def count(value: int | None) -> str:
    """A whole number: 67,104."""
    return _UNKNOWN if value is None else f"{value:,}"


def percent(fraction: float | None) -> str:
    """A fraction: 5.33%; two significant digits below 0.01%."""
    if fraction is None or not math.isfinite(fraction):
        return _UNKNOWN
    value = 100 * fraction
    return f"{value:.2g}%" if 0 < value < 0.01 else f"{value:.2f}%"


def file_size(number: int | None) -> str:
    """Bytes in decimal units: 271.7 kB."""
    if number is None:
        return _UNKNOWN
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if number >= size:
            return f"{number / size:,.1f} {unit}"
    return f"{number} bytes"


def measured_seconds(seconds: float | None) -> str:
    """A duration with three significant digits: 184 µs, 1.39 ms."""
    if seconds is None:
        return _UNKNOWN
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{_three_digits(seconds / size)} {unit}"
    return f"{_three_digits(seconds / 1e-6)} µs"


def times(ratio: float) -> str:
    """A ratio: 13.6×."""
    return f"{_three_digits(ratio)}×"


def shorten(name: str, length: int) -> str:
    """The last parts of a long dotted name, which is where names of layers differ: …2.self_attn.out_proj."""
    if len(name) <= length:
        return name
    end = name[-length:]
    return "…" + (end.partition(".")[2] or end)


def _three_digits(value: float) -> str:
    digits = 2 if value < 10 else 1 if value < 100 else 0
    return f"{value:,.{digits}f}"
