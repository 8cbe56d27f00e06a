"""Plan: what goes, what is folded, what stays and why. Pure data; printed, it is a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from torch import Tensor, nn

__all__ = ["Attention", "Channels", "Fold", "Plan", "Size"]


@dataclass(frozen=True)
class Channels:
    """Units that leave or stay one by one, with the parameter dimensions that they run through.

    `unread` of them go because nobody reads them, `constant` because they never change (their constant is zero or
    goes into the next bias). `held` counts those that stay for another reason than being read.
    """

    where: tuple[str, ...]
    units: int
    unread: int
    constant: int
    held: Mapping[str, int]

    @property
    def kept(self) -> int:
        """How many units stay."""
        return self.units - self.unread - self.constant

    @property
    def name(self) -> str:
        """The parameter dimension by which a reader knows these units."""
        return self.where[0]


@dataclass(frozen=True)
class Fold:
    """What goes into a bias: `amount` for each output that stays; `bias` is None when one must be made."""

    weight: str
    bias: str | None
    amount: Tensor


@dataclass(frozen=True)
class Size:
    """An integer attribute of a module that follows a number of units."""

    module: str
    attribute: str
    before: int
    after: int


@dataclass(frozen=True)
class Attention:
    """An `nn.MultiheadAttention` that becomes a `CompactMultiheadAttention` of these sizes."""

    module: str
    num_heads: int
    head_dim: int
    embed_dim: int
    full_head_dim: int


@dataclass(frozen=True)
class Plan:
    """Everything that a shrink does to a model.

    `kept` maps the name of each parameter or buffer that gets smaller to its dimensions and the indices that stay;
    use `gossamer.shrinking.take` for anything else of the parameter's shape. `form` says what was (or would be)
    returned: the user's module, or its exported graph. `notes` are remarks on the whole.
    """

    channels: tuple[Channels, ...]
    kept: Mapping[str, Mapping[int, Tensor]]
    folds: tuple[Fold, ...]
    sizes: tuple[Size, ...]
    weights_before: int
    weights_after: int
    attentions: tuple[Attention, ...] = field(default=())
    form: str = "module"
    notes: tuple[str, ...] = field(default=())

    @property
    def empty(self) -> bool:
        """Whether there is nothing to do."""
        return not self.kept

    def kept_of(self, model: nn.Module) -> dict[nn.Parameter, Mapping[int, Tensor]]:
        """`kept` by parameter object rather than by name, for state that is filed under the parameter."""
        named = dict(model.named_parameters(remove_duplicate=False))
        return {named[name]: cuts for name, cuts in self.kept.items() if name in named}

    def noting(self, *notes: str, form: str | None = None) -> Plan:
        """The same plan with more remarks, and perhaps another form."""
        return replace(self, notes=(*self.notes, *notes), form=form or self.form)

    def __str__(self) -> str:
        lines = [self._headline(), *(f"note: {note}" for note in self.notes)]
        rows: list[tuple[str, ...]] = [("units", "before", "after", "unread", "constant", "stays because")]
        rows += [_row(channels) for channels in self.channels]
        widths = [max(len(row[column]) for row in rows) for column in range(5)]
        for row in rows:
            cells = [row[0].ljust(widths[0]), *(row[c].rjust(widths[c]) for c in range(1, 5)), row[5]]
            lines.append("  ".join(cells).rstrip())
        return "\n".join(lines)

    def _headline(self) -> str:
        if self.empty:
            return f"Nothing to remove: all {self.weights_before:,} parameters stay."
        share = self.weights_after / self.weights_before
        return f"{self.weights_before:,} parameters become {self.weights_after:,} ({share:.1%}), as a {self.form}."


def _row(channels: Channels) -> tuple[str, ...]:
    held = "; ".join(f"{reason} ({count})" for reason, count in channels.held.items())
    numbers = (channels.units, channels.kept, channels.unread, channels.constant)
    return (channels.name, *(f"{number:,}" for number in numbers), held)
