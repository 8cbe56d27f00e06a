from __future__ import annotations

import torch

from gossamer.data import shift


def test_every_move_up_to_the_limit_happens_and_no_other() -> None:
    image = torch.arange(1.0, 41.0).reshape(1, 2, 4, 5)
    torch.manual_seed(0)
    seen = {tuple(moved.flatten().tolist()) for moved in shift(image.expand(500, -1, -1, -1))}
    larger = torch.zeros(2, 6, 7)
    larger[:, 1:5, 1:6] = image[0]
    possible = {
        tuple(larger[:, down : down + 4, right : right + 5].flatten().tolist())
        for down in range(3)
        for right in range(3)
    }
    assert seen == possible


def test_images_move_independently_and_the_originals_stay() -> None:
    images = torch.rand(64, 1, 8, 8)
    before = images.clone()
    torch.manual_seed(0)
    moved = shift(images)
    assert torch.equal(images, before)
    unmoved = sum(torch.equal(new, old) for new, old in zip(moved, images, strict=True))
    assert 16 < unmoved < 56
    assert torch.equal(shift(images, chance=0.0), images)


def test_no_pixels_is_no_move() -> None:
    images = torch.rand(5, 3, 4, 4)
    assert torch.equal(shift(images, pixels=0), images)
