"""Properties of every public penalty. The list is made from the exports, so a new penalty cannot escape."""

import dataclasses
import inspect

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode

from gossamer import GossamerError, penalties
from gossamer.penalties import Penalty, ScalarPenalty


def log_uniform(low, high):
    return st.floats(low, high).map(lambda exponent: 10.0**exponent)


FIELDS = {
    "a": log_uniform(-3, 2),
    "p": st.one_of(st.floats(0.02, 0.98), st.sampled_from([1 / 2, 2 / 3])),
    "knee": log_uniform(-2, 1),
    "exact": st.just(True),
}
GAMMAS = {"SCAD": st.floats(2.01, 20), "MCP": st.floats(1.01, 20), "Log": log_uniform(-2, 3)}

CONCRETE = [
    cls
    for name in penalties.__all__
    if issubclass(cls := getattr(penalties, name), Penalty) and not inspect.isabstract(cls)
]
SCALAR = [cls for cls in CONCRETE if issubclass(cls, ScalarPenalty)]
VECTOR = [cls for cls in CONCRETE if not issubclass(cls, ScalarPenalty)]


def instances(cls):
    """Penalties of this class with random parameters; a field nobody thought of here is a KeyError."""

    def strategy(field):
        if field == "gamma":
            return GAMMAS[cls.__name__]
        return st.one_of([instances(inner) for inner in SCALAR]) if field == "inner" else FIELDS[field]

    return st.builds(cls, **{field.name: strategy(field.name) for field in dataclasses.fields(cls)})


STEPS = log_uniform(-8, 2)
SEEDS = st.integers(0, 2**32 - 1)


def random_weights(seed, *shape):
    generator = torch.Generator().manual_seed(seed)
    scale = 10 ** (torch.rand((), generator=generator) * 4 - 2)
    return torch.randn(shape, generator=generator, dtype=torch.float64) * scale


def objective(penalty, x, w, step):
    """step * value(x) + 1/2 ||x - w||^2 for each vector of the last dimension."""
    flat = x.reshape(-1, x.shape[-1])
    values = torch.stack([penalty.value(vector) for vector in flat]).reshape(x.shape[:-1])
    return step * values + (x - w).square().sum(-1) / 2


def test_every_exported_penalty_is_here():
    assert {
        "L0",
        "L1",
        "L2",
        "TransformedL1",
        "SCAD",
        "MCP",
        "Log",
        "CappedL1",
        "Lp",
        "L1MinusL2",
        "Exclusive",
        "Group",
    } <= {cls.__name__ for cls in CONCRETE}


@pytest.mark.parametrize("cls", SCALAR)
@given(data=st.data(), step=STEPS, seed=SEEDS)
@settings(max_examples=60, deadline=None)
def test_scalar_prox_beats_a_dense_grid_and_the_origin(cls, data, step, seed):
    penalty = data.draw(instances(cls))
    w = random_weights(seed, 64).unsqueeze(-1)
    grid = w * torch.linspace(-0.2, 1.2, 1401, dtype=torch.float64)

    def cost(x):
        return step * penalty.phi(x.abs()) + (x - w).square() / 2

    best = torch.minimum(cost(grid).amin(-1, keepdim=True), cost(torch.zeros_like(w)))
    assert (cost(penalty.prox(w, step)) <= best * (1 + 1e-12) + 1e-300).all()


def competitors(w):
    """A grid over the box between the origin and w, which holds the minimiser, finer near both ends."""
    ticks = torch.cat([torch.linspace(0, 1, 101, dtype=torch.float64), torch.logspace(-6, -1, 12, dtype=torch.float64)])
    return w * torch.cartesian_prod(ticks, ticks)


@pytest.mark.parametrize("cls", VECTOR)
@given(data=st.data(), step=STEPS, seed=SEEDS)
@settings(max_examples=30, deadline=None)
def test_vector_prox_beats_a_dense_grid_and_the_origin(cls, data, step, seed):
    penalty = data.draw(instances(cls))
    w = random_weights(seed, 2)
    best = min(objective_fast(penalty, competitors(w), w, step))
    ours = objective(penalty, penalty.prox(w, step), w, step)
    assert ours <= best * (1 + 1e-12) + 1e-300


