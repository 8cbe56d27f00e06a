"""Where the state of proximal steps is kept: in the first parameter group of the optimizer, under the key "gossamer".

PyTorch carries all keys of parameter groups through `state_dict` and `load_state_dict`, and so do
`torch.distributed.checkpoint` and the wrappers of other packages; what stands beside "state" and "param_groups" is dropped
on the way. So a checkpoint that is loaded before `attach` waits in the group until `attach` takes it up.

In a state dict the key holds plain data, {number of a proximal step: its state}; in an optimizer with proximal steps
attached, an `Attachment`.
"""

from __future__ import annotations

from typing import Any, NoReturn

from torch.optim import Optimizer

from gossamer.errors import GossamerError

__all__ = ["Attachment", "States", "cannot_copy", "is_marked", "mark", "states_in", "unmark", "write_state"]

KEY = "gossamer"

States = dict[int, dict[str, Any]]


class Attachment:
    """What stands in the parameter group while proximal steps are attached: it refuses to be copied.

    Hooks are not copied with an optimizer, so a copy would train without the penalty, and nobody would notice.
    """

    def __init__(self, waiting: States) -> None:
        self.waiting = waiting  # loaded, and not yet taken up by a proximal step

    def __repr__(self) -> str:
        return "attached"

    def __deepcopy__(self, memo: Any) -> NoReturn:
        del memo
        raise cannot_copy("an optimizer with a regularizer attached")

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        del protocol
        raise cannot_copy("an optimizer with a regularizer attached")


def mark(optimizer: Optimizer, waiting: States) -> None:
    """Put an attachment where the state would be."""
    optimizer.param_groups[0][KEY] = Attachment(waiting)


def is_marked(optimizer: Optimizer) -> bool:
    """Whether the attachment is in its place."""
    return type(optimizer.param_groups[0].get(KEY)) is Attachment


def unmark(optimizer: Optimizer) -> None:
    """Take the attachment out; what is still waiting stays."""
    for group in optimizer.param_groups:
        attachment = group.get(KEY)
        if isinstance(attachment, Attachment):
            del group[KEY]
            if attachment.waiting:
                group[KEY] = attachment.waiting


def write_state(state_dict: dict[str, Any], number: int, state: dict[str, Any]) -> None:
    """Add the state of one proximal step to a state dict."""
    first, *others = state_dict["param_groups"]
    first[KEY] = {**states_in([first]), number: state}
    for group in others:
        group.pop(KEY, None)


def states_in(groups: list[dict[str, Any]]) -> States:
    """The states in these parameter groups that no proximal step has taken up."""
    found = next((group[KEY] for group in groups if KEY in group), {})
    states = found.waiting if isinstance(found, Attachment) else found
    return {int(number): state for number, state in states.items()}


def cannot_copy(what: str) -> GossamerError:
    """The error for copies that would go on without the penalty."""
    return GossamerError(
        f"A deep copy or pickle of {what} would train without its penalty. Save `optimizer.state_dict()` instead, which holds "
        "all of it; or call `handle.remove()`, copy, and attach again."
    )
