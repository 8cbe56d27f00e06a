"""The regularizers: integrated transformed l1, its parts, and the baselines it is compared with.

All take the model, the strength (lambda), their own parameters, and the options of `LayerOptions`. The strength may be
left out if a target drives it (`gossamer.Target`). Biases and
normalisation layers are not regularized; tied weights count once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Unpack

from torch import nn

from gossamer.errors import GossamerError
from gossamer.layers import Groups, Weight, require_groups
from gossamer.penalties import L1, L2, Exclusive, Group, TransformedL1
from gossamer.regularizers.assembly import assemble
from gossamer.regularizers.regularizer import Regularizer, Rule, Term
from gossamer.regularizers.selection import LayerOptions, select

__all__ = [
    "combined_group_exclusive",
    "group_lasso",
    "group_transformed_l1",
    "integrated_tl1",
    "l1",
    "l2",
    "sparse_group_lasso",
    "transformed_l1",
    "unit_tl1",
]


def integrated_tl1(
    model: nn.Module,
    strength: float | None = None,
    *,
    a: float = 0.2,
    s: float = 0.1,
    groups: Groups = "outputs",
    scale_by_size: bool = False,
    **layers: Unpack[LayerOptions],
) -> Regularizer:
    """Omega(W_l) = mu_l Tl1(W_l) + (1 - mu_l) sum_g ||W_l,g||_2: the paper's regularizer.

    mu_l = s + (1 - 2s)(l - 1)/(L - 1) over the L chosen weights in order of execution, so the group term dominates in
    the lower layers and the element-wise term in the upper ones; 1/2 if L = 1. `scale_by_size` multiplies each group
    norm by the square root of the group's size.
    """
    norm = Group(L1())
    transformed = TransformedL1(a)
    require_groups(groups)

    def terms(weight: Weight, mu: float) -> tuple[Term, ...]:
        size = _size_factor(weight, groups, scale_by_size)
        return Term(transformed, mu), Term(norm, (1 - mu) * size, groups)

    return _balanced(model, strength, s, terms, layers, by_size=scale_by_size)


def combined_group_exclusive(
    model: nn.Module,
    strength: float | None = None,
    *,
    s: float = 0.2,
    groups: Groups = "taps",
    exact: bool = True,
    **layers: Unpack[LayerOptions],
) -> Regularizer:
    """Omega(W_l) = (1 - mu_l) sum_g ||W_l,g||_2 + mu_l/2 sum_g ||W_l,g||_1^2, mu_l as in `integrated_tl1` (CGES).

    Yoon and Hwang (2017). Their groups are outgoing weights: of an input unit, or of a tap of a convolution.
    `exact=False` takes the exclusive step of their published code, which shrinks more than the exact minimiser.
    """
    norm, exclusive = Group(L1()), Exclusive(exact)
    require_groups(groups)

    def terms(weight: Weight, mu: float) -> tuple[Term, ...]:
        del weight
        return Term(norm, 1 - mu, groups), Term(exclusive, mu, groups)

    return _balanced(model, strength, s, terms, layers)


def sparse_group_lasso(
    model: nn.Module,
    strength: float | None = None,
    *,
    groups: Groups = "taps",
    scale_by_size: bool = True,
    **layers: Unpack[LayerOptions],
) -> Regularizer:
    """Omega(W) = sum_ij |w_ij| + sum_g sqrt(size of g) ||W_g||_2 (SGL), by default on groups of outgoing weights.

    Scardapane et al. (2017). Its two proximal steps in succession are the proximal operator of the sum.
    """
    absolute, norm = L1(), Group(L1())
    require_groups(groups)

    def terms(weight: Weight) -> tuple[Term, ...]:
        return Term(absolute, 1.0), Term(norm, _size_factor(weight, groups, scale_by_size), groups)

    return _alike(model, strength, terms, layers, by_size=scale_by_size)


def group_lasso(
    model: nn.Module,
    strength: float | None = None,
    *,
    groups: Groups = "outputs",
    scale_by_size: bool = True,
    **layers: Unpack[LayerOptions],
) -> Regularizer:
    """Omega(W) = sum_g sqrt(size of g) ||W_g||_2; without the root of the size by `scale_by_size=False`."""
    norm = Group(L1())
    require_groups(groups)
    return _alike(
        model,
        strength,
        lambda weight: (Term(norm, _size_factor(weight, groups, scale_by_size), groups),),
        layers,
        by_size=scale_by_size,
    )


def group_transformed_l1(
    model: nn.Module,
    strength: float | None = None,
    *,
    a: float = 1.0,
    groups: Groups = "outputs",
    scale_by_size: bool = False,
    **layers: Unpack[LayerOptions],
) -> Regularizer:
    """Omega(W) = sum_g rho_a(||W_g||_2): transformed l1 on the norms of groups, the paper's future work."""
    transformed = Group(TransformedL1(a))
    require_groups(groups)
    return _alike(
        model,
        strength,
        lambda weight: (Term(transformed, _size_factor(weight, groups, scale_by_size), groups),),
        layers,
        by_size=scale_by_size,
    )


