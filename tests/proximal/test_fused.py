"""The fused step gives what the plain step gives, to rounding, and does it in place."""

import math
import warnings

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings
from torch import nn

import gossamer
from gossamer import compiler
from gossamer.errors import GossamerError
from gossamer.layers import Weight
from gossamer.penalties import L0, L1, L2, MCP, SCAD, CappedL1, Exclusive, Group, L1MinusL2, Log, Lp, TransformedL1
from gossamer.proximal import native
from gossamer.proximal.fused import FUSED_FROM, FusedStep, Move, supports
from gossamer.proximal.metric import Given, Root
from gossamer.proximal.plain import plain_step_
from gossamer.regularizers import Rule, Term

LAYERS = {
    "linear": lambda: nn.Linear(37, 21),
    "wide linear": lambda: nn.Linear(3, 2500),
    "long linear": lambda: nn.Linear(5000, 3),
    "conv": lambda: nn.Conv2d(6, 8, 3),
    "grouped conv": lambda: nn.Conv2d(6, 8, 3, groups=2),
    "depthwise conv": lambda: nn.Conv2d(6, 6, 3, groups=6),
    "conv channels last": lambda: nn.Conv2d(6, 8, 3).to(memory_format=torch.channels_last),
    "transposed conv": lambda: nn.ConvTranspose2d(6, 8, (2, 3), groups=2),
    "embedding": lambda: nn.Embedding(30, 7),
    "lstm": lambda: nn.LSTM(9, 5),
}
SCALARS = [L0(), L1(), L2(), TransformedL1(0.1), TransformedL1(100.0), SCAD(0.05), MCP(0.05), Log(2.0), CappedL1(0.05)]
SCALARS += [Lp(0.5), Lp(2 / 3), Lp(0.1), Lp(0.9)]
VECTORS = [Exclusive(), Exclusive(exact=False), L1MinusL2()]
METRICS = [None, "root", "given"]
GROUPS = ["outputs", "inputs", "taps"]
STEPS = [0.0, 1e-8, 1e-5, 1e-3, 4e-3, 0.1, 3.0, 50.0]


@pytest.fixture(scope="module")
def kernel():
    return native.load_kernel()


def weight_of(layer, dtype=torch.float32, seed=0):
    module = LAYERS[layer]().to(dtype)
    attribute = "weight_ih_l0" if layer == "lstm" else "weight"
    weight = Weight(attribute, module, attribute)
    with torch.no_grad():
        generator = torch.Generator().manual_seed(seed)
        # Several sizes, so that a few weights and groups fall on each side of every threshold; and exact zeros.
        spread = torch.randn(weight.parameter.shape, generator=generator, dtype=torch.float64)
        values = spread * torch.exp(
            4 * torch.randn(weight.parameter.shape, generator=generator, dtype=torch.float64) - 3
        )
        weight.parameter.copy_(values.masked_fill(spread.abs() < 0.1, -0.0))
    return weight


def metric_of(kind, weight, seed=0):
    """A metric over several orders of magnitude, in which some weights wait."""
    if kind is None:
        return None
    generator = torch.Generator().manual_seed(seed + 1)
    spread = torch.randn((2, *weight.shape), generator=generator, dtype=torch.float64)
    second = torch.empty_like(weight).copy_((spread[0] * torch.exp(2 * spread[1] - 3)).square())
    second[torch.rand(weight.shape, generator=generator) < 0.1] = 0.0
    return (
        Root(second, 0.3, 1e-8) if kind == "root" else Given(torch.where(second > 0, 1 / (second.sqrt() + 1e-3), 0.0))
    )


def take(kernel, rule, step, metric=None):
    moves = [Move(rule, rule.weight.parameter.detach(), torch.tensor(step, dtype=torch.float64), metric)]
    return FusedStep(kernel).take(moves)


