"""Training to a size: every kind of target, regularizer and optimizer, on a network of some hundred weights."""

import warnings

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import gossamer
from gossamer import GossamerError, Target

# The network is tiny: layers with one unit left are no surprise.
pytestmark = pytest.mark.filterwarnings("ignore::gossamer.SparsityWarning")

STEPS = 120
UNIT = 12 / 672  # the weights that go with a unit: a cut that empties it removes them, too
X = torch.zeros(1, 10)


def net(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(10, 24), nn.Tanh(), nn.Linear(24, 16), nn.ReLU(), nn.Linear(16, 3))


def batch(step, classes=3):
    """Three classes on a line, and inputs that say nothing."""
    generator = torch.Generator().manual_seed(step)
    y = torch.randint(0, classes, (32,), generator=generator)
    x = torch.randn(32, 10, generator=generator)
    x[:, 0] = y - 1 + 0.3 * x[:, 0]
    return x, y


def train(model, optimizer, first, last):
    for step in range(first, last):
        x, y = batch(step)
        optimizer.zero_grad()
        cross_entropy(model(x), y).backward()
        optimizer.step()


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def reach(target, *, regularizer=gossamer.integrated_tl1, optimizer=sgd, model=None, steps=STEPS, **options):
    model = net() if model is None else model
    optimizer = optimizer(model)
    handle = gossamer.attach(optimizer, regularizer(model, example=X), target=target, steps=steps, **options)
    train(model, optimizer, 0, steps + 20)
    return model, handle


def size_of(model, kind, folder):
    gossamer.zero_dead_biases(model, X)
    small = gossamer.shrink(model, X, form="module")
    if kind == "bytes":
        gossamer.save(small, folder / "net.safetensors", sparse=True)
        return (folder / "net.safetensors").stat().st_size
    full, left = gossamer.measure(net(), X).total, gossamer.measure(small, X).total
    return {
        "params": left.nonzeros / full.weights,
        "flops": left.macs_nonzero / full.macs,
        "dense_params": left.weights / full.weights,
        "dense_flops": left.macs / full.macs,
    }[kind]


@pytest.mark.parametrize(
    ("kind", "value", "unit"),
    [
        ("params", 0.1, UNIT),
        ("params", 0.02, UNIT),
        ("flops", 0.1, UNIT),
        ("dense_params", 0.2, 40 / 672),
        ("dense_flops", 0.2, 40 / 672),
        ("bytes", 3600, 250),
    ],
)
def test_the_size_is_hit_and_held(kind, value, unit, tmp_path):
    model, handle = reach(Target(**{kind: value}))
    assert handle.held
    assert value - unit <= size_of(model, kind, tmp_path) <= value
    reached = handle.reached
    if kind != "bytes":  # where digits of checksums are reserved
        assert reached.after / reached.full == pytest.approx(size_of(model, kind, tmp_path))
    assert reached.step <= STEPS
    assert handle.strength == 0
    assert str(Target(**{kind: value})) in str(reached)


RECIPES = [
    gossamer.l1,
    gossamer.transformed_l1,
    gossamer.group_lasso,
    gossamer.sparse_group_lasso,
    gossamer.combined_group_exclusive,
    gossamer.group_transformed_l1,
]


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.__name__)
def test_every_regularizer(recipe):
    """Without an example single weights count, so the size is met to one weight."""
    model, handle = reach(Target(params=0.1), regularizer=lambda model, example: recipe(model))
    assert sum(int((p != 0).sum()) for p in model.parameters() if p.dim() > 1) == handle.reached.after == 67


@pytest.mark.parametrize("kind", ["params", "dense_params"])
@pytest.mark.parametrize("balance", [0.0, 0.1])
def test_units(kind, balance, tmp_path):
    model, _ = reach(
        Target(**{kind: 0.25}),
        regularizer=lambda model, example: gossamer.unit_tl1(model, example=example, balance=balance),
    )
    assert 0.25 - 45 / 672 <= size_of(model, kind, tmp_path) <= 0.25


