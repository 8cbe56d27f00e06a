"""`nn.MultiheadAttention` with fewer or narrower heads, which the PyTorch class cannot represent."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gossamer.errors import GossamerError

__all__ = ["CompactMultiheadAttention", "compact_attention", "is_compactable", "restore_attention"]


def is_compactable(module: nn.Module) -> bool:
    """Whether the module is a multi-head attention with one packed projection and no added keys or values."""
    return (
        isinstance(module, nn.MultiheadAttention)
        and module.in_proj_weight is not None
        and module.bias_k is None
        and module.bias_v is None
        and not module.add_zero_attn
    )


def compact_attention(
    module: nn.MultiheadAttention, *, full_head_dim: int, full_num_heads: int, kept_heads: tuple[int, ...]
) -> None:
    """Convert an attention whose weights were sliced into one that computes with the smaller weights.

    The object and its parameters stay the same; its class changes. `full_head_dim` is the original width of a head,
    which determines the scale; `kept_heads` are those of the `full_num_heads` original heads that are left.
    """
    module.__class__ = CompactMultiheadAttention
    vars(module).update(full_head_dim=full_head_dim, full_num_heads=full_num_heads, kept_heads=kept_heads)
    module._qkv_same_embed_dim = False  # so that encoder layers do not take the fused path, which knows full heads only


def restore_attention(module: nn.MultiheadAttention) -> None:
    """Undo `compact_attention`."""
    module.__class__ = nn.MultiheadAttention
    for attribute in ("full_head_dim", "full_num_heads", "kept_heads"):
        del vars(module)[attribute]
    module._qkv_same_embed_dim = True


class CompactMultiheadAttention(nn.MultiheadAttention):
    """Attention over `num_heads` heads of width `head_dim`, with the call signature of its base.

    The packed projection has `3 * num_heads * head_dim` rows, whatever `embed_dim` is; scores are divided by the root
    of `full_head_dim`, the original width of a head. A mask with an entry per head is one for the `full_num_heads`
    original heads, of which `kept_heads` are left.
    """

    full_head_dim: int
    full_num_heads: int
    kept_heads: tuple[int, ...]

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """As in `nn.MultiheadAttention`."""
        if query.is_nested:
            return self._nested(query), None
        if is_causal and attn_mask is None:
            raise GossamerError("`is_causal` is a hint about `attn_mask`, which is missing. Give the mask too.")
        batched = query.dim() == 3
        q, k, v = (self._heads(x, part, batched) for part, x in enumerate((query, key, value)))
        if is_causal and key_padding_mask is None and not need_weights:  # as in the base class, the hint counts
            attn_mask = torch.ones(q.size(-2), k.size(-2), dtype=torch.bool, device=q.device).triu(1)
        scores = q @ k.transpose(-2, -1) * self.full_head_dim**-0.5
        for mask in (self._attn_mask(attn_mask), _padding(key_padding_mask)):
            if mask is not None:
                scores = scores.masked_fill(mask, float("-inf")) if mask.dtype == torch.bool else scores + mask
        weights = nn.functional.dropout(torch.softmax(scores, dim=-1), self.dropout, self.training)
        mixed = (weights @ v).transpose(-3, -2).flatten(-2)
        # As in the base class the projection is not called as a module: hooks see one layer, the attention.
        output = nn.functional.linear(mixed if batched else mixed[0], self.out_proj.weight, self.out_proj.bias)
        if batched and not self.batch_first:
            output = output.transpose(0, 1)
        if not need_weights:
            return output, None
        weights = weights.mean(1) if average_attn_weights else weights
        return output, weights if batched else weights[0]

    def _heads(self, x: Tensor, part: int, batched: bool) -> Tensor:
        """Project by one third of the packed weight; the result is (batch, heads, positions, width)."""
        x = x if batched else x.unsqueeze(0)
        x = x.transpose(0, 1) if batched and not self.batch_first else x
        bias = None if self.in_proj_bias is None else self.in_proj_bias.chunk(3)[part]
        projected = nn.functional.linear(x, self.in_proj_weight.chunk(3)[part], bias)
        return projected.reshape(*projected.shape[:2], self.num_heads, self.head_dim).transpose(1, 2)

    def _attn_mask(self, mask: Tensor | None) -> Tensor | None:
        """One mask for all heads, or one for each head of each sample."""
        if mask is None or mask.dim() == 2:
            return mask
        per_head = mask.reshape(-1, self.full_num_heads, *mask.shape[1:])
        return per_head if len(self.kept_heads) == self.full_num_heads else per_head[:, self.kept_heads, :, :]

    def _nested(self, x: Tensor) -> Tensor:
        """Self-attention over sequences of different lengths, to which `nn.TransformerEncoder` turns a padded batch."""
        lengths = torch.tensor([len(sequence) for sequence in x.unbind()], device=x.device)
        padded = x.to_padded_tensor(0.0)
        is_there = torch.arange(padded.size(1), device=x.device) < lengths[:, None]
        output, _ = self(padded, padded, padded, key_padding_mask=~is_there, need_weights=False)
        return torch._nested_tensor_from_mask(output, is_there, mask_check=False)


def _padding(mask: Tensor | None) -> Tensor | None:
    if mask is None:
        return None
    mask = mask if mask.dim() == 2 else mask.unsqueeze(0)
    return mask[:, None, None, :]
