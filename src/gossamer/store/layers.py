"""The layers of torch.nn: which attributes are sizes, and the tensor shapes that follow from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TypeAlias

from torch import nn

from gossamer.errors import GossamerError
from gossamer.layers import CompactMultiheadAttention

__all__ = ["Shape", "Size", "check_layer", "kind_of", "size_attributes"]

Shape: TypeAlias = tuple[int, ...]
Size: TypeAlias = int | tuple[int, ...]


@dataclass(frozen=True)
class LayerKind:
    """A layer of torch.nn.

    Attributes:
        layer: The class; subclasses inside torch count too.
        sizes: The attributes that change when the layer gets smaller.
        shapes: From the layer's attributes to the shape of each tensor that it may have.
        divisors: Pairs (whole, parts): the size `whole` is split into so many equal parts.
    """

    layer: type[nn.Module]
    sizes: tuple[str, ...]
    shapes: Callable[[SimpleNamespace], Mapping[str, Shape]]
    divisors: tuple[tuple[str, str], ...] = ()


def _linear(a: SimpleNamespace) -> dict[str, Shape]:
    return {"weight": (a.out_features, a.in_features), "bias": (a.out_features,)}


def _bilinear(a: SimpleNamespace) -> dict[str, Shape]:
    return {"weight": (a.out_features, a.in1_features, a.in2_features), "bias": (a.out_features,)}


def _convolution(a: SimpleNamespace) -> dict[str, Shape]:
    channels = (a.out_channels, a.in_channels // a.groups)
    if a.transposed:
        channels = (a.in_channels, a.out_channels // a.groups)
    return {"weight": (*channels, *a.kernel_size), "bias": (a.out_channels,)}


def _channel_norm(a: SimpleNamespace) -> dict[str, Shape]:
    each = dict.fromkeys(("weight", "bias", "running_mean", "running_var"), (a.num_features,))
    return {**each, "num_batches_tracked": ()}


def _layer_norm(a: SimpleNamespace) -> dict[str, Shape]:
    return {"weight": a.normalized_shape, "bias": a.normalized_shape}


def _group_norm(a: SimpleNamespace) -> dict[str, Shape]:
    return {"weight": (a.num_channels,), "bias": (a.num_channels,)}


def _embedding(a: SimpleNamespace) -> dict[str, Shape]:
    return {"weight": (a.num_embeddings, a.embedding_dim)}


def _prelu(a: SimpleNamespace) -> dict[str, Shape]:
    return {"weight": (a.num_parameters,)}


def _attention(a: SimpleNamespace) -> dict[str, Shape]:
    width = a.embed_dim
    return {
        "in_proj_weight": (3 * width, width),
        "in_proj_bias": (3 * width,),
        "q_proj_weight": (width, width),
        "k_proj_weight": (width, a.kdim),
        "v_proj_weight": (width, a.vdim),
        "bias_k": (1, 1, width),
        "bias_v": (1, 1, width),
        "out_proj.weight": (width, width),
        "out_proj.bias": (width,),
    }


def _compact_attention(a: SimpleNamespace) -> dict[str, Shape]:
    rows = 3 * a.num_heads * a.head_dim
    return {"in_proj_weight": (rows, a.embed_dim), "in_proj_bias": (rows,)}


def _recurrent(gates: int) -> Callable[[SimpleNamespace], dict[str, Shape]]:
    def shapes(a: SimpleNamespace) -> dict[str, Shape]:
        found: dict[str, Shape] = {}
        stacked = gates * a.hidden_size
        output = a.proj_size or a.hidden_size
        directions = ("", "_reverse") if a.bidirectional else ("",)
        for layer in range(a.num_layers):
            read = a.input_size if layer == 0 else output * len(directions)
            for direction in directions:
                name = f"l{layer}{direction}"
                found[f"weight_ih_{name}"] = (stacked, read)
                found[f"weight_hh_{name}"] = (stacked, output)
                found[f"weight_hr_{name}"] = (a.proj_size, a.hidden_size)
                found[f"bias_ih_{name}"] = found[f"bias_hh_{name}"] = (stacked,)
        return found

    return shapes


def _recurrent_cell(gates: int) -> Callable[[SimpleNamespace], dict[str, Shape]]:
    def shapes(a: SimpleNamespace) -> dict[str, Shape]:
        stacked = gates * a.hidden_size
        return {
            "weight_ih": (stacked, a.input_size),
            "weight_hh": (stacked, a.hidden_size),
            "bias_ih": (stacked,),
            "bias_hh": (stacked,),
        }

    return shapes


def _no_tensors(a: SimpleNamespace) -> dict[str, Shape]:
    del a
    return {}


_CHANNELS = ("in_channels", "out_channels", "groups")
_SPLIT_CHANNELS = (("in_channels", "groups"), ("out_channels", "groups"))
_HIDDEN = ("input_size", "hidden_size")

_CONVOLUTIONS: tuple[type[nn.Module], ...] = (
    nn.Conv1d,
    nn.Conv2d,
    nn.Conv3d,
    nn.ConvTranspose1d,
    nn.ConvTranspose2d,
    nn.ConvTranspose3d,
)
_CHANNEL_NORMS: tuple[type[nn.Module], ...] = (
    nn.modules.batchnorm._BatchNorm,
    nn.modules.instancenorm._InstanceNorm,
)

_KINDS = (
    LayerKind(nn.Linear, ("in_features", "out_features"), _linear),
    LayerKind(nn.Bilinear, ("in1_features", "in2_features", "out_features"), _bilinear),
    *(LayerKind(layer, _CHANNELS, _convolution, _SPLIT_CHANNELS) for layer in _CONVOLUTIONS),
    *(LayerKind(layer, ("num_features",), _channel_norm) for layer in _CHANNEL_NORMS),
    LayerKind(nn.LayerNorm, ("normalized_shape",), _layer_norm),
    LayerKind(nn.RMSNorm, ("normalized_shape",), _layer_norm),
    LayerKind(nn.GroupNorm, ("num_groups", "num_channels"), _group_norm, (("num_channels", "num_groups"),)),
    LayerKind(nn.Embedding, ("num_embeddings", "embedding_dim"), _embedding),
    LayerKind(nn.EmbeddingBag, ("num_embeddings", "embedding_dim"), _embedding),
    LayerKind(nn.PReLU, ("num_parameters",), _prelu),
    LayerKind(nn.LSTM, (*_HIDDEN, "proj_size"), _recurrent(gates=4)),
    LayerKind(nn.GRU, _HIDDEN, _recurrent(gates=3)),
    LayerKind(nn.RNN, _HIDDEN, _recurrent(gates=1)),
    LayerKind(nn.LSTMCell, _HIDDEN, _recurrent_cell(gates=4)),
    LayerKind(nn.GRUCell, _HIDDEN, _recurrent_cell(gates=3)),
    LayerKind(nn.RNNCell, _HIDDEN, _recurrent_cell(gates=1)),
    LayerKind(
        CompactMultiheadAttention,
        ("embed_dim", "kdim", "vdim", "num_heads", "head_dim", "full_head_dim"),
        _compact_attention,
    ),
    LayerKind(
        nn.MultiheadAttention,
        ("embed_dim", "kdim", "vdim", "num_heads", "head_dim"),
        _attention,
        (("embed_dim", "num_heads"), ("embed_dim", "head_dim")),
    ),
    LayerKind(nn.Transformer, ("d_model", "nhead"), _no_tensors),
    LayerKind(nn.Unflatten, ("unflattened_size",), _no_tensors),
)


def is_torch_layer(module: nn.Module) -> bool:
    """Whether the class of `module` is torch's own, or ours: then we know what its attributes mean."""
    return type(module).__module__.startswith("torch.") or type(module) is CompactMultiheadAttention


