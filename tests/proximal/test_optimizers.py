"""One strength, one objective, under every optimizer of docs/optimizers.md; or one clear refusal."""

import collections
import copy
import re
import tempfile
import warnings
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.optim import SGD, Adam, Optimizer

import gossamer
from gossamer import GossamerError
from gossamer.proximal import attached
from gossamer.proximal.optimizers import known_step, unwrapped

STRENGTH = 0.1
DOCS = Path(__file__).parents[2] / "docs" / "optimizers.md"


def lasso():
    """A Lasso problem and its solution, by proximal gradient descent written out."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(80, 12, generator=generator, dtype=torch.float64)
    truth = torch.where(torch.arange(12) < 4, 2 * torch.randn(12, generator=generator, dtype=torch.float64), 0.0)
    y = x @ truth + 0.5 * torch.randn(80, generator=generator, dtype=torch.float64)
    step = 1 / torch.linalg.eigvalsh(x.T @ x / 80)[-1]
    solution = torch.zeros(12, dtype=torch.float64)
    for _ in range(5000):
        moved = solution - step * (x.T @ (x @ solution - y) / 80)
        solution = moved - torch.copysign(moved.abs().clamp(max=STRENGTH * step), moved)
    return x, y, solution


X, Y, SOLUTION = lasso()


def fit(make, steps=800, **options):
    """The weights that an optimizer ends at, with the l1 penalty attached to it."""
    model = nn.Linear(12, 1, bias=False, dtype=torch.float64)
    nn.init.zeros_(model.weight)
    optimizer = make(model.parameters())
    gossamer.attach(optimizer, gossamer.l1(model, STRENGTH), **options)

    def closure():
        optimizer.zero_grad()
        loss = (model(X).squeeze(1) - Y).square().mean() / 2
        loss.backward()
        return loss

    for _ in range(steps):
        closure()
        optimizer.step(*([closure] if isinstance(optimizer, SAM) else []))
    return model.weight.detach()[0]


# -- optimizers and wrappers as users write them


class OwnMomentum(Optimizer):
    """Heavy-ball momentum under another name."""

    def __init__(self, params, lr, momentum=0.9, weight_decay=0.0):
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "calls": 0})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            group["calls"] += 1
            for p in group["params"]:
                if p.grad is not None:
                    speed = self.state[p].setdefault("speed", torch.zeros_like(p))
                    speed.mul_(group["momentum"]).add_(p.grad)
                    p.mul_(1 - group["lr"] * group["weight_decay"]).sub_(group["lr"] * speed)


class LoggingSGD(SGD):
    """A subclass that calls the `step` of its base: PyTorch runs the hooks twice."""

    def step(self, closure=None):
        return super().step(closure)


class RenamedAdam(Adam):
    """A subclass that leaves `step` alone."""


class LoggingAdam(Adam):
    def step(self, closure=None):
        return super().step(closure)


class Lion(Optimizer):
    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                average = self.state[p].setdefault("exp_avg", torch.zeros_like(p))
                p.sub_(group["lr"] * torch.sign(0.9 * average + 0.1 * p.grad))
                average.lerp_(p.grad, 0.01)


class Adam8bit(Optimizer):
    """Adam with second moments in 8 bits, in the style of several packages."""

    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                codes = self.state[p].get("codes", torch.zeros_like(p, dtype=torch.uint8))
                scale = self.state[p].get("scale", 0.0)
                second = 0.999 * codes.to(p.dtype).square() * scale + 0.001 * p.grad.square()
                self.state[p]["scale"] = float(second.max()) / 255**2
                root = (second / max(self.state[p]["scale"], 1e-300)).sqrt()
                self.state[p]["codes"] = root.round().to(torch.uint8)
                p.sub_(group["lr"] * p.grad / (second.sqrt() + 1e-8))


class ScheduleFree(SGD):
    def train(self):
        """Swap in the weights that are trained."""

    def eval(self):
        """Swap in their average."""


class PassiveWrapper(Optimizer):
    """A wrapper that does not call the constructor of Optimizer, like accelerate's."""

    def __init__(self, optimizer):
        self.optimizer = optimizer

    @property
    def param_groups(self):
        return self.optimizer.param_groups

    def zero_grad(self, set_to_none=True):
        self.optimizer.zero_grad(set_to_none)

    def step(self, closure=None):
        return self.optimizer.step(closure)

    def state_dict(self):
        return self.optimizer.state_dict()

    def load_state_dict(self, state_dict):
        self.optimizer.load_state_dict(state_dict)