def unit_tl1(
    model: nn.Module,
    strength: float | None = None,
    *,
    a: float = 1.0,
    balance: float = 0.02,
    **layers: Unpack[LayerOptions],
) -> Regularizer:
    """Omega = (1 - b) sum_u sqrt(size of u) rho_a(||w_u||_2) + b sum_ij rho_a(w_ij): transformed l1 on both levels.

    u runs over the removable units of the network (`groups="units"`), so what becomes zero together can be removed by
    `shrink`; the second sum, over single weights, makes what stays sparse. b is `balance`: with 0 only units are
    penalised, with 1 only single weights. `example`, what the model is called with, is required.
    """
    if not 0 <= balance <= 1:
        raise GossamerError(f"`balance` must be between 0 and 1; received {balance!r}.")
    transformed = TransformedL1(a)
    on_units = Term(Group(transformed), 1 - balance, "units")
    terms = (Term(transformed, balance), on_units) if balance > 0 else (on_units,)
    return _alike(model, strength, lambda weight: terms, layers, by_size=True)


def transformed_l1(
    model: nn.Module, strength: float | None = None, *, a: float = 1.0, **layers: Unpack[LayerOptions]
) -> Regularizer:
    """Omega(W) = sum_ij (a + 1)|w_ij| / (a + |w_ij|)."""
    penalty = TransformedL1(a)
    return _alike(model, strength, lambda weight: (Term(penalty, 1.0),), layers)


def l1(model: nn.Module, strength: float | None = None, **layers: Unpack[LayerOptions]) -> Regularizer:
    """Omega(W) = sum_ij |w_ij|."""
    return _alike(model, strength, lambda weight: (Term(L1(), 1.0),), layers)


def l2(model: nn.Module, strength: float | None = None, **layers: Unpack[LayerOptions]) -> Regularizer:
    """Omega(W) = 1/2 sum_ij w_ij^2, as a proximal step: it shrinks weights and produces no zeros."""
    return _alike(model, strength, lambda weight: (Term(L2(), 1.0),), layers)


def _alike(
    model: nn.Module,
    strength: float | None,
    terms: Callable[[Weight], tuple[Term, ...]],
    options: LayerOptions,
    *,
    by_size: bool = False,
) -> Regularizer:
    chosen = select(model, strength, options)
    return assemble(
        model, strength, [Rule(weight, terms(weight), scale) for weight, scale in chosen], options, by_size=by_size
    )


def _balanced(
    model: nn.Module,
    strength: float | None,
    s: float,
    terms: Callable[[Weight, float], tuple[Term, ...]],
    options: LayerOptions,
    *,
    by_size: bool = False,
) -> Regularizer:
    if not 0 <= s <= 0.5:
        raise GossamerError(f"`s` must be between 0 and 1/2; received {s!r}.")
    chosen = select(model, strength, options)
    last = len(chosen) - 1
    balance = [s + (1 - 2 * s) * index / last if last else 0.5 for index in range(len(chosen))]
    rules = [Rule(weight, terms(weight, mu), scale) for (weight, scale), mu in zip(chosen, balance, strict=True)]
    return assemble(model, strength, rules, options, by_size=by_size)


def _size_factor(weight: Weight, groups: Groups, scale_by_size: bool) -> float:
    # A constant, not a function of the current shape: removing units during training must not change the objective.
    # The sizes of units are known to `assemble`.
    return math.sqrt(weight.layout.group_size(groups)) if scale_by_size and groups != "units" else 1.0
