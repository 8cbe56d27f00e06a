"""Plans: what they say, and that applying one gives what `shrink` gives."""

from __future__ import annotations

import copy
import pickle
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import gossamer
from gossamer.errors import GossamerError

EXAMPLE = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))


class Net(nn.Module):
    """The number of hidden units is hard-coded, so the module and the graph form differ."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(3, 6), nn.Linear(6, 5), nn.Linear(5, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.tanh(self.second(torch.tanh(self.first(x)).view(-1, 6))))


@pytest.fixture
def model() -> Net:
    torch.manual_seed(0)
    model = Net().train()
    with torch.no_grad():
        model.first.weight[1:3] = 0
        model.second.weight[0] = 0
    return model


@pytest.mark.parametrize("form", ["auto", "module", "graph"])
@pytest.mark.filterwarnings("ignore::gossamer.GraphFormWarning")
def test_apply_returns_what_shrink_returns(model: Net, form: Any) -> None:
    plan = gossamer.plan(model, EXAMPLE, form=form)
    small, expected = plan.apply(), gossamer.shrink(model, EXAMPLE, form=form)
    assert type(small).__name__ == type(expected).__name__
    assert small.training == expected.training
    assert plan.form == ("module" if isinstance(small, Net) else "graph")
    assert small.state_dict().keys() == expected.state_dict().keys()
    assert all(torch.equal(tensor, expected.state_dict()[name]) for name, tensor in small.state_dict().items())
    assert sum(p.numel() for p in small.parameters()) == plan.weights_after
    torch.testing.assert_close(small(EXAMPLE), model(EXAMPLE))


@pytest.mark.parametrize("form", ["module", "graph"])
def test_every_application_is_a_copy_of_its_own(model: Net, form: Any) -> None:
    plan = gossamer.plan(model, EXAMPLE, form=form)
    text, expected = str(plan), model(EXAMPLE)
    first = plan.apply()
    with torch.no_grad():
        for parameter in (*first.parameters(), *model.parameters()):
            parameter.zero_()
    assert str(plan) == text
    torch.testing.assert_close(plan.apply()(EXAMPLE), expected)


@pytest.mark.parametrize("form", ["module", "graph"])
def test_copies_of_a_plan_are_plain_data(model: Net, form: Any) -> None:
    plan = gossamer.plan(model, EXAMPLE, form=form)
    for other in (copy.copy(plan), copy.deepcopy(plan), pickle.loads(pickle.dumps(plan))):
        assert str(other) == str(plan)
        assert all(torch.equal(i, other.kept[n][d]) for n, kept in plan.kept.items() for d, i in kept.items())
        with pytest.raises(GossamerError, match="holds no module"):
            other.apply()
    torch.testing.assert_close(plan.apply()(EXAMPLE), model(EXAMPLE))
    torch.testing.assert_close(replace(plan, notes=("mine",)).apply()(EXAMPLE), model(EXAMPLE))


def test_the_plan_of_an_in_place_shrink_has_been_applied(model: Net) -> None:
    plan = gossamer.shrink_(model, EXAMPLE)
    assert not plan.empty
    assert "parameters stay" in str(plan)
    with pytest.raises(GossamerError, match="comes from `shrink_`"):
        plan.apply()


def test_the_table(model: Net) -> None:
    lines = str(gossamer.plan(model, EXAMPLE, form="module")).splitlines()
    assert lines[0] == "62 of 71 parameters stay (87.3%), as a module."
    assert lines[1].split() == ["units", "before", "after", "unread", "constant", "kept", "because"]
    assert lines.pop() == "changed: 4 parameters, 2 attributes; `changes` names them"
    assert [line.split(maxsplit=5) for line in lines[2:]] == [
        ["first.weight:0", "6", "6", "0", "0", "its size is hard-coded in forward (6)"],
        ["second.weight:0", "5", "4", "0", "1"],
        ["last.weight:0", "2", "2", "0", "0", "it is an output of the model (2)"],
    ]


class Everything(nn.Module):
    """Something of everything that can change: parameters, buffers, a bias to create, attributes, a class."""

    def __init__(self) -> None:
        super().__init__()
        self.width = 6
        self.conv, self.norm = nn.Conv1d(4, 6, 1, bias=False), nn.BatchNorm1d(6)
        self.mix, self.attention = nn.Linear(6, 8, bias=False), nn.MultiheadAttention(8, 4, batch_first=True)
        self.out = nn.Linear(8, 2)
        self.register_buffer("positions", torch.randn(20, 8))
        with torch.no_grad():
            self.conv.weight[1:3] = 0
            self.norm.bias.fill_(0.5)
            for part in (self.attention.in_proj_weight, self.attention.in_proj_bias):
                part.view(3, 4, 2, *part.shape[1:])[:, 1] = 0

    def forward(self, x: Tensor) -> Tensor:
        h = torch.relu(self.norm(self.conv(x))).mT.reshape(-1, self.width).reshape(len(x), -1, self.width)
        h = self.mix(h) + self.positions[: h.shape[1]]
        return self.out(self.attention(h, h, h)[0])


def _facts(model: nn.Module) -> dict[str, Any]:
    """Shapes and values of all tensors, attributes that are integers or several of them, and classes."""
    found: dict[str, Any] = {f"tensor {n}": t.detach().clone() for n, t in model.state_dict().items()}
    for path, module in model.named_modules():
        found[f"class {path}"] = type(module).__name__
        for name, value in vars(module).items():
            if isinstance(value, int | tuple) and name != "training":
                found[f"attribute {path}.{name}".replace(" .", " ")] = value
    return found


@pytest.mark.parametrize("in_place", [False, True])
def test_the_plan_names_everything_that_changes(in_place: bool) -> None:
    torch.manual_seed(0)
    model = Everything().eval()
    before = _facts(model)
    x = torch.randn(2, 4, 5)
    plan = gossamer.shrink_(model, x) if in_place else gossamer.plan(model, x, form="module")
    after = _facts(model if in_place else plan.apply())
    differing = {
        fact
        for fact in {**before, **after}
        if fact not in before
        or fact not in after
        or not (torch.equal(before[fact], after[fact]) if fact[0] == "t" else before[fact] == after[fact])
    }
    named = {f"{change.kind} {change.name}" for change in plan.changes}
    tensors = {fact.replace("parameter ", "tensor ").replace("buffer ", "tensor ") for fact in named}
    assert tensors == differing
    assert named >= {"attribute width", "class attention", "buffer norm.running_mean", "parameter mix.bias"}
    lines = [str(change) for change in plan.changes]
    assert "parameter conv.weight: (6, 4, 1) -> (4, 4, 1)" in lines
    assert "attribute attention.num_heads: 4 -> 3" in lines
    assert "parameter mix.bias: created, (8,)" in lines
    assert not any("positions" in line for line in lines)
    counted = [line for line in str(plan).splitlines() if line.startswith("changed: ")]
    assert len(counted) == 1
    counts = Counter(change.kind for change in plan.changes)
    assert counts["class"] == 1
    told = [f"{count} {kind}{'s' * (count > 1)}" for kind, count in counts.items()]
    assert counted == [f"changed: {', '.join(told)}; `changes` names them"]
