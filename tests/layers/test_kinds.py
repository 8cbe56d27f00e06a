"""The table of layer kinds, held against the layers themselves. Every row needs an example here."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import gossamer
from gossamer import GossamerError
from gossamer.layers import (
    CompactMultiheadAttention,
    LayerKind,
    compact_attention,
    kind_of,
    layouts,
    multiply_adds,
    register_kind,
)
from gossamer.layers.kinds import KINDS


def compacted():
    module = nn.MultiheadAttention(8, 2)
    compact_attention(module, full_head_dim=4, full_num_heads=2, kept_heads=(0, 1))
    return module


EXAMPLES = {
    nn.Linear: (lambda: nn.Linear(6, 4), (3, 6)),
    nn.Conv1d: (lambda: nn.Conv1d(6, 4, 3, groups=2), (2, 6, 9)),
    nn.Conv2d: (lambda: nn.Conv2d(6, 4, (3, 2), stride=2, padding=1), (2, 6, 7, 7)),
    nn.Conv3d: (lambda: nn.Conv3d(6, 4, 2), (2, 6, 4, 4, 4)),
    nn.ConvTranspose1d: (lambda: nn.ConvTranspose1d(6, 4, 3), (2, 6, 5)),
    nn.ConvTranspose2d: (lambda: nn.ConvTranspose2d(6, 4, 3, stride=2, groups=2), (2, 6, 5, 5)),
    nn.ConvTranspose3d: (lambda: nn.ConvTranspose3d(6, 4, 2), (2, 6, 3, 3, 3)),
    nn.Embedding: (lambda: nn.Embedding(6, 4), None),
    nn.EmbeddingBag: (lambda: nn.EmbeddingBag(6, 4), None),
    nn.LSTM: (lambda: nn.LSTM(6, 4, num_layers=2, bidirectional=True, proj_size=3), None),
    nn.LSTMCell: (lambda: nn.LSTMCell(6, 4), None),
    nn.GRU: (lambda: nn.GRU(6, 4, num_layers=2), None),
    nn.GRUCell: (lambda: nn.GRUCell(6, 4), None),
    nn.RNN: (lambda: nn.RNN(6, 4), None),
    nn.RNNCell: (lambda: nn.RNNCell(6, 4), None),
    CompactMultiheadAttention: (compacted, None),
    nn.MultiheadAttention: (lambda: nn.MultiheadAttention(8, 2, add_bias_kv=True), None),
    nn.modules.batchnorm._BatchNorm: (lambda: nn.BatchNorm2d(6), None),
    nn.modules.instancenorm._InstanceNorm: (lambda: nn.InstanceNorm1d(6, affine=True), None),
    nn.GroupNorm: (lambda: nn.GroupNorm(2, 6), None),
    nn.LayerNorm: (lambda: nn.LayerNorm(6), None),
    nn.RMSNorm: (lambda: nn.RMSNorm(6), None),
    nn.PReLU: (lambda: nn.PReLU(6), None),
    nn.Bilinear: (lambda: nn.Bilinear(6, 4, 2), None),
    nn.Transformer: (lambda: nn.Transformer(8, 2, 1, 1, 8, batch_first=True), None),
    nn.Unflatten: (lambda: nn.Unflatten(1, (2, 3)), None),
    "transformers.pytorch_utils.Conv1D": (
        lambda: pytest.importorskip("transformers.pytorch_utils").Conv1D(4, 6),
        (3, 6),
    ),
}


def class_name(layer):
    return layer if isinstance(layer, str) else layer.__name__


LAYERS = [(kind, layer) for kind in KINDS for layer in kind.layers]
each_layer = pytest.mark.parametrize(("kind", "layer"), LAYERS, ids=[class_name(layer) for _, layer in LAYERS])


@each_layer
def test_a_layer_has_the_tensors_of_its_row(kind, layer):
    module = EXAMPLES[layer][0]()
    assert kind_of(module) is kind
    shapes = kind.shapes(SimpleNamespace(**vars(module)))
    own = {**dict(module.named_parameters(recurse=False)), **dict(module.named_buffers(recurse=False))}
    assert {name: tuple(tensor.shape) for name, tensor in own.items()}.items() <= dict(shapes).items()
    assert all(name in vars(module) for name in kind.sizes)
    for whole, parts in kind.divisible:
        assert getattr(module, whole) % getattr(module, parts) == 0


@each_layer
def test_a_layout_holds_every_weight_once(kind, layer):
    module = EXAMPLES[layer][0]()
    found = layouts(module)
    matrices = {name for name, p in module.named_parameters() if p.dim() > 1 and not name.startswith("bias")}
    assert set(found) == (matrices if kind.axes else set())
    for name, layout in found.items():
        weight = module.get_parameter(name)
        for groups in ("outputs", "inputs", "taps"):
            assert torch.equal(layout.from_groups(layout.as_groups(weight, groups), groups, weight.shape), weight)


@pytest.mark.parametrize("layer", [layer for layer, (_, shape) in EXAMPLES.items() if shape], ids=class_name)
def test_multiply_adds_are_those_that_pytorch_counts(layer):
    make, shape = EXAMPLES[layer]
    module, x = make(), torch.randn(shape)
    with FlopCounterMode(display=False) as counter:
        module(x)
    assert sum(multiply_adds(module, x).values()) == counter.get_total_flops() // 2


class Transposed(nn.Module):
    """A linear layer that stores (in, out), as GPT-2 does; no base class and no attribute says so."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.matrix = nn.Parameter(torch.randn(inputs, outputs))

    def forward(self, x):
        return x @ self.matrix


