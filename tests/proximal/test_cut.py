import pytest
import torch
from torch import nn

import gossamer
from gossamer.penalties import L1, MCP, SCAD, Group, L1MinusL2, TransformedL1
from gossamer.proximal.cut import cut_, step_to_half
from gossamer.proximal.fused import Move
from gossamer.proximal.metric import Given
from gossamer.proximal.plain import plain_step_
from gossamer.regularizers import Regularizer, Rule, Term


def take(moves):
    for move in moves:
        plain_step_(*move)


def moves_of(regularizer, step=0.1, metric=None):
    return [Move(rule, rule.weight.parameter.data, step, metric) for rule in regularizer.rules]


def count(moves):
    return lambda: float(sum(int((move.weight != 0).sum()) for move in moves))


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(9, 11), nn.Linear(11, 7))


@pytest.mark.parametrize("asked", [37, 100, 175, 176])
def test_l1_keeps_the_largest_weights_with_their_values(asked):
    model = net()
    moves = moves_of(gossamer.l1(model))
    before = torch.cat([move.weight.clone().flatten() for move in moves])
    cut_(moves, take, count(moves), asked)
    after = torch.cat([move.weight.flatten() for move in moves])
    largest = before.abs().topk(asked).indices
    expected = torch.zeros_like(before)
    expected[largest] = before[largest]
    assert torch.equal(after, expected)


@pytest.mark.parametrize("asked", [1, 2, 3, 5])
def test_few_weights_are_left_in_both_layers(asked):
    """The largest weights alone would be in one layer."""
    model = net()
    model[1].weight.data.mul_(0.1)
    moves = moves_of(gossamer.l1(model))
    cut_(moves, take, count(moves), asked)
    assert count(moves)() == asked
    assert asked == 1 or all(move.weight.any() for move in moves)


@pytest.mark.parametrize("asked", [10, 50])
def test_weights_that_carry_most_of_the_size_are_spared(asked):
    """The size falls to nothing with the smallest weight of the second layer, which is not the last of its layer."""
    model = net()
    model[1].weight.data.mul_(0.01)
    moves = moves_of(gossamer.l1(model))
    gate = moves[1].weight.view(-1)[moves[1].weight.abs().argmin()]

    def size():
        return float(torch.count_nonzero(moves[0].weight)) if gate != 0 else 0.0

    cut_(moves, take, size, asked)
    assert size() == asked


PENALTIES = [
    [Term(TransformedL1(0.1), 0.5), Term(Group(L1()), 0.5, "outputs")],
    [Term(Group(L1()), 1.0, "outputs")],
    [Term(Group(TransformedL1(1.0)), 1.0, "inputs")],
    [Term(MCP(0.5, 3.0), 1.0)],
    [Term(SCAD(0.5, 3.7), 1.0)],
    [Term(L1MinusL2(), 1.0, "outputs")],
    [Term(gossamer.penalties.Exclusive(), 1.0, "outputs")],
    [Term(gossamer.penalties.L0(), 1.0)],
]


@pytest.mark.parametrize("terms", PENALTIES, ids=lambda terms: type(terms[0].penalty).__name__)
@pytest.mark.parametrize("asked", [3, 40])
def test_every_penalty_leaves_the_asked_number(terms, asked):
    """Also where whole groups leave at once, and where no step leaves so few."""
    rules = tuple(Rule(rule.weight, tuple(terms)) for rule in gossamer.l1(net()).rules)
    moves = moves_of(Regularizer(None, rules))
    cut_(moves, take, count(moves), asked)
    assert count(moves)() == asked


def test_the_zero_set_is_that_of_a_proximal_step():
    """Against brute force: all steps on a fine grid."""
    terms = (Term(TransformedL1(0.5), 0.5), Term(Group(L1()), 0.5, "outputs"))
    found, tried = net(), net()
    rules = [tuple(Rule(r.weight, terms) for r in gossamer.l1(model).rules) for model in (found, tried)]
    moves = moves_of(Regularizer(None, rules[0]))
    cut_(moves, take, count(moves), 60)
    sets = []
    for step in torch.logspace(-4, 1, 4000).tolist():
        trial = [Move(rule, rule.weight.parameter.detach().clone(), step, None) for rule in rules[1]]
        take(trial)
        sets.append(torch.cat([(move.weight != 0).flatten() for move in trial]))
    kept = torch.cat([(move.weight != 0).flatten() for move in moves])
    larger = [mask for mask in sets if int(mask.sum()) >= 60][-1]
    smaller = next(mask for mask in sets if int(mask.sum()) <= 60)
    assert bool((smaller <= kept).all())
    assert bool((kept <= larger).all())


