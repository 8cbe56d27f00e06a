"""The state of proximal steps lives in the first parameter group of the optimizer, under the key "gossamer".

`state_dict` and `load_state_dict`, `torch.distributed.checkpoint` and the wrappers of other packages carry all keys of
parameter groups; they drop keys beside "state" and "param_groups". A checkpoint that is loaded before `attach`
therefore stays in the group until `attach` picks it up.

In a state dict the value is plain data: {number of a proximal step: its state}. In an optimizer with proximal steps
attached it is an `Attachment`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from torch.optim import Optimizer

from gossamer.errors import GossamerError
from gossamer.regularizers import Rule

__all__ = [
    "Attachment", "States", "cannot_copy", "is_marked", "mark", "pending_states", "require_same_weights", "unmark",
    "write_state",
]  # fmt: skip

KEY = "gossamer"

States = dict[int, dict[str, Any]]


class Attachment:
    """The value of the key while proximal steps are attached. It refuses to be copied.

    PyTorch does not copy hooks with an optimizer: a copy would train without the penalty, silently.
    """

    def __init__(self, pending: States) -> None:
        self.pending = pending  # loaded, not yet picked up by a proximal step

    def __repr__(self) -> str:
        return "attached"

    def __deepcopy__(self, memo: Any) -> NoReturn:
        del memo
        raise cannot_copy("an optimizer with a regularizer attached")

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        del protocol
        raise cannot_copy("an optimizer with a regularizer attached")


def mark(optimizer: Optimizer, pending: States) -> None:
    """Put an attachment into the first parameter group."""
    optimizer.param_groups[0][KEY] = Attachment(pending)


def is_marked(optimizer: Optimizer) -> bool:
    """Whether the first parameter group has an attachment."""
    return type(optimizer.param_groups[0].get(KEY)) is Attachment


def unmark(optimizer: Optimizer) -> None:
    """Remove the attachment; states that are still pending stay."""
    for group in optimizer.param_groups:
        attachment = group.get(KEY)
        if isinstance(attachment, Attachment):
            del group[KEY]
            if attachment.pending:
                group[KEY] = attachment.pending


def write_state(state_dict: dict[str, Any], number: int, state: dict[str, Any]) -> None:
    """Add the state of one proximal step to the state dict of an optimizer."""
    first, *others = state_dict["param_groups"]
    first[KEY] = {**pending_states([first]), number: state}
    for group in others:
        group.pop(KEY, None)


def pending_states(groups: list[dict[str, Any]]) -> States:
    """The states in parameter groups that no proximal step has picked up."""
    found: Any = next((group[KEY] for group in groups if KEY in group), {})
    states = found.pending if isinstance(found, Attachment) else found
    return {int(number): state for number, state in states.items()}


def require_same_weights(state: dict[str, Any], rules: Sequence[Rule]) -> None:
    """Raise if the state of a proximal step belongs to other weights or other shapes than these."""
    names = [rule.name for rule in rules]
    if list(state["weights"]) != names:
        raise GossamerError(
            f"The checkpoint was written with a regularizer on {', '.join(state['weights'])}; "
            f"the one attached now is on {', '.join(names)}. Attach the same regularizer. To start from scratch, "
            "first delete the key 'gossamer' in `param_groups[0]` of the checkpoint, or of an optimizer that has "
            "loaded it."
        )
    for rule, received in zip(rules, _shapes(state), strict=False):
        expected = tuple(rule.weight.shape)
        if expected != received:
            raise GossamerError(
                f"The checkpoint was written with `{rule.name}` of shape {received}; the weight has the shape "
                f"{expected}. Load the checkpoint of the same network."
            )


def _shapes(state: dict[str, Any]) -> list[tuple[int, ...]]:
    if zeros := state.get("zeros"):  # checkpoints of version 0.1 have the masks
        return [tuple(zeros[name].shape) for name in state["weights"]]
    return [tuple(shape) for shape in state.get("shapes", [])]


def cannot_copy(what: str) -> GossamerError:
    """The error for copies that would lose the penalty."""
    return GossamerError(
        f"A deep copy or pickle of {what} would train without the penalty, because PyTorch does not copy hooks. Save "
        "`optimizer.state_dict()`, which includes the state of the penalty; or call `handle.remove()`, copy, and "
        "attach again."
    )
