import pytest
import torch
from torch import nn

import gossamer
from gossamer import GossamerError, Target
from gossamer.targets import Size


def net():
    """Padded convolutions, where a dead channel with a bias cannot be folded; a batch norm; units of all kinds."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 6, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(6, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32, 12),
        nn.Tanh(),
        nn.Linear(12, 3),
    )


X = torch.randn(2, 1, 4, 4, generator=torch.Generator().manual_seed(1))[:1]


def sparse(seed):
    """A network with zeros, dead units and dead biases that are not zero."""
    model = net()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for layer in (model[0], model[2], model[7], model[9]):
            layer.weight.mul_(torch.rand(layer.weight.shape, generator=generator) < 0.4)
            layer.weight[torch.rand(len(layer.weight), generator=generator) < 0.3] = 0
            layer.bias.add_(0.1)
    return model


@pytest.mark.parametrize("seed", range(3))
def test_exact_sizes_are_those_of_shrink(seed, tmp_path):
    model = sparse(seed)
    full = gossamer.measure(model, X).total
    sizes = {
        kind: Size(Target(**{kind: 0.5}), gossamer.l1(model, example=X))
        for kind in ("params", "flops", "dense_params", "dense_flops")
    }
    file_size = Size(Target(bytes=10_000), gossamer.l1(model, example=X))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    found = {kind: size.calibrate() for kind, size in sizes.items()}
    found_bytes = file_size.exact()
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())

    gossamer.zero_dead_biases(model, X)
    small = gossamer.shrink(model, X, form="module")
    left = gossamer.measure(small, X).total
    assert found["params"] == left.nonzeros
    assert found["dense_params"] == left.weights
    assert found["dense_flops"] == pytest.approx(left.macs)
    assert found["flops"] == pytest.approx(left.macs_nonzero, abs=4)  # which is rounded down for each layer
    gossamer.save(small, tmp_path / "small.safetensors", sparse=True)
    assert 0 <= found_bytes - (tmp_path / "small.safetensors").stat().st_size <= 40  # digits of checksums
    assert (sizes["params"].full, sizes["flops"].full) == (full.weights, full.macs)
    for kind, size in sizes.items():
        assert size.estimate() == pytest.approx(found[kind])  # calibrated


def test_estimates_follow_the_weights():
    for kind in ("params", "flops", "dense_params", "dense_flops"):
        model = sparse(0)
        size = Size(Target(**{kind: 0.5}), gossamer.l1(model, example=X))
        size.calibrate()
        before = size.estimate()
        with torch.no_grad():
            model[7].weight[:9] = 0
        assert size.estimate() < before
        assert size.estimate() == pytest.approx(size.exact(), rel=0.5)


def test_without_an_example_only_weights_can_be_counted():
    model = sparse(0)
    size = Size(Target(params=0.5), gossamer.l1(model))
    assert size.exact() == gossamer.measure(model, X).total.nonzeros
    for kind in ("flops", "dense_params", "dense_flops"):
        with pytest.raises(GossamerError, match=rf"Target\({kind}=...\)` counts .* Give the regularizer one"):
            Size(Target(**{kind: 0.5}), gossamer.l1(model))


def test_layers_that_are_left_out_count_as_well():
    model = net()
    size = Size(Target(params=0.5), gossamer.l1(model, skip=["7"], example=X))
    assert size.full == gossamer.measure(model, X).total.weights
    assert size.smallest() == 3 + model[7].weight.numel()


def test_a_model_that_cannot_be_exported_is_counted_as_it_is():
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x):
            return self.layer(x) if float(x.sum()) > 1e9 else 2 * self.layer(x)

    model = Odd()
    size = Size(Target(params=0.5), gossamer.l1(model, example=torch.ones(1, 4)))
    assert size.remaining is None
    assert size.exact() == 16
    with pytest.raises(GossamerError):
        Size(Target(dense_params=0.5), gossamer.l1(model, example=torch.ones(1, 4)))


def test_biases_that_belong_to_units_have_no_unit_cost():
    model, x = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)), torch.randn(2, 4)
    regularizer = gossamer.unit_tl1(model, example=x)
    size = Size(gossamer.Target(params=0.5), regularizer)
    costs = {rule.name: size.unit_cost(rule.weight) for rule in regularizer.rules}
    assert costs == {"0.weight": 4.0, "2.weight": 6.0, "0.bias": 0.0}
