"""Units of weights that several processes share."""

import torch

from .models import IMAGES, POINTS, TOKENS, check_zeros, data_parallel, own_part, same, shared_out, zero_of
from .trainings import spreads_of, trained

UNIT_TRAININGS = [
    (IMAGES, (("unit_tl1", {}), 0.03), "SGD"),
    (IMAGES, (("sparse_group_lasso", {"groups": "units"}), 0.02), "Adam"),
    (TOKENS, (("unit_tl1", {}), 0.18), "Adam"),
    (TOKENS, (("combined_group_exclusive", {"groups": "units"}), 0.35), "SGD"),
    (TOKENS, (("group_lasso", {"groups": "units"}), 0.1), "SGD"),
    (TOKENS, (("group_transformed_l1", {"groups": "units"}), 0.1), "SGD"),
    (POINTS, (("integrated_tl1", {"groups": "units"}), 0.18), "SGD"),
]


def one_process_units(case):
    model, regularizer, value = trained(case)
    return dict(model.named_parameters()), value, dead_share(regularizer)


def dead_share(regularizer):
    return regularizer.units.dead().double().mean().item()


def check_units(flat):
    """Units of weights in several processes become zero together, as in one process."""
    for case, (weights, value, dead) in zip(UNIT_TRAININGS, shared_out(UNIT_TRAININGS, one_process_units), strict=True):
        check_zeros(dead, case)
        for spread in (*spreads_of(case, flat), (data_parallel, own_part, zero_of)):
            model, regularizer, other = trained(case, *spread)
            same(weights, model, (case, spread))
            torch.testing.assert_close(other, value)
            assert dead_share(regularizer) == dead
