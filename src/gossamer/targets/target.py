"""A size to reach, and the report on how it was reached."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from gossamer.errors import GossamerError

__all__ = ["Kind", "Reached", "Target"]

Kind = Literal["params", "flops", "dense_params", "dense_flops", "bytes"]

_WORDS: dict[str, str] = {
    "params": "of the weights",
    "flops": "of the MACs",
    "dense_params": "of the weights after shrink",
    "dense_flops": "of the MACs after shrink",
}


@dataclass(frozen=True, kw_only=True)
class Target:
    """The size that a network has to have in the end, in place of a strength. Give exactly one.

    Fractions are relative to the network that `attach` finds, biases not counted, as in `gossamer.measure`. All but
    `params` need the regularizer to have an `example`. If it has one, `params` and `flops` do not count weights of
    units that `shrink` removes.

    Args:
        params: the fraction of weights that are not zero.
        flops: the fraction of MACs whose weight is not zero.
        dense_params: the fraction of weights that `shrink` leaves, zeros included.
        dense_flops: the fraction of MACs that `shrink` leaves, zeros included.
        bytes: the size of the file that `save(shrink(model), path, sparse=True)` writes.
        other_bytes: how many of the `bytes` are for what is saved besides the network: a `provenance`.
    """

    params: float | None = None
    flops: float | None = None
    dense_params: float | None = None
    dense_flops: float | None = None
    bytes: int | None = None
    other_bytes: int = 0

    def __post_init__(self) -> None:
        given = {kind: value for kind in get_args(Kind) if (value := getattr(self, kind)) is not None}
        if len(given) != 1:
            received = ", ".join(f"{name}={value!r}" for name, value in given.items()) or "none"
            raise GossamerError(
                f"`Target` takes one of {', '.join(get_args(Kind))}; received {received}. Two sizes can contradict "
                "each other: give the one that matters."
            )
        value = self.value
        number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        if self.kind == "bytes":
            if not (number and value >= 1 and value == int(value)):
                raise GossamerError(f"`Target(bytes=...)` must be a number of bytes, at least 1; received {value!r}.")
        elif not (number and 0 < value <= 1):
            raise GossamerError(
                f"`Target({self.kind}=...)` is a fraction above 0 and at most 1; received {value!r}. Write 5 % as 0.05."
            )

        whole = isinstance(self.other_bytes, int) and not isinstance(self.other_bytes, bool)
        if not whole or self.other_bytes < 0 or (self.other_bytes and self.kind != "bytes"):
            raise GossamerError(
                "`other_bytes` is a part of `Target(bytes=...)`, an integer that is not negative; received "
                f"{self.other_bytes!r} with {self.kind}={value!r}."
            )

    @property
    def kind(self) -> Kind:
        """Which size is given."""
        return next(kind for kind in get_args(Kind) if getattr(self, kind) is not None)

    @property
    def value(self) -> float:
        """The size that is given: a fraction, or a number of bytes."""
        value: float = getattr(self, self.kind)
        return value

    def asked(self, full: float) -> float:
        """The size in the unit that is counted, for a network whose full size is `full`."""
        return self.value if self.kind == "bytes" else self.value * full

    def told(self, size: float, full: float) -> str:
        """A size in words."""
        return f"{size:,.0f} bytes" if self.kind == "bytes" else f"{size / full:.4%} {_WORDS[self.kind]}"

    def __str__(self) -> str:
        return self.told(self.asked(1.0), 1.0)


@dataclass(frozen=True)
class Reached:
    """How a target was reached: the size to which the strength had led, and the exact size after the last cut.

    Attributes:
        target: the target.
        full: size of the full network: weights, MACs or bytes.
        before: size to which the strength had led.
        after: size after the last cut; below the target by less than one weight, or than a unit that could stay.
        step: number of the step after which the cut was taken.
        strength: the strength at that moment.
    """

    target: Target
    full: float
    before: float
    after: float
    step: int
    strength: float

    @property
    def cut(self) -> float:
        """The part of the network that the last cut removed; negative if it had become too small, and got some back."""
        return 1 - self.after / self.before if self.before else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Numbers and strings, for JSON."""
        figures = {name: value for name, value in vars(self).items() if name != "target"}
        other = {"other_bytes": self.target.other_bytes} if self.target.other_bytes else {}
        return {"kind": self.target.kind, "value": self.target.value, **other, **figures, "cut": self.cut}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Reached:
        """The inverse of `to_dict`."""
        names = ("full", "before", "after", "step", "strength")
        target = Target(**{values["kind"]: values["value"]}, other_bytes=values.get("other_bytes", 0))
        return cls(target, **{name: values[name] for name in names})

    def __str__(self) -> str:
        told = self.target.told
        change = f"removed {self.cut:.1%} of that" if self.cut >= 0 else f"gave back {-self.cut:.1%}"
        return (
            f"target {self.target}: {told(self.before, self.full)} at strength {self.strength:.3g} after {self.step} "
            f"steps; the last cut {change} and left {told(self.after, self.full)}"
        )
