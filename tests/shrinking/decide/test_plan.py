"""Plans: what they say, and that applying one gives what `shrink` gives."""

from __future__ import annotations

import copy
import pickle
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
    assert [line.split(maxsplit=5) for line in lines[2:]] == [
        ["first.weight:0", "6", "6", "0", "0", "its size is hard-coded in forward (6)"],
        ["second.weight:0", "5", "4", "0", "1"],
        ["last.weight:0", "2", "2", "0", "0", "it is an output of the model (2)"],
    ]
