"""The example in the docstring of `gossamer.shrinking`, fact by fact."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, fx, nn

import gossamer
from gossamer.example import call_with
from gossamer.shrinking.analyse import AbstractValue, Analysis, analyse
from gossamer.shrinking.apply import evaluation_reference
from gossamer.shrinking.decide import decide, make_plan
from gossamer.shrinking.trace import TracedModel, trace

aten = torch.ops.aten
EXAMPLE = torch.randn(1, 1, 6, 6, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def model() -> nn.Sequential:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 3, 3, bias=False), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(48, 2))
    with torch.no_grad():
        model[0].weight[1], model[1].bias[1] = 0, 0.5
    return model


@pytest.fixture
def traced(model: nn.Sequential) -> TracedModel:
    return trace(model, call_with(model, EXAMPLE))


@pytest.fixture
def analysis(model: nn.Sequential, traced: TracedModel) -> Analysis:
    return analyse(model, traced)


def value_of(analysis: Analysis, op: object) -> AbstractValue:
    return next(analysis.value(node) for node in analysis.traced.graph.nodes if node.target is op)


def test_trace(traced: TracedModel) -> None:
    nodes: list[fx.Node] = list(traced.graph.nodes)
    assert [node.target for node in nodes if node.op == "call_function"] == [
        aten.conv2d.default,
        aten.batch_norm.default,
        aten.relu.default,
        aten.flatten.using_ints,
        aten.linear.default,
    ]
    placeholders = [node for node in nodes if node.op == "placeholder"]
    assert len(placeholders) == 9
    assert set(traced.states.values()) == {
        "0.weight",
        *(f"1.{name}" for name in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")),
        "4.weight",
        "4.bias",
    }
    assert [node for node in placeholders if node not in traced.states] == [placeholders[-1]]


def test_analyse(model: nn.Sequential, analysis: Analysis) -> None:
    classes = analysis.labels.classes()
    channels = torch.tensor([1, 2, 3])
    for op, constant in {aten.conv2d.default: 0.0, aten.batch_norm.default: 0.5, aten.relu.default: 0.5}.items():
        value = value_of(analysis, op)
        assert value.shape == (1, 3, 4, 4)
        assert torch.equal(value.labels, channels.view(1, 3, 1, 1).expand(1, 3, 4, 4))
        assert value.labels.stride()[2:] == (0, 0)
        assert value.known[0, :, 0, 0].tolist() == [False, True, False]
        assert bool((value.constant[:, 1] == constant).all())
    along_channels = ["0.weight", "1.weight", "1.bias", "1.running_mean", "1.running_var"]
    for name in along_channels:
        assert torch.equal(classes[analysis.axis_labels[name][0]], channels)

    flat = value_of(analysis, aten.flatten.using_ints)
    assert torch.equal(flat.labels[0], channels.repeat_interleave(16))
    assert torch.equal(flat.known[0], torch.arange(48) // 16 == 1)
    assert torch.equal(classes[analysis.axis_labels["4.weight"][1]], channels.repeat_interleave(16))

    layer = analysis.layers["4.weight", "4.bias", ""]
    (dependency,) = layer.dependencies()
    outputs = value_of(analysis, aten.linear.default).labels[0]
    assert torch.equal(dependency.readers[0], outputs)
    assert torch.equal(dependency.nonzero[0], model[4].weight != 0)
    assert torch.equal(dependency.foldable[0], flat.known[0])
    assert layer.obstacle == ""
    assert ("it is an output of the model", outputs.tolist()) in [(r, ls.tolist()) for ls, r in analysis.labels.pins]


def test_decide(model: nn.Sequential, analysis: Analysis) -> None:
    decision = decide(analysis)
    assert decision.keeps(torch.tensor([1, 2, 3])).tolist() == [True, False, True]
    plan, _ = make_plan(analysis)
    columns = [*range(16), *range(32, 48)]
    assert {name: {dim: index.tolist() for dim, index in kept.items()} for name, kept in plan.kept.items()} == {
        **{name: {0: [0, 2]} for name in ("0.weight", "1.weight", "1.bias", "1.running_mean", "1.running_var")},
        "4.weight": {1: columns},
    }
    (fold,) = plan.folds
    assert (fold.weight, fold.bias) == ("4.weight", "4.bias")
    torch.testing.assert_close(fold.amount, 0.5 * model[4].weight.detach()[:, 16:32].double().sum(1))
    assert {(size.module, size.attribute): (size.before, size.after) for size in plan.sizes} == {
        ("0", "out_channels"): (3, 2),
        ("1", "num_features"): (3, 2),
        ("4", "in_features"): (48, 32),
    }
    assert (plan.weights_before, plan.weights_after) == (131, 88)


def test_apply(model: nn.Sequential) -> None:
    reference = evaluation_reference(model, call_with(model, EXAMPLE))
    assert [probe.call.args[0].shape[0] for probe in reference.probes] == [1, 1, 1, 2]
    small = gossamer.shrink(model, EXAMPLE)
    assert isinstance(small, nn.Sequential)
    assert (small[0].out_channels, small[1].num_features, small[4].in_features) == (2, 2, 32)
    assert sum(parameter.numel() for parameter in small.parameters()) == 88
    x: Tensor = torch.randn(5, 1, 6, 6)
    torch.testing.assert_close(small.eval()(x), model.eval()(x))


def test_the_docstring_names_these_facts() -> None:
    text = gossamer.shrinking.__doc__ or ""
    facts = [
        "eight\nplaceholders",
        "labels the output channels 1, 2, 3",
        "88 of 131 parameters stay",
        "two random inputs",
    ]
    assert all(fact in text for fact in facts)