def test_an_adaptive_metric_and_weights_that_wait():
    model = nn.Sequential(nn.Linear(10, 10))
    inverse = torch.rand(10, 10) + 0.5
    inverse[0] = 0  # no gradient yet
    moves = moves_of(gossamer.l1(model), metric=Given(inverse))
    before = moves[0].weight.clone()
    cut_(moves, take, count(moves), 20)
    assert count(moves)() == 20
    assert torch.equal(moves[0].weight[0], before[0])
    ratio = (before.abs() / inverse)[1:].flatten()
    assert set(torch.nonzero(moves[0].weight[1:].flatten()).flatten().tolist()) == set(ratio.topk(10).indices.tolist())


def test_without_a_learning_rate():
    moves = moves_of(gossamer.l1(net()), step=0.0)
    cut_(moves, take, count(moves), 10)
    assert count(moves)() == 10


def test_nothing_to_cut():
    moves = moves_of(gossamer.l1(net()))
    before = [move.weight.clone() for move in moves]
    cut_(moves, take, count(moves), 176)
    assert all(torch.equal(move.weight, values) for move, values in zip(moves, before, strict=True))


def test_units_that_leave_at_once():
    """A size that falls in jumps: the largest one that is not above the target."""
    model = nn.Sequential(nn.Linear(8, 12, bias=False))
    moves = moves_of(gossamer.l1(model))
    units = lambda: float(8 * int((moves[0].weight != 0).any(1).sum()))  # noqa: E731
    cut_(moves, take, units, 43)
    assert units() == 40


@pytest.mark.parametrize("asked", [250, 430, 555, 701])
def test_room_that_a_large_unit_leaves_is_filled_by_small_ones(asked):
    """Units of 101 and of 7 that leave in the order of their magnitudes: what is left over is less than a small one."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(5, 6, bias=False), nn.Linear(6, 30, bias=False))
    moves = moves_of(gossamer.group_lasso(model))
    alive = lambda move: int((move.weight != 0).any(1).sum())  # noqa: E731
    size = lambda: float(101 * alive(moves[0]) + 7 * alive(moves[1]))  # noqa: E731
    cut_(moves, take, size, asked)
    assert asked - 101 < size() <= asked
    large, small = alive(moves[0]), alive(moves[1])
    model = nn.Sequential(nn.Linear(5, 6, bias=False), nn.Linear(6, 30, bias=False))
    torch.manual_seed(1)
    for layer in model:
        layer.reset_parameters()
    moves = moves_of(gossamer.group_lasso(model))
    cut_(moves, take, size, asked, unit_costs=[101, 7])
    assert alive(moves[0]) == large
    assert alive(moves[1]) >= small
    assert asked - 7 < size() <= asked or alive(moves[1]) == 30


@pytest.mark.parametrize("asked", [3, 11, 26])
def test_a_layer_that_would_be_emptied_is_spared(asked):
    """A network is gone with the last unit of a layer, so the cut has to come from the other layers."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 2, bias=False), nn.Linear(2, 30, bias=False))
    model[0].weight.data.mul_(0.01)  # its units leave first
    moves = moves_of(gossamer.group_lasso(model))
    alive = lambda move: int((move.weight != 0).any(1).sum())  # noqa: E731
    size = lambda: float(alive(moves[0]) + alive(moves[1])) if alive(moves[0]) and alive(moves[1]) else 0.0  # noqa: E731
    cut_(moves, take, size, asked)
    assert size() == asked
    assert alive(moves[0]) == 1


@pytest.mark.parametrize("asked", [8, 20, 29])
def test_a_layer_is_spared_too_if_the_others_alone_have_the_size(asked):
    """The sizes of the layers add up here, as they do around a layer whose input has become constant."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 4, bias=False), nn.Linear(4, 3, bias=False), nn.Linear(3, 30, bias=False))
    model[0].weight.data.mul_(0.01)
    model[1].weight.data.mul_(0.1)
    moves = moves_of(gossamer.group_lasso(model))
    alive = [lambda move=move: int((move.weight != 0).any(1).sum()) for move in moves]
    cut_(moves, take, lambda: float(sum(own() for own in alive)), asked)
    assert alive[0]() == 1
    assert alive[1]() >= 1
    assert sum(own() for own in alive) == asked


def test_the_step_to_half_sets_half_of_one_weight_to_zero_and_restores_all():
    moves = moves_of(gossamer.l1(net()))
    before = [move.weight.clone() for move in moves]
    step = step_to_half(moves, take)
    assert all(torch.equal(move.weight, values) for move, values in zip(moves, before, strict=True))
    assert 0.1 * step == pytest.approx(min(float(values.abs().median()) for values in before), rel=0.05)
