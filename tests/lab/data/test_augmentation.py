from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn.functional import pad

from gossamer_lab.data import random_affine, random_affine_points, random_flip, random_shift


def test_every_move_up_to_the_limit_happens_and_no_other() -> None:
    image = torch.arange(1.0, 41.0).reshape(1, 2, 4, 5)
    torch.manual_seed(0)
    seen = {tuple(moved.flatten().tolist()) for moved in random_shift(image.expand(500, -1, -1, -1))}
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
    moved = random_shift(images)
    assert torch.equal(images, before)
    unmoved = sum(torch.equal(new, old) for new, old in zip(moved, images, strict=True))
    assert 16 < unmoved < 56
    assert torch.equal(random_shift(images, p=0.0), images)


def test_the_fill_value_enters_at_the_border() -> None:
    torch.manual_seed(0)
    assert torch.equal(random_shift(torch.full((50, 1, 3, 3), -0.8), fill=-0.8), torch.full((50, 1, 3, 3), -0.8))


def test_no_pixels_is_no_move() -> None:
    images = torch.rand(5, 3, 4, 4)
    assert torch.equal(random_shift(images, pixels=0), images)


def plain_shift(images: Tensor, pixels: int, p: float) -> Tensor:
    """Image by image, with the same random numbers in the same order."""
    moves = torch.randint(0, 2 * pixels + 1, (2, len(images)))
    stays = torch.rand(len(images)) >= p
    height, width = images.shape[2:]
    moved = []
    for image, down, right, stay in zip(images, *moves.tolist(), stays, strict=True):
        down, right = (pixels, pixels) if stay else (down, right)
        moved.append(pad(image, (pixels,) * 4)[:, down : down + height, right : right + width])
    return torch.stack(moved)


@pytest.mark.parametrize("shape", [(1, 8, 8), (1, 28, 28), (3, 32, 32), (2, 3, 7)])
@pytest.mark.parametrize("pixels", [1, 2])
def test_shift_is_its_plain_twin(shape: tuple[int, ...], pixels: int) -> None:
    images = torch.rand(50, *shape)
    torch.manual_seed(5)
    expected = plain_shift(images, pixels, 0.7)
    torch.manual_seed(5)
    moved = random_shift(images, pixels, 0.7)
    assert torch.equal(moved, expected)
    assert moved.is_contiguous()


def test_about_half_of_the_images_are_mirrored_left_to_right() -> None:
    images = torch.rand(200, 3, 4, 5)
    before = images.clone()
    torch.manual_seed(0)
    flipped = random_flip(images)
    assert torch.equal(images, before)
    mirrored = [torch.equal(new, old[..., range(4, -1, -1)]) for new, old in zip(flipped, images, strict=True)]
    same = [torch.equal(new, old) for new, old in zip(flipped, images, strict=True)]
    assert all(one != other for one, other in zip(mirrored, same, strict=True))
    assert 70 < sum(mirrored) < 130


def test_flip_with_probability_0_and_1() -> None:
    images = torch.rand(20, 1, 3, 3)
    assert torch.equal(random_flip(images, p=0.0), images)
    assert torch.equal(random_flip(images, p=1.0), images.flip(-1))


def test_each_sequence_is_mapped_by_a_matrix_near_the_identity_or_unchanged() -> None:
    torch.manual_seed(0)
    points = torch.rand(200, 8, 2)
    mapped = random_affine_points(points, amount=0.1, p=0.5)
    moved = [not torch.equal(new, old) for new, old in zip(mapped, points, strict=True)]
    assert 60 < sum(moved) < 140
    for new, old in zip(mapped, points, strict=True):
        matrix = torch.linalg.lstsq(old - 0.5, new - 0.5).solution.T
        assert (matrix - torch.eye(2)).abs().max() <= 0.1 + 1e-4
        assert torch.allclose((old - 0.5) @ matrix.T, new - 0.5, atol=1e-5)


def test_affine_points_without_probability_or_amount_are_unchanged() -> None:
    points = torch.rand(5, 8, 2)
    assert torch.equal(random_affine_points(points, p=0.0), points)
    assert torch.equal(random_affine_points(points, amount=0.0), points)


def plain_affine(images: Tensor, amount: float, p: float) -> Tensor:
    """Pixel by pixel, with the same random numbers in the same order."""
    maps = (2 * torch.rand(len(images), 2, 2) - 1) * amount
    stays = torch.rand(len(images)) >= p
    height, width = images.shape[2:]
    mapped = torch.empty_like(images)
    for number, image in enumerate(images):
        x_by_x, x_by_y, y_by_x, y_by_y = (torch.zeros(4) if stays[number] else maps[number].flatten()).tolist()
        for row in range(height):
            for column in range(width):
                x, y = (2 * column + 1) / width - 1, (2 * row + 1) / height - 1  # from -1 to 1 over the image
                there_x, there_y = x + x_by_x * x + x_by_y * y, y + y_by_x * x + y_by_y * y
                right = min(max((there_x + 1) * width / 2 - 0.5, 0.0), width - 1.0)
                down = min(max((there_y + 1) * height / 2 - 0.5, 0.0), height - 1.0)
                left, top = int(right), int(down)
                mapped[number, :, row, column] = sum(
                    image[:, min(top + below, height - 1), min(left + beside, width - 1)]
                    * abs(1 - below - (down - top))
                    * abs(1 - beside - (right - left))
                    for below in (0, 1)
                    for beside in (0, 1)
                )
    return mapped


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 5, 7)])
def test_affine_is_its_plain_twin(shape: tuple[int, ...]) -> None:
    images = torch.rand(12, *shape)
    torch.manual_seed(5)
    expected = plain_affine(images, 0.3, 0.7)
    torch.manual_seed(5)
    mapped = random_affine(images, 0.3, 0.7)
    assert torch.allclose(mapped, expected, atol=1e-5)
    assert not torch.allclose(mapped, images, atol=1e-2)


def test_affine_images_without_probability_or_amount_are_unchanged() -> None:
    images = torch.rand(5, 2, 6, 6)
    assert torch.allclose(random_affine(images, p=0.0), images, atol=1e-6)
    assert torch.allclose(random_affine(images, amount=0.0), images, atol=1e-6)
