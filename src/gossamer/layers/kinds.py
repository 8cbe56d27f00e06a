"""The table of layer kinds: what is known about each layer of `torch.nn`, in one place.

A row says what the dimensions of a layer's weights mean (`Layout` follows from that), which attributes hold its sizes
and what tensor shapes follow from them, and how often a call uses each weight. Regularizers, the counting of MACs,
files and shrinking all read this table, so a new kind of layer is one new row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from functools import singledispatch
from types import SimpleNamespace
from typing import Literal, TypeAlias

from torch import Tensor, nn

from gossamer.layers.attention import CompactMultiheadAttention
from gossamer.layers.layout import Axis, Layout

__all__ = [
    "ATTENTION",
    "BATCH_NORM",
    "CONVOLUTION",
    "EMBEDDING",
    "GROUP_NORM",
    "GRU",
    "GRU_CELL",
    "KINDS",
    "LINEAR",
    "LSTM",
    "LSTM_CELL",
    "PRELU",
    "RNN",
    "RNN_CELL",
    "TAKES_BIAS",
    "LayerKind",
    "Shape",
    "kind_of",
    "layouts",
]

Shape: TypeAlias = tuple[int, ...]
Shapes: TypeAlias = Callable[[SimpleNamespace], Mapping[str, Shape]]


@dataclass(frozen=True)
class LayerKind:
    """One kind of layer.

    Attributes:
        layers: The classes of this kind; their subclasses count too.
        axes: The axes of each weight in the order in which it is stored, by its name or a pattern of names. Empty for
            layers without weights in our sense: biases, normalisation scales and slopes are not regularized.
        inputs: The attribute that holds the number of input units.
        outputs: The attribute that holds the number of output units.
        parts: The attribute that holds the number of blocks, groups or heads.
        gates: Gates of a recurrent layer, which share their hidden unit; they are stacked in the first dimension.
        candidate: Which of the gates computes the new value of the hidden unit: where it is zero, a unit that starts at
            zero stays zero.
        other_sizes: Further attributes that change with the size of the layer.
        shapes: From the attributes to the shape of every tensor that the layer may have.
        divisible: Pairs (size, parts) of attributes: the size is split into so many equal parts.
        uses: A weight is used once for each (attribute) elements of the layer's (input or output); None where the
            layer multiplies nothing (an embedding) or its weights are used at different rates (attention).
        takes_bias: Whether a layer that was built without a bias can be given one.
    """

    layers: tuple[type[nn.Module], ...]
    shapes: Shapes
    axes: Mapping[str, tuple[Axis, ...]] = field(default_factory=dict)
    inputs: str | None = None
    outputs: str | None = None
    parts: str | None = None
    gates: int = 1
    candidate: int = 0
    other_sizes: tuple[str, ...] = ()
    divisible: tuple[tuple[str, str], ...] = ()
    uses: tuple[Literal["input", "output"], str] | None = None
    takes_bias: bool = False

    @property
    def sizes(self) -> tuple[str, ...]:
        """The attributes that change when the layer gets smaller."""
        named = (self.inputs, self.outputs, self.parts)
        return (*(name for name in named if name is not None), *self.other_sizes)

    def weights(self, module: nn.Module) -> Iterator[tuple[str, Tensor, tuple[Axis, ...]]]:
        """The weights that a layer of this kind has: name, tensor, axes."""
        for pattern, axes in self.axes.items():
            names = [name for name in module._parameters if fnmatch(name, pattern)] if "*" in pattern else [pattern]
            for name in names:
                path, _, attribute = name.rpartition(".")
                weight = getattr(module.get_submodule(path), attribute)
                if weight is not None:
                    yield name, weight, axes

    def layout(self, module: nn.Module, weight: Tensor, axes: tuple[Axis, ...]) -> Layout:
        """The axes of a weight with their sizes."""
        if axes[0] == "block":
            assert self.parts is not None
            return Layout.split(axes, tuple(weight.shape), getattr(module, self.parts))
        return Layout.split(axes, tuple(weight.shape), self.gates)


@singledispatch
def layouts(module: nn.Module) -> dict[str, Layout]:
    """The weights of a layer: attribute name -> layout. Empty for a module that is not a weight layer.

    Biases and normalisation layers have no entry. Register a type of your own with `layouts.register`.
    """
    kind = kind_of(module)
    if kind is None:
        return {}
    return {name: kind.layout(module, weight, axes) for name, weight, axes in kind.weights(module)}


def kind_of(module: nn.Module) -> LayerKind | None:
    """The row of the table for a module; None for classes that are not in it."""
    for kind in KINDS:
        if isinstance(module, kind.layers):
            return kind
    return None


def _linear(a: SimpleNamespace) -> dict[str, Shape]:
    return {"weight": (a.out_features, a.in_features), "bias": (a.out_features,)}


def _bilinear(a: SimpleNamespace) -> dict[str, Shape]:
    return {"weight": (a.out_features, a.in1_features, a.in2_features), "bias": (a.out_features,)}


def _convolution(a: SimpleNamespace) -> dict[str, Shape]:
    channels = (a.out_channels, a.in_channels // a.groups)
    if a.transposed:
        channels = (a.in_channels, a.out_channels // a.groups)
    return {"weight": (*channels, *a.kernel_size), "bias": (a.out_channels,)}


def _embedding(a: SimpleNamespace) -> dict[str, Shape]:
    return {"weight": (a.num_embeddings, a.embedding_dim)}


def _batch_norm(a: SimpleNamespace) -> dict[str, Shape]:
    each = dict.fromkeys(("weight", "bias", "running_mean", "running_var"), (a.num_features,))
    return {**each, "num_batches_tracked": ()}


def _group_norm(a: SimpleNamespace) -> dict[str, Shape]:
    return {"weight": (a.num_channels,), "bias": (a.num_channels,)}


def _layer_norm(a: SimpleNamespace) -> dict[str, Shape]:
    return {"weight": a.normalized_shape, "bias": a.normalized_shape}


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


def _recurrent(gates: int) -> Shapes:
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


def _recurrent_cell(gates: int) -> Shapes:
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


def _recurrent_kinds(
    layer: type[nn.Module], cell: type[nn.Module], gates: int, candidate: int
) -> tuple[LayerKind, LayerKind]:
    """A recurrent layer and its cell. `weight_hr`, the projection of an LSTM's hidden state, has no gates."""
    gate: tuple[Axis, ...] = ("gate", "out", "in")
    axes: dict[str, tuple[Axis, ...]] = {"weight_ih*": gate, "weight_hh*": gate, "weight_hr*": ("out", "in")}
    projected = ("proj_size",) if layer is nn.LSTM else ()
    return (
        LayerKind(
            (layer,), _recurrent(gates), axes, "input_size", "hidden_size",
            gates=gates, candidate=candidate, other_sizes=projected, uses=("input", "input_size"),
        ),
        LayerKind(
            (cell,), _recurrent_cell(gates), axes, "input_size", "hidden_size",
            gates=gates, candidate=candidate, uses=("input", "input_size"),
        ),
    )  # fmt: skip