class Lookahead(PassiveWrapper):
    """k steps forward, one step back."""

    def __init__(self, optimizer, k=5, alpha=0.5):
        super().__init__(optimizer)
        self.k, self.alpha, self.calls, self.state = k, alpha, 0, collections.defaultdict(dict)

    def step(self, closure=None):
        loss = self.optimizer.step(closure)
        self.calls += 1
        if self.calls % self.k == 0:
            for group in self.param_groups:
                for fast in group["params"]:
                    slow = self.state[fast].setdefault("slow", torch.zeros_like(fast.data))
                    slow.add_(fast.data - slow, alpha=self.alpha)
                    fast.data.copy_(slow)
        return loss


class SAM(Optimizer):
    """Sharpness-aware minimisation: the inner step is taken at the gradient of a perturbed weight."""

    def __init__(self, params, base, rho=1e-9, **options):
        super().__init__(params, {"rho": rho, **options})
        self.base_optimizer = base(self.param_groups, **options)
        self.param_groups = self.base_optimizer.param_groups

    @torch.no_grad()
    def first_step(self):
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p]["old"] = p.data.clone()
                p.add_(p.grad, alpha=group["rho"])

    @torch.no_grad()
    def second_step(self):
        for group in self.param_groups:
            for p in group["params"]:
                p.data = self.state[p]["old"]
        self.base_optimizer.step()

    def step(self, closure=None):
        self.first_step()
        with torch.enable_grad():
            closure()
        self.second_step()


@pytest.fixture
def process_group():
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=0, world_size=1)
        yield
        dist.destroy_process_group()


def zero(base, **options):
    def make(params):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # PyTorch's own import
            from torch.distributed.optim import ZeroRedundancyOptimizer
        return ZeroRedundancyOptimizer(list(params), base, **options)

    return make


def package(name):
    """A package that need not be installed."""
    return pytest.importorskip(name)


optim = torch.optim
SAME_ZEROS = {
    "SGD": lambda p: SGD(p, lr=0.2),
    "SGD with momentum": lambda p: SGD(p, lr=0.02, momentum=0.9),
    "ASGD": lambda p: optim.ASGD(p, lr=0.2, lambd=0.0),
    "Adam": lambda p: Adam(p, lr=0.02),
    "AdamW": lambda p: optim.AdamW(p, lr=0.02, weight_decay=0.0),
    "NAdam": lambda p: optim.NAdam(p, lr=0.02),
    "RAdam": lambda p: optim.RAdam(p, lr=0.05),
    "Adamax": lambda p: optim.Adamax(p, lr=0.05),
    "Adadelta": lambda p: optim.Adadelta(p, lr=2.0),
    "Adagrad": lambda p: optim.Adagrad(p, lr=0.5),
    "RMSprop": lambda p: optim.RMSprop(p, lr=0.01),
    "RMSprop, centered": lambda p: optim.RMSprop(p, lr=0.01, centered=True),
    "Adafactor": lambda p: optim.Adafactor(p, lr=0.05),
    "Adafactor with weight decay": lambda p: optim.Adafactor(p, lr=0.05, weight_decay=1e-9),
    "own momentum class": lambda p: OwnMomentum(p, lr=0.02),
    "SGD subclass with a step of its own": lambda p: LoggingSGD(p, lr=0.02, momentum=0.9),
    "Adam subclass": lambda p: RenamedAdam(p, lr=0.02),
    "SAM": lambda p: SAM(p, SGD, lr=0.02, momentum=0.9),
    "SAM around Adam": lambda p: SAM(p, Adam, lr=0.02),
    "Lookahead": lambda p: Lookahead(SGD(p, lr=0.02, momentum=0.9)),
    "Lookahead around Adam": lambda p: Lookahead(Adam(p, lr=0.05)),
    "accelerate's wrapper": lambda p: PassiveWrapper(Adam(p, lr=0.02)),
    "accelerate": lambda p: package("accelerate").Accelerator(cpu=True).prepare(Adam(p, lr=0.02)),
    "transformers' Adafactor": lambda p: package("transformers.optimization").Adafactor(
        p, lr=0.05, relative_step=False, scale_parameter=False
    ),
    "transformers' Adafactor with relative steps": lambda p: package("transformers.optimization").Adafactor(
        p, relative_step=True, scale_parameter=True, warmup_init=False, lr=None
    ),
    "Prodigy": lambda p: package("prodigyopt").Prodigy(p),
    "wrapper of a wrapper": lambda p: PassiveWrapper(Lookahead(SGD(p, lr=0.02, momentum=0.9))),
}
REFUSED = {
    "Rprop": (lambda p: optim.Rprop(p), "Rprop moves each weight by the sign of its gradient"),
    "LBFGS": (lambda p: optim.LBFGS(p), "LBFGS moves along quasi-Newton directions"),
    "Muon": (lambda p: optim.Muon(p), "Muon orthogonalizes the gradient"),
    "Lion": (lambda p: Lion(p, lr=0.01), "Lion does not move all weights by the same multiple"),
    "lion-pytorch": (lambda p: package("lion_pytorch").Lion(p), "Lion does not move all weights by the same multiple"),
    "schedule-free AdamW": (lambda p: package("schedulefree").AdamWScheduleFree(p), "AdamWScheduleFree has `train"),
    "schedule-free SGD": (lambda p: package("schedulefree").SGDScheduleFree(p, lr=0.1), "SGDScheduleFree has `train"),
    "8-bit Adam of an unknown package": (lambda p: Adam8bit(p, lr=0.01), "Adam8bit does not"),
    "Adam subclass with a step of its own": (lambda p: LoggingAdam(p, lr=0.01), "LoggingAdam does not move all"),
    "schedule-free": (lambda p: ScheduleFree(p, lr=0.1), r"ScheduleFree has `train\(\)` and `eval\(\)`.*averages"),
    "schedule-free in a wrapper": (lambda p: PassiveWrapper(ScheduleFree(p, lr=0.1)), "ScheduleFree has `train"),
}