def objective_fast(penalty, x, w, step):
    """The same as `objective`, with the penalty of all candidates in one go."""
    if isinstance(penalty, penalties.Group):
        values = penalty.inner.phi(x.norm(dim=-1))
    elif isinstance(penalty, penalties.L1MinusL2):
        values = x.abs().sum(-1) - x.norm(dim=-1)
    elif isinstance(penalty, penalties.Exclusive):
        values = x.abs().sum(-1).square() / 2
    else:
        return objective(penalty, x, w, step).tolist()
    return (step * values + (x - w).square().sum(-1) / 2).tolist()


@pytest.mark.parametrize("cls", [penalties.Group, penalties.Exclusive])
@given(data=st.data(), seed=SEEDS, steps=st.tuples(STEPS, STEPS))
@settings(max_examples=30, deadline=None)
def test_a_step_for_each_weight_is_the_minimiser_in_that_metric(cls, data, seed, steps):
    penalty = data.draw(instances(cls))
    w = random_weights(seed, 2)
    step = torch.tensor(steps, dtype=torch.float64)

    def cost(x):
        return objective_fast(penalty, x, x, 1.0)[0] + float(((x - w).square() / (2 * step)).sum())

    x = penalty.prox(w.unsqueeze(0), step.unsqueeze(0))
    grid = competitors(w)
    values = torch.tensor(objective_fast(penalty, grid, grid, 1.0), dtype=torch.float64)
    best = float((values + ((grid - w).square() / (2 * step)).sum(-1)).min())
    assert cost(x) <= best * (1 + 1e-9) + 1e-300


@pytest.mark.parametrize("cls", CONCRETE)
@given(data=st.data(), step=STEPS, seed=SEEDS)
@settings(max_examples=40, deadline=None)
def test_symmetric_and_zero_at_zero(cls, data, step, seed):
    penalty = data.draw(instances(cls))
    w = random_weights(seed, 5, 7)
    assert torch.equal(penalty.prox(-w, step), -penalty.prox(w, step))
    assert torch.equal(penalty.prox(torch.zeros(3, 4), step), torch.zeros(3, 4))
    x = penalty.prox(w, step)
    assert not torch.signbit(x[x == 0]).any()


@pytest.mark.parametrize("cls", CONCRETE)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@given(data=st.data(), seed=SEEDS)
@settings(max_examples=10, deadline=None)
def test_step_zero_is_the_identity(cls, dtype, data, seed):
    penalty = data.draw(instances(cls))
    w = random_weights(seed, 5, 7).to(dtype)
    assert torch.equal(penalty.prox(w, 0.0), w)
    assert torch.equal(penalty.prox(torch.zeros_like(w), 0.0), torch.zeros_like(w))


@pytest.mark.parametrize("cls", SCALAR)
@given(data=st.data(), step=STEPS, seed=SEEDS)
@settings(max_examples=40, deadline=None)
def test_scalar_prox_is_monotone_and_shrinks(cls, data, step, seed):
    penalty = data.draw(instances(cls))
    w = random_weights(seed, 400).sort().values
    x = penalty.prox(w, step)
    assert (x.diff() >= -1e-12 * w.abs().max()).all()
    assert (x.abs() <= w.abs()).all()


@pytest.mark.parametrize("cls", VECTOR)
@given(data=st.data(), step=STEPS, seed=SEEDS)
@settings(max_examples=40, deadline=None)
def test_vector_prox_is_monotone(cls, data, step, seed):
    """<prox(w) - prox(v), w - v> >= 0, which in one coordinate is monotone in |w|."""
    penalty = data.draw(instances(cls))
    w, v = random_weights(seed, 20, 3), random_weights(seed + 1, 20, 3)
    inner = ((penalty.prox(w, step) - penalty.prox(v, step)) * (w - v)).sum(-1)
    assert (inner >= -1e-12 * (w.square() + v.square()).sum(-1)).all()


@pytest.mark.parametrize("cls", CONCRETE)
@given(data=st.data(), step=STEPS, seed=SEEDS)
@settings(max_examples=15, deadline=None)
def test_any_stride_and_a_step_for_each_vector(cls, data, step, seed):
    penalty = data.draw(instances(cls))
    w = random_weights(seed, 6, 4, 8)
    expected = penalty.prox(w, step)
    strided = w.transpose(0, 1).contiguous().transpose(0, 1)
    assert not strided.is_contiguous()
    torch.testing.assert_close(penalty.prox(strided, step), expected, rtol=1e-12, atol=0)
    torch.testing.assert_close(
        penalty.prox(w, torch.full((6, 4, 1), step, dtype=torch.float64)), expected, rtol=1e-9, atol=1e-300
    )
    assert penalty.prox(w[:0], step).shape == (0, 4, 8)
    assert penalty.prox(w[..., :0], step).shape == (6, 4, 0)