def assert_same_step(kernel, rule, step, metric=None):
    """Equal up to rounding: within what the plain step gives for steps that differ by rounding."""
    weight = rule.weight.parameter.detach()
    before = weight.clone()
    tolerance = 64 * torch.finfo(weight.dtype).eps
    plain = []
    for nudge in (1 - tolerance / 2, 1.0, 1 + tolerance / 2):
        plain.append(before.clone())
        plain_step_(rule, plain[-1], step * nudge, metric)
    assert take(kernel, rule, step, metric) == ([], True)
    low, high = torch.stack(plain).aminmax(dim=0)
    close = (weight >= low - tolerance * before.abs()) & (weight <= high + tolerance * before.abs())
    assert close.all(), (rule.terms, step, before[~close], weight[~close], plain[1][~close])
    assert not torch.signbit(weight[(weight == 0) & (before != 0)]).any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("groups", GROUPS)
@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("metric", METRICS)
def test_every_layout_and_grouping(kernel, layer, groups, dtype, metric):
    terms = (Term(TransformedL1(0.1), 0.3), Term(Group(L1()), 0.7, groups))
    for step in STEPS if metric is None else STEPS[1::3]:
        rule = Rule(weight_of(layer, dtype), terms, scale=1.5)
        own = metric_of(metric, rule.weight.parameter.detach())
        assert supports(rule, rule.weight.parameter, own)
        assert_same_step(kernel, rule, step, own)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("penalty", [*SCALARS, *VECTORS], ids=repr)
@pytest.mark.parametrize("metric", METRICS)
def test_every_penalty(kernel, penalty, dtype, metric):
    if isinstance(penalty, L1MinusL2) and metric is not None:
        pytest.skip("not defined in a metric")
    scalar = penalty not in VECTORS
    terms = [Term(Group(penalty), 1.0, "outputs"), Term(penalty, 1.0)] if scalar else [Term(penalty, 1.0, "outputs")]
    for step in STEPS if metric is None else STEPS[::3]:
        for term in terms:
            rule = Rule(weight_of("linear", dtype), (term,))
            assert_same_step(kernel, rule, step, metric_of(metric, rule.weight.parameter.detach()))


def powers(low, high):
    return st.floats(low, high).map(lambda exponent: 10**exponent)


# The whole range of parameters that the penalties accept.
ANY_SCALAR = st.one_of(
    st.sampled_from(SCALARS),
    powers(-30, 30).map(TransformedL1),
    st.floats(1e-3, 0.98).map(Lp),
    st.builds(SCAD, powers(-30, 30), powers(math.log10(2.001), 30)),
    st.builds(MCP, powers(-30, 30), powers(math.log10(1.001), 30)),
    powers(-30, 30).map(Log),
    powers(-30, 30).map(CappedL1),
)


@settings(max_examples=200, deadline=None)
@given(
    layer=st.sampled_from(sorted(LAYERS)),
    first=st.none() | ANY_SCALAR,
    second=st.none() | ANY_SCALAR.map(Group) | st.sampled_from([Exclusive(), Exclusive(exact=False), L1MinusL2()]),
    swapped=st.booleans(),
    groups=st.sampled_from(GROUPS),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    metric=st.sampled_from(METRICS),
    step=st.floats(-9, 1).map(lambda power: 10**power),
    seed=st.integers(0, 10**6),
)
def test_any_rule(kernel, layer, first, second, swapped, groups, dtype, metric, step, seed):
    if isinstance(second, L1MinusL2) and (metric is not None or layer == "conv channels last"):
        second = None
    terms = [] if first is None else [Term(first, 0.4)]
    terms += [] if second is None else [Term(second, 0.6, groups)]
    if terms:
        rule = Rule(weight_of(layer, dtype, seed), tuple(reversed(terms) if swapped else terms))
        own = metric_of(metric, rule.weight.parameter.detach(), seed)
        assert supports(rule, rule.weight.parameter.detach(), own)
        assert_same_step(kernel, rule, step, own)