@pytest.mark.parametrize("name", SAME_ZEROS)
def test_the_same_zeros_under_every_optimizer(name):
    found = fit(SAME_ZEROS[name], steps=2500 if "relative steps" in name else 800)
    assert 0 < int((SOLUTION == 0).sum()) < 12
    assert torch.equal(found == 0, SOLUTION == 0)
    assert (found - SOLUTION).abs().max() < 0.02


@pytest.mark.parametrize("base", [SGD, Adam])
def test_the_same_zeros_under_zero(process_group, base):
    assert torch.equal(fit(zero(base, lr=0.02)) == 0, SOLUTION == 0)


@pytest.mark.parametrize("name", REFUSED)
def test_one_clear_refusal(name):
    make, message = REFUSED[name]
    model = nn.Linear(12, 1, bias=False)
    optimizer = make(model.parameters())
    before = model.weight.detach().clone()
    with pytest.raises(GossamerError, match=message) as error:
        gossamer.attach(optimizer, gossamer.l1(model, STRENGTH))
    assert "schedule-free" in str(error.value) or ("`step_size=`" in str(error.value) and "AdamW" in str(error.value))
    assert torch.equal(model.weight, before)
    assert "gossamer" not in optimizer.param_groups[0]
    gossamer.attach(SGD(model.parameters(), lr=0.1), gossamer.l1(model, STRENGTH)).remove()


def test_every_optimizer_of_pytorch_is_in_the_tests_and_in_the_docs():
    names = [
        name
        for name in optim.__all__
        if isinstance(cls := getattr(optim, name, None), type) and issubclass(cls, Optimizer) and cls is not Optimizer
    ]
    page = DOCS.read_text()
    tested = {*SAME_ZEROS, *REFUSED, "SparseAdam"}
    assert len(names) > 12
    for name in names:
        assert name in tested
        assert re.search(rf"`(torch\.optim\.)?{name}`", page), name


def test_sparse_adam():
    """Rows that are not in a batch are penalised too, once they have been seen."""
    embedding = nn.Embedding(6, 3, sparse=True)
    optimizer = optim.SparseAdam(embedding.parameters(), lr=0.01)
    gossamer.attach(optimizer, gossamer.l1(embedding, 1.0))
    start = embedding.weight.detach().clone()
    for row in (0, 1, 1, 1):
        optimizer.zero_grad()
        embedding(torch.tensor([row])).square().sum().backward()
        before = embedding.weight.detach().clone()
        optimizer.step()
    assert torch.equal(embedding.weight[2:], start[2:])
    assert (embedding.weight[0].abs() < before[0].abs()).all()


