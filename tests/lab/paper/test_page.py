"""The page about the paper says what the result files and the networks say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gossamer.measurement import measure
from gossamer_lab.networks import build, example_input
from gossamer_lab.reporting.page import filled

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "paper.md").read_text(encoding="utf-8")


def test_its_tables_are_those_of_the_experiments() -> None:
    assert filled(PAGE, lambda name: (ROOT / "experiments" / name).read_text(encoding="utf-8")) == PAGE


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist", "sdd", "pendigits", "cifar-10", "digits"])
def test_its_networks_are_ours(name: str) -> None:
    total = measure(build(name), example_input(name)).total
    assert re.search(rf"^\| {name} \|.*\| {total.weights:,} \| {total.macs:,} \|$", PAGE, re.MULTILINE | re.IGNORECASE)


@pytest.mark.parametrize("page", [ROOT / "docs" / "paper.md", *sorted(ROOT.glob("experiments/**/README.md"))], ids=str)
def test_what_it_links_to_is_there(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#:]*)(?:#([^)]+))?\)", page.read_text(encoding="utf-8")):
        file = page.parent / target if target else page
        assert file.exists(), target
        assert not anchor or anchor in anchors_of(file), f"{target}#{anchor}"


def anchors_of(page: Path) -> list[str]:
    """The anchors of its headings: small letters, no punctuation, hyphens for spaces."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings]
