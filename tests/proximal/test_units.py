"""The proximal step on units against brute force, fused against plain, kept norms, and what training does with them."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

import gossamer
from gossamer.errors import GossamerError
from gossamer.penalties import L0, L1, MCP, SCAD, CappedL1, Group, Log, Lp, ScalarPenalty, TransformedL1
from gossamer.proximal.fused import Move
from gossamer.proximal.metric import Given, Metric, Root
from gossamer.proximal.units import unit_step_
from gossamer.regularizers import Units, UnitTerm
from gossamer.shrinking.units import NONE, find_units

PENALTIES = [L0(), L1(), TransformedL1(1.0), SCAD(0.5, 3.7), MCP(0.5, 3.0), Log(2.0), CappedL1(0.7), Lp(0.5)]


class Net(nn.Module):
    """A residual addition, a batch norm, a depthwise convolution, a group norm, flatten and a layer norm."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 4, 3, padding=1)
        self.first = nn.Conv2d(4, 6, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(6)
        self.depthwise = nn.Conv2d(6, 6, 3, padding=1, groups=6)
        self.second = nn.Conv2d(6, 4, 1)
        self.third = nn.Conv2d(4, 6, 1)
        self.groups = nn.GroupNorm(3, 6)
        self.hidden = nn.Linear(24, 7)
        self.inner = nn.Linear(7, 5)
        self.layer = nn.LayerNorm(5)
        self.head = nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        x = x + self.second(F.relu(self.depthwise(F.relu(self.norm(self.first(F.relu(x)))))))
        x = F.relu(self.groups(self.third(x)))
        return self.head(self.layer(self.inner(torch.tanh(self.hidden(x.flatten(1))))))


EXAMPLE = torch.randn(5, 1, 2, 2)


def network(dtype: torch.dtype = torch.float64) -> nn.Module:
    torch.manual_seed(0)
    model = Net().to(dtype)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_()
    return model


def of_held(model: nn.Module) -> tuple[gossamer.Regularizer, Units]:
    """A regularizer of units without what follows them: a dead unit changes no weight of another one."""
    regularizer = gossamer.group_lasso(model, 1.0, groups="units", example=EXAMPLE.double())
    assert regularizer.units is not None
    regularizer.units.slices = tuple(own for own in regularizer.units.slices if own.holds)
    return regularizer, regularizer.units


def vectors(units: Units) -> dict[int, Tensor]:
    """The concatenated vector of each unit, slice by slice."""
    found: dict[int, list[Tensor]] = {}
    for own in units.slices:
        for index, unit in enumerate(own.units.tolist()):
            if own.holds and unit != NONE:
                found.setdefault(unit, []).append(own.weight.parameter.detach().select(own.dim, index).flatten())
    return {unit: torch.cat(parts).clone() for unit, parts in found.items()}


def moves(regularizer: gossamer.Regularizer, step: float = 1.0, metrics: dict[str, Metric] | None = None) -> list[Move]:
    metrics = metrics or {}
    return [Move(rule, rule.weight.parameter, step, metrics.get(rule.name)) for rule in regularizer.rules]


@pytest.mark.parametrize("penalty", PENALTIES, ids=str)
def test_prox_equals_brute_force_on_the_concatenated_vector(penalty: ScalarPenalty):
    regularizer, units = of_held(network())
    coefficients = torch.linspace(0.3, 3.0, len(units.terms[0].coefficients), dtype=torch.float64)
    units.terms = (UnitTerm(Group(penalty), coefficients),)
    before = vectors(units)
    with torch.no_grad():
        unit_step_(units, moves(regularizer, 0.8))
    lengths = torch.cat([torch.zeros(1), torch.linspace(0, 1, 20_001)[1:]]).double()
    for unit, after in vectors(units).items():
        w, k = before[unit], 0.8 * float(coefficients[unit])
        norm = w.norm()
        # The minimiser points along w, so its length decides.
        cost = k * penalty.phi(lengths * norm) + ((1 - lengths) * norm).square() / 2
        own = k * penalty.phi(after.norm()) + (after - w).square().sum() / 2
        assert own <= cost.min() * (1 + 1e-9) + 1e-12
        assert torch.allclose(after / after.norm().clamp(min=1e-300), w / norm) or not after.any()


def test_the_step_in_a_metric_minimises_its_objective():
    regularizer, units = of_held(network())
    torch.manual_seed(1)
    metrics = {rule.name: Given(torch.rand_like(rule.weight.parameter) + 0.1) for rule in regularizer.rules}
    before, step = vectors(units), 0.3
    coefficients = units.terms[0].coefficients
    with torch.no_grad():
        unit_step_(units, moves(regularizer, step, metrics))
    inverses = {id(rule.weight.parameter): metrics[rule.name].values for rule in regularizer.rules}
    after = vectors(units)
    for unit, x in after.items():
        parts = [
            inverses[id(own.weight.parameter)].select(own.dim, index).flatten()
            for own in units.slices
            for index, number in enumerate(own.units.tolist())
            if own.holds and number == unit
        ]
        steps, w, k = step * torch.cat(parts), before[unit], float(coefficients[unit])

        def cost(y: Tensor, w: Tensor = w, steps: Tensor = steps, k: float = k) -> Tensor:
            return k * y.norm() + ((y - w).square() / (2 * steps)).sum()

        assert cost(x) <= cost(torch.zeros_like(w)) + 1e-9
        for _ in range(20):
            assert cost(x) <= cost(x + 1e-3 * torch.randn_like(x)) + 1e-9


def one_step(fused: bool, make, optimizer_of, dtype: torch.dtype, steps: int = 3) -> tuple[list[Tensor], object]:
    model = network(dtype)
    regularizer = make(model)
    optimizer = optimizer_of(model)
    handle = gossamer.attach(optimizer, regularizer, compile=fused)
    torch.manual_seed(2)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(8, 1, 2, 2, dtype=dtype)).square().mean().backward()
        optimizer.step()
    return [parameter.detach() for parameter in model.parameters()], handle


