from __future__ import annotations

import base64
from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from gossamer.visualization.png import data_uri, levels_png, rgba_png


@pytest.mark.parametrize(("width", "height"), [(1, 1), (2, 3), (7, 5), (16, 1)])
def test_levels_are_the_palette_colours_of_the_pixels(width: int, height: int) -> None:
    palette = [(level, 255 - level, 7, 17 * level) for level in range(16)]
    levels = np.random.default_rng(0).integers(0, 16, (height, width), dtype=np.uint8)
    with Image.open(BytesIO(levels_png(width, height, levels.tobytes(), palette))) as image:
        found = np.asarray(image.convert("RGBA"))
    assert (found == np.array(palette, dtype=np.uint8)[levels]).all()


@pytest.mark.parametrize(("width", "height"), [(1, 1), (3, 2)])
def test_rgba_pixels_come_back(width: int, height: int) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, 4), dtype=np.uint8)
    with Image.open(BytesIO(rgba_png(width, height, pixels.tobytes()))) as image:
        assert image.mode == "RGBA"
        assert (np.asarray(image) == pixels).all()


def test_a_data_uri_holds_the_image() -> None:
    png = rgba_png(1, 1, b"\1\2\3\4")
    kind, _, content = data_uri(png).partition(",")
    assert kind == "data:image/png;base64"
    assert base64.b64decode(content) == png
