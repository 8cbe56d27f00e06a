from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from gossamer.layers.attention import CompactMultiheadAttention
from gossamer.shrinking import plan, shrink, shrink_


class Packed(nn.Module):
    """The usual vision transformer's attention: one packed projection, sizes as attributes."""

    def __init__(self, *, fused: bool) -> None:
        super().__init__()
        self.num_heads, self.head_dim, self.fused = 4, 3, fused
        self.scale = self.head_dim**-0.5
        self.qkv = nn.Linear(12, 36)
        self.proj = nn.Linear(12, 12)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        qkv = self.qkv(x).reshape(batch, length, 3, self.num_heads, self.head_dim).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        if self.fused:
            y = F.scaled_dot_product_attention(q, k, v, scale=self.scale)
        else:
            y = ((q * self.scale) @ k.transpose(-2, -1)).softmax(-1) @ v
        return self.proj(y.transpose(1, 2).reshape(batch, length, -1))


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("form", ["module", "graph"])
def test_whole_heads_and_single_dimensions_go(fused: bool, form: str) -> None:
    torch.manual_seed(0)
    model = Packed(fused=fused)
    with torch.no_grad():
        for row in (0, 7, 11):  # one query dimension of each head that stays, not the same one
            model.qkv.weight[row] = 0
            model.qkv.bias[row] = 0
        for column in (1, 3, 4, 5, 8, 9):  # head 1, and one value dimension of each other head
            model.proj.weight[:, column] = 0
    x = torch.randn(2, 5, 12)
    small = shrink(model, x, form=form)  # type: ignore[arg-type]
    assert small.get_parameter("qkv.weight").shape == (18, 12)
    torch.testing.assert_close(small(x), model(x))


def multihead(width: int = 8, heads: int = 4, **options: bool) -> nn.MultiheadAttention:
    torch.manual_seed(0)
    attention = nn.MultiheadAttention(width, heads, **options).eval()  # type: ignore[arg-type]
    with torch.no_grad():
        attention.out_proj.weight[:, 2:4] = 0
    return attention


class Around(nn.Module):
    def __init__(self, attention: nn.MultiheadAttention, *, cross: bool, weights: bool) -> None:
        super().__init__()
        self.attention, self.cross, self.weights = attention, cross, weights

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        other = torch.tanh(x) if self.cross else x
        return (self.attention(x, other, other, need_weights=self.weights)[0],)


@pytest.mark.parametrize("cross", [True, False])
@pytest.mark.parametrize("batch_first", [True, False])
def test_multihead_attention_loses_heads(cross: bool, batch_first: bool) -> None:
    model = Around(multihead(batch_first=batch_first), cross=cross, weights=batch_first)
    x = torch.randn(3, 5, 8)
    small = shrink(model, x, form="module")
    assert isinstance(small.attention, CompactMultiheadAttention)
    assert (small.attention.num_heads, small.attention.head_dim) == (3, 2)
    torch.testing.assert_close(small(x), model(x))
    assert plan(small, x, form="module").empty


@pytest.mark.parametrize("batch_first", [True, False])
def test_compact_attention_has_the_signature_of_its_base(batch_first: bool) -> None:
    full = multihead(batch_first=batch_first)
    model = Around(full, cross=False, weights=True)
    small = shrink(model, torch.randn(3, 5, 8), form="module").attention
    x = torch.randn(3, 5, 8)
    length = 5 if batch_first else 3
    causal = torch.triu(torch.ones(length, length, dtype=torch.bool), 1)
    padding = torch.zeros(8 - length, length, dtype=torch.bool)
    padding[0, -1] = True
    for options in (
        {"need_weights": False},
        {"attn_mask": causal},
        {"key_padding_mask": padding},
        {"attn_mask": torch.randn(length, length)},
        {"attn_mask": torch.randn(length, length), "is_causal": True},
        {"attn_mask": torch.randn(length, length), "is_causal": True, "need_weights": False},
    ):
        expected, found = full(x, x, x, **options)[0], small(x, x, x, **options)[0]
        torch.testing.assert_close(found, expected)
    one = torch.randn(5, 8)
    torch.testing.assert_close(small(one, one, one)[0], full(one, one, one)[0])
    assert small(x, x, x, average_attn_weights=False)[1].shape[1] == 3