RECIPES = {
    "unit_tl1": lambda model: gossamer.unit_tl1(model, 0.02, example=example_of(model)),
    "group_lasso": lambda model: gossamer.group_lasso(model, 0.1, groups="units", example=example_of(model)),
    "integrated": lambda model: gossamer.integrated_tl1(model, 0.3, groups="units", example=example_of(model)),
    "sgl": lambda model: gossamer.sparse_group_lasso(model, 0.03, groups="units", example=example_of(model)),
    "l1": lambda model: gossamer.l1(model, 0.1, example=example_of(model)),
    "free": lambda model: gossamer.unit_tl1(model, 0.02, example=example_of(model), keep_norms=False),
}
OPTIMIZERS = {
    "SGD": lambda model: torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5),
    "Adam": lambda model: torch.optim.Adam(model.parameters(), lr=0.1),
    "two rates": lambda model: torch.optim.SGD(
        [{"params": [p for p in model.parameters() if p.dim() == 1], "lr": 0.02}, {"params": list(_matrices(model))}],
        lr=0.1,
    ),
}


def _matrices(model: nn.Module):
    return (p for p in model.parameters() if p.dim() > 1)


def example_of(model: nn.Module) -> Tensor:
    return EXAMPLE.to(next(model.parameters()).dtype)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("recipe", RECIPES)
def test_fused_equals_plain(recipe: str, optimizer: str):
    (plain, _), (fused, handle) = (
        one_step(own, RECIPES[recipe], OPTIMIZERS[optimizer], torch.float64) for own in (False, True)
    )
    assert handle.fused_units._tables is not None  # type: ignore[attr-defined]
    for expected, received in zip(plain, fused, strict=True):
        torch.testing.assert_close(received, expected, rtol=1e-7, atol=1e-9)
        assert torch.equal(received == 0, expected == 0)


