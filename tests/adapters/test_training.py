"""What the callbacks of all trainers share, without a trainer."""

import pytest
import torch
from torch import nn

import gossamer
from gossamer import GossamerError
from gossamer.adapters.training import SparseTraining

EXAMPLE = torch.zeros(2, 6)


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4, bias=False), nn.ReLU(), nn.Linear(4, 2))


def training(**options):
    settings = {"hold_at": None} | options
    return SparseTraining(lambda model: gossamer.l1(model, 1e-3), **settings)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hold_at": 1.5}, r"`hold_at` is a fraction.*received 1\.5"),
        ({"compact_every": 0}, "`compact_every` is a number of epochs"),
        ({"target": "5%"}, r"`target` must be a gossamer.Target, or the fraction.*received '5%'"),
        ({"target": 5}, "fraction above 0 and at most 1; received 5"),
        ({"steps": 100}, "has no option steps"),
        ({"metrik": "adaptive"}, "has no option metrik; it takes compile, metric"),
    ],
)
def test_bad_settings_are_refused_at_once(options, message):
    with pytest.raises(GossamerError, match=message):
        training(**options)


def test_a_regularizer_is_not_a_function():
    with pytest.raises(GossamerError, match=r"from the model to a regularizer.*received a Regularizer"):
        SparseTraining(gossamer.l1(net(), 1.0), hold_at=None)


def test_hold_comes_at_its_fraction():
    model = net()
    run = training(hold_at=0.5)
    handle = run.start(model, EXAMPLE, torch.optim.SGD(model.parameters(), lr=0.1), 10)
    run.advance(4, 10)
    assert not handle.held
    run.advance(5, 10)
    assert handle.held
    with pytest.raises(GossamerError, match=r"`hold_at=0\.5`.*no end"):
        run.start(model, EXAMPLE, torch.optim.SGD(model.parameters(), lr=0.1), float("inf"))


@pytest.mark.filterwarnings("ignore::gossamer.SparsityWarning")
def test_a_target_is_reached_at_its_fraction_and_held():
    model = net()
    run = training(hold_at=0.5, target=0.25)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    handle = run.start(model, EXAMPLE, optimizer, 120)
    x = torch.randn(32, 6)
    for step in range(120):
        run.advance(step, 120)
        assert handle.held == (step >= 60)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), (x[:, 0] > 0).long()).backward()
        optimizer.step()
    assert run.measure().total.nonzeros == 22  # of 88
    run.stop()
    assert run.reached.after == 22
    for steps, message in ((80, "needs at least 50 optimizer steps.* of 80 steps are 40"), (float("inf"), "no end")):
        with pytest.raises(GossamerError, match=message):
            training(hold_at=0.5, target=0.25).start(model, EXAMPLE, optimizer, steps)


def dead_units(model, count):
    with torch.no_grad():
        model[0].weight[:count] = 0.0  # their biases stay: constants, which go into a new bias of the next layer


def test_a_compacted_model_goes_through_its_state_dict(tmp_path):
    model = net()
    run = training(compact_every=2)
    run.prepare(model)
    run.start(model, EXAMPLE, torch.optim.SGD(model.parameters(), lr=0.1), 10)
    dead_units(model, 3)
    run.end_epoch(1)
    assert "gossamer_sizes" not in model.state_dict()
    run.end_epoch(2)
    assert model[0].weight.shape == (5, 6)
    torch.save(model.state_dict(), tmp_path / "state.pt")

    again = net()
    resumed = training(compact_every=2)
    resumed.prepare(again)
    again.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    x = torch.randn(7, 6)
    assert torch.equal(again(x), model(x))
    resumed.start(again, EXAMPLE, torch.optim.SGD(again.parameters(), lr=0.1), 10)
    assert resumed.measure().total.weights == 6 * 8 + 8 * 4 + 4 * 2
    assert resumed.measure() == run.measure()


def test_a_new_bias_is_where_a_new_optimizer_has_it():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run = training(compact_every=1)
    run.prepare(model)
    run.start(model, EXAMPLE, optimizer, 10)
    dead_units(model, 3)
    run.end_epoch(1)
    assert model[2].bias is not None
    fresh = torch.optim.SGD(model.parameters(), lr=0.1)
    assert [id(p) for p in optimizer.param_groups[0]["params"]] == [id(p) for p in fresh.param_groups[0]["params"]]


def test_the_shrunk_copy_has_an_ordinary_state_dict():
    model = net()
    run = training(compact_every=1)
    run.prepare(model)
    run.start(model, EXAMPLE, torch.optim.SGD(model.parameters(), lr=0.1), 10)
    dead_units(model, 3)
    run.end_epoch(1)
    assert "gossamer_sizes" in model.state_dict()
    run.finish()
    assert "gossamer_sizes" not in run.small.state_dict()


def test_the_example_follows_the_model():
    model = net().double()
    run = training()
    with pytest.raises(GossamerError, match="fails on `example`"):
        run.start(model, EXAMPLE, torch.optim.SGD(model.parameters(), lr=0.1), 10)
    run.start(model, EXAMPLE.double(), torch.optim.SGD(model.parameters(), lr=0.1), 10)
    run.stop()
    assert run.handle is None


class Refused(nn.Module):
    """Its control flow depends on values, so it cannot be exported."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 2)

    def forward(self, x):
        return self.layer(x) if x.sum() > 0 else self.layer(-x)


def test_a_network_that_cannot_be_shrunk_is_refused_at_the_start():
    model = Refused()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(GossamerError, match="cannot be traced"):
        training().start(model, EXAMPLE, optimizer, 10)
    assert not optimizer._optimizer_step_post_hooks
    run = training(shrink=False)
    run.start(model, EXAMPLE, optimizer, 10)
    run.finish()
    assert run.small is None
    assert run.measure().params_kept == 1


def test_it_leaves_the_random_numbers_alone():
    model = net()
    state = torch.random.get_rng_state()
    run = training(compact_every=1)
    run.prepare(model)
    run.start(model, EXAMPLE, torch.optim.SGD(model.parameters(), lr=0.1), 10)
    dead_units(model, 3)
    run.end_epoch(1)
    run.finish()
    assert torch.equal(torch.random.get_rng_state(), state)
