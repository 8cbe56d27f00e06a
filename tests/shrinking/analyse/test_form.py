"""An analysis that says it does not depend on the form finds the same for the class and for a graph."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from gossamer.example import call_with
from gossamer.shrinking.analyse import analyse
from gossamer.shrinking.decide import weights_at_best
from gossamer.shrinking.trace import trace

from ..networks import Recipe, build


def kept_by_form(model: nn.Module, example: Tensor) -> tuple[list[int], set[bool]]:
    """The parameters that a class and a graph keep at best, and what their analyses say."""
    traced = trace(model, call_with(model, example))
    found = [analyse(model, traced, rewrites_graph=graph) for graph in (False, True)]
    return [weights_at_best(facts) for facts in found], {facts.depends_on_form for facts in found}


@pytest.mark.parametrize("image", [False, True])
@pytest.mark.parametrize("blocks", [tuple(range(0, 7)), tuple(range(7, 14)), tuple(range(14, 20))])
def test_the_same_units_where_the_form_does_not_matter(image: bool, blocks: tuple[int, ...]) -> None:
    recipe = Recipe(image=image, blocks=blocks, seed=1, density=0.3, double=False, batch=2, size=4)
    (as_class, as_graph), depends = kept_by_form(*build(recipe))
    assert len(depends) == 1
    assert as_class == as_graph or depends == {True}


class Attending(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.heads, self.last = nn.ModuleList(nn.Linear(4, 6) for _ in range(3)), nn.Linear(6, 2)
        with torch.no_grad():
            for layer in self.heads:
                layer.weight[:2], layer.bias[:2] = 0, 0

    def forward(self, x: Tensor) -> Tensor:
        return self.last(functional.scaled_dot_product_attention(*(layer(x) for layer in self.heads)))


def test_the_default_scale_of_an_attention_matters() -> None:
    (as_class, as_graph), depends = kept_by_form(Attending(), torch.randn(2, 3, 4))
    assert depends == {True}
    assert as_graph < as_class
