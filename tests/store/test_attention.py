"""An attention with fewer heads than its class can express, through a file."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from gossamer import GossamerError
from gossamer.layers import CompactMultiheadAttention
from gossamer.measurement import measure
from gossamer.shrinking import shrink
from gossamer.store import load, save


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
        self.head = nn.Linear(16, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layer(x).mean(1))


def with_a_dead_head() -> Encoder:
    torch.manual_seed(0)
    model = Encoder().eval()
    with torch.no_grad():
        model.layer.self_attn.out_proj.weight[:, 4:8] = 0  # the second head is not read
        model.layer.linear2.weight[:, ::2] = 0
    return model


def test_a_network_with_fewer_heads_comes_back(tmp_path: Path) -> None:
    full, x = with_a_dead_head(), torch.randn(2, 5, 16)
    small = shrink(full, x, form="module")
    assert type(small.layer.self_attn) is CompactMultiheadAttention
    save(small, tmp_path / "small.safetensors")
    loaded = load(tmp_path / "small.safetensors", Encoder()).eval()
    assert type(loaded.layer.self_attn) is CompactMultiheadAttention
    assert loaded.layer.self_attn.num_heads == 3
    assert torch.equal(loaded(x), small(x))
    torch.testing.assert_close(loaded(x), full(x))


def test_its_cost_is_counted_once(tmp_path: Path) -> None:
    x = torch.randn(1, 5, 16)
    small = shrink(with_a_dead_head(), x, form="module")
    macs = {layer.name: layer.macs for layer in measure(small, x).layers}
    assert macs["layer.self_attn.in_proj_weight"] == 5 * 36 * 16
    assert macs["layer.self_attn.out_proj.weight"] == 5 * 12 * 16


def test_an_error_leaves_the_attention_as_it_was(tmp_path: Path) -> None:
    save(shrink(with_a_dead_head(), torch.randn(2, 5, 16), form="module"), tmp_path / "small.safetensors")
    other = Encoder().eval()
    other.head = nn.Linear(16, 3, bias=False)
    other.layer.norm3 = nn.Identity()
    x = torch.randn(2, 5, 16)
    expected = other(x)
    with pytest.raises(GossamerError, match="norm3"):
        load(tmp_path / "small.safetensors", other)
    assert type(other.layer.self_attn) is nn.MultiheadAttention
    assert torch.equal(other(x), expected)