def normalised(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Linear(10, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Linear(24, 16), nn.ReLU(), nn.Linear(16, 3)
    )


@pytest.mark.parametrize(
    ("build", "kind", "early"),
    [(normalised, "dense_params", True), (normalised, "params", False), (net, "dense_params", False)],
)
def test_units_with_normalisations_are_cut_as_soon_as_the_size_is_close(build, kind, early):
    """A unit with no incoming and no outgoing weight gets no gradient, so a size that is too small stays too small."""
    _, handle = reach(Target(**{kind: 0.4}), regularizer=gossamer.unit_tl1, model=build(), steps=300)
    if early:
        assert handle.reached.step < 0.59 * 300
        assert handle.reached.before <= 1.1 * 0.4 * handle.reached.full
    else:
        assert handle.reached.step >= 0.9 * 300


def test_units_with_normalisations_are_cut_by_a_penalty_that_stays_bounded():
    """However far the size still is from the target: what a larger strength would do to the others is worse."""
    optimizer = sgd(model := normalised())
    handle = gossamer.attach(
        optimizer, gossamer.unit_tl1(model, example=X), target=Target(dense_params=0.05), steps=STEPS
    )
    strengths = []
    for step in range(STEPS):
        train(model, optimizer, step, step + 1)
        strengths += [handle.strength] if handle.strength else []
    assert strengths[0] < max(strengths) <= 8.001 * strengths[0]
    assert handle.reached.after <= 0.05 * handle.reached.full


def test_a_strength_of_the_user_has_no_bound():
    """It may be far too small, and is led to the target like that of any other network."""
    _, handle = reach(
        Target(dense_params=0.2),
        regularizer=lambda model, example: gossamer.unit_tl1(model, 1e-6, example=example),
        model=normalised(),
        steps=300,
    )
    assert handle.reached.strength > 8e-5
    assert handle.reached.before <= 1.1 * 0.2 * handle.reached.full


def test_a_target_of_nearly_everything_is_not_cut_at_once():
    _, handle = reach(Target(dense_params=0.95), regularizer=gossamer.unit_tl1, model=normalised())
    assert handle.reached.step > 0.2 * STEPS


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.output = nn.LSTM(4, 12, batch_first=True), nn.Linear(12, 3)

    def forward(self, x):
        return self.output(self.lstm(x)[0][:, -1])


def test_biases_do_not_bring_back_what_the_last_cut_removed():
    torch.manual_seed(5)  # the cut leaves the outgoing weights of some units, without ingoing weights and biases
    model, x, y = Recurrent(), torch.randn(64, 5, 4), torch.randint(0, 3, (64,))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)
    regularizer = gossamer.unit_tl1(model, example=x[:2])
    handle = gossamer.attach(optimizer, regularizer, target=Target(dense_flops=0.5), steps=60)
    for _ in range(65):
        optimizer.zero_grad()
        cross_entropy(model(x), y).backward()
        optimizer.step()
    left = gossamer.measure(gossamer.shrink(model, x[:2], form="module"), x[:2])
    assert left.total.macs == handle.reached.after