_SPLIT_CHANNELS = (("in_channels", "groups"), ("out_channels", "groups"))
_PROJECTIONS: dict[str, tuple[Axis, ...]] = dict.fromkeys(
    ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight", "out_proj.weight"), ("out", "in")
)  # `out_proj` is a child module, but it is never called as one

LINEAR = LayerKind(
    (nn.Linear,), _linear, {"weight": ("out", "in")}, "in_features", "out_features",
    uses=("output", "out_features"), takes_bias=True,
)  # fmt: skip
CONVOLUTION = LayerKind(
    (nn.Conv1d, nn.Conv2d, nn.Conv3d), _convolution, {"weight": ("block", "out", "in", "tap")},
    "in_channels", "out_channels", "groups",
    divisible=_SPLIT_CHANNELS, uses=("output", "out_channels"), takes_bias=True,
)  # fmt: skip
TRANSPOSED_CONVOLUTION = LayerKind(
    (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d), _convolution,
    {"weight": ("block", "in", "out", "tap")}, "in_channels", "out_channels", "groups",
    divisible=_SPLIT_CHANNELS, uses=("input", "in_channels"), takes_bias=True,
)  # fmt: skip
EMBEDDING = LayerKind(
    (nn.Embedding, nn.EmbeddingBag), _embedding, {"weight": ("in", "out")}, "num_embeddings", "embedding_dim"
)
LSTM, LSTM_CELL = _recurrent_kinds(nn.LSTM, nn.LSTMCell, gates=4, candidate=2)
GRU, GRU_CELL = _recurrent_kinds(nn.GRU, nn.GRUCell, gates=3, candidate=2)
RNN, RNN_CELL = _recurrent_kinds(nn.RNN, nn.RNNCell, gates=1, candidate=0)
COMPACT_ATTENTION = LayerKind(
    (CompactMultiheadAttention,), _compact_attention, _PROJECTIONS, "embed_dim", parts="num_heads",
    other_sizes=("kdim", "vdim", "head_dim", "full_head_dim", "full_num_heads", "kept_heads"),
)  # fmt: skip
ATTENTION = LayerKind(
    (nn.MultiheadAttention,), _attention, _PROJECTIONS, "embed_dim", parts="num_heads",
    other_sizes=("kdim", "vdim", "head_dim"),
    divisible=(("embed_dim", "num_heads"), ("embed_dim", "head_dim")),
)  # fmt: skip
BATCH_NORM = LayerKind(
    (nn.modules.batchnorm._BatchNorm, nn.modules.instancenorm._InstanceNorm), _batch_norm, outputs="num_features"
)
GROUP_NORM = LayerKind(
    (nn.GroupNorm,), _group_norm, outputs="num_channels", parts="num_groups",
    divisible=(("num_channels", "num_groups"),),
)  # fmt: skip
LAYER_NORM = LayerKind((nn.LayerNorm, nn.RMSNorm), _layer_norm, other_sizes=("normalized_shape",))
PRELU = LayerKind((nn.PReLU,), _prelu, outputs="num_parameters")
BILINEAR = LayerKind((nn.Bilinear,), _bilinear, outputs="out_features", other_sizes=("in1_features", "in2_features"))
TRANSFORMER = LayerKind((nn.Transformer,), _no_tensors, other_sizes=("d_model", "nhead"))
UNFLATTEN = LayerKind((nn.Unflatten,), _no_tensors, other_sizes=("unflattened_size",))

# The compact attention before its base class.
KINDS = (
    LINEAR, CONVOLUTION, TRANSPOSED_CONVOLUTION, EMBEDDING, LSTM, LSTM_CELL, GRU, GRU_CELL, RNN, RNN_CELL,
    COMPACT_ATTENTION, ATTENTION, BATCH_NORM, GROUP_NORM, LAYER_NORM, PRELU, BILINEAR, TRANSFORMER, UNFLATTEN,
)  # fmt: skip

# Layers that can be given a bias if they were built without one.
TAKES_BIAS: tuple[type[nn.Module], ...] = tuple(layer for kind in KINDS if kind.takes_bias for layer in kind.layers)
