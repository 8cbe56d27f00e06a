import pytest
import torch

from gossamer.penalties import L1, Exclusive, Group, Log, Lp
from gossamer.penalties.lp import _shrinkage_newton, _shrinkage_one_half, _shrinkage_two_thirds


def above_threshold(p, k):
    smallest = (2 * (1 - p) * k) ** (1 / (2 - p))
    return smallest * (2 - p) / (2 * (1 - p)) * (1 + torch.logspace(-8, 4, 500, dtype=torch.float64))


@pytest.mark.parametrize(("p", "closed"), [(1 / 2, _shrinkage_one_half), (2 / 3, _shrinkage_two_thirds)])
@pytest.mark.parametrize("k", [1e-8, 1e-3, 10.0])
def test_lp_closed_forms_agree_with_newton(p, closed, k):
    m, step = above_threshold(p, k), torch.tensor(k, dtype=torch.float64)
    torch.testing.assert_close(closed(m, step), _shrinkage_newton(m, step, p), rtol=1e-13, atol=0)


@pytest.mark.parametrize("p", [0.001, 0.1, 0.35, 0.6, 0.9, 0.999])
@pytest.mark.parametrize("k", [1e-8, 1e-3, 10.0])
def test_lp_newton_solves_its_equation(p, k):
    m = above_threshold(p, k)
    d = _shrinkage_newton(m, torch.tensor(k, dtype=torch.float64), p)
    torch.testing.assert_close(d, k * p * (m - d) ** (p - 1), rtol=1e-14, atol=0)


def test_lp_survives_steps_whose_powers_overflow():
    w = torch.tensor([1.0, -1e-3, 1e3])
    for p in (1 / 2, 2 / 3, 0.9):
        assert torch.isfinite(Lp(p).prox(w, 1e-30)).all()


def test_log_with_a_tiny_gamma_is_l1():
    w = torch.randn(100, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(Log(1e-25).prox(w, 0.1), L1().prox(w, 0.1))


def test_the_published_exclusive_step_shrinks_more_than_the_exact_one():
    w = torch.tensor([[3.0, -1.0, 0.5]], dtype=torch.float64)
    exact, published = Exclusive().prox(w, 0.2), Exclusive(exact=False).prox(w, 0.2)
    # published: soft threshold by 0.2 * 4.5; exact: S = (3 + 1 + .5) / (1 + .6) and then .5 < .2 S, so S = 4 / 1.4
    torch.testing.assert_close(published, torch.tensor([[2.1, -0.1, 0.0]], dtype=torch.float64))
    torch.testing.assert_close(exact, torch.tensor([[3 - 0.2 * 4 / 1.4, -1 + 0.2 * 4 / 1.4, 0.0]], dtype=torch.float64))


def test_group_lasso_in_a_metric_meets_its_secular_equation():
    generator = torch.Generator().manual_seed(0)
    w = torch.randn(500, 20, generator=generator, dtype=torch.float64)
    steps = 10 ** (torch.rand(500, 20, generator=generator, dtype=torch.float64) * 10 - 8)
    steps[:250] *= 1e3
    x = Group(L1()).prox(w, steps)
    r = x.norm(dim=-1, keepdim=True)
    dead = ((w / steps).square().sum(-1) <= 1).unsqueeze(-1)
    assert torch.equal(r == 0, dead)
    assert ((w / (r + steps)).square().sum(-1, keepdim=True)[~dead] - 1).abs().max() < 1e-13
