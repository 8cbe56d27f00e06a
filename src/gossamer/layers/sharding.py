"""Models whose parameters are spread over processes: DTensors of `fully_shard` and tensor parallelism."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Any, TypeGuard

import torch
from torch import Tensor, nn

from gossamer.errors import GossamerError

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor
    from torch.distributed.tensor.placement_types import Placement

__all__ = [
    "along_dimension", "gathered", "gathered_mask", "is_sharded", "local_part", "nonzero_mask", "own_part",
    "packed_bits", "refuse_flat_parameter", "refuse_flat_parameters", "require_whole", "reshard_", "unpacked_bits",
    "whole",
]  # fmt: skip

_BITS = 8


def is_sharded(tensor: Tensor) -> TypeGuard[DTensor]:
    """Whether a tensor is a DTensor. Its class is not imported: where nobody has imported it, there is none."""
    kind = _class("torch.distributed.tensor", "DTensor")
    return kind is not None and isinstance(tensor, kind)


def local_part(tensor: Tensor) -> Tensor:
    """The part of a tensor that is in this process. Without autograd, writing into it writes into the tensor."""
    return tensor.to_local() if is_sharded(tensor) else tensor


def whole(tensor: Tensor) -> Tensor:
    """All of a tensor, gathered from its processes; all of them have to call this."""
    return tensor.full_tensor() if is_sharded(tensor) else tensor


def gathered(part: Tensor, like: Tensor) -> Tensor:
    """The whole tensor of which this process has `part`, spread as `like` is; all processes have to call this."""
    if not is_sharded(like):
        return part
    from torch.distributed.tensor import DTensor

    spread = DTensor.from_local(part, like.device_mesh, like.placements, shape=like.shape, stride=like.stride())
    return spread.full_tensor()


def nonzero_mask(weight: Tensor) -> Tensor:
    """Where a weight is not zero. All of it, gathered as bits if it is sharded; all of its processes have to call."""
    return gathered_mask(local_part(weight.detach()) != 0, weight)


def gathered_mask(part: Tensor, like: Tensor) -> Tensor:
    """`gathered` for truth values: one bit each, or one byte where every dimension of the tensor is sharded.

    A byte has eight neighbours along the dimensions of which each process has all.
    """
    if not is_sharded(like):
        return part
    from torch.distributed.tensor import DTensor

    cut = sorted({placement.dim for placement in like.placements if not placement.is_replicate()})  # type: ignore[attr-defined]
    order = [*cut, *(dim for dim in range(like.dim()) if dim not in cut)]
    shape = [like.shape[dim] for dim in order]
    kept, packed = shape[: len(cut)], math.prod(shape[len(cut) :])
    own = packed_bits(part.permute(order).reshape(*(part.shape[dim] for dim in cut), packed))
    sizes = torch.Size([*kept, own.shape[-1]])
    along = [each if each.is_replicate() else along_dimension(each, cut.index(each.dim)) for each in like.placements]  # type: ignore[attr-defined]
    strides = torch.empty(sizes, device="meta").stride()
    spread = DTensor.from_local(own, like.device_mesh, along, shape=sizes, stride=strides)
    back = sorted(range(len(order)), key=order.__getitem__)
    return unpacked_bits(spread.full_tensor(), packed).reshape(shape).permute(back)


def along_dimension(placement: Placement, dim: int) -> Placement:
    """The placement of a sharded dimension, for another dimension."""
    from torch.distributed.tensor import Shard

    if placement.is_shard():
        return Shard(dim)
    return type(placement)(dim, split_factor=placement.split_factor)  # type: ignore[call-arg, attr-defined]


def own_part(tensor: Tensor, like: Tensor) -> Tensor:
    """The part of a whole tensor that this process has of `like`; nothing is sent."""
    if not is_sharded(like):
        return tensor
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(tensor, like.device_mesh, like.placements, src_data_rank=None).to_local()


def reshard_(model: nn.Module) -> None:
    """Free the gathered parameters that a forward pass with `fully_shard` leaves until the backward pass."""
    kind = _class("torch.distributed.fsdp", "FSDPModule")
    for module in model.modules() if kind is not None else ():
        if isinstance(module, kind):
            module.reshard()


def refuse_flat_parameters(model: nn.Module) -> None:
    """Raise for `FullyShardedDataParallel` (FSDP1): its parameters are slices of one vector, across rows and layers."""
    kind = _class("torch.distributed.fsdp", "FullyShardedDataParallel")
    for name, module in model.named_modules() if kind is not None else ():
        if isinstance(module, kind):
            raise _flat(f"`{name}`" if name else "The model")


def refuse_flat_parameter(module: nn.Module, attribute: str, name: str) -> None:
    """Raise if a parameter of a layer has become a slice of such a vector since the layer was found.

    The layer itself is not wrapped. With `use_orig_params=True` its parameters remain, one-dimensional and marked; else
    plain tensors take their places.
    """
    path, _, own = attribute.rpartition(".")
    holder = module.get_submodule(path)
    parameter = holder._parameters.get(own)
    managed = hasattr(holder, "_fsdp_use_orig_params")  # by FSDP1 or FSDP2, which keeps parameters
    if getattr(parameter, "_fsdp_flattened", False) or (managed and not isinstance(parameter, nn.Parameter)):
        raise _flat(f"`{name}`")


def _flat(where: str) -> GossamerError:
    return GossamerError(
        f"{where} is wrapped in FullyShardedDataParallel, which cuts the parameters of all layers as one vector. The "
        "groups of a weight cannot be told from these pieces. Use `torch.distributed.fsdp.fully_shard` (FSDP2), which "
        "keeps the dimensions of every weight."
    )


def require_whole(model: nn.Module, what: str) -> None:
    """Raise unless all parameters of a model are whole in this process."""
    refuse_flat_parameters(model)
    sharded = [name for name, parameter in model.named_parameters() if is_sharded(parameter)]
    if sharded:
        raise GossamerError(
            f"`{what}` needs the whole model in one process; {sharded[0]} is a DTensor (as are {len(sharded)} "
            "parameters in all), of which this process has a part. Gather the weights into a plain model first: "
            "docs/scaling.md has the lines."
        )


def packed_bits(bits: Tensor) -> Tensor:
    """Truth values, eight of the last dimension in each byte."""
    missing = -bits.shape[-1] % _BITS
    padded = torch.nn.functional.pad(bits.to(torch.uint8), (0, missing))
    eights = padded.reshape(*bits.shape[:-1], padded.shape[-1] // _BITS, _BITS)
    return (eights << _places(bits)).sum(-1, dtype=torch.uint8)


def unpacked_bits(packed: Tensor, count: int) -> Tensor:
    """The inverse of `packed_bits`, for `count` truth values in the last dimension."""
    bits = (packed[..., None] >> _places(packed)) & 1
    return bits.flatten(-2)[..., :count].bool()


def _places(like: Tensor) -> Tensor:
    return torch.arange(_BITS, dtype=torch.uint8, device=like.device)


def _class(module: str, name: str) -> Any:
    return getattr(sys.modules.get(module), name, None)
