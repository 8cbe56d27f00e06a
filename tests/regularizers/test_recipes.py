import inspect
import math

import pytest
import torch
from torch import nn

import gossamer
from gossamer import GossamerError, regularizers
from gossamer.penalties import L1, Exclusive, Group, TransformedL1

RECIPES = [
    getattr(regularizers, name) for name in regularizers.__all__ if inspect.isfunction(getattr(regularizers, name))
]


def lenet():
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)
    )  # fmt: skip


EXAMPLE = torch.zeros(1, 1, 8, 8)


class Everything(nn.Module):
    """One of every kind of weight layer."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(10, 8)
        self.lstm = nn.LSTM(8, 6, batch_first=True)
        self.gru = nn.GRU(6, 8, batch_first=True)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.conv1 = nn.Conv1d(8, 4, 3, padding=1, groups=2)
        self.up1 = nn.ConvTranspose1d(4, 8, 2, groups=2)
        self.conv2 = nn.Conv2d(1, 2, 3)
        self.up2 = nn.ConvTranspose2d(2, 3, 3)
        self.conv3 = nn.Conv3d(3, 2, (1, 2, 2))
        self.up3 = nn.ConvTranspose3d(2, 2, 2)
        self.norm = nn.LayerNorm(8)
        self.head = nn.Linear(8, 3)

    def forward(self, tokens):
        x = self.gru(self.lstm(self.embedding(tokens))[0])[0]
        x = self.norm(self.attention(x, x, x)[0])
        x = self.up1(self.conv1(x.transpose(1, 2)))
        y = self.up2(self.conv2(x.unsqueeze(1))).unsqueeze(2)
        return self.head(x.mean(-1)), self.up3(self.conv3(y))


@pytest.mark.parametrize("recipe", [recipe for recipe in RECIPES if recipe is not gossamer.unit_tl1])
@pytest.mark.parametrize("groups", ["outputs", "inputs", "taps"])
def test_every_recipe_on_every_layer(recipe, groups):
    model = Everything()
    options = {"groups": groups} if "groups" in inspect.signature(recipe).parameters else {}
    example = torch.zeros(1, 5, dtype=torch.long)
    regularizer = recipe(model, 1e-2, example=example, keep_norms=False, **options)
    names = {rule.name for rule in regularizer.rules}
    expected = {name for name, p in model.named_parameters() if "bias" not in name and "norm" not in name}
    assert names == expected
    assert regularizer.value() > 0
    for rule in regularizer.rules:
        weight = rule.weight.parameter.detach()
        x = rule.prox(weight, torch.tensor(1e-2, dtype=torch.float64))
        assert x.shape == weight.shape
        assert x.norm() < weight.norm()


def test_integrated_tl1_balances_its_terms_by_depth():
    regularizer = gossamer.integrated_tl1(lenet(), 1e-3, a=0.5, s=0.2)
    assert [rule.terms[0].coefficient for rule in regularizer.rules] == pytest.approx([0.2, 0.5, 0.8])
    for rule in regularizer.rules:
        connections, groups = rule.terms
        assert connections.penalty == TransformedL1(0.5)
        assert groups.penalty == Group(L1())
        assert groups.groups == "outputs"
        assert connections.coefficient + groups.coefficient == pytest.approx(1)


def test_one_layer_has_a_balance_too():
    (rule,) = gossamer.integrated_tl1(nn.Linear(3, 3), 1e-3).rules
    assert [term.coefficient for term in rule.terms] == [0.5, 0.5]


def test_value_is_omega_without_the_strength():
    model = lenet()
    weights = [p.detach().double() for n, p in model.named_parameters() if n in ("0.weight", "3.weight", "6.weight")]
    l1 = sum(float(w.abs().sum()) for w in weights)
    assert float(gossamer.l1(model, 0.3).value()) == pytest.approx(l1)
    assert float(gossamer.l2(model, 0.3).value()) == pytest.approx(sum(float(w.square().sum()) / 2 for w in weights))
    rows = [w.flatten(1) for w in weights]
    lasso = sum(math.sqrt(w.shape[1]) * float(w.norm(dim=1).sum()) for w in rows)
    assert float(gossamer.group_lasso(model, 0.3).value()) == pytest.approx(lasso)
    mus = [0.1, 0.5, 0.9]
    itl = sum(
        mu * float((2 * w.abs() / (1 + w.abs())).sum()) + (1 - mu) * float(w.norm(dim=1).sum())
        for mu, w in zip(mus, rows, strict=True)
    )
    assert float(gossamer.integrated_tl1(model, 0.3, a=1).value()) == pytest.approx(itl)


def test_sparse_group_lasso_in_two_steps_is_the_minimiser_of_the_sum():
    layer = nn.Linear(2, 3, bias=False).double()
    (rule,) = gossamer.sparse_group_lasso(layer, 1.0, groups="outputs").rules
    w, step = layer.weight.detach() * 3, 0.2
    x = rule.prox(w, torch.tensor(step, dtype=torch.float64))
    ticks = torch.linspace(0, 1, 401, dtype=torch.float64)
    grid = torch.cartesian_prod(ticks, ticks)

    def cost(candidates, row):
        penalty = candidates.abs().sum(-1) + math.sqrt(2) * candidates.norm(dim=-1)
        return step * penalty + (candidates - row).square().sum(-1) / 2

    for row, ours in zip(w, x, strict=True):
        assert cost(ours, row) <= cost(grid * row, row).min() + 1e-12


def test_combined_group_exclusive_follows_the_published_balance():
    rules = gossamer.combined_group_exclusive(nn.Sequential(*(nn.Linear(3, 3) for _ in range(4))), 1.0).rules
    assert [rule.terms[0].coefficient for rule in rules] == pytest.approx([0.8, 0.6, 0.4, 0.2])
    assert rules[0].terms[1].penalty == Exclusive()
    assert {term.groups for rule in rules for term in rule.terms} == {"taps"}
    assert gossamer.combined_group_exclusive(nn.Linear(2, 2), 1.0, exact=False).rules[0].terms[1].penalty == Exclusive(
        False
    )


@pytest.mark.parametrize("strength", [-1e-3, float("nan"), float("inf")])
@pytest.mark.parametrize("recipe", RECIPES)
def test_strength_must_be_a_number(recipe, strength):
    with pytest.raises(GossamerError, match="strength"):
        recipe(lenet(), strength)


@pytest.mark.parametrize("s", [-0.1, 0.51, float("nan")])
@pytest.mark.parametrize("recipe", [gossamer.integrated_tl1, gossamer.combined_group_exclusive])
def test_s_must_be_in_range(recipe, s):
    with pytest.raises(GossamerError, match="`s` must be between"):
        recipe(lenet(), 1e-3, s=s)


def test_other_bad_arguments():
    with pytest.raises(GossamerError, match="positive number between 1e-30 and 1e30; received 0"):
        gossamer.integrated_tl1(lenet(), 1e-3, a=0)
    with pytest.raises(GossamerError, match="'rows'"):
        gossamer.group_lasso(lenet(), 1e-3, groups="rows")
    with pytest.raises(GossamerError, match="no weight layers"):
        gossamer.l1(nn.ReLU(), 1e-3)
