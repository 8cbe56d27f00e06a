from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from gossamer.layers import find_weights
from gossamer.visualization.data import Pattern
from gossamer.visualization.images import MOST_CELLS, MOST_FILTERS, filters_of, pattern_of


def cells(pattern: Pattern) -> np.ndarray:
    return np.frombuffer(pattern.levels, dtype=np.uint8).reshape(pattern.height, pattern.width)


@pytest.mark.parametrize(
    "layer",
    [
        nn.Linear(9, 5),
        nn.Conv2d(4, 6, 3, groups=2),
        nn.ConvTranspose2d(4, 6, 3, groups=2),
        nn.Embedding(5, 3),
        nn.LSTM(4, 3),
        nn.MultiheadAttention(8, 2),
    ],
    ids=lambda layer: type(layer).__name__,
)
def test_a_small_weight_has_one_cell_for_each_weight(layer: nn.Module) -> None:
    for weight in find_weights(layer):
        with torch.no_grad():
            weight.parameter[torch.rand_like(weight.parameter) < 0.5] = 0
        pattern = pattern_of(weight)
        rows = weight.layout.as_groups(weight.parameter.detach() != 0, "outputs").numpy()
        assert (pattern.rows, pattern.columns) == (pattern.height, pattern.width) == rows.shape
        assert (cells(pattern) == np.where(rows, 15, 0)).all()


@pytest.mark.parametrize("shape", [(MOST_CELLS + 1, 3), (2 * MOST_CELLS, 2 * MOST_CELLS), (700, 1000)])
def test_a_cell_of_a_large_weight_is_empty_only_if_all_its_weights_are_zero(shape: tuple[int, int]) -> None:
    layer = nn.Linear(shape[1], shape[0])
    with torch.no_grad():
        layer.weight[torch.rand_like(layer.weight) < 0.8] = 0
        layer.weight[3:5] = 1.0
    pattern = pattern_of(find_weights(layer)[0])
    levels = cells(pattern)
    assert levels.shape == tuple(min(size, MOST_CELLS) for size in shape)
    edges = [np.linspace(0, size, cut + 1).astype(int) for size, cut in zip(shape, levels.shape, strict=True)]
    present = (layer.weight.detach() != 0).numpy()
    for row in range(0, levels.shape[0], 17):
        for column in range(0, levels.shape[1], 13):
            block = present[edges[0][row] : edges[0][row + 1], edges[1][column] : edges[1][column + 1]]
            assert levels[row, column] == (max(1, int(15 * block.mean())) if block.any() else 0)


def test_one_weight_among_many_is_seen() -> None:
    layer = nn.Linear(1000, 1000)
    with torch.no_grad():
        layer.weight.zero_()
        layer.weight[123, 456] = 1e-30
    assert cells(pattern_of(find_weights(layer)[0])).sum() == 1


def test_filters_of_one_channel_are_blue_below_zero_orange_above_and_clear_at_zero() -> None:
    layer = nn.Conv2d(1, 3, 2, bias=False)
    with torch.no_grad():
        layer.weight[:] = torch.tensor([[[[1.0, -1.0], [0.0, 1e-9]]], [[[0.0] * 2] * 2], [[[0.25] * 2] * 2]])
    filters = filters_of(find_weights(layer)[0], torch.zeros(1, 1, 5, 5))
    assert filters is not None
    assert (filters.units, filters.alive, filters.weights_per_unit) == (3, 2, 4)
    assert [one.nonzeros for one in filters.shown] == [3, 0, 4]
    first, dead, third = (np.frombuffer(one.rgba, dtype=np.uint8).reshape(4, 4) for one in filters.shown)
    assert list(first[:, 3]) == [255, 255, 0, 32]
    assert first[0, 0] > first[0, 2]
    assert first[1, 0] < first[1, 2]
    assert not dead[:, 3].any()
    assert (third[:, 3] == round(255 * 0.25**0.5)).all()


def test_filters_of_three_channels_are_colours() -> None:
    layer = nn.Conv2d(3, 2, 1, bias=False)
    with torch.no_grad():
        layer.weight[:] = torch.tensor([[1.0, -1.0, 0.0], [0.0, 0.0, 0.0]]).view(2, 3, 1, 1)
    filters = filters_of(find_weights(layer)[0], torch.zeros(1, 3, 5, 5))
    assert filters is not None
    assert filters.colour
    assert [tuple(one.rgba) for one in filters.shown] == [(255, 0, 128, 255), (128, 128, 128, 0)]


def test_a_linear_layer_on_pixels_has_filters_of_their_shape() -> None:
    filters = filters_of(find_weights(nn.Linear(12, 200))[0], torch.zeros(5, 1, 3, 4))
    assert filters is not None
    assert (filters.height, filters.width, len(filters.shown), filters.units) == (3, 4, MOST_FILTERS, 200)


@pytest.mark.parametrize(
    ("layer", "example"),
    [
        (nn.Linear(12, 3), torch.zeros(5, 12)),
        (nn.Linear(12, 3), torch.zeros(5, 7, 12)),
        (nn.Conv1d(2, 3, 3), torch.zeros(1, 2, 9)),
        (nn.Conv2d(16, 3, 3), torch.zeros(1, 16, 9, 9)),
        (nn.ConvTranspose2d(1, 3, 3), torch.zeros(1, 1, 9, 9)),
        (nn.Embedding(5, 3), torch.zeros(1, 4, dtype=torch.long)),
    ],
)
def test_other_layers_have_no_filters(layer: nn.Module, example: torch.Tensor) -> None:
    assert filters_of(find_weights(layer)[0], example) is None