def test_transformer_encoder_shrinks_also_where_the_fused_path_would_run() -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 4, 12, batch_first=True)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    with torch.no_grad():
        for each in model.layers:
            each.self_attn.out_proj.weight[:, 2:4] = 0
            each.linear1.weight[:5] = 0
    x = torch.randn(2, 5, 8)
    expected = model(x)
    shrink_(model, x)
    assert [each.linear1.out_features for each in model.layers] == [7, 7]
    with torch.no_grad():
        torch.testing.assert_close(model(x), expected)


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 4, 12, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 3)

    def forward(self, x: Tensor, padding: Tensor) -> Tensor:
        return self.layers(x, src_key_padding_mask=padding)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("in_place", [False, True])
def test_transformer_encoder_takes_a_padding_mask_after_heads_have_left(in_place: bool) -> None:
    torch.manual_seed(0)
    model = Encoder().eval()
    with torch.no_grad():
        for each in model.layers.layers[1:]:  # the first layer keeps its heads, and the fused path
            each.self_attn.out_proj.weight[:, 2:4] = 0
    x, padding = torch.randn(3, 5, 8), torch.zeros(3, 5, dtype=torch.bool)
    padding[0, 3:] = True
    with torch.no_grad():
        expected = model(x, padding)
    if in_place:
        shrink_(model, (x, padding))
        small: nn.Module = model
    else:
        small = shrink(model, (x, padding), form="module")
    assert [each.self_attn.num_heads for each in small.layers.layers] == [4, 3, 3]
    with torch.no_grad():
        torch.testing.assert_close(small(x, padding), expected)
        torch.testing.assert_close(
            small(x, torch.zeros_like(padding)), small(x, padding.logical_and(x.new_zeros(()) > 1))
        )
    torch.testing.assert_close(small(x, padding)[1:], expected[1:])  # and with gradients, where there is no fused path


def test_heads_leave_where_the_caller_says_that_a_mask_is_causal() -> None:
    torch.manual_seed(0)
    model = nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 4, 12, batch_first=True), 1).eval()
    with torch.no_grad():
        model.layers[0].self_attn.out_proj.weight[:, 2:4] = 0
    x, causal = torch.randn(2, 5, 8), nn.Transformer.generate_square_subsequent_mask(5)
    call = {"tgt": x, "memory": x, "tgt_mask": causal, "tgt_is_causal": True}
    small = shrink(model, call, form="module")
    assert small.layers[0].self_attn.num_heads == 3
    torch.testing.assert_close(small(**call), model(**call))


@pytest.mark.parametrize("form", ["module", "graph"])
def test_transformers_take_masks_that_need_not_be_causal(form: str) -> None:
    torch.manual_seed(0)
    model = nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 4, 12, batch_first=True), 1).eval()
    with torch.no_grad():
        model.layers[0].linear1.weight[:5] = 0
        model.layers[0].self_attn.out_proj.weight[:, 2:4] = 0
    x, causal = torch.randn(2, 5, 8), nn.Transformer.generate_square_subsequent_mask(5)
    small = shrink(model, {"tgt": x, "memory": x, "tgt_mask": causal}, form=form)  # type: ignore[arg-type]
    assert small.get_parameter("layers.0.linear1.weight").shape == (7, 8)
    for mask in (causal, torch.randn(5, 5)):
        torch.testing.assert_close(small(x, x, tgt_mask=mask), model(x, x, tgt_mask=mask))


class Masked(nn.Module):
    def __init__(self, *, weights: bool) -> None:
        super().__init__()
        self.attention, self.weights = multihead(batch_first=True), weights

    def forward(self, x: Tensor, padding: Tensor) -> Tensor:
        return self.attention(x, x, x, key_padding_mask=padding, need_weights=self.weights)[0]


