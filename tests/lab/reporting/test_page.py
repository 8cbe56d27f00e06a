from __future__ import annotations

from pathlib import Path

import pytest

from gossamer.errors import GossamerError
from gossamer_lab.reporting.page import fill_page, filled

PAGE = "Before.\n\n<!-- begin a-b -->\nold\n<!-- end a-b -->\n\n<!-- begin x/y.md -->\n<!-- end x/y.md -->\nAfter.\n"


def test_sections_are_replaced_and_the_rest_stays() -> None:
    once = filled(PAGE, lambda name: f"text of {name}\n")
    assert once == (
        "Before.\n\n<!-- begin a-b -->\n\ntext of a-b\n\n<!-- end a-b -->\n\n"
        "<!-- begin x/y.md -->\n\ntext of x/y.md\n\n<!-- end x/y.md -->\nAfter.\n"
    )
    assert filled(once, lambda name: f"text of {name}\n") == once


def test_a_section_may_hold_anything() -> None:
    assert "\\1 \\g<2>" in filled(PAGE, lambda name: "\\1 \\g<2>")


def test_a_file_is_rewritten_and_must_exist(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text(PAGE)
    fill_page(path, lambda name: "λ")
    assert path.read_text(encoding="utf-8").count("λ") == 2
    with pytest.raises(GossamerError, match="must be an existing page"):
        fill_page(tmp_path / "absent.md", str)
