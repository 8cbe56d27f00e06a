from __future__ import annotations

from html.parser import HTMLParser

from gossamer.visualization.markup import Column, Html, Table, render, tag

from .conftest import HOSTILE


class Reader(HTMLParser):
    """Collects elements and text as a browser sees them."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def read(html: str) -> Reader:
    reader = Reader()
    reader.feed(html)
    return reader


def test_text_and_attributes_are_escaped() -> None:
    reader = read(tag("p", HOSTILE, title=HOSTILE))
    assert reader.elements == [("p", {"title": HOSTILE})]
    assert reader.text == HOSTILE


def test_html_is_escaped_once() -> None:
    assert render([tag("b", "<"), "<"]) == "<b>&lt;</b>&lt;"
    assert isinstance(render(["<"]), Html)


def test_names_of_attributes() -> None:
    assert tag("th", "x", class_="number", aria_label="y", colspan=2) == (
        '<th class="number" aria-label="y" colspan="2">x</th>'
    )
    assert tag("img", src="data:,", alt="") == '<img src="data:," alt="">'


def test_a_table_has_a_caption_headings_with_scope_and_a_frame_for_the_keyboard() -> None:
    columns = [Column("layer", number=False), Column("dense", "weights"), Column("kept", "weights"), Column("x")]
    html = Table("t", HOSTILE, columns, [[HOSTILE, "1", "2", "3"], ["total", "1", "2", "3"]], "note", total=True).html()
    reader = read(html)
    kinds = [name for name, _ in reader.elements]
    assert kinds[:4] == ["p", "div", "table", "caption"]
    frame, caption = reader.elements[1][1], reader.elements[3][1]
    assert frame["role"] == "region"
    assert frame["tabindex"] == "0"
    assert frame["aria-labelledby"] == caption["id"]
    scopes = [attributes.get("scope") for name, attributes in reader.elements if name == "th"]
    assert scopes == ["colgroup", "col", "col", "col", "col", "row", "row"]
    assert "tfoot" in kinds
    assert reader.text.count(HOSTILE) == 2