# -- wrappers


def test_lookahead_keeps_exact_zeros_after_it_averages():
    for steps in range(300, 306):
        assert torch.equal(fit(SAME_ZEROS["Lookahead"], steps=steps) == 0, SOLUTION == 0)


def test_a_wrapper_is_left_as_it_was():
    model = nn.Linear(12, 1, bias=False)
    wrapper = Lookahead(SGD(model.parameters(), lr=0.1))
    handle = gossamer.attach(wrapper, gossamer.l1(model, STRENGTH))
    assert attached(wrapper) == attached(wrapper.optimizer) == (handle,)
    scheduler = optim.lr_scheduler.StepLR(wrapper.optimizer, 10)  # wraps `step` as well
    model.weight.grad = torch.zeros_like(model.weight)
    wrapper.step()
    scheduler.step()
    assert handle.steps == 1
    handle.remove()
    assert "step" not in vars(wrapper)
    wrapper.step()
    assert handle.steps == 1
    assert "gossamer" not in wrapper.param_groups[0]


def test_a_step_that_someone_else_has_wrapped_since():
    model = nn.Linear(12, 1, bias=False)
    wrapper = Lookahead(SGD(model.parameters(), lr=0.1))
    handle = gossamer.attach(wrapper, gossamer.l1(model, STRENGTH))
    inner, calls = wrapper.step, []
    wrapper.step = lambda: calls.append(1) or inner()
    handle.remove()
    model.weight.grad = torch.zeros_like(model.weight)
    wrapper.step()
    assert calls == [1]
    assert handle.steps == 0


def test_two_step_use_of_sam():
    """Most users of SAM never call its `step`."""
    model = nn.Linear(4, 4)
    optimizer = SAM(model.parameters(), SGD, lr=0.1)
    handle = gossamer.attach(optimizer, gossamer.l1(model, 100.0), compile=True)
    for _ in range(3):
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        optimizer.first_step()
        optimizer.second_step()
    assert handle.steps == 3
    assert not model.weight.any()
    assert handle.fused.tables == 1  # the weights are at a new address after every step


def test_the_weights_must_belong_to_the_innermost_optimizer():
    """Some wrappers (of half precision, of sharded weights) give copies of the weights to the optimizer inside."""
    model = nn.Linear(4, 4)
    wrapper = PassiveWrapper(SGD([nn.Parameter(model.weight.detach().clone())], lr=0.1))
    with pytest.raises(GossamerError, match="The optimizer does not train weight"):
        gossamer.attach(wrapper, gossamer.l1(model, 1.0))


def test_zero_that_overlaps_with_the_backward_pass():
    kind = type("ZeroRedundancyOptimizer", (), {"__module__": "torch.distributed.optim.zero_redundancy_optimizer"})
    optimizer = kind()
    optimizer._overlap_with_ddp = True
    with pytest.raises(GossamerError, match="overlap_with_ddp=False"):
        unwrapped(optimizer)


@pytest.mark.parametrize("value", [None, 3, nn.Linear(2, 2)])
def test_what_is_no_optimizer(value):
    with pytest.raises(GossamerError, match=rf"needs a torch.optim.Optimizer.*received {type(value).__name__}"):
        gossamer.attach(value, gossamer.l1(nn.Linear(2, 2), 1.0))


def test_what_is_no_regularizer():
    with pytest.raises(GossamerError, match=r"must be a Regularizer.*received float"):
        gossamer.attach(SGD(nn.Linear(2, 2).parameters(), lr=0.1), 1e-3)


# -- measured optimizers


def factor(optimizer):
    parameter = optimizer.param_groups[0]["params"][0]
    return known_step(optimizer).rule(parameter, optimizer.param_groups[0], {}).size / optimizer.param_groups[0]["lr"]


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9, 0.99, 0.999])
def test_the_measured_step_of_momentum(momentum):
    optimizer = OwnMomentum(nn.Linear(2, 2).parameters(), lr=0.1, momentum=momentum, weight_decay=0.1)
    assert factor(optimizer) == pytest.approx(1 / (1 - momentum), rel=1e-6)


