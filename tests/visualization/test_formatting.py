from __future__ import annotations

import pytest

from gossamer.visualization.formatting import count, file_size, measured_seconds, percent, shorten, times


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (count(67104), "67,104"),
        (count(None), "–"),
        (percent(0.0533), "5.33%"),
        (percent(1.0), "100.00%"),
        (percent(0.0), "0.00%"),
        (percent(1.23e-6), "0.00012%"),
        (percent(None), "–"),
        (percent(float("nan")), "–"),
        (file_size(999), "999 bytes"),
        (file_size(271744), "271.7 kB"),
        (file_size(4888537), "4.9 MB"),
        (file_size(3 * 10**9), "3.0 GB"),
        (file_size(None), "–"),
        (measured_seconds(1.84e-4), "184 µs"),
        (measured_seconds(1.386e-3), "1.39 ms"),
        (measured_seconds(2.0), "2.00 s"),
        (measured_seconds(None), "–"),
        (times(13.61), "13.6×"),
        (times(100.2), "100×"),
        (shorten("hidden", 10), "hidden"),
        (shorten("encoder.layers.2.self_attn.out_proj", 26), "…2.self_attn.out_proj"),
        (shorten("a" * 40, 5), "…aaaaa"),
    ],
)
def test_numbers_and_names_read_well(text: str, wanted: str) -> None:
    assert text == wanted
