import copy
import gc
import math
import weakref

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import gossamer
from gossamer import GossamerError
from gossamer.penalties import L1, Group, TransformedL1
from gossamer.proximal import attached


def net(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 12), nn.Tanh(), nn.Linear(12, 3))


def batches(count, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return [
        (torch.randn(32, 6, generator=generator), torch.randint(0, 3, (32,), generator=generator)) for _ in range(count)
    ]


def train(model, optimizer, data):
    for x, y in data:
        optimizer.zero_grad()
        cross_entropy(model(x), y).backward()
        optimizer.step()


def weights(model):
    return [p.detach().clone() for p in model.parameters()]


def test_algorithm_1_bit_by_bit():
    """Against the paper's algorithm written out: gradient step, prox of Tl1, prox of the groups, layer by layer."""
    strength, a, s, lr = 1e-2, 0.5, 0.1, 0.1
    ours, plain, data = net(), net(), batches(100)
    optimizer = torch.optim.SGD(ours.parameters(), lr=lr)
    gossamer.attach(optimizer, gossamer.integrated_tl1(ours, strength, a=a, s=s))
    train(ours, optimizer, data)

    layers = [plain[0], plain[2], plain[4]]
    for x, y in data:
        plain.zero_grad()
        cross_entropy(plain(x), y).backward()
        with torch.no_grad():
            for parameter in plain.parameters():
                parameter.add_(parameter.grad, alpha=-lr)
            for index, layer in enumerate(layers):
                mu = s + (1 - 2 * s) * index / (len(layers) - 1)
                layer.weight.copy_(TransformedL1(a).prox(layer.weight, strength * lr * mu))
                layer.weight.copy_(Group(L1()).prox(layer.weight, strength * lr * (1 - mu)))
    assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), plain.parameters(), strict=True))
    assert gossamer.measure(ours, data[0][0]).params_kept < 0.9


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (lambda p: torch.optim.SGD(p, lr=0.1), {}),
        (lambda p: torch.optim.LBFGS(p, lr=0.1), {"step_size": lambda parameter, group, state: group["lr"]}),
    ],
)
def test_closure(make, options):
    model, (x, y) = net(), batches(1)[0]
    optimizer = make(model.parameters())
    handle = gossamer.attach(optimizer, gossamer.l1(model, 0.5), **options)

    def closure():
        optimizer.zero_grad()
        loss = cross_entropy(model(x), y)
        loss.backward()
        return loss

    assert optimizer.step(closure) > 0
    assert handle.steps == 1
    assert gossamer.measure(model, x).params_kept < 1


def test_learning_rate_schedules_and_parameter_groups():
    """The proximal step follows the current learning rate of the group that a weight is in."""
    model = net()
    frozen, others = {"params": model[0].parameters(), "lr": 0.0}, {"params": model[2:].parameters()}
    optimizer = torch.optim.SGD([frozen, others], lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
    gossamer.attach(optimizer, gossamer.l1(model, 1.0))
    expected = weights(model)[2]
    for _ in range(3):
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        lr = scheduler.get_last_lr()[1]
        optimizer.step()
        scheduler.step()
        expected = L1().prox(expected, lr)
    assert torch.equal(model[0].weight, net()[0].weight)
    assert torch.equal(model[2].weight, expected)


def test_several_optimizers():
    model = net()
    regularizer = gossamer.l1(model, 0.5)
    first = torch.optim.SGD(model[0].parameters(), lr=0.1)
    second = torch.optim.Adam([*model[2].parameters(), *model[4].parameters()], lr=0.1)
    handles = [gossamer.attach(optimizer, regularizer.owned_by(optimizer)) for optimizer in (first, second)]
    before = weights(model)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    first.step()
    assert (model[0].weight != before[0]).any()
    assert torch.equal(model[2].weight, before[2])
    assert [handle.steps for handle in handles] == [1, 0]


def test_frozen_and_unused_parameters_are_left_alone():
    model = net()
    model[0].weight.requires_grad_(False)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    gossamer.attach(optimizer, gossamer.l1(model, 1.0))
    model[4].weight.grad = torch.zeros_like(model[4].weight)
    before = weights(model)
    optimizer.step()
    after = weights(model)
    assert torch.equal(before[0], after[0])
    assert torch.equal(before[2], after[2])
    assert not torch.equal(before[4], after[4])


def test_a_layer_that_is_unfrozen_without_an_optimizer_of_its_own():
    model = net()
    model[0].requires_grad_(False)
    optimizer = torch.optim.SGD(model[2:].parameters(), lr=0.1)
    gossamer.attach(optimizer, gossamer.l1(model, 1.0))
    model[0].requires_grad_(True)
    before = weights(model)
    train(model, optimizer, batches(2))
    assert torch.equal(model[0].weight, before[0])
    assert not torch.equal(model[2].weight, before[2])


@pytest.mark.parametrize("fused", [False, True])
def test_steps_that_grad_scaler_skips(fused):
    model = net()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, fused=fused)
    handle = gossamer.attach(optimizer, gossamer.l1(model, 1.0))
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    x, y = batches(1)[0]

    def step(gradient_scale):
        optimizer.zero_grad()
        scaler.scale(cross_entropy(model(x), y) * gradient_scale).backward()
        scaler.step(optimizer)
        scaler.update()

    before = weights(model)
    step(math.inf)
    assert handle.steps == 0
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    step(1.0)
    assert handle.steps == 1
    assert gossamer.measure(model, x).params_kept < 1