def test_every_parameter_group_is_measured_and_measured_again_when_its_settings_change():
    first, second = nn.Linear(2, 2), nn.Linear(2, 2)
    groups = [{"params": first.parameters(), "momentum": 0.5}, {"params": second.parameters(), "momentum": 0.8}]
    optimizer = OwnMomentum(groups, lr=0.1)
    rule = known_step(optimizer).rule
    assert [rule(None, group, {}).size for group in optimizer.param_groups] == pytest.approx([0.2, 0.5])
    optimizer.param_groups[0].update(momentum=0.9, lr=0.01)
    assert rule(None, optimizer.param_groups[0], {}).size == pytest.approx(0.1)


def test_a_counter_in_the_group_is_measured_twice_at_most(monkeypatch):
    from gossamer.proximal import measured

    calls = []
    original = measured._factor
    monkeypatch.setattr(measured, "_factor", lambda *arguments: calls.append(1) or original(*arguments))
    optimizer = OwnMomentum(nn.Linear(2, 2).parameters(), lr=0.1)
    rule = known_step(optimizer).rule
    for count in range(10):
        optimizer.param_groups[0]["calls"] = count
        assert rule(None, optimizer.param_groups[0], {}).size == pytest.approx(1.0)
    assert len(calls) <= 2


def test_measuring_changes_nothing():
    model = nn.Linear(3, 3)
    optimizer = OwnMomentum(model.parameters(), lr=0.1)
    calls = []
    optimizer.register_step_post_hook(lambda *arguments: calls.append(1))
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    weights, state = copy.deepcopy(list(model.parameters())), copy.deepcopy(optimizer.state_dict())
    known_step(optimizer)
    assert all(torch.equal(a, b) for a, b in zip(weights, model.parameters(), strict=True))
    assert str(optimizer.state_dict()) == str(state)
    assert calls == [1]


class Odd(Optimizer):
    """Not linear, in a way of one's choice."""

    def __init__(self, params, lr=0.1, way="", **attributes):
        super().__init__(params, {"lr": lr} if way != "no rate" else {})
        self.way = way
        vars(self).update(attributes)

    @torch.no_grad()
    def step(self, closure=None):
        group = self.param_groups[0]
        for p in group["params"]:
            count = self.state[p]["count"] = self.state[p].get("count", 0) + 1
            if self.way == "upwards":
                p.add_(group["lr"] * p.grad)
            elif self.way == "normalised":
                p.sub_(group["lr"] * p.grad / (p.grad.norm() + 1e-12))
            elif self.way == "decaying":
                p.sub_(group["lr"] * p.grad / count)
            elif self.way == "square of the rate":
                p.sub_(group["lr"] ** 2 * p.grad)
            elif self.way == "broken":
                raise KeyError("state")
            else:
                p.sub_(0.1 * p.grad)


@pytest.mark.parametrize(
    ("way", "reason"),
    [
        ("upwards", "times a constant gradient"),
        ("normalised", "ten times as far along ten times the gradient"),
        ("decaying", "does not converge to one step"),
        ("square of the rate", "in proportion to the learning rate"),
        ("broken", r"raised KeyError\('state'\)"),
        ("no rate", "no learning rate `lr`"),
    ],
)
def test_why_an_optimizer_cannot_be_measured(way, reason):
    model = nn.Linear(2, 2)
    with pytest.raises(GossamerError, match=f"Odd .*{reason}"):
        gossamer.attach(Odd(model.parameters(), way=way), gossamer.l1(model, 1.0))


@pytest.mark.parametrize("value", [nn.Linear(1, 1), nn.Parameter(torch.zeros(2)), torch.zeros(100), object()])
def test_an_optimizer_that_holds_more_than_data_is_not_tried(value):
    model = nn.Linear(2, 2)
    with pytest.raises(GossamerError, match=f"it holds a {type(value).__name__} in `extra`"):
        gossamer.attach(Odd(model.parameters(), extra=value), gossamer.l1(model, 1.0))


def test_a_closure_is_not_tried():
    model = nn.Linear(2, 2)
    with pytest.raises(GossamerError, match="it holds a function in `extra`"):
        gossamer.attach(Odd(model.parameters(), extra=lambda: model), gossamer.l1(model, 1.0))
