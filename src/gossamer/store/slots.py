"""The slots of a network's tensors: module, attribute, parameter or buffer."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from gossamer.errors import GossamerError

__all__ = ["Slot", "derived_buffers", "slots"]


@dataclass(frozen=True)
class Slot:
    """A registered parameter or buffer of a module; `tensor` is None where the module has left it out."""

    owner: nn.Module
    attribute: str
    tensor: Tensor | None
    is_parameter: bool

    def put(self, tensor: Tensor) -> None:
        """Put `tensor` here. By `setattr`, because recurrent layers keep a second list of their weights up to date."""
        setattr(self.owner, self.attribute, tensor)


def slots(model: nn.Module) -> dict[str, Slot]:
    """Every parameter and stored buffer of `model` under every name that it has, the empty ones included."""
    if not isinstance(model, nn.Module):
        raise GossamerError(f"`model` is a {type(model).__name__}. Give a torch.nn.Module.")
    found: dict[str, Slot] = {}
    for path, module in model.named_modules(remove_duplicate=False):
        for attribute, parameter in module._parameters.items():
            found[_join(path, attribute)] = Slot(module, attribute, parameter, is_parameter=True)
        for attribute, buffer in module._buffers.items():
            if attribute not in module._non_persistent_buffers_set:
                found[_join(path, attribute)] = Slot(module, attribute, buffer, is_parameter=False)
    return found


def derived_buffers(model: nn.Module) -> dict[str, Tensor]:
    """The buffers that are registered as not persistent: the class computes them, so no file holds them."""
    return {
        _join(path, attribute): buffer
        for path, module in model.named_modules(remove_duplicate=False)
        for attribute, buffer in module._buffers.items()
        if buffer is not None and attribute in module._non_persistent_buffers_set
    }


def _join(path: str, attribute: str) -> str:
    return f"{path}.{attribute}" if path else attribute
