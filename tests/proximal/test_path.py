import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import gossamer
from gossamer import GossamerError, Path, Target

pytestmark = pytest.mark.filterwarnings("ignore::gossamer.SparsityWarning")

X = torch.zeros(1, 10)
SIZES = (0.5, 0.2, 0.1)


def setting():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(10, 24), nn.Tanh(), nn.Linear(24, 16), nn.ReLU(), nn.Linear(16, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return model, optimizer


def train(model, optimizer, steps, first=0):
    for step in range(first, first + steps):
        generator = torch.Generator().manual_seed(step)
        y = torch.randint(0, 3, (32,), generator=generator)
        x = torch.randn(32, 10, generator=generator)
        x[:, 0] = y - 1 + 0.3 * x[:, 0]
        optimizer.zero_grad()
        cross_entropy(model(x), y).backward()
        optimizer.step()


def nonzeros(state):
    return sum(int((tensor != 0).sum()) for name, tensor in state.items() if name.endswith("weight"))


@pytest.mark.parametrize("shrinks", [False, True])
def test_one_target_after_the_other(shrinks):
    model, optimizer = setting()
    train(model, optimizer, 50)
    targets = [Target(params=size) for size in SIZES]
    path = Path(optimizer, gossamer.integrated_tl1(model, example=X), targets, steps=80, recovery=10)
    for point in path:
        assert point.steps == 90
        train(model, optimizer, point.steps)
        if shrinks:
            gossamer.shrink_(model, X, optimizer=optimizer)
    assert [point.target for point in path.points] == targets
    for point, size in zip(path.points, SIZES, strict=True):
        assert point.reached.full == 672
        assert point.reached.after == pytest.approx(size * 672, abs=12)
        assert nonzeros(point.state) == pytest.approx(point.reached.after, abs=40)  # and weights of dead units
    assert path.points[-1].handle.held


def test_the_zeros_of_one_target_are_there_at_the_start_of_the_next():
    model, optimizer = setting()
    train(model, optimizer, 50)
    path = Path(optimizer, gossamer.l1(model), [Target(params=0.2), Target(params=0.1)], steps=80, recovery=0)
    for number, point in enumerate(path):
        train(model, optimizer, 5)
        if number == 1:
            assert nonzeros(model.state_dict()) < 0.4 * 672
            assert point.handle.strength > 0
        train(model, optimizer, point.steps - 5, first=5)


def test_bad_input():
    model, optimizer = setting()
    regularizer = gossamer.l1(model)
    half, tenth = Target(params=0.5), Target(params=0.1)
    for targets in ([], [0.5]):
        with pytest.raises(GossamerError, match=r"must be a list of gossamer\.Target"):
            Path(optimizer, regularizer, targets, steps=80, recovery=0)
    with pytest.raises(GossamerError, match="must fall from large to small"):
        Path(optimizer, regularizer, [tenth, half], steps=80, recovery=0)
    with pytest.raises(GossamerError, match="must be of one kind"):
        Path(optimizer, regularizer, [half, Target(flops=0.1)], steps=80, recovery=0)
    with pytest.raises(GossamerError, match="`recovery` must be a number of steps"):
        Path(optimizer, regularizer, [half], steps=80, recovery=-1)
    with pytest.raises(GossamerError, match="`steps` must be an integer, at least 50"):
        Path(optimizer, regularizer, [half], steps=10, recovery=0)
    with pytest.raises(GossamerError, match="cannot be reached"):
        Path(optimizer, regularizer, [half, Target(params=1e-6)], steps=80, recovery=0)
    path = iter(Path(optimizer, regularizer, [half, tenth], steps=80, recovery=0))
    next(path)
    train(model, optimizer, 5)
    with pytest.raises(GossamerError, match=r"5 steps were trained for the target .*, which takes 80"):
        next(path)
