"""One strength, one objective: on a convex problem every optimizer must end at scikit-learn's Lasso solution."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import Lasso
from torch import nn

import gossamer

ALPHA = 0.1
OPTIMIZERS = {
    "sgd": (lambda p: torch.optim.SGD(p, lr=0.2), "euclidean"),
    "momentum": (lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9), "euclidean"),
    "nesterov": (lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.8, nesterov=True), "euclidean"),
    "dampening": (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.5), "euclidean"),
    "dampening without momentum": (lambda p: torch.optim.SGD(p, lr=0.2, dampening=0.5), "euclidean"),
    "adam": (lambda p: torch.optim.Adam(p, lr=0.01), "adaptive"),
    "amsgrad": (lambda p: torch.optim.Adam(p, lr=0.02, amsgrad=True), "adaptive"),
    "adamw": (lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.0), "adaptive"),
    "rmsprop": (lambda p: torch.optim.RMSprop(p, lr=0.01), "adaptive"),
    "rmsprop with momentum": (lambda p: torch.optim.RMSprop(p, lr=0.002, momentum=0.9), "adaptive"),
    "adagrad": (lambda p: torch.optim.Adagrad(p, lr=0.5), "adaptive"),
    "adagrad with decay": (lambda p: torch.optim.Adagrad(p, lr=1.0, lr_decay=1e-4), "adaptive"),
}


@pytest.fixture(scope="module")
def problem():
    generator = np.random.default_rng(0)
    x = generator.standard_normal((200, 30))
    truth = np.where(np.arange(30) < 6, generator.standard_normal(30) * 2, 0.0)
    y = x @ truth + 0.5 * generator.standard_normal(200)
    solution = Lasso(alpha=ALPHA, fit_intercept=False, tol=1e-14, max_iter=1_000_000).fit(x, y).coef_
    return torch.from_numpy(x), torch.from_numpy(y), torch.from_numpy(solution)


def fit(problem, make, metric, steps=2500):
    x, y, _ = problem
    model = nn.Linear(30, 1, bias=False, dtype=torch.float64)
    nn.init.zeros_(model.weight)
    optimizer = make(model.parameters())
    gossamer.attach(optimizer, gossamer.l1(model, ALPHA), metric=metric)
    for _ in range(steps):
        optimizer.zero_grad()
        ((model(x).squeeze(1) - y).square().mean() / 2).backward()
        optimizer.step()
    return model.weight.detach()[0]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_finds_the_lasso_solution(problem, name):
    found = fit(problem, *OPTIMIZERS[name])
    assert 0 < int((problem[2] != 0).sum()) < 30
    assert torch.equal(found != 0, problem[2] != 0)
    assert (found - problem[2]).abs().max() < 1e-8


def test_the_bare_learning_rate_would_miss(problem):
    """What the correction is for: Adam with the plain learning rate is somewhere else."""
    found = fit(problem, OPTIMIZERS["adam"][0], "euclidean")
    assert (found - problem[2]).abs().max() > 1e-2


def test_group_penalties_in_adams_metric_reach_the_same_point_as_sgd(problem):
    """Group lasso with groups of three inputs, once by plain SGD and once by Adam in its own metric."""
    x, y, _ = problem

    class Grouped(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Conv1d(10, 1, 3, bias=False, dtype=torch.float64)  # groups by input: three weights each

        def forward(self, x):
            return self.weight(x.reshape(-1, 10, 3)).flatten()

    def solve(make, metric):
        model = Grouped()
        nn.init.zeros_(model.weight.weight)
        optimizer = make(model.parameters())
        gossamer.attach(optimizer, gossamer.group_lasso(model, 0.3, groups="inputs"), metric=metric)
        for _ in range(2500):
            optimizer.zero_grad()
            ((model(x) - y).square().mean() / 2).backward()
            optimizer.step()
        return model.weight.weight.detach()[0]

    by_sgd = solve(*OPTIMIZERS["sgd"])
    by_adam = solve(*OPTIMIZERS["adam"])
    assert 0 < int((by_sgd.norm(dim=1) == 0).sum()) < 10
    assert torch.equal(by_sgd == 0, by_adam == 0)
    assert (by_sgd - by_adam).abs().max() < 1e-8
