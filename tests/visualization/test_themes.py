from __future__ import annotations

import itertools

import pytest

from gossamer.visualization.themes import DARK, GREY, LIGHT, NONZERO, Theme


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(left: str, right: str) -> float:
    """The contrast ratio of the Web Content Accessibility Guidelines."""
    low, high = sorted((luminance(left), luminance(right)))
    return (high + 0.05) / (low + 0.05)


def test_the_measure_of_contrast() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_text_can_be_read(theme: Theme) -> None:
    for colour, ground in itertools.product(
        (theme.text, theme.muted, theme.accent, theme.warning), (theme.background, theme.surface)
    ):
        assert contrast(colour, ground) >= 4.5


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_lines_and_bars_stand_out(theme: Theme) -> None:
    for colour in (*theme.series, GREY, NONZERO):
        assert contrast(colour, theme.surface) >= 3


def test_both_themes_have_the_same_number_of_colours() -> None:
    assert len(LIGHT.series) == len(DARK.series) == len(set(LIGHT.series)) == len(set(DARK.series))
