"""The plan of a shrink: which units are removed, which constants are folded, what stays and why."""

from __future__ import annotations

import copy
import threading
import warnings
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor, fx, nn

from gossamer.errors import GossamerError

__all__ = ["Attention", "Change", "Channels", "Fold", "Indices", "Plan", "Size", "copy_module"]

Indices = Mapping[int, Tensor]
"""The kept indices per dimension of a tensor.

In the weight of a grouped convolution, dimension 1 counts channels within a group: its indices are a matrix with one
row per kept group.
"""


@dataclass(frozen=True)
class Channels:
    """Units that can be removed one by one, and the parameter dimensions (`"name:dim"`) that they run along.

    `unread` of them are removed because no live unit reads them, `constant` because their value is constant (zero, or
    folded into the next bias). `reasons` counts those that are kept for another reason than being read.
    """

    where: tuple[str, ...]
    units: int
    unread: int
    constant: int
    reasons: Mapping[str, int]

    @property
    def kept(self) -> int:
        """How many units are kept."""
        return self.units - self.unread - self.constant

    @property
    def name(self) -> str:
        """The parameter dimension that is shown for these units."""
        return self.where[0]


@dataclass(frozen=True)
class Fold:
    """A constant contribution that is added to a bias: `amount` per kept output; `bias` is None if one is created."""

    weight: str
    bias: str | None
    amount: Tensor


@dataclass(frozen=True)
class Size:
    """An integer attribute of a module that holds a number of units."""

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
    full_num_heads: int
    kept_heads: tuple[int, ...]


@dataclass(frozen=True)
class Change:
    """One thing that is changed in a model.

    `kind` is `"parameter"`, `"buffer"` (shapes before and after, equal if a constant is added; None before if it is
    created), `"attribute"` (its values) or `"class"` (the names of the class of a module).
    """

    kind: str
    name: str
    before: Any
    after: Any

    def __str__(self) -> str:
        if self.before is None:
            return f"{self.kind} {self.name}: created, {self.after}"
        if self.before == self.after:
            return f"{self.kind} {self.name}: a constant is added"
        return f"{self.kind} {self.name}: {self.before} -> {self.after}"


@dataclass(frozen=True)
class Plan:
    """What a shrink does to a model. Prints as a table.

    `changes` names every parameter, buffer, attribute and class that is another one afterwards; what it does not name
    stays as it is.

    `kept` maps the name of each parameter or buffer that gets smaller to its kept indices (`gossamer.shrinking.take`
    applies them to anything of the parameter's shape). `form` is what `apply` returns: the user's class (`"module"`) or
    its exported graph (`"graph"`). `notes` are remarks on the whole.

    A plan is plain data, except for `module`: the smaller module, which was built and verified when the plan was made.
    It stays in memory as long as the plan does. Copying or pickling a plan leaves it out, since a module is large and
    an exported graph cannot be pickled; the plan that `shrink_` returns has none.
    """

    channels: tuple[Channels, ...]
    kept: Mapping[str, Indices]
    folds: tuple[Fold, ...]
    sizes: tuple[Size, ...]
    weights_before: int
    weights_after: int
    attentions: tuple[Attention, ...] = field(default=())
    changes: tuple[Change, ...] = field(default=())
    form: str = "module"
    notes: tuple[str, ...] = field(default=())
    module: nn.Module | None = field(default=None, repr=False, compare=False)

    @property
    def empty(self) -> bool:
        """Whether nothing is removed."""
        return not self.kept

    def apply(self) -> nn.Module:
        """The smaller module, as `shrink` returns it: already verified, so this is only a copy.

        Every call returns a new copy. The module is that of the moment at which the plan was made; what happens to the
        model afterwards does not change it.

        Raises:
            GossamerError: when the plan holds no module.
        """
        if self.module is None:
            raise GossamerError(
                "this plan holds no module: it comes from `shrink_`, which has applied it in place, or it is a copy, "
                "which leaves the module out. Call `gossamer.plan(model, example)` for a plan to apply."
            )
        copied = copy_module(self.module)
        if isinstance(copied, fx.GraphModule):  # has a class of its own, which copying gives a default name
            type(copied).__name__ = type(self.module).__name__
        return copied

    def kept_of(self, model: nn.Module) -> dict[nn.Parameter, Indices]:
        """`kept` by parameter instead of by name, for state that is stored per parameter."""
        named = dict(model.named_parameters(remove_duplicate=False))
        return {named[name]: indices for name, indices in self.kept.items() if name in named}

    def with_note(self, note: str) -> Plan:
        """The same plan with one more remark."""
        return replace(self, notes=(*self.notes, note))

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "module": None}

    def __str__(self) -> str:
        lines = [self._headline(), *(f"note: {note}" for note in self.notes)]
        rows: list[tuple[str, ...]] = [("units", "before", "after", "unread", "constant", "kept because")]
        rows += [_row(channels) for channels in self.channels]
        widths = [max(len(row[column]) for row in rows) for column in range(5)]
        for row in rows:
            cells = [row[0].ljust(widths[0]), *(row[c].rjust(widths[c]) for c in range(1, 5)), row[5]]
            lines.append("  ".join(cells).rstrip())
        return "\n".join([*lines, *self._changed()])

    def _changed(self) -> list[str]:
        """A line that counts the changes, which are too many to show."""
        kinds = Counter(change.kind for change in self.changes)
        told = [f"{count:,} {_PLURALS[kind] if count > 1 else kind}" for kind, count in kinds.items()]
        return [f"changed: {', '.join(told)}; `changes` names them"] if told else []

    def _headline(self) -> str:
        if self.empty:
            return f"Nothing to remove: all {self.weights_before:,} parameters stay."
        share = self.weights_after / self.weights_before
        return f"{self.weights_after:,} of {self.weights_before:,} parameters stay ({share:.1%}), as a {self.form}."


_PLURALS = {"parameter": "parameters", "buffer": "buffers", "attribute": "attributes", "class": "classes"}


def copy_module(module: nn.Module, memo: dict[int, Any] | None = None) -> nn.Module:
    """A deep copy, with new locks and detached computed tensors, since these cannot be copied.

    `memo` has what is copied already, by its id.

    Raises:
        GossamerError: when the module has an attribute that cannot be copied.
    """
    memo = {} if memo is None else memo
    for part in module.modules():
        for value in vars(part).values():
            if isinstance(value, type(threading.Lock()) | type(threading.RLock())):
                memo[id(value)] = threading.Lock() if isinstance(value, type(threading.Lock())) else threading.RLock()
            if isinstance(value, Tensor) and not value.is_leaf:  # a weight that a hook computes before each forward
                memo[id(value)] = value.detach().clone()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # PyTorch's own, about how it copies a graph
            return copy.deepcopy(module, memo)
    except Exception as error:
        raise GossamerError(
            f"`model` ({type(module).__name__}) cannot be copied by copy.deepcopy: {type(error).__name__}: {error}. "
            "Give the class of what cannot be copied a `__deepcopy__`, or use shrink_, which works in place."
        ) from error


def _row(channels: Channels) -> tuple[str, ...]:
    reasons = "; ".join(f"{reason} ({count})" for reason, count in channels.reasons.items())
    numbers = (channels.units, channels.kept, channels.unread, channels.constant)
    return (channels.name, *(f"{number:,}" for number in numbers), reasons)
