"""Regularizers of a model: weights, penalties, strengths, groups."""

from gossamer.regularizers.kept_norms import KeptNorm
from gossamer.regularizers.recipes import (
    combined_group_exclusive,
    group_lasso,
    group_transformed_l1,
    integrated_tl1,
    l1,
    l2,
    sparse_group_lasso,
    transformed_l1,
    unit_tl1,
)
from gossamer.regularizers.regularizer import Regularizer, Rule, Term
from gossamer.regularizers.selection import LayerOptions
from gossamer.regularizers.split_units import SplitBucket
from gossamer.regularizers.units import Bucket, Slices, Units, UnitTerm
from gossamer.regularizers.unknown import UnregularizedWarning

__all__ = [
    "Bucket",
    "KeptNorm",
    "LayerOptions",
    "Regularizer",
    "Rule",
    "Slices",
    "SplitBucket",
    "Term",
    "UnitTerm",
    "Units",
    "UnregularizedWarning",
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