def test_fused_equals_plain_in_single_precision():
    (plain, _), (fused, _) = (
        one_step(own, RECIPES["unit_tl1"], OPTIMIZERS["SGD"], torch.float32, 1) for own in (False, True)
    )
    for expected, received in zip(plain, fused, strict=True):
        torch.testing.assert_close(received, expected, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("fused", [False, True])
def test_exclusive_and_weights_that_wait_take_the_plain_step(fused: bool):
    model = network()
    regularizer = gossamer.combined_group_exclusive(model, 0.1, groups="units", example=EXAMPLE.double())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    gossamer.attach(optimizer, regularizer, compile=fused)
    before = regularizer.value()
    model(EXAMPLE.double()).mean().mul(0).backward()
    optimizer.step()
    assert regularizer.value() < before


def test_weights_without_a_gradient_so_far_are_no_members():
    regularizer, units = of_held(network())
    units.terms = (UnitTerm(Group(L1()), torch.full_like(units.terms[0].coefficients, 1e6)),)
    weight = units.slices[0].weight.parameter
    second = torch.ones_like(weight)
    second.flatten()[0] = 0
    metrics: dict[str, Metric] = {units.slices[0].weight.name: Root(second, 1.0, 1e-8)}
    first = weight.flatten()[0].item()
    with torch.no_grad():
        unit_step_(units, moves(regularizer, 1.0, metrics))
    assert weight.flatten()[0].item() == first
    assert int((weight != 0).sum()) == 1


def test_parameters_without_a_gradient_keep_their_units():
    model = network()
    regularizer = gossamer.group_lasso(model, 1e3, groups="units", example=EXAMPLE.double())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    gossamer.attach(optimizer, regularizer)
    model(EXAMPLE.double()).mean().backward()
    model.head.weight.grad = model.inner.weight.grad = None
    before = model.inner.weight.detach().clone()
    optimizer.step()
    assert torch.equal(model.inner.weight, before)
    assert bool(model.hidden.bias.any())  # hidden units are read by `inner`
    assert not bool(model.second.weight.any())


@pytest.mark.parametrize("training", [True, False])
def test_rescaling_a_scale_free_weight_changes_no_output(training: bool):
    model = network()
    for norm in (model.norm, model.groups, model.layer):
        norm.eps = 1e-14
    model.train()
    model(torch.randn(16, 1, 2, 2).double())  # running statistics that are not 0 and 1
    model.train(training)
    found = {free.weight: free for free in find_units(model, EXAMPLE.double()).scale_free}
    assert {name: len(free.blocks.unique()) for name, free in found.items()} == {
        "first.weight": 6,
        "third.weight": 3,
        "inner.weight": 1,
    }
    scaled = copy.deepcopy(model)
    tensors = {**dict(scaled.named_parameters()), **dict(scaled.named_buffers())}
    torch.manual_seed(3)
    with torch.no_grad():
        for free in found.values():
            factors = (torch.rand(int(free.blocks.max()) + 1) + 0.5).double()[free.blocks]
            weight = tensors[free.weight]
            weight.mul_(factors.view(-1, *(1,) * (weight.dim() - 1)))
            for name in filter(None, [free.bias, *free.means]):
                tensors[name].mul_(factors)
            for name in free.variances:
                tensors[name].mul_(factors.square())
    x = torch.randn(16, 1, 2, 2).double()
    torch.testing.assert_close(scaled(x), model(x), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("groups", ["units", "outputs"])
def test_norms_are_kept_through_the_step(groups: str, fused: bool):
    model = network()
    regularizer = gossamer.integrated_tl1(model, 0.3, groups=groups, example=EXAMPLE.double())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    gossamer.attach(optimizer, regularizer, compile=fused)
    before = (
        model.first.weight.flatten(1).norm(dim=1),
        model.third.weight.view(3, -1).norm(dim=1),
        model.inner.weight.norm(),
    )
    model(EXAMPLE.double()).mean().mul(0).backward()
    optimizer.step()
    after = (
        model.first.weight.flatten(1).norm(dim=1),
        model.third.weight.view(3, -1).norm(dim=1),
        model.inner.weight.norm(),
    )
    for expected, received in zip(before, after, strict=True):
        alive = received > 0
        torch.testing.assert_close(received[alive], expected[alive])
    assert bool((model.first.weight == 0).any())
    assert bool(model.first.weight.any())


def test_training_holding_and_shrinking_in_place():
    torch.manual_seed(0)
    model = nn.Sequential(
        *(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU()),
        *(nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(32, 2)),
    )
    x = torch.randn(32, 1, 6, 6)
    y = (x.mean((1, 2, 3)) > 0).long()
    regularizer = gossamer.unit_tl1(model, 0.03, example=x)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    handle = gossamer.attach(optimizer, regularizer)

    def train(steps: int) -> None:
        for _ in range(steps):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()

    train(60)
    units = regularizer.units
    assert units is not None
    dead = int(units.dead().sum())
    assert 0 < dead < 16
    handle.hold()
    train(3)
    assert int(units.dead().sum()) == dead
    assert bool(model[1].weight.any())
    plan = gossamer.shrink_(model, x, optimizer=optimizer)
    assert sum(channels.unread + channels.constant for channels in plan.channels) >= dead
    assert units.count <= 16 - dead
    value = regularizer.value()
    train(3)
    assert regularizer.value() != value
    assert "units" in str(regularizer)


def test_checkpoints_hold_units_only_while_they_are_dead():
    """A shift that is zero by chance is trained on after `hold`."""
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    handle = gossamer.attach(optimizer, gossamer.unit_tl1(model, 1e-4, example=torch.randn(2, 1, 6, 6)))
    handle.hold()
    model(torch.randn(4, 1, 6, 6)).square().mean().backward()
    optimizer.step()
    assert bool(model[1].bias.any())


def test_two_optimizers_are_refused():
    model = network()
    regularizer = gossamer.unit_tl1(model, 0.1, example=EXAMPLE.double())
    first = torch.optim.SGD([p for p in model.parameters() if p.dim() == 1], lr=0.1)
    for call in (lambda: gossamer.attach(first, regularizer), lambda: regularizer.owned_by(first)):
        with pytest.raises(GossamerError, match=r"two optimizers: \S+ and \S+ leave together"):
            call()
