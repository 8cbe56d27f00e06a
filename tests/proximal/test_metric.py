"""The metric: adaptive where the optimizer is, waiting for first gradients, or given by a function."""

import math

import pytest
import torch
from torch import nn

import gossamer
from gossamer import GossamerError
from gossamer.penalties import L1, Exclusive, Group, L1MinusL2, TransformedL1
from gossamer.proximal.metric import Given, Root, learning_rate
from gossamer.proximal.optimizers import known_step
from gossamer.proximal.plain import plain_step_
from gossamer.regularizers import Regularizer, Rule, Term

from_first_batch = pytest.mark.parametrize(
    "make",
    [
        lambda p: torch.optim.Adam(p, lr=0.1),
        lambda p: torch.optim.Adam(p, lr=0.1, amsgrad=True),
        lambda p: torch.optim.AdamW(p, lr=0.1, weight_decay=0.0),
        lambda p: torch.optim.NAdam(p, lr=0.1),
        lambda p: torch.optim.Adamax(p, lr=0.1),
        lambda p: torch.optim.Adadelta(p, lr=1.0),
        lambda p: torch.optim.Adagrad(p, lr=0.1),
        lambda p: torch.optim.RMSprop(p, lr=0.1),
        lambda p: torch.optim.RMSprop(p, lr=0.1, centered=True),
        lambda p: torch.optim.Adafactor(p, lr=0.1),
    ],
    ids=["adam", "amsgrad", "adamw", "nadam", "adamax", "adadelta", "adagrad", "rmsprop", "centered", "adafactor"],
)


def step_rows(model, optimizer, rows):
    optimizer.zero_grad()
    model(torch.tensor(rows)).square().sum().backward()
    optimizer.step()


@from_first_batch
@pytest.mark.parametrize("compile", [False, True])
@pytest.mark.parametrize("recipe", [gossamer.l1, gossamer.integrated_tl1, gossamer.group_lasso])
def test_rows_that_were_in_no_batch_wait(make, compile, recipe):  # noqa: A002
    model = nn.Embedding(20, 5)
    start = model.weight.detach().clone()
    optimizer = make(model.parameters())
    gossamer.attach(optimizer, recipe(model, 1e-2), compile=compile)
    for rows in ([0, 1, 2], [2, 3], [0, 0, 1]):
        step_rows(model, optimizer, rows)
    assert torch.equal(model.weight[4:], start[4:])
    assert not torch.equal(model.weight[:4], start[:4])
    step_rows(model, optimizer, [10])
    assert (model.weight[10] != start[10]).all()


@pytest.mark.parametrize("compile", [False, True])
@pytest.mark.parametrize("penalty", [Group(L1()), Group(TransformedL1(0.1)), Exclusive(), Exclusive(exact=False)])
def test_a_weight_that_waits_is_no_member_of_its_group(penalty, compile):  # noqa: A002
    """The others move as if it were zero, the value it has at the minimum if its gradient stays zero."""
    torch.manual_seed(0)
    model = nn.Linear(4, 6, bias=False)
    inverse = torch.rand(6, 4) + 0.5
    inverse[:, 1] = 0.0
    regularizer = Regularizer(0.2, (Rule(gossamer.l1(model, 1.0).rules[0].weight, (Term(penalty, 1.0, "outputs"),)),))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    gossamer.attach(optimizer, regularizer, step_size=lambda *_: inverse, compile=compile)
    before = model.weight.detach().clone()
    model.weight.grad = torch.zeros(6, 4)
    optimizer.step()
    others = [0, 2, 3]
    assert torch.equal(model.weight[:, 1], before[:, 1])
    expected = penalty.kernel(before[:, others], 0.2 * inverse[:, others])
    torch.testing.assert_close(model.weight.detach()[:, others], expected, rtol=1e-5, atol=1e-7)


class TestAuto:
    def test_adam_is_adaptive(self):
        results = []
        for options in ({}, {"metric": "adaptive"}, {"metric": "euclidean"}):
            torch.manual_seed(0)
            model = nn.Linear(6, 6)
            optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
            gossamer.attach(optimizer, gossamer.l1(model, 1e-2), **options)
            for _ in range(30):
                optimizer.zero_grad()
                model(torch.randn(8, 6)).square().mean().backward()
                optimizer.step()
            results.append(model.weight.detach())
        assert torch.equal(results[0], results[1])
        assert (results[0] == 0).sum() > 2
        assert (results[2] == 0).sum() == 0  # what the default used to be

    def test_sgd_is_euclidean(self):
        model = nn.Linear(6, 6)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        gossamer.attach(optimizer, gossamer.l1(model, 1.0))
        before = model.weight.detach().clone()
        model.weight.grad = torch.zeros(6, 6)
        optimizer.step()
        assert torch.equal(model.weight, L1().prox(before, 0.1))

    def test_a_penalty_without_a_step_in_the_metric(self):
        model = nn.Linear(6, 6)
        rule = Rule(gossamer.l1(model, 1.0).rules[0].weight, (Term(L1MinusL2(), 1.0, "outputs"),))
        regularizer = Regularizer(1e-3, (rule,))
        with pytest.raises(GossamerError, match=r"`L1MinusL2` on weight.*adaptive metric"):
            gossamer.attach(torch.optim.Adam(model.parameters()), regularizer)
        gossamer.attach(torch.optim.SGD(model.parameters(), lr=0.1), regularizer)


