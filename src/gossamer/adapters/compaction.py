"""Checkpoints of a network that became smaller in training.

A trainer resumes by building the network at its full sizes and loading a state dict into it. So the sizes travel in
the state dict, as one tensor of bytes: when it is loaded, the network first becomes as small as the saved one. The
optimizer that the trainer then builds must hold the parameters in the order of the saved one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from gossamer.example import Example
from gossamer.measurement import LayerMeasurement, Measurement
from gossamer.shrinking import Plan, shrink_
from gossamer.store import Manifest, manifest_of, resize_

__all__ = ["CarriedSizes", "compact_"]

_KEY = "gossamer_sizes"


class CarriedSizes:
    """Makes the state dict of a model carry its sizes, and of the full network the counts, once `full` is set.

    Attributes:
        model: The model.
        full: The measurement of the network before any unit left; None as long as it has its full sizes.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.full: Measurement | None = None

        def save(module: nn.Module, state_dict: dict[str, Tensor], prefix: str, metadata: Mapping[str, Any]) -> None:
            del metadata
            # A copy of the model has the hooks too, and is no business of ours.
            if module is self.model and self.full is not None:
                state_dict[prefix + _KEY] = _packed(manifest_of(module, {"full": self.full.to_dict()}))

        def load(module: nn.Module, state_dict: dict[str, Tensor], prefix: str, *others: object) -> None:
            del others
            packed = state_dict.pop(prefix + _KEY, None)
            if packed is not None:
                manifest = _unpacked(packed)
                resize_(module, manifest)
                self.full = _measurement(manifest.provenance["full"])

        model.register_state_dict_post_hook(save)  # type: ignore[no-untyped-call]
        model.register_load_state_dict_pre_hook(load)  # type: ignore[no-untyped-call]


def compact_(model: nn.Module, example: Example, optimizer: Optimizer) -> Plan:
    """`shrink_`, after which an optimizer that is built anew from the model has its parameters in the same order."""
    before = {parameter for group in optimizer.param_groups for parameter in group["params"]}
    plan = shrink_(model, example, optimizer=optimizer)
    position = {parameter: place for place, parameter in enumerate(model.parameters())}
    for group in optimizer.param_groups:
        parameters = [parameter for parameter in group["params"] if parameter in before]
        for made in [parameter for parameter in group["params"] if parameter not in before]:
            later = (i for i, other in enumerate(parameters) if position.get(other, 0) > position[made])
            parameters.insert(next(later, len(parameters)), made)
        group["params"] = parameters
    return plan


def _packed(manifest: Manifest) -> Tensor:
    return torch.frombuffer(bytearray(manifest.to_json().encode()), dtype=torch.uint8)


def _unpacked(packed: Tensor) -> Manifest:
    return Manifest.from_json(packed.cpu().numpy().tobytes().decode())


def _measurement(counts: Any) -> Measurement:
    return Measurement(tuple(LayerMeasurement(**layer) for layer in counts["layers"]))