OPTIMIZERS = {
    "Adam": lambda model: torch.optim.Adam(model.parameters(), lr=0.01),
    "RMSprop": lambda model: torch.optim.RMSprop(model.parameters(), lr=0.003),
    "Adagrad": lambda model: torch.optim.Adagrad(model.parameters(), lr=0.05),
    "two groups": lambda model: torch.optim.SGD(
        [{"params": model[0].parameters(), "lr": 0.02}, {"params": model[1:].parameters()}], lr=0.1, momentum=0.9
    ),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer(name):
    _, handle = reach(
        Target(params=0.1), regularizer=lambda model, example: gossamer.l1(model), optimizer=OPTIMIZERS[name]
    )
    assert handle.reached.after == 67


def test_the_euclidean_metric_and_the_plain_step(tmp_path):
    model, _ = reach(Target(params=0.1), optimizer=OPTIMIZERS["Adam"], metric="euclidean", compile=False)
    assert size_of(model, "params", tmp_path) == pytest.approx(0.1, abs=UNIT)


def test_weights_that_never_get_a_gradient_are_no_obstacle(tmp_path):
    """Inputs that are always zero: in an adaptive metric their weights wait."""
    model = net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    handle = gossamer.attach(optimizer, gossamer.l1(model, example=X), target=Target(params=0.05), steps=STEPS)
    for step in range(STEPS):
        x, y = batch(step)
        x[:, 5:] = 0
        optimizer.zero_grad()
        cross_entropy(model(x), y).backward()
        optimizer.step()
    assert handle.reached.before < 2 * handle.reached.after
    assert size_of(model, "params", tmp_path) == pytest.approx(0.05, abs=UNIT)


def test_most_of_the_way_is_the_controllers():
    """With steps enough the last cut is small, and the network has learnt."""
    model, handle = reach(Target(params=0.1), steps=600)
    assert abs(handle.reached.cut) < 0.1
    x, y = batch(10_000)
    assert float((model(x).argmax(1) == y).float().mean()) > 0.85


def test_shrinking_in_the_middle(tmp_path):
    model = net()
    optimizer = sgd(model)
    handle = gossamer.attach(
        optimizer, gossamer.integrated_tl1(model, example=X), target=Target(params=0.03), steps=STEPS
    )
    for last in (80, 100, STEPS, STEPS + 10):
        train(model, optimizer, handle.steps, last)
        gossamer.zero_dead_biases(model, X, optimizer=optimizer)
        gossamer.shrink_(model, X, optimizer=optimizer)
    assert sum(p.numel() for p in model.parameters()) < 400
    assert handle.reached.full == 672
    assert size_of(model, "params", tmp_path) == pytest.approx(0.03, abs=UNIT)


@pytest.mark.parametrize(
    ("kind", "build", "recipe"),
    [
        ("params", net, gossamer.integrated_tl1),
        ("dense_flops", net, gossamer.integrated_tl1),
        ("dense_params", normalised, gossamer.unit_tl1),  # whose strength is at its bound
    ],
)
def test_resuming_bit_by_bit(kind, build, recipe, tmp_path):
    """At every stage: before the first strength, in the approach, before the cut, and while zeros are held."""
    target = Target(**{kind: 0.2})

    def attached():
        model = build()
        optimizer = sgd(model)
        handle = gossamer.attach(optimizer, recipe(model, example=X), target=target, steps=STEPS)
        return model, optimizer, handle

    model, optimizer, handle = attached()
    train(model, optimizer, 0, STEPS + 10)
    for stage in (1, 40, STEPS - 1, STEPS + 5) if kind == "params" else (60,):
        first, first_optimizer, first_handle = attached()
        train(first, first_optimizer, 0, stage)
        torch.save([first.state_dict(), first_optimizer.state_dict()], tmp_path / "checkpoint.pt")
        first_handle.remove()
        second, second_optimizer, second_handle = attached()
        weights, state = torch.load(tmp_path / "checkpoint.pt", weights_only=True)
        second.load_state_dict(weights)
        second_optimizer.load_state_dict(state)
        train(second, second_optimizer, stage, STEPS + 10)
        assert all(torch.equal(a, b) for a, b in zip(model.parameters(), second.parameters(), strict=True))
        assert second_handle.reached == handle.reached
        second_handle.remove()


def test_another_target_cannot_resume():
    model = net()
    optimizer = sgd(model)
    handle = gossamer.attach(optimizer, gossamer.l1(model), target=Target(params=0.1), steps=STEPS)
    state = optimizer.state_dict()
    handle.remove()
    gossamer.attach(optimizer, gossamer.l1(model), target=Target(params=0.2), steps=STEPS)
    with pytest.raises(GossamerError, match=r"written with Target\(params=0.1\) and steps=120; attached now"):
        optimizer.load_state_dict(state)


def test_a_strength_is_where_the_control_starts():
    model = net()
    optimizer = sgd(model)
    handle = gossamer.attach(optimizer, gossamer.l1(model, 0.123), target=Target(params=0.1), steps=STEPS)
    assert handle.strength == pytest.approx(0.123)
    assert handle.reached is None
    handle.remove()
    handle = gossamer.attach(optimizer, gossamer.l1(model), target=Target(params=0.1), steps=STEPS)
    assert handle.strength == 0
    train(model, optimizer, 0, 3)
    assert handle.strength > 0


def attach(target, regularizer=None, model=None, **options):
    model = net() if model is None else model
    return gossamer.attach(sgd(model), (regularizer or gossamer.l1)(model, example=X), target=target, **options)


def test_bad_input():
    half = Target(params=0.5)
    with pytest.raises(GossamerError, match=r"`target` must be a gossamer.Target, such as .*; received 0\.05"):
        attach(0.05, steps=STEPS)
    with pytest.raises(GossamerError, match="`target` needs `steps`"):
        attach(half)
    for steps in (0, 49, 1e4, True):
        with pytest.raises(GossamerError, match="`steps` must be an integer, at least 50"):
            attach(half, steps=steps)
    with pytest.raises(GossamerError, match="L2 only shrinks"):
        attach(half, gossamer.l2, steps=STEPS)
    with pytest.raises(GossamerError, match="`schedule` has no place"):
        attach(half, steps=STEPS, schedule=gossamer.warm_up(10))
    with pytest.raises(GossamerError, match="cannot start from `strength` 0"):
        gossamer.attach(sgd(model := net()), gossamer.l1(model, 0.0), target=half, steps=STEPS)
    with pytest.raises(GossamerError, match=r"has no strength\. Give it one"):
        gossamer.attach(sgd(model := net()), gossamer.l1(model))


def test_targets_that_cannot_be_reached_name_the_smallest_size(tmp_path):
    with pytest.raises(GossamerError, match=r"cannot be reached: .* still has 0.4464% of the weights. Ask for"):
        attach(Target(params=0.001), steps=STEPS)
    with pytest.raises(GossamerError, match=r"still has 2.\d+% of the weights after shrink"):
        attach(Target(dense_params=0.001), steps=STEPS)
    with pytest.raises(GossamerError, match=r"still has [\d,]+ bytes"):
        attach(Target(bytes=100), steps=STEPS)
    with pytest.raises(GossamerError, match="regularize the layers that `only` and `skip` leave out"):
        gossamer.attach(sgd(model := net()), gossamer.l1(model, skip=["2"]), target=Target(params=0.1), steps=STEPS)


def test_a_training_that_is_too_short_for_its_target_warns(tmp_path):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
    gossamer.attach(optimizer, gossamer.l1(model, 1e-5), target=Target(params=0.01), steps=50)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        train(model, optimizer, 0, 50)
    assert any("the last cut is large and costs accuracy" in str(warning.message) for warning in seen)
    assert int(sum((p != 0).sum() for p in model.parameters() if p.dim() > 1)) == 6


def test_a_network_that_has_fallen_below_its_target_warns():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    gossamer.attach(optimizer, gossamer.l1(model), target=Target(params=0.5), steps=50)
    train(model, optimizer, 0, 45)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()  # no gradient brings them back
    with pytest.warns(
        gossamer.SparsityWarning, match=r"fallen to 0.0000% of the weights before the last cut; the target"
    ):
        train(model, optimizer, 45, 52)


def test_units_that_shrink_has_to_keep_are_reported():
    class Fixed(nn.Module):
        """The number of hidden units is hard-coded: all of them stay."""

        def __init__(self):
            super().__init__()
            self.hidden, self.output = nn.Linear(10, 24), nn.Linear(24, 3)

        def forward(self, x):
            return self.output(torch.relu(self.hidden(x)).view(-1, 4, 6).flatten(1))

    torch.manual_seed(0)
    model = Fixed()
    optimizer = sgd(model)
    handle = gossamer.attach(
        optimizer, gossamer.group_lasso(model, example=X), target=Target(dense_params=0.3), steps=60
    )
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        train(model, optimizer, 0, 60)
    small = gossamer.shrink(model, X, form="module")
    assert handle.reached.after == sum(p.numel() for p in small.parameters() if p.dim() > 1)
    assert handle.reached.after == 10 * 24 + 24 * 3
    assert any("sizes are hard-coded" in str(warning.message) for warning in seen)