@pytest.mark.parametrize("a", [1e20, 1e25, 1e30])
@pytest.mark.parametrize("metric", METRICS)
def test_transformed_l1_of_a_large_a_is_l1(kernel, a, metric):
    weight = weight_of("linear")
    own = metric_of(metric, weight.parameter.detach())
    expected = weight.parameter.detach().clone()
    plain_step_(Rule(weight, (Term(L1(), 1.0),)), expected, 1e-3, own)
    take(kernel, Rule(weight, (Term(TransformedL1(a), 1.0),)), 1e-3, own)
    torch.testing.assert_close(weight.parameter.detach(), expected, rtol=1e-5, atol=1e-7)
    assert 0 < (expected == 0).sum() < expected.numel()


@pytest.mark.parametrize("a", [1e-2, 1.0, 1e2])
def test_transformed_l1_near_its_double_root(kernel, a):
    # At step = a^2 / (2 (a + 1)) and magnitude a / 2 the two outer roots meet.
    step = a * a / (2 * (a + 1))
    for nudge in (1 - 1e-3, 1 - 1e-7, 1.0, 1 + 1e-7, 1 + 1e-3):
        weight = weight_of("linear", torch.float64)
        with torch.no_grad():
            weight.parameter.copy_(a / 2 * torch.linspace(0.9, 1.1, weight.parameter.numel()).view_as(weight.parameter))
        before = weight.parameter.detach().clone()
        plain = TransformedL1(a).prox(before, step * nudge)
        take(kernel, Rule(weight, (Term(TransformedL1(a), 1.0),)), step * nudge)
        # There a rounding of the weight moves the root by its square root.
        assert torch.allclose(weight.parameter, plain, rtol=1e-7, atol=1e-7 * a)


def test_shrinkage_survives_where_the_published_formula_does_not(kernel):
    weight = weight_of("linear")
    with torch.no_grad():
        weight.parameter.copy_(torch.rand(weight.parameter.shape) + 1.0)
    exact = TransformedL1(100.0).shrinkage(weight.parameter.double(), torch.tensor(1e-3, dtype=torch.float64))
    before = weight.parameter.double()
    take(kernel, Rule(weight, (Term(TransformedL1(100.0), 1.0),)), 1e-3)
    assert torch.allclose(before - weight.parameter.double(), exact, rtol=0, atol=torch.finfo(torch.float32).eps)


class OtherL1(L1):
    """A subclass may compute something else."""


@pytest.mark.parametrize(
    "terms",
    [
        (Term(OtherL1(), 1.0),),
        (Term(Group(OtherL1()), 1.0, "outputs"),),
        (Term(Exclusive(), 1.0),),
        (Term(Group(L1()), 1.0),),
        (Term(Lp(0.99), 1.0),),
        (Term(Group(Lp(0.99)), 1.0, "outputs"),),
        (Term(Group(L1()), 1.0, "outputs"), Term(Group(L1()), 1.0, "inputs")),
        (Term(L1(), 1.0), Term(L2(), 1.0), Term(L0(), 1.0)),
    ],
    ids=repr,
)
def test_other_rules_take_the_plain_implementation(terms):
    weight = weight_of("linear")
    assert not supports(Rule(weight, terms), weight.parameter)


def test_other_metrics_take_the_plain_implementation():
    weight = weight_of("linear")
    rule = Rule(weight, (Term(L1(), 1.0),))
    parameter = weight.parameter.detach()
    second = torch.rand(parameter.shape)
    assert supports(rule, parameter, Root(second, 1.0, 1e-8))
    assert not supports(rule, parameter, Root(second.double(), 1.0, 1e-8))
    assert not supports(rule, parameter, Given(second.t().contiguous().t()))
    assert not supports(rule, parameter, Given(second.as_subclass(type("Quantized", (torch.Tensor,), {}))))
    rule = Rule(weight, (Term(L1MinusL2(), 1.0, "outputs"),))
    assert supports(rule, parameter)
    assert not supports(rule, parameter, Given(second))


