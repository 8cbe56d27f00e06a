from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise

import pytest

from gossamer.errors import GossamerError
from gossamer.visualization import Command, Network, Page, Run, page_html
from gossamer.visualization.page import check_can_write

from .conftest import HOSTILE

VOID = {"meta", "link", "img"}


class Document(HTMLParser):
    """A page as a browser reads it: elements in order, text without scripts; unbalanced elements fail."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.text: list[str] = []
        self.open: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"{tag} has an attribute twice"
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("script", "style"):
            self.text.append(data)

    def all(self, *names: str) -> list[dict[str, str]]:
        return [attributes for tag, attributes in self.elements if tag in names]


@pytest.fixture
def html(page: Page, without_bundle: None) -> str:
    return page_html(page)


@pytest.fixture
def document(html: str) -> Document:
    return Document(html)


def test_it_has_landmarks_and_headings_in_order(document: Document) -> None:
    tags = Counter(tag for tag, _ in document.elements)
    assert [tags[name] for name in ("header", "nav", "main", "footer", "h1")] == [1] * 5
    levels = [int(tag[1]) for tag, _ in document.elements if re.fullmatch(r"h[1-6]", tag)]
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert dict(document.elements)["html"] == {"lang": "en"}


def test_every_section_has_a_link_and_a_heading(document: Document) -> None:
    sections = [attributes["id"] for attributes in document.all("section")]
    assert sections == [
        "summary", "training", "trade-off", "forms", "layers", "weights", "patterns", "filters", "plan",
        "configuration",
    ]  # fmt: skip
    links = [attributes["href"] for attributes in document.all("a")]
    assert links == ["#main", *(f"#{name}" for name in sections)]


def test_references_lead_somewhere(document: Document) -> None:
    ids = Counter(attributes["id"] for _, attributes in document.elements if "id" in attributes)
    assert set(ids.values()) == {1}
    for _, attributes in document.elements:
        for name in ("aria-labelledby", "aria-describedby", "for", "data-chart"):
            if name in attributes:
                assert attributes[name] in ids


def test_everything_has_a_name_that_can_be_read_aloud(document: Document) -> None:
    for attributes in document.all("img"):
        assert "alt" in attributes
    patterns = [attributes for attributes in document.all("img") if attributes["class"] == "pattern"]
    assert len(patterns) == 3
    assert all(attributes["alt"].startswith("Sparsity pattern of ") for attributes in patterns)
    for tag, attributes in document.elements:
        if attributes.get("role") in ("img", "region") or tag in ("section", "figure", "nav"):
            named = {"aria-label", "aria-labelledby"} & set(attributes)
            assert named or attributes.get("class") == "card", (tag, attributes)
    assert all(attributes.get("scope") for attributes in document.all("th"))
    assert len(document.all("caption")) == len(document.all("table"))
    assert len(document.all("label")) == len(document.all("select")) == 1


def test_nothing_comes_from_elsewhere(html: str, document: Document) -> None:
    for _, attributes in document.elements:
        for name in ("src", "href"):
            assert attributes.get(name, "#").startswith(("#", "data:"))
    assert "//" not in re.sub(r"data:[^\"]*|<!--.*?-->|^\s*// .*$", "", html, flags=re.MULTILINE)
    assert not re.findall(r"@import|url\(", html)
    policy = next(one["content"] for one in document.all("meta") if one.get("http-equiv"))
    assert policy.startswith("default-src 'none'; ")
    assert "http" not in policy


def test_the_table_of_layers_has_the_counts_of_measure(document: Document, network: Network) -> None:
    text = [piece.strip() for piece in document.text if piece.strip()]
    for layer, shrunk in zip(network.layers, network.shrunk.layers if network.shrunk else (), strict=True):
        counted = layer.trained
        row = [f"{counted.weights:,}", f"{counted.nonzeros:,}", f"{counted.nonzeros / counted.weights:.2%}"]
        row += [f"{shrunk.weights:,}", f"{counted.units}", f"{counted.units_alive}", f"{shrunk.units}"]
        row += [f"{counted.macs:,}", f"{counted.macs_nonzero:,}", f"{shrunk.macs:,}"]
        assert any(text[at : at + len(row)] == row for at in range(len(text))), row


def test_hostile_names_are_only_text(page: Page, without_bundle: None) -> None:
    network = page.network
    assert network is not None
    assert network.removal is not None
    assert network.filters is not None
    rows = tuple(replace(row, where=(HOSTILE,) * 7, reasons=((HOSTILE, 1),)) for row in network.removal.rows)
    hostile = Page(
        title=HOSTILE,
        network=replace(
            network,
            name=HOSTILE,
            layers=tuple(replace(layer, name=f"{HOSTILE}{n}") for n, layer in enumerate(network.layers)),
            filters=replace(network.filters, layer=HOSTILE),
            removal=replace(network.removal, rows=rows, notes=(HOSTILE,)),
            problem=HOSTILE,
            variants=tuple(replace(one, name=HOSTILE, seconds={HOSTILE: 1.0}) for one in network.variants),
        ),
        runs=tuple(replace(run, label=HOSTILE) for run in page.runs),
        score=HOSTILE,
        configuration=((HOSTILE, HOSTILE),),
        commands=(Command(HOSTILE, HOSTILE),),
    )
    plain, attacked = Document(page_html(page)), Document(page_html(hostile))
    assert len(attacked.all("script")) == 3
    assert len(attacked.all("img")) == len(plain.all("img"))
    assert {tag for tag, _ in attacked.elements} - {tag for tag, _ in plain.elements} == {"strong"}  # of the warning
    names = {name for _, attributes in attacked.elements for name in attributes}
    assert names == {name for _, attributes in plain.elements for name in attributes}
    assert HOSTILE in "".join(attacked.text)


def test_the_same_data_gives_the_same_page(page: Page, without_bundle: None) -> None:
    assert page_html(page) == page_html(page)


def test_a_page_without_a_network_or_without_runs(page: Page, without_bundle: None) -> None:
    points = Document(page_html(Page("study", runs=(Run("a", 0.9, 0.1), Run("b", 0.95, 0.2)))))
    assert [one["id"] for one in points.all("section")] == ["summary", "trade-off"]
    alone = Document(page_html(Page("model", network=page.network)))
    assert {one["id"] for one in alone.all("section")}.isdisjoint({"training", "trade-off", "configuration"})
    Document(page_html(Page("nothing")))


def test_a_network_that_cannot_shrink_says_why(page: Page, without_bundle: None) -> None:
    network = page.network
    assert network is not None
    stuck = replace(network, shrunk=None, removal=None, problem="it branches", variants=network.variants[:1])
    document = Document(page_html(Page("t", network=stuck)))
    assert "plan" not in [one["id"] for one in document.all("section")]
    assert any("it branches" in piece for piece in document.text)


def test_many_layers_open_on_demand(page: Page, without_bundle: None) -> None:
    network = page.network
    assert network is not None
    assert network.shrunk is not None
    many = replace(network, layers=network.layers * 9, shrunk=replace(network.shrunk, layers=network.shrunk.layers * 9))
    document = Document(page_html(Page("t", network=many)))
    assert len([one for one in document.all("img") if one["class"] == "pattern"]) == 27
    assert "15 more layers" in document.text


def test_plotly_is_inside_and_the_page_stays_below_six_megabytes(page: Page) -> None:
    offline = pytest.importorskip("plotly.offline")
    html = page_html(page)
    assert offline.get_plotlyjs() in html
    assert "</script" not in offline.get_plotlyjs()
    assert len(html) < 6_000_000


def test_without_plotly_one_error_names_the_extra(monkeypatch: pytest.MonkeyPatch, page: Page) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(GossamerError, match=r"needs plotly, which is not installed\. Run: pip install 'gossamer\[rep"):
        page_html(page)


def test_a_folder_that_is_not_there_is_said_before_any_work(without_bundle: None) -> None:
    with pytest.raises(GossamerError, match="there is no folder '/nowhere/at/all'"):
        check_can_write("/nowhere/at/all/report.html")
