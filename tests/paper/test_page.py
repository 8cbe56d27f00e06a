"""The page about the paper says what the result files and the networks say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gossamer.measurement import measure
from gossamer.networks import build, example_of
from gossamer.paper import filled

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "paper.md").read_text(encoding="utf-8")


def test_its_tables_are_those_of_the_experiments() -> None:
    assert filled(PAGE, ROOT / "experiments") == PAGE
    assert "(not made yet)" not in PAGE


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist", "sdd", "pendigits", "cifar-10", "digits"])
def test_its_networks_are_ours(name: str) -> None:
    total = measure(build(name), example_of(name)).total
    assert re.search(rf"^\| {name} \|.*\| {total.weights:,} \| {total.macs:,} \|$", PAGE, re.MULTILINE | re.IGNORECASE)


def test_what_it_links_to_is_there() -> None:
    for target in re.findall(r"\]\((\.\./[^)#]+)\)", PAGE):
        assert (ROOT / "docs" / target).exists(), target