class TestStepSize:
    def attached(self, step_size, make=None, **options):
        torch.manual_seed(0)
        model = nn.Linear(3, 5)
        optimizer = (make or (lambda p: torch.optim.LBFGS(p)))(model.parameters())
        return model, optimizer, gossamer.attach(optimizer, gossamer.l1(model, 2.0), step_size=step_size, **options)

    def step(self, model, optimizer):
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        optimizer.step(*([lambda: torch.zeros(())] if isinstance(optimizer, torch.optim.LBFGS) else []))

    @pytest.mark.parametrize("value", [0.05, torch.tensor(0.05), torch.tensor(0.05, dtype=torch.float64)])
    def test_a_number(self, value):
        model, optimizer, _ = self.attached(lambda parameter, group, state: value)
        before = model.weight.detach().clone()
        self.step(model, optimizer)
        torch.testing.assert_close(model.weight.detach(), L1().prox(before, 2.0 * 0.05))

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    @pytest.mark.parametrize("compile", [False, True])
    def test_a_tensor(self, dtype, compile):  # noqa: A002
        sizes = torch.rand(5, 3, dtype=dtype) * 0.1
        sizes[0, 0] = 0.0
        model, optimizer, _ = self.attached(lambda *_: sizes, compile=compile)
        before = model.weight.detach().clone()
        self.step(model, optimizer)
        torch.testing.assert_close(model.weight.detach(), L1().prox(before, 2.0 * sizes))
        assert model.weight[0, 0] == before[0, 0]

    def test_what_it_receives(self):
        received = []
        model, optimizer, _ = self.attached(
            lambda *arguments: received.append(arguments) or 0.1, lambda p: torch.optim.Adam(p, lr=0.3)
        )
        self.step(model, optimizer)
        ((parameter, group, state),) = received
        assert parameter is model.weight
        assert group is optimizer.param_groups[0]
        assert state is optimizer.state[model.weight]
        assert "exp_avg_sq" in state

    def test_adam_written_out_is_adam(self):
        def adam(parameter, group, state):
            return group["lr"] / ((state["exp_avg_sq"] / (1 - 0.999 ** float(state["step"]))).sqrt() + group["eps"])

        results = []
        for options in ({}, {"step_size": adam}):
            torch.manual_seed(0)
            model = nn.Linear(6, 6)
            optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
            gossamer.attach(optimizer, gossamer.integrated_tl1(model, 1e-2), **options)
            for _ in range(30):
                optimizer.zero_grad()
                model(torch.randn(8, 6)).square().mean().backward()
                optimizer.step()
            results.append(model.weight.detach())
        torch.testing.assert_close(*results)
        assert torch.equal(results[0] == 0, results[1] == 0)

    @pytest.mark.parametrize(
        "value",
        [None, -1.0, math.nan, math.inf, "fast", torch.zeros(3, 5), -torch.ones(5, 3), torch.full((5, 3), math.nan)],
    )
    def test_values_that_cannot_be(self, value):
        model, optimizer, _ = self.attached(lambda *_: value)
        with pytest.raises(GossamerError, match=r"`step_size` must return.*\(5, 3\)"):
            self.step(model, optimizer)

    def test_not_a_function(self):
        with pytest.raises(GossamerError, match=r"`step_size` must be a function.*received 0\.1"):
            self.attached(0.1)

    def test_together_with_a_metric(self):
        with pytest.raises(GossamerError, match=r"determine the metric.*'adaptive'"):
            self.attached(lambda *_: 0.1, metric="adaptive")


class TestUntrained:
    def trained(self, make):
        torch.manual_seed(0)
        model = nn.Linear(5, 4)
        optimizer = make(model.parameters())
        handle = gossamer.attach(optimizer, gossamer.l1(model, 1e-4))
        x = torch.randn(16, 5)
        x[:, 2] = 0.0  # an input that is always zero
        for _ in range(5):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
        return model, optimizer, handle

    def test_weights_without_a_gradient_are_set_to_zero_on_request(self):
        model, _, handle = self.trained(lambda p: torch.optim.Adam(p, lr=1e-3))
        assert (model.weight[:, 2] != 0).all()
        assert handle.zero_untrained() == 4
        assert (model.weight[:, 2] == 0).all()
        assert (model.weight[:, [0, 1, 3, 4]] != 0).all()
        assert handle.zero_untrained() == 0

    def test_nothing_waits_without_a_metric(self):
        _, _, handle = self.trained(lambda p: torch.optim.SGD(p, lr=1e-3))
        assert handle.zero_untrained() == 0

    def test_without_gradients_or_detached(self):
        _, optimizer, handle = self.trained(lambda p: torch.optim.Adam(p, lr=1e-3))
        optimizer.zero_grad()
        with pytest.raises(GossamerError, match=r"before `optimizer.zero_grad\(\)`"):
            handle.zero_untrained()
        handle.remove()
        with pytest.raises(GossamerError, match="while the handle is attached"):
            handle.zero_untrained()


