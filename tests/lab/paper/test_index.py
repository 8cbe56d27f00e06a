"""The index of the experiments names all of them, and its figures are those of their tables."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gossamer_lab.paper import EXPERIMENTS

FOLDER = Path(__file__).parents[3] / "experiments"
ROWS = {
    match[1]: match[0]
    for match in re.finditer(
        r"^\| \[([\w-]+)\]\(\1/README\.md\) \|.*\|$", (FOLDER / "README.md").read_text(), re.MULTILINE
    )
}


def test_every_experiment_is_listed_with_its_command() -> None:
    assert set(ROWS) == {path.parent.name for path in FOLDER.glob("*/README.md")}
    assert all(f"| `gossamer paper {name}` |" in ROWS[name] for name in EXPERIMENTS)


@pytest.mark.parametrize("name", [path.parent.name for path in sorted(FOLDER.glob("*/table.md"))])
def test_its_figures_are_those_of_the_table(name: str) -> None:
    answer = ROWS[name].split(" | ")[2]
    table = (FOLDER / name / "table.md").read_text()
    figures = re.findall(r"\d+\.\d+|\d{3,}", answer)
    assert figures
    assert [figure for figure in figures if not re.search(rf"(?<![\d.]){re.escape(figure)}(?![\d])", table)] == []
