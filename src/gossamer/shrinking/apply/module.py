"""Apply a plan to a copy of the module: kept indices are taken, constants added to biases, size attributes set."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from gossamer.layers.attention import compact_attention
from gossamer.shrinking.decide.plan import Attention, Fold, Indices, Plan, copy_module
from gossamer.shrinking.trace import state_tensors

__all__ = ["add_fold", "compact", "packed", "smaller_copy", "take"]


def smaller_copy(model: nn.Module, plan: Plan) -> nn.Module:
    """A copy of the model; of the tensors that get smaller, only the kept part is ever copied."""
    tensors = state_tensors(model)
    memo: dict[int, Any] = {}
    for name, indices in plan.kept.items():
        memo[id(tensors[name])] = _smaller(tensors[name], indices)
    copied = copy_module(model, memo)
    for fold in plan.folds:
        add_fold(copied, fold)
    for size in plan.sizes:
        setattr(copied.get_submodule(size.module), size.attribute, size.after)
    for attention in plan.attentions:
        compact(copied.get_submodule(attention.module), attention)
    return copied


def take(tensor: Tensor, indices: Indices) -> Tensor:
    """The part of a tensor at the kept indices; for a parameter or anything of its shape (gradients, moments)."""
    for dim, index in sorted(indices.items()):
        index = index.to(tensor.device)
        tensor = tensor.index_select(dim, index) if index.dim() == 1 else _take_grouped(tensor, index)
    return tensor


def packed(part: Tensor, whole: Tensor) -> Tensor:
    """The part as a contiguous tensor, in the memory format of the tensor that it was taken from."""
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    last = formats.get(whole.dim())
    if last is not None and not whole.is_contiguous() and whole.is_contiguous(memory_format=last):
        return part.contiguous(memory_format=last)
    return part.contiguous()


def add_fold(model: nn.Module, fold: Fold) -> nn.Parameter | None:
    """Add a constant contribution to a bias; returns the bias if it had to be created."""
    module = model.get_submodule(fold.weight.rpartition(".")[0])
    if fold.bias is not None:
        bias = state_tensors(model)[fold.bias]
        with torch.no_grad():
            bias.add_(fold.amount.to(bias))
        return None
    weight = module.get_parameter(fold.weight.rpartition(".")[2])
    created = nn.Parameter(fold.amount.to(weight.detach()), requires_grad=weight.requires_grad)
    module.register_parameter("bias", created)
    return created


def compact(module: nn.Module, attention: Attention) -> None:
    """Give a multi-head attention its new sizes and the class that can have them."""
    assert isinstance(module, nn.MultiheadAttention)
    for attribute in ("num_heads", "head_dim", "embed_dim"):
        setattr(module, attribute, getattr(attention, attribute))
    compact_attention(
        module,
        full_head_dim=attention.full_head_dim,
        full_num_heads=attention.full_num_heads,
        kept_heads=attention.kept_heads,
    )


def _take_grouped(weight: Tensor, index: Tensor) -> Tensor:
    """Other columns for each block of rows, as in the weight of a grouped convolution."""
    groups, kept = index.shape
    blocks = weight.reshape(groups, weight.size(0) // groups, *weight.shape[1:])
    columns = index.view(groups, 1, kept, *(1,) * (weight.dim() - 2))
    taken = blocks.gather(2, columns.expand(-1, blocks.size(1), -1, *blocks.shape[3:]))
    return taken.reshape(weight.size(0), kept, *weight.shape[2:])


def _smaller(tensor: Tensor, indices: Indices) -> Tensor:
    part = packed(take(tensor.detach(), indices), tensor)
    return type(tensor)(part, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else part