def test_autocast_and_bfloat16():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    gossamer.attach(optimizer, gossamer.integrated_tl1(model, 0.1))
    for x, y in batches(20):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
    assert gossamer.measure(model, x).params_kept < 1

    small = net().bfloat16()
    optimizer = torch.optim.SGD(small.parameters(), lr=0.1)
    gossamer.attach(optimizer, gossamer.integrated_tl1(small, 0.1))
    train(small, optimizer, [(x.bfloat16(), y) for x, y in batches(20)])
    assert small[0].weight.dtype == torch.bfloat16
    assert gossamer.measure(small, x.bfloat16()).params_kept < 1


def test_a_compiled_model():
    plain, data = net(), batches(20)
    compiled = torch.compile(copy.deepcopy(plain), backend="eager")
    for model in (plain, compiled):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        gossamer.attach(optimizer, gossamer.integrated_tl1(model, 1e-2))
        train(model, optimizer, data)
    assert all(torch.equal(a, b) for a, b in zip(plain.parameters(), compiled.parameters(), strict=True))


def test_remove():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    keys = set(optimizer.state_dict())
    handle = gossamer.attach(optimizer, gossamer.l1(model, 1.0))
    assert attached(optimizer) == (handle,)
    handle.remove()
    handle.remove()
    train(model, optimizer, batches(3))
    assert handle.steps == 0
    assert set(optimizer.state_dict()) == keys
    assert attached(optimizer) == ()
    gossamer.attach(optimizer, gossamer.l1(model, 1.0))


def test_the_optimizer_can_go():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    gossamer.attach(optimizer, gossamer.l1(model, 1.0))
    gone = weakref.ref(optimizer)
    del optimizer
    gc.collect()
    assert gone() is None


def test_the_optimizers_own_state_is_not_touched():
    model, plain, data = net(), net(), batches(3)
    optimizers = [torch.optim.AdamW(m.parameters()) for m in (model, plain)]
    gossamer.attach(optimizers[0], gossamer.l1(model, 1e-3))
    for m, optimizer in zip((model, plain), optimizers, strict=True):
        train(m, optimizer, data)
    ours, theirs = ([set(state) for state in optimizer.state.values()] for optimizer in optimizers)
    assert ours == theirs


class TestHold:
    def trained(self):
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        handle = gossamer.attach(optimizer, gossamer.integrated_tl1(model, 2e-3, a=0.5))
        train(model, optimizer, batches(60))
        return model, optimizer, handle

    def test_zeros_stay_and_survivors_are_free(self):
        model, optimizer, handle = self.trained()
        zeros = [layer.weight == 0 for layer in (model[0], model[2], model[4])]
        assert 0.1 < torch.cat([z.flatten() for z in zeros]).float().mean() < 0.9
        handle.hold()
        assert handle.held
        before = weights(model)
        train(model, optimizer, batches(30, seed=5))
        for layer, zero in zip((model[0], model[2], model[4]), zeros, strict=True):
            assert (layer.weight[zero] == 0).all()
            assert (layer.weight[~zero] != 0).all()
        assert not torch.equal(before[0], model[0].weight)

    def test_the_schedule_is_not_asked_any_more(self):
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        handle = gossamer.attach(optimizer, gossamer.l1(model, 1e-3), schedule=lambda step: 1.0 - step)
        train(model, optimizer, batches(2))
        handle.hold()
        train(model, optimizer, batches(3))
        assert handle.steps == 5

    def test_without_hold_momentum_revives_weights(self):
        model, optimizer, handle = self.trained()
        zeros = model[2].weight == 0
        handle.remove()
        train(model, optimizer, batches(5, seed=5))
        assert (model[2].weight[zeros] != 0).any()