def test_inverses():
    second = torch.tensor([0.0, 4.0])
    assert Root(second, 0.25, 1.0).inverse().tolist() == pytest.approx([0.0, 0.2])
    assert Given(second).inverse() is second
    weight = torch.tensor([3.0, 3.0])
    rule = Rule(gossamer.l1(nn.Linear(2, 1), 1.0).rules[0].weight, (Term(L1(), 1.0),))
    plain_step_(rule, weight, 5.0, Root(second, 0.25, 1.0))
    assert weight.tolist() == [3.0, 2.0]


@pytest.mark.parametrize("rate", [-0.1, math.nan, math.inf, None, "fast", torch.tensor(-1.0)])
def test_learning_rates_that_cannot_be(rate):
    with pytest.raises(GossamerError, match="has the learning rate"):
        learning_rate({"lr": rate})
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    gossamer.attach(optimizer, gossamer.l1(model, 1.0))
    optimizer.param_groups[0]["lr"] = rate
    if isinstance(rate, float):  # SGD itself takes these
        model.weight.grad = torch.zeros(2, 2)
        with pytest.raises(GossamerError, match="must be finite and not negative"):
            optimizer.step()


def taken(make, steps=40, decay=0.0):
    """What an optimizer makes of a constant gradient of 1/4: its last displacement, and what its step rule says."""
    weight = nn.Parameter(torch.full((3, 4), 2.0, dtype=torch.float64))
    optimizer = make([weight])
    rule = known_step(optimizer).rule
    for _ in range(steps):
        before = weight.detach().clone()
        weight.grad = torch.full_like(weight, 0.25)
        optimizer.step()
    size, metric = rule(weight, optimizer.param_groups[0], optimizer.state[weight])
    steps_of_weights = size * (1.0 if metric is None else metric.inverse())
    return before * (1 - decay) - weight.detach(), 0.25 * steps_of_weights * torch.ones_like(before)


@pytest.mark.parametrize("steps", [1, 2, 3, 7, 40, 400])
@pytest.mark.parametrize(
    ("make", "decay"),
    [
        (lambda p: torch.optim.SGD(p, lr=0.1), 0.0),
        (lambda p: torch.optim.ASGD(p, lr=0.1, lambd=1e-9), 0.0),
        (lambda p: torch.optim.Adam(p, lr=0.1), 0.0),
        (lambda p: torch.optim.AdamW(p, lr=0.1, weight_decay=0.01), 0.001),
        (lambda p: torch.optim.Adam(p, lr=0.1, amsgrad=True, eps=1e-2), 0.0),
        (lambda p: torch.optim.NAdam(p, lr=0.1, eps=1e-2), 0.0),
        (lambda p: torch.optim.RAdam(p, lr=0.1, eps=1e-2), 0.0),
        (lambda p: torch.optim.Adamax(p, lr=0.1, eps=1e-2), 0.0),
        (lambda p: torch.optim.RMSprop(p, lr=0.1, eps=1e-2), 0.0),
        (lambda p: torch.optim.Adagrad(p, lr=0.1, lr_decay=0.01, eps=1e-2), 0.0),
        (lambda p: torch.optim.Adafactor(p, lr=0.1), 0.0),
        (lambda p: torch.optim.Adafactor(p, lr=0.01, weight_decay=0.1), 0.001),
    ],
    ids=["sgd", "asgd", "adam", "adamw", "amsgrad", "nadam", "radam", "adamax", "rms", "adagrad", "factored", "wd"],
)
def test_the_step_is_the_one_that_the_optimizer_takes(make, decay, steps):
    """Along a constant gradient, from the first step on. Momentum and Adadelta get there only in the long run."""
    moved, expected = taken(make, steps, decay)
    torch.testing.assert_close(moved, expected, rtol=1e-6, atol=0)


def test_the_step_in_the_long_run():
    for make in (
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.3),
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
        lambda p: torch.optim.RMSprop(p, lr=0.1, momentum=0.9),
    ):
        torch.testing.assert_close(*taken(make, 3000), rtol=1e-6, atol=0)
    torch.testing.assert_close(*taken(lambda p: torch.optim.Adadelta(p, lr=0.1), 3000), rtol=1e-3, atol=0)
