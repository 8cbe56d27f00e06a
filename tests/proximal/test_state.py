"""The state of a proximal step survives every way of saving an optimizer; copies that would lose it are refused."""

import copy
import pickle

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
from torch.nn.functional import cross_entropy

import gossamer
from gossamer import GossamerError


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))


def data(count, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return [
        (torch.randn(32, 6, generator=generator), torch.randint(0, 3, (32,), generator=generator)) for _ in range(count)
    ]


def train(model, optimizer, batches, step=None):
    for x, y in batches:
        optimizer.zero_grad()
        cross_entropy(model(x), y).backward()
        (step or optimizer.step)()


def attach(model, optimizer, **options):
    regularizer = gossamer.integrated_tl1(model, 5e-3, **options)
    return gossamer.attach(optimizer, regularizer, schedule=gossamer.warm_up(30))


def started(wrap=lambda optimizer: optimizer):
    model = net()
    optimizer = wrap(torch.optim.Adam(model.parameters(), lr=1e-2))
    return model, optimizer, attach(model, optimizer)


def same(first, second):
    return all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))


class TestAttachAfterLoading:
    """The order that most trainers use."""

    @pytest.mark.parametrize("held", [False, True])
    def test_the_training_goes_on(self, tmp_path, held):
        model, optimizer, handle = started()
        train(model, optimizer, data(15))
        if held:
            handle.hold()
        train(model, optimizer, data(3))
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "c.pt")

        resumed = net()
        other = torch.optim.Adam(resumed.parameters(), lr=1e-2)
        checkpoint = torch.load(tmp_path / "c.pt", weights_only=True)
        other.load_state_dict(checkpoint["optimizer"])
        resumed.load_state_dict(checkpoint["model"])
        again = attach(resumed, other)
        assert (again.steps, again.held) == (18, held)

        for network, own in ((model, optimizer), (resumed, other)):
            train(network, own, data(10, seed=3))
        assert same(model, resumed)
        assert gossamer.measure(model, data(1)[0][0]).params_kept < 1

    def test_held_zeros_stay_zero(self):
        model, optimizer, handle = started()
        train(model, optimizer, data(40))
        handle.hold()
        zeros = model[0].weight == 0
        assert 0 < zeros.sum() < zeros.numel()
        resumed = net()
        other = torch.optim.Adam(resumed.parameters(), lr=1e-2)
        other.load_state_dict(optimizer.state_dict())
        attach(resumed, other)
        resumed.load_state_dict(model.state_dict())  # after the optimizer, and after `attach`
        train(resumed, other, data(20, seed=3))
        assert torch.equal(resumed[0].weight == 0, zeros)

    def test_a_checkpoint_of_another_regularizer(self):
        _, optimizer, _ = started()
        other = torch.optim.Adam((fresh := net()).parameters(), lr=1e-2)
        other.load_state_dict(optimizer.state_dict())
        with pytest.raises(GossamerError, match=r"a regularizer on 0\.weight, 2\.weight.*now is on 0\.weight.*delete"):
            attach(fresh, other, only=["0"])
        del other.param_groups[0]["gossamer"]
        assert attach(fresh, other, only=["0"]).steps == 0

    def test_a_checkpoint_of_another_size(self):
        _, optimizer, _ = started()
        wide = nn.Sequential(nn.Linear(6, 17), nn.ReLU(), nn.Linear(17, 3))
        other = torch.optim.Adam(wide.parameters(), lr=1e-2)
        other.load_state_dict(optimizer.state_dict())
        with pytest.raises(GossamerError, match=r"`0.weight` of shape \(16, 6\).*\(17, 6\)"):
            attach(wide, other)

    def test_two_regularizers_find_their_own_state(self):
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        first = gossamer.attach(optimizer, gossamer.l1(model, 1e-3, only=["0"]))
        train(model, optimizer, data(3))
        gossamer.attach(optimizer, gossamer.l1(model, 1e-3, only=["2"]))
        train(model, optimizer, data(2))
        first.hold()
        state = copy.deepcopy(optimizer.state_dict())

        other = torch.optim.SGD((fresh := net()).parameters(), lr=0.1)
        other.load_state_dict(state)
        second = gossamer.attach(other, gossamer.l1(fresh, 1e-3, only=["2"]))
        assert (second.steps, second.held) == (2, False)
        passed_on = other.state_dict()["param_groups"][0]["gossamer"]
        assert {number: own["steps"] for number, own in passed_on.items()} == {0: 5, 1: 2}
        first = gossamer.attach(other, gossamer.l1(fresh, 1e-3, only=["0"]))
        assert (first.steps, first.held) == (5, True)
        assert other.state_dict()["param_groups"][0]["gossamer"].keys() == {0, 1}