@pytest.fixture
def registered():
    handle = register_kind(LayerKind((Transposed,), axes={"matrix": ("in", "out")}))
    yield
    handle.remove()


def test_a_registered_layer_is_regularized_and_counted(registered):
    model = nn.Sequential(Transposed(6, 4), nn.ReLU(), nn.Linear(4, 2))
    measured = gossamer.measure(model, torch.zeros(3, 5, 6))
    assert [(layer.name, layer.weights, layer.units, layer.macs) for layer in measured.layers] == [
        ("0.matrix", 24, 4, 15 * 24),
        ("2.weight", 8, 2, 15 * 8),
    ]
    regularizer = gossamer.group_lasso(model, 1.0, groups="inputs", only=["0"])
    rule = regularizer.rules[0]
    norms = model[0].matrix.detach().norm(dim=1)  # a row is what one input unit sends
    assert rule.value() == pytest.approx(2 * norms.sum().item())


def test_a_registered_layer_leaves_again():
    handle = register_kind(LayerKind((Transposed,), axes={"matrix": ("in", "out")}))
    assert layouts(Transposed(6, 4))
    handle.remove()
    assert layouts(Transposed(6, 4)) == {}


def test_a_registered_kind_takes_precedence_over_its_base_class(registered):
    class Swapped(nn.Linear):
        pass

    handle = register_kind(LayerKind((Swapped,), axes={"weight": ("in", "out")}))
    assert layouts(Swapped(6, 4))["weight"].axes == ("in", "out")
    assert layouts(nn.Linear(6, 4))["weight"].axes == ("out", "in")
    handle.remove()


def test_a_class_can_be_named_before_it_is_imported():
    name = f"{Transposed.__module__}.Transposed"
    handle = register_kind(LayerKind((name,), axes={"matrix": ("in", "out")}))
    assert set(layouts(Transposed(6, 4))) == {"matrix"}

    class Further(Transposed):
        pass

    assert set(layouts(Further(6, 4))) == {"matrix"}
    handle.remove()


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (LayerKind((Transposed,)), "needs `layers` and the `axes`"),
        (LayerKind((), axes={"matrix": ("in", "out")}), "needs `layers` and the `axes`"),
        (LayerKind((Transposed,), axes={"matrix": ("out",)}), r"axes\['matrix'\].*\('out',\)"),
        (LayerKind((Transposed,), axes={"matrix": ("rows", "in", "out")}), "'rows'"),
        (LayerKind((Transposed,), axes={"matrix": ("in", "in", "out")}), "'in', 'in'"),
        (LayerKind((Transposed,), axes={"matrix": ("block", "in", "out")}), "as `parts`"),
        (LayerKind((Transposed,), axes={"matrix": ("in", "gate", "out")}), "first dimension.*'in', 'gate', 'out'"),
        (LayerKind((Transposed,), axes={"matrix": ("tap", "in", "out")}), "last dimensions.*'tap', 'in', 'out'"),
    ],
)
def test_an_incomplete_kind(kind, message):
    with pytest.raises(GossamerError, match=message):
        register_kind(kind)
    assert layouts(Transposed(6, 4)) == {}


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (
            LayerKind((Transposed,), axes={"weight": ("in", "out")}),
            "Transposed names 'weight', which the layer does not",
        ),
        (LayerKind((Transposed,), axes={"matrix": ("in", "out", "tap")}), r"`matrix`.*\(6, 4\).*in, out, tap"),
        (LayerKind((Transposed,), axes={"matrix": ("gate", "out", "in")}, gates=4), r"\(6, 4\).*gate, out, in"),
    ],
)
def test_a_kind_that_does_not_fit_the_layer(kind, message):
    handle = register_kind(kind)
    with pytest.raises(GossamerError, match=message):
        gossamer.l1(nn.Sequential(Transposed(6, 4)), 1.0)
    handle.remove()


def test_a_layer_whose_output_cannot_be_counted():
    class Pair(Transposed):
        def forward(self, x):
            return super().forward(x), x

    for uses, macs in (("output", None), ("input", 3 * 24)):
        handle = register_kind(LayerKind((Pair,), axes={"matrix": ("in", "out")}, uses=uses))
        if macs is None:
            with pytest.raises(GossamerError, match=r"Pair returns a tuple.*uses=\"input\""):
                multiply_adds(Pair(6, 4), torch.zeros(3, 6))
        else:
            assert sum(multiply_adds(Pair(6, 4), torch.zeros(3, 6)).values()) == macs
        handle.remove()