def kind_of(module: nn.Module) -> LayerKind | None:
    """The row of the table for `module`; None for layers without sizes and for classes of the user's own."""
    if not is_torch_layer(module):
        return None
    return next((kind for kind in _KINDS if isinstance(module, kind.layer)), None)


def size_attributes(module: nn.Module) -> tuple[str, ...] | None:
    """The attributes of a torch layer that may change with its size; None when any attribute may be a size."""
    if not is_torch_layer(module):
        return None
    kind = kind_of(module)
    return kind.sizes if kind else ()


def check_layer(path: str, module: nn.Module, sizes: Mapping[str, Size], shapes: Mapping[str, Shape]) -> None:
    """Check that the layer at `path`, with the attributes `sizes`, can have the tensors of the network's `shapes`."""
    kind = kind_of(module)
    if kind is None:
        return
    attributes = SimpleNamespace(**{**vars(module), **sizes})
    for whole, parts in kind.divisors:
        _check_division(path, whole, getattr(attributes, whole), parts, getattr(attributes, parts))
    for name, expected in kind.shapes(attributes).items():
        full_name = f"{path}.{name}" if path else name
        shape = shapes.get(full_name)
        if shape is not None and shape != tuple(expected):
            said = ", ".join(f"{size}={getattr(attributes, size)}" for size in kind.sizes)
            raise GossamerError(
                f"{full_name!r} has the shape {shape}, but a {type(module).__name__} with {said} "
                f"needs {tuple(expected)}. "
                "Set the attributes to the true sizes and save again."
            )


def _check_division(path: str, whole: str, total: int, parts: str, count: int) -> None:
    if count < 1 or total % count:
        raise GossamerError(
            f"{path!r} has {whole}={total} and {parts}={count}, which does not divide it. "
            "Set the attributes to the true sizes and save again."
        )