class TestWrappers:
    def test_state_of_a_wrapper_that_shares_the_parameter_groups(self):
        class Wrapper(torch.optim.Optimizer):
            def __init__(self, optimizer):
                super().__init__([nn.Parameter(torch.zeros(1))], {})
                self.base_optimizer = optimizer
                self.param_groups = optimizer.param_groups

            def step(self, closure=None):
                return self.base_optimizer.step(closure)

            def load_state_dict(self, state_dict):
                super().load_state_dict(state_dict)
                self.base_optimizer.param_groups = self.param_groups

        model, wrapper, handle = started(Wrapper)
        train(model, wrapper, data(4))
        handle.hold()
        state = pickle.loads(pickle.dumps(wrapper.state_dict()))
        _, other, again = started(Wrapper)
        other.load_state_dict(state)
        assert (again.steps, again.held) == (4, True)

    def test_several_parameter_groups(self):
        model = net()
        optimizer = torch.optim.SGD([{"params": layer.parameters()} for layer in (model[0], model[2])], lr=0.1)
        handle = attach(model, optimizer)
        train(model, optimizer, data(2))
        state = optimizer.state_dict()
        assert ["gossamer" in group for group in state["param_groups"]] == [True, False]
        handle.remove()
        assert not any("gossamer" in group for group in optimizer.param_groups)

    def test_parameter_groups_that_are_replaced(self):
        model, optimizer, handle = started()
        optimizer.param_groups = [{**optimizer.param_groups[0], "gossamer": None}]
        del optimizer.param_groups[0]["gossamer"]
        train(model, optimizer, data(2))
        assert handle.steps == 2
        with pytest.raises(GossamerError, match="would train without the penalty"):
            copy.deepcopy(optimizer)


class TestCopies:
    @pytest.mark.parametrize("duplicate", [copy.deepcopy, pickle.dumps, copy.copy])
    def test_a_handle(self, duplicate):
        _, _, handle = started()
        with pytest.raises(GossamerError, match="a handle of `attach` would train without the penalty"):
            duplicate(handle)

    @pytest.mark.parametrize("duplicate", [copy.deepcopy, pickle.dumps])
    def test_an_optimizer(self, duplicate):
        model, optimizer, handle = started()
        train(model, optimizer, data(2))
        for target in (optimizer, [model, optimizer]):
            with pytest.raises(GossamerError, match=r"an optimizer with a regularizer attached.*handle.remove\(\)"):
                duplicate(target)
        handle.remove()
        duplicate(optimizer)

    def test_a_model_can_be_copied(self):
        model, optimizer, _ = started()
        train(model, optimizer, data(2))
        assert same(copy.deepcopy(model), model)

    def test_a_representation(self):
        _, optimizer, _ = started()
        assert "gossamer: attached" in repr(optimizer)


@pytest.mark.filterwarnings("ignore")
class TestDistributedCheckpoint:
    @pytest.mark.parametrize("flatten", [False, True])
    @pytest.mark.parametrize("held", [False, True])
    def test_save_and_load(self, tmp_path, flatten, held):
        options = StateDictOptions(flatten_optimizer_state_dict=flatten)
        model, optimizer, handle = started()
        train(model, optimizer, data(12))
        if held:
            handle.hold()
        weights, state = get_state_dict(model, optimizer, options=options)
        dcp.save({"weights": weights, "state": state}, checkpoint_id=tmp_path)

        resumed, other, again = started()
        weights, state = get_state_dict(resumed, other, options=options)
        dcp.load(loaded := {"weights": weights, "state": state}, checkpoint_id=tmp_path)
        set_state_dict(
            resumed,
            other,
            model_state_dict=loaded["weights"],
            optim_state_dict=loaded["state"],
            options=options,
        )
        assert (again.steps, again.held) == (12, held)
        for network, own in ((model, optimizer), (resumed, other)):
            train(network, own, data(10, seed=3))
        assert same(model, resumed)

    def test_loaded_before_attach(self):
        model, optimizer, _ = started()
        train(model, optimizer, data(3))
        weights, state = get_state_dict(model, optimizer)
        other = torch.optim.Adam((fresh := net()).parameters(), lr=1e-2)
        set_state_dict(fresh, other, model_state_dict=weights, optim_state_dict=state)
        assert attach(fresh, other).steps == 3


@pytest.mark.parametrize("make", [lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), lambda p: torch.optim.Adam(p)])
@pytest.mark.parametrize("compile", [False, True])
def test_a_compiled_optimizer_step(make, compile):  # noqa: A002
    results = []
    for compiled in (False, True):
        model = net()
        optimizer = make(model.parameters())
        handle = gossamer.attach(optimizer, gossamer.integrated_tl1(model, 5e-3), compile=compile)
        train(model, optimizer, data(8), torch.compile(optimizer.step, backend="eager") if compiled else None)
        assert handle.steps == 8
        results.append(model)
    for first, second in zip(*(model.parameters() for model in results), strict=True):
        torch.testing.assert_close(first, second, rtol=1e-4, atol=1e-5)


def test_the_first_format(tmp_path):
    """Checkpoints of version 0.1 have the state beside the parameter groups, with the masks of held zeros."""
    model, optimizer, handle = started()
    train(model, optimizer, data(40))
    handle.hold()
    state = optimizer.state_dict()
    del state["param_groups"][0]["gossamer"]
    zeros = {name: model.get_parameter(name) == 0 for name in ("0.weight", "2.weight")}
    state["gossamer"] = {0: {"steps": 40, "weights": ["0.weight", "2.weight"], "zeros": zeros}}
    resumed, other, again = started()
    other.load_state_dict(state)
    resumed.load_state_dict(model.state_dict())
    assert (again.steps, again.held) == (40, True)
    train(resumed, other, data(5))
    assert torch.equal(resumed[0].weight == 0, zeros["0.weight"])
    wide = nn.Sequential(nn.Linear(6, 17), nn.ReLU(), nn.Linear(17, 3))
    wider = torch.optim.Adam(wide.parameters(), lr=1e-2)
    attach(wide, wider)
    with pytest.raises(GossamerError, match=r"\(16, 6\).*\(17, 6\)"):
        wider.load_state_dict(state)
