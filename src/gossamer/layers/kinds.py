"""The table of layer kinds: what is known about each layer of `torch.nn`, in one place.

A row says what the dimensions of a layer's weights mean (`Layout` follows from that), which attributes hold its sizes
and what tensor shapes follow from them, and how often a call uses each weight. Regularizers, the counting of
MACs, files and shrinking all read this table, so a new kind of layer is one new row. `register_kind` adds the
row of a class of your own:

    register_kind(LayerKind((MyLinear,), axes={"weight": ("in", "out")}))
"""

from __future__ import annotations

from collections import OrderedDict
from types import SimpleNamespace

from torch import nn
from torch.utils.hooks import RemovableHandle

from gossamer.layers.attention import CompactMultiheadAttention
from gossamer.layers.kind import LayerKind, Shape, Shapes, no_tensors, require_complete
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
    "kind_of",
    "layouts",
    "register_kind",
]

# Rows of users, by the order of their registration.
_registered: OrderedDict[int, LayerKind] = OrderedDict()


def register_kind(kind: LayerKind) -> RemovableHandle:
    """Add the row of a layer class of your own to the table; it takes precedence over all rows before it.

    From then on regularizers act on the weights that `kind.axes` names, and `measure` counts them. `kind.inputs` and
    `kind.outputs` name the attributes that hold the sizes, if the layer has any.

    Returns:
        A handle: `remove()` takes the row out again.
    """
    require_complete(kind)
    handle = RemovableHandle(_registered)
    _registered[handle.id] = kind
    return handle


def layouts(module: nn.Module) -> dict[str, Layout]:
    """The weights of a layer: attribute name -> layout. Empty for a module that is not a weight layer.

    Biases and normalisation layers have no entry. `register_kind` makes weight layers of your own classes.
    """
    kind = kind_of(module)
    if kind is None:
        return {}
    return {name: kind.layout(module, name, weight, axes) for name, weight, axes in kind.weights(module)}


def kind_of(module: nn.Module) -> LayerKind | None:
    """The row of the table for a module; None for classes that are not in it."""
    for kind in (*reversed(_registered.values()), *KINDS):
        if kind.includes(module):
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
            gates=gates, candidate=candidate, other_sizes=projected, uses="input",
        ),
        LayerKind(
            (cell,), _recurrent_cell(gates), axes, "input_size", "hidden_size",
            gates=gates, candidate=candidate, uses="input",
        ),
    )  # fmt: skip


_SPLIT_CHANNELS = (("in_channels", "groups"), ("out_channels", "groups"))
_PROJECTIONS: dict[str, tuple[Axis, ...]] = dict.fromkeys(
    ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight", "out_proj.weight"), ("out", "in")
)  # `out_proj` is a child module, but it is never called as one

LINEAR = LayerKind(
    (nn.Linear,), _linear, {"weight": ("out", "in")}, "in_features", "out_features",
    uses="output", takes_bias=True,
)  # fmt: skip
CONVOLUTION = LayerKind(
    (nn.Conv1d, nn.Conv2d, nn.Conv3d), _convolution, {"weight": ("block", "out", "in", "tap")},
    "in_channels", "out_channels", "groups",
    divisible=_SPLIT_CHANNELS, uses="output", takes_bias=True,
)  # fmt: skip
TRANSPOSED_CONVOLUTION = LayerKind(
    (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d), _convolution,
    {"weight": ("block", "in", "out", "tap")}, "in_channels", "out_channels", "groups",
    divisible=_SPLIT_CHANNELS, uses="input", takes_bias=True,
)  # fmt: skip
EMBEDDING = LayerKind(
    (nn.Embedding, nn.EmbeddingBag), _embedding, {"weight": ("in", "out")}, "num_embeddings", "embedding_dim",
    uses=None,
)  # fmt: skip
TRANSFORMERS_CONV1D = LayerKind(  # the Linear of GPT-2, with a transposed weight
    ("transformers.pytorch_utils.Conv1D",), lambda a: {"weight": (a.nx, a.nf), "bias": (a.nf,)},
    {"weight": ("in", "out")}, "nx", "nf",
)  # fmt: skip
LSTM, LSTM_CELL = _recurrent_kinds(nn.LSTM, nn.LSTMCell, gates=4, candidate=2)
GRU, GRU_CELL = _recurrent_kinds(nn.GRU, nn.GRUCell, gates=3, candidate=2)
RNN, RNN_CELL = _recurrent_kinds(nn.RNN, nn.RNNCell, gates=1, candidate=0)
COMPACT_ATTENTION = LayerKind(
    (CompactMultiheadAttention,), _compact_attention, _PROJECTIONS, "embed_dim", parts="num_heads",
    other_sizes=("kdim", "vdim", "head_dim", "full_head_dim", "full_num_heads", "kept_heads"), uses=None,
)  # fmt: skip
ATTENTION = LayerKind(
    (nn.MultiheadAttention,), _attention, _PROJECTIONS, "embed_dim", parts="num_heads",
    other_sizes=("kdim", "vdim", "head_dim"),
    divisible=(("embed_dim", "num_heads"), ("embed_dim", "head_dim")), uses=None,
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
TRANSFORMER = LayerKind((nn.Transformer,), no_tensors, other_sizes=("d_model", "nhead"))
UNFLATTEN = LayerKind((nn.Unflatten,), no_tensors, other_sizes=("unflattened_size",))

# The compact attention before its base class.
KINDS = (
    LINEAR, CONVOLUTION, TRANSPOSED_CONVOLUTION, EMBEDDING, LSTM, LSTM_CELL, GRU, GRU_CELL, RNN, RNN_CELL,
    COMPACT_ATTENTION, ATTENTION, BATCH_NORM, GROUP_NORM, LAYER_NORM, PRELU, BILINEAR, TRANSFORMER, UNFLATTEN,
    TRANSFORMERS_CONV1D,
)  # fmt: skip

# Layers that can be given a bias if they were built without one.
TAKES_BIAS: tuple[type[nn.Module], ...] = tuple(
    layer for kind in KINDS if kind.takes_bias for layer in kind.layers if not isinstance(layer, str)
)