class TestSchedules:
    def test_warm_up(self):
        schedule = gossamer.warm_up(4)
        assert [schedule(step) for step in range(6)] == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]
        assert gossamer.warm_up(0)(0) == 1.0
        assert gossamer.constant(7) == 1.0
        with pytest.raises(GossamerError, match="warm_up"):
            gossamer.warm_up(-1)

    def test_any_callable_of_the_step(self):
        model, seen = nn.Linear(2, 2), []
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        gossamer.attach(optimizer, gossamer.l1(model, 1.0), schedule=lambda step: seen.append(step) or 0.0)
        before = model.weight.detach().clone()
        for _ in range(3):
            model.weight.grad = torch.zeros(2, 2)
            optimizer.step()
        assert seen == [0, 1, 2]
        assert torch.equal(model.weight, before)

    @pytest.mark.parametrize("value", [-1.0, math.nan, math.inf, None, "strong"])
    def test_a_schedule_that_cannot_be(self, value):
        model = nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        gossamer.attach(optimizer, gossamer.l1(model, 1.0), schedule=lambda step: value)
        model.weight.grad = torch.zeros(2, 2)
        with pytest.raises(GossamerError, match="`schedule` must return"):
            optimizer.step()


class TestBadInput:
    def test_weights_that_the_optimizer_does_not_train(self):
        model = net()
        optimizer = torch.optim.SGD(model[0].parameters(), lr=0.1)
        with pytest.raises(GossamerError, match=r"does not train 2\.weight, 4\.weight.*owned_by"):
            gossamer.attach(optimizer, gossamer.l1(model, 1.0))
        assert attached(optimizer) == ()

    def test_the_same_weight_twice(self):
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        gossamer.attach(optimizer, gossamer.l1(model, 1.0, only=["0"]))
        gossamer.attach(optimizer, gossamer.l1(model, 1.0, only=["2"]))
        with pytest.raises(GossamerError, match=r"2\.weight already has a regularizer"):
            gossamer.attach(optimizer, gossamer.l1(model, 1.0, skip=["0"]))

    def test_the_same_weight_through_two_optimizers(self):
        model = net()
        first, second = (torch.optim.SGD(model.parameters(), lr=0.1) for _ in range(2))
        gossamer.attach(first, gossamer.l1(model, 1.0))
        with pytest.raises(GossamerError, match="already has a regularizer"):
            gossamer.attach(second, gossamer.l1(model, 1.0))
        del first
        gossamer.attach(second, gossamer.l1(model, 1.0))

    def test_weights_without_values(self):
        model = net().to("meta")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with pytest.raises(GossamerError, match=r"0\.weight, 2\.weight, 4\.weight is on the meta device.*to_empty"):
            gossamer.attach(optimizer, gossamer.l1(model, 1.0))

    def test_momentum_without_end(self):
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=1.0)
        gossamer.attach(optimizer, gossamer.l1(model, 1.0))
        with pytest.raises(GossamerError, match="momentum 1"):
            train(model, optimizer, batches(1))

    def test_compile(self):
        model = net()
        optimizer = torch.optim.Adam(model.parameters())
        with pytest.raises(GossamerError, match="`compile`"):
            gossamer.attach(optimizer, gossamer.l1(model, 1.0), metric="adaptive", compile="bogus")

    def test_metrics(self):
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with pytest.raises(GossamerError, match="such as Adam; received SGD"):
            gossamer.attach(optimizer, gossamer.l1(model, 1.0), metric="adaptive")
        with pytest.raises(GossamerError, match="'manhattan'"):
            gossamer.attach(optimizer, gossamer.l1(model, 1.0), metric="manhattan")

    @pytest.mark.parametrize("value", [math.nan, math.inf])
    def test_weights_that_are_not_finite_stop_the_training(self, value):
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        gossamer.attach(optimizer, gossamer.l1(model, 1e-3))
        train(model, optimizer, batches(2))
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        model[2].weight.grad[0, 0] = value
        with pytest.raises(GossamerError, match=r"`2\.weight`.*step 3"):
            optimizer.step()

    def test_large_finite_weights_are_no_error(self):
        model = nn.Linear(4, 4)
        with torch.no_grad():
            model.weight.fill_(3e38)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        gossamer.attach(optimizer, gossamer.l1(model, 1e-3))
        model.weight.grad = torch.zeros(4, 4)
        optimizer.step()
        assert torch.isfinite(model.weight).all()