@pytest.mark.parametrize("form", ["module", "graph"])
@pytest.mark.parametrize("weights", [False, True])
def test_a_padding_mask_does_not_pin_heads(weights: bool, form: str) -> None:
    model = Masked(weights=weights)
    x, padding = torch.randn(3, 5, 8), torch.zeros(3, 5, dtype=torch.bool)
    padding[1, 2:] = True
    small = shrink(model, (x, padding), form=form)  # type: ignore[arg-type]
    assert small.get_parameter("attention.in_proj_weight").shape == (18, 8)
    torch.testing.assert_close(small(x, padding), model(x, padding))


def test_masks_per_head_are_masks_of_the_original_heads() -> None:
    full = multihead(batch_first=True)
    x = torch.randn(3, 5, 8)
    small = shrink(Around(full, cross=False, weights=False), x, form="module")
    with torch.no_grad():
        small.attention.out_proj.weight[:, :2] = 0
        full.out_proj.weight[:, :2] = 0
    again = shrink(small, x, form="module").attention
    assert (small.attention.kept_heads, again.kept_heads) == ((0, 2, 3), (2, 3))
    mask = torch.randn(3 * 4, 5, 5)
    for each in (small.attention, again):
        torch.testing.assert_close(each(x, x, x, attn_mask=mask)[0], full(x, x, x, attn_mask=mask)[0])


class OneWidth(nn.Module):
    """As in transformers: one attribute splits queries, keys and values."""

    def __init__(self) -> None:
        super().__init__()
        self.head_size, self.scaling = 4, 0.5
        self.query, self.key, self.value, self.out = (nn.Linear(12, 12) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (each(x).unflatten(-1, (-1, self.head_size)) for each in (self.query, self.key, self.value))
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        y = F.scaled_dot_product_attention(q, k, v, scale=self.scaling)
        return self.out(y.transpose(1, 2).flatten(2))


def test_heads_of_one_width_lose_as_many_dimensions_everywhere() -> None:
    torch.manual_seed(0)
    model = OneWidth()
    with torch.no_grad():
        for layer, dead in ((model.query, [0, 1, 5, 6, 9, 10]), (model.value, [2, 4, 11])):
            layer.weight[dead] = 0
            layer.bias[dead] = 0
    x = torch.randn(2, 5, 12)
    small = shrink(model, x, form="module")
    assert [small.get_parameter(f"{name}.weight").shape[0] for name in ("query", "key", "value")] == [9, 9, 9]
    assert small.head_size == 3
    torch.testing.assert_close(small(x), model(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("fused", [True, False])
def test_a_constant_value_unit_folds(fused: bool) -> None:
    torch.manual_seed(0)
    model = Packed(fused=fused).eval()
    with torch.no_grad():
        model.qkv.weight[[25, 29, 33, 34, 35]] = 0  # one value dimension of two heads, and all of the last; biases stay
    x = torch.randn(2, 5, 12)
    small = shrink(model, x, form="graph")
    assert small.get_parameter("proj.weight").shape[1] < 12
    for length in (5, 5):
        each = torch.randn(2, length, 12)
        torch.testing.assert_close(small(each), model(each), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(shrink(model, x, form="module")(x), model(x), rtol=1e-4, atol=1e-5)


class OneHead(nn.Module):
    """An attention of one head, with a bias that a network computes from distances."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(4, 3 * width), nn.Linear(width, 2)
        self.bias = nn.Sequential(nn.Linear(1, 6), nn.ReLU(), nn.Linear(6, 1))
        self.register_buffer("distances", torch.arange(25.0).view(5, 5, 1))
        with torch.no_grad():
            self.bias[0].weight[1:3], self.bias[0].bias[1:3] = 0, 0

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, -1)
        return self.out((q @ k.mT + self.bias(self.distances).squeeze(-1)).softmax(-1) @ v)


@pytest.mark.parametrize("width", [1, 3])
def test_what_is_added_to_the_scores_of_one_head_is_read(width: int) -> None:
    torch.manual_seed(0)
    model = OneHead(width).eval()
    x = torch.randn(2, 5, 4)
    found = plan(model, x, form="module")
    assert "please report" not in str(found)
    assert found.apply().bias[0].out_features == 4
    torch.testing.assert_close(found.apply()(x), model(x))