def test_other_weights_take_the_plain_implementation():
    weight = weight_of("linear")
    rule = Rule(weight, (Term(L1(), 1.0), Term(Group(L1()), 1.0, "outputs")))
    parameter = weight.parameter.detach()
    assert supports(rule, parameter)
    assert supports(rule, parameter.t().contiguous().t())  # another order, no gaps
    assert not supports(rule, torch.zeros(42, 37)[::2])
    assert not supports(rule, parameter.bfloat16())
    assert not supports(rule, parameter.to("meta"))


RECIPES = [
    gossamer.integrated_tl1,
    gossamer.sparse_group_lasso,
    gossamer.combined_group_exclusive,
    gossamer.group_lasso,
    gossamer.group_transformed_l1,
    gossamer.transformed_l1,
    gossamer.l1,
    gossamer.l2,
]


def network(dtype=torch.float32):
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten(), nn.ReLU(), nn.Linear(144, 9), nn.Linear(9, 3)).to(dtype)


def trained(recipe, compile, dtype=torch.float32, steps=30, make=None):  # noqa: A002
    model = network(dtype)
    optimizer = (make or (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.5)))(model.parameters())
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    handle = gossamer.attach(optimizer, recipe(model, 0.02), compile=compile)
    torch.manual_seed(1)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(8, 1, 8, 8, dtype=dtype)).square().mean().backward()
        optimizer.step()
        scheduler.step()
    return model, handle


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.__name__)
def test_every_recipe_trains_alike(recipe, dtype):
    plain, _ = trained(recipe, False, dtype)
    fused, _ = trained(recipe, True, dtype)
    tolerance = 1e-4 if dtype == torch.float32 else 1e-10
    for expected, received in zip(plain.parameters(), fused.parameters(), strict=True):
        assert torch.allclose(expected, received, rtol=tolerance, atol=tolerance)


ADAPTIVE = {
    "adam": lambda p: torch.optim.Adam(p, lr=1e-2),
    "amsgrad": lambda p: torch.optim.AdamW(p, lr=1e-2, amsgrad=True),
    "nadam": lambda p: torch.optim.NAdam(p, lr=1e-2),
    "radam": lambda p: torch.optim.RAdam(p, lr=1e-2),
    "adamax": lambda p: torch.optim.Adamax(p, lr=1e-2),
    "adadelta": lambda p: torch.optim.Adadelta(p, lr=1.0),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=1e-2),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=1e-2),
    "adafactor": lambda p: torch.optim.Adafactor(p, lr=1e-2),
}


@pytest.mark.parametrize("name", ADAPTIVE)
@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.__name__)
def test_every_recipe_trains_alike_in_the_metric_of_every_optimizer(recipe, name):
    """And all of it by the kernel: nothing is left to the plain implementation."""
    plain, _ = trained(recipe, False, torch.float64, make=ADAPTIVE[name])
    fused, handle = trained(recipe, True, torch.float64, make=ADAPTIVE[name])
    for expected, received in zip(plain.parameters(), fused.parameters(), strict=True):
        assert torch.allclose(expected, received, rtol=1e-8, atol=1e-8)
    assert handle.fused._all_fused


@pytest.mark.parametrize("make", [None, ADAPTIVE["adam"], ADAPTIVE["adamax"]])
def test_one_table_for_a_hundred_steps_of_a_schedule(make):
    _, handle = trained(gossamer.integrated_tl1, True, steps=100, make=make)
    assert handle.fused.tables == 1


def test_a_weight_that_moves_is_followed():
    model, handle = network(), None
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    handle = gossamer.attach(optimizer, gossamer.l1(model, 1e6), compile=True)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    model[3].weight.data = torch.ones(5, 144)
    model[3].weight.grad = torch.zeros(5, 144)
    optimizer.step()
    assert handle.fused.tables == 2
    assert not model[3].weight.any()


