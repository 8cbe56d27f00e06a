from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from gossamer.shrinking.labels import FIXED, Labels


@given(pairs=st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), max_size=40))
def test_classes_are_connected_components(pairs: list[tuple[int, int]]) -> None:
    labels = Labels()
    labels.fresh(30)
    root = list(range(31))
    for a, b in pairs:
        labels.tie(torch.tensor([a]), torch.tensor([b]))
        low, high = sorted((root[a], root[b]))
        root = [low if r == high else r for r in root]
    assert labels.classes().tolist() == root


def test_a_neutral_partner_pins() -> None:
    labels = Labels()
    units = labels.fresh(3)
    labels.tie(units, torch.tensor([0, 0, int(units[2])]))
    assert [(pinned.tolist(), reason) for pinned, reason in labels.pins] == [([1, 2], FIXED)]
