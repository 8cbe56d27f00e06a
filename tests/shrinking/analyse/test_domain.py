from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from gossamer.shrinking.analyse.domain import SIZE_FROM_INPUT, Labels, compress, unexpand, varying_dims


@given(pairs=st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), max_size=40))
def test_classes_are_connected_components(pairs: list[tuple[int, int]]) -> None:
    labels = Labels()
    labels.fresh(30)
    root = list(range(31))
    for a, b in pairs:
        labels.unify(torch.tensor([a]), torch.tensor([b]))
        low, high = sorted((root[a], root[b]))
        root = [low if r == high else r for r in root]
    assert labels.classes().tolist() == root


def test_a_position_without_a_unit_pins() -> None:
    labels = Labels()
    units = labels.fresh(3)
    labels.unify(units, torch.tensor([0, 0, int(units[2])]))
    assert [(pinned.tolist(), reason) for pinned, reason in labels.pins] == [([1, 2], SIZE_FROM_INPUT)]


@given(
    shape=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    repeated=st.lists(st.booleans(), min_size=4, max_size=4),
)
def test_compress_finds_the_dimensions_that_do_not_change(shape: list[int], repeated: list[bool]) -> None:
    small = [1 if again else size for size, again in zip(shape, repeated, strict=False)]
    tensor = torch.arange(torch.Size(small).numel()).view(small).expand(shape).clone()
    found = compress(tensor)
    assert torch.equal(found, tensor)
    assert varying_dims(found) == tuple(d for d, size in enumerate(small) if size > 1)
    assert unexpand(found)[0].shape == torch.Size(small)
