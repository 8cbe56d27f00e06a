"""The plain step in chunks gives exactly what the penalties give on the whole weight."""

import pytest
import torch
from torch import nn

import gossamer
from gossamer.layers import Weight
from gossamer.penalties import L1, Exclusive, Group, L1MinusL2, TransformedL1
from gossamer.proximal import plain
from gossamer.proximal.metric import Given
from gossamer.regularizers import Rule, Term

RULES = {
    "single": (Term(TransformedL1(0.1), 0.5),),
    "outputs": (Term(TransformedL1(0.1), 0.5), Term(Group(L1()), 0.5, "outputs")),
    "inputs": (Term(Group(TransformedL1()), 1.0, "inputs"), Term(Exclusive(), 0.5, "inputs")),
    "taps": (Term(L1MinusL2(), 1.0, "taps"),),
    "last dimension": (Term(Exclusive(), 0.5), Term(Group(L1()), 0.5), Term(L1MinusL2(), 0.1)),
}


def rule_of(terms, dtype=torch.float32):
    torch.manual_seed(0)
    layer = nn.Conv2d(6, 10, 3).to(dtype)
    return Rule(Weight("weight", layer, "weight"), terms, scale=2.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("terms", RULES.values(), ids=RULES.keys())
@pytest.mark.parametrize("chunk", [1, 100, 10**6])
def test_chunks_give_the_whole(monkeypatch, terms, chunk, dtype):
    monkeypatch.setattr(plain, "_CHUNK", chunk)
    rule = rule_of(terms, dtype)
    weight = rule.weight.parameter.detach()
    step = torch.tensor(0.02, dtype=torch.float64)
    computing = torch.float64 if dtype == torch.float64 else torch.float32
    expected = rule.prox(weight.to(computing), step).to(dtype)
    plain.plain_step_(rule, weight, step)
    assert torch.allclose(weight, expected, rtol=1e-6, atol=0)
    assert torch.equal(weight == 0, expected == 0)


@pytest.mark.parametrize("chunk", [100, 10**6])
@pytest.mark.parametrize("name", ["single", "outputs"])
def test_a_step_for_each_weight(monkeypatch, name, chunk):
    monkeypatch.setattr(plain, "_CHUNK", chunk)
    rule = rule_of(RULES[name])
    weight = rule.weight.parameter.detach()
    inverse = torch.rand(weight.shape)
    inverse[inverse < 0.1] = 0.0  # these wait
    waits, before = inverse == 0, weight.clone()
    expected = rule.prox(weight.masked_fill(waits, 0.0), 0.02 * inverse)
    plain.plain_step_(rule, weight, 0.02, Given(inverse))
    assert torch.allclose(weight[~waits], expected[~waits], rtol=1e-5, atol=1e-8)
    assert torch.equal(weight[waits], before[waits])


def test_gaps_in_memory(monkeypatch):
    monkeypatch.setattr(plain, "_CHUNK", 10)
    rule = rule_of(RULES["single"])
    wide = torch.randn(10, 6, 3, 6)
    weight = wide[..., ::2]
    expected = rule.prox(weight, torch.tensor(0.02, dtype=torch.float64))
    plain.plain_step_(rule, weight, torch.tensor(0.02, dtype=torch.float64))
    assert torch.equal(weight, expected)


def test_no_full_size_temporaries(monkeypatch):
    monkeypatch.setattr(plain, "_CHUNK", 64)
    model = nn.Linear(32, 256)
    sizes = []
    kernel = TransformedL1.kernel
    monkeypatch.setattr(TransformedL1, "kernel", lambda self, w, step: sizes.append(w.numel()) or kernel(self, w, step))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    gossamer.attach(optimizer, gossamer.transformed_l1(model, 1e-3), compile=False)
    model.weight.grad = torch.zeros_like(model.weight)
    optimizer.step()
    assert max(sizes) <= 64
    assert sum(sizes) == model.weight.numel()
