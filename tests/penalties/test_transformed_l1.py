import math

import pytest
import torch

from gossamer.penalties import Group, TransformedL1

A = [1e-3, 1e-2, 1e-1, 1.0, 1e1, 1e2]
STEPS = [1e-9, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2]


def published(w, k, a):
    """Equations g and t of the paper, in float64."""
    t = k * (a + 1) / a if k <= a * a / (2 * (a + 1)) else math.sqrt(2 * k * (a + 1)) - a / 2
    m = w.double().abs()
    phi = torch.acos((1 - 27 * k * a * (a + 1) / (2 * (a + m) ** 3)).clamp(-1, 1))
    x = torch.sign(w) * (2 / 3 * (a + m) * torch.cos(phi / 3) - 2 * a / 3 + m / 3)
    return torch.where(m <= t, 0.0, x)


@pytest.mark.parametrize("a", A)
@pytest.mark.parametrize("step", STEPS)
def test_float32_is_as_good_as_float64(a, step):
    """Within 1e-6 of |w|; the published form in float32 is not, and a test that it could pass would prove nothing."""
    generator = torch.Generator().manual_seed(0)
    penalty = TransformedL1(a)
    threshold = float(penalty.threshold(torch.tensor(step, dtype=torch.float64)))
    w = torch.cat(
        [torch.randn(4000, generator=generator) * scale for scale in (1e-3, 1e-2, 1e-1, 1.0)]
        + [threshold * (1 + torch.logspace(-5, 1, 2000))]
    )
    w = w[(w.abs() / threshold - 1).abs() > 1e-6]  # on the threshold itself the rounding of t decides
    exact = penalty.prox(w.double(), step)
    error = (penalty.prox(w, step).double() - exact).abs() / w.abs()
    assert error.max() <= 1e-6


def test_the_published_form_is_worse_in_float32():
    w = torch.randn(4000, generator=torch.Generator().manual_seed(0)) * 0.1
    exact = TransformedL1(100.0).prox(w.double(), 1e-6)
    m, c, k = w.abs(), 100.0 + w.abs(), 1e-6
    phi = torch.acos(1 - 27 * k * 100.0 * 101.0 / (2 * c**3))
    naive = torch.sign(w) * (2 / 3 * c * torch.cos(phi / 3) - 200 / 3 + m / 3)
    assert ((naive.double() - exact).abs() / m).max() > 6e-5


@pytest.mark.parametrize("a", A)
@pytest.mark.parametrize("step", STEPS)
def test_it_is_the_published_operator(a, step):
    w = torch.linspace(-2, 2, 4001, dtype=torch.float64)
    torch.testing.assert_close(TransformedL1(a).prox(w, step), published(w, step, a), rtol=0, atol=1e-11 * max(a, 1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("a", A)
def test_no_nan_at_the_double_root(a, dtype):
    """k = a^2 / (2 (a + 1)) puts the double root, where arcsin's argument rounds above 1, on the threshold."""
    k = a * a / (2 * (a + 1))
    w = (a / 2) * (1 + torch.linspace(-1e-6, 1e-6, 20001, dtype=dtype))
    x = TransformedL1(a).prox(w, k)
    assert torch.isfinite(x).all()
    assert (x >= 0).all()
    assert (x <= w).all()


@pytest.mark.parametrize("a", A)
@pytest.mark.parametrize("step", [0.0, 1e-9, 1.0])
def test_zero_groups_stay_exactly_zero(a, step):
    w = torch.randn(4, 5, generator=torch.Generator().manual_seed(0))
    w[1] = 0.0
    for penalty in (TransformedL1(a), Group(TransformedL1(a))):
        assert torch.equal(penalty.prox(w, step)[1], torch.zeros(5))


def test_limits():
    w = torch.tensor([0.5, -2.0], dtype=torch.float64)
    torch.testing.assert_close(TransformedL1(1e-12).value(w), torch.tensor(2.0, dtype=torch.float64))
    torch.testing.assert_close(TransformedL1(1e12).value(w), torch.tensor(2.5, dtype=torch.float64))