def test_the_result_does_not_depend_on_the_number_of_threads():
    results, before = [], torch.get_num_threads()
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            model = nn.Linear(300, 400)
            with torch.no_grad():
                model.weight.copy_(torch.randn(model.weight.shape, generator=torch.Generator().manual_seed(0)))
            optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
            gossamer.attach(optimizer, gossamer.integrated_tl1(model, 1e-2, groups="inputs"), compile=True)
            model.weight.grad = torch.zeros_like(model.weight)
            optimizer.step()
            results.append(model.weight.detach())
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(result, results[0]) for result in results)


def test_autograd_sees_the_change():
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    gossamer.attach(optimizer, gossamer.l1(model, 1.0), compile=True)
    model.weight.grad = torch.zeros_like(model.weight)
    before = model.weight._version
    optimizer.step()
    with_penalty = model.weight._version - before
    assert with_penalty == 2  # the optimizer's and ours


def test_weights_that_are_not_finite_are_reported():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    gossamer.attach(optimizer, gossamer.integrated_tl1(model, 1e-3), compile=True)
    for bad in (math.nan, math.inf, -math.inf):
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        with torch.no_grad():
            model[3].weight[0, 0] = bad
        with pytest.raises(GossamerError, match=r"`3.weight` are no longer finite"):
            optimizer.step()
        with torch.no_grad():
            model[3].weight.fill_(0.5)


def test_large_finite_weights_pass():
    model = nn.Linear(8, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    gossamer.attach(optimizer, gossamer.integrated_tl1(model, 1e-3), compile=True)
    model.weight.grad = torch.zeros_like(model.weight)
    with torch.no_grad():
        model.weight.fill_(1e30)  # the squares overflow
    optimizer.step()
    assert (model.weight == 1e30).all()


def test_tiny_models_stay_plain():
    for width, fused in ((FUSED_FROM // 10 - 1, False), (FUSED_FROM // 10, True)):
        model = nn.Linear(10, width)
        handle = gossamer.attach(torch.optim.SGD(model.parameters(), lr=0.1), gossamer.l1(model, 1.0))
        assert (handle.fused is not None) == fused


def test_compile_is_checked():
    model = nn.Linear(3, 3)
    with pytest.raises(GossamerError, match="`compile` must be True, False or 'auto'; received 'yes'"):
        gossamer.attach(torch.optim.SGD(model.parameters(), lr=0.1), gossamer.l1(model, 1.0), compile="yes")


@pytest.fixture
def fresh_kernel(monkeypatch, tmp_path):
    """A machine on which the kernel has never been compiled."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    native.load_kernel.cache_clear()
    yield monkeypatch
    native.load_kernel.cache_clear()


@pytest.mark.parametrize("compiler", ["", "/nowhere/c++", "false"], ids=["none", "missing", "failing"])
def test_without_a_compiler_one_warning_and_the_plain_implementation(fresh_kernel, compiler):
    fresh_kernel.setenv("CXX", compiler)
    fresh_kernel.setenv("PATH", "/nowhere" if compiler != "false" else "/usr/bin:/bin")
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.warns(RuntimeWarning, match="runs without its fused kernel"):
        handle = gossamer.attach(optimizer, gossamer.l1(model, 1.0), compile=True)
    handle.remove()
    handle = gossamer.attach(optimizer, gossamer.l1(model, 1.0), compile=True)  # a second warning would be an error
    assert handle.fused is None


def test_compiled_once_on_a_machine(fresh_kernel, tmp_path):
    assert native.load_kernel() is not None
    (library,) = (tmp_path / "gossamer-libraries").iterdir()
    native.load_kernel.cache_clear()
    fresh_kernel.setattr(compiler, "_compile", lambda *arguments: pytest.fail("compiled again"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert native.load_kernel() is not None
    assert library.exists()