@pytest.mark.parametrize("cls", CONCRETE)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@given(data=st.data(), seed=SEEDS)
@settings(max_examples=10, deadline=None)
def test_half_precision_is_computed_in_float32_and_rounded_once(cls, dtype, data, seed):
    penalty = data.draw(instances(cls))
    w = random_weights(seed, 5, 7).to(dtype)
    x = penalty.prox(w, 1e-3)
    assert x.dtype == dtype
    assert torch.equal(x, penalty.prox(w.float(), 1e-3).to(dtype))
    assert penalty.value(w).dtype == torch.float32


@pytest.mark.parametrize("cls", CONCRETE)
@pytest.mark.parametrize(
    "w", [torch.ones(3, dtype=torch.int64), torch.ones(3, dtype=torch.complex64), torch.ones(3) > 0]
)
def test_weights_must_be_real_floating_point(cls, w):
    with pytest.raises(GossamerError, match="floating-point"):
        cls().prox(w, 0.1)
    with pytest.raises(GossamerError, match="floating-point"):
        cls().value(w)


@pytest.mark.parametrize("cls", CONCRETE)
@pytest.mark.parametrize(
    "step",
    [
        -1e-3,
        float("nan"),
        float("inf"),
        torch.tensor([[-1.0]]),
        torch.tensor([[float("inf")]]),
        torch.ones(5, 1),
        torch.tensor(1j),
    ],
)
def test_a_step_that_cannot_be_is_refused(cls, step):
    with pytest.raises(GossamerError, match="step"):
        cls().prox(torch.ones(2, 3), step)


@pytest.mark.parametrize("cls", CONCRETE)
def test_parameters_that_cannot_be_are_refused(cls):
    for field in dataclasses.fields(cls):
        for value in {"exact": [], "inner": [penalties.Exclusive(), 1.0]}.get(
            field.name, [-1.0, 0.0, float("nan"), float("inf")]
        ):
            with pytest.raises(GossamerError, match=field.name):
                cls(**{field.name: value})


@pytest.mark.parametrize(("cls", "gamma"), [(penalties.SCAD, 2.0), (penalties.MCP, 1.0)])
def test_gamma_has_a_range(cls, gamma):
    with pytest.raises(GossamerError, match="greater than"):
        cls(gamma=gamma)


def test_p_has_a_range():
    for p in (1.0, 1.5):
        with pytest.raises(GossamerError, match="between 0 and 1"):
            penalties.Lp(p)


@pytest.mark.parametrize("cls", SCALAR)
@given(data=st.data(), seed=SEEDS)
@settings(max_examples=20, deadline=None)
def test_a_step_for_each_weight_is_that_weights_own(cls, data, seed):
    penalty = data.draw(instances(cls))
    w = random_weights(seed, 12)
    steps = 10 ** (6 * torch.rand(12, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) - 5)
    alone = torch.stack([penalty.prox(x, float(step)) for x, step in zip(w, steps, strict=True)])
    torch.testing.assert_close(penalty.prox(w, steps), alone, rtol=1e-10, atol=0)


@pytest.mark.parametrize("cls", CONCRETE)
def test_weights_on_a_gpu_meet_a_step_from_the_cpu(cls):
    """There is no GPU in these tests: fake tensors check devices and shapes as the real ones would."""
    with FakeTensorMode():
        w = torch.empty(4, 5, device="cuda")
        for step in (0.1, torch.tensor(0.1), torch.empty(4, 1, device="cuda")):
            kernel_step = step if isinstance(step, torch.Tensor) else torch.tensor(step, dtype=torch.float64)
            x = cls().kernel(w, kernel_step)
            assert (x.device.type, x.shape, x.dtype) == ("cuda", w.shape, w.dtype)


@pytest.mark.parametrize("cls", CONCRETE)
def test_large_finite_weights_stay_finite(cls):
    w = torch.tensor([[1e20, -2e20, 0.0]])
    assert torch.isfinite(cls().prox(w, 1e-3)).all()
