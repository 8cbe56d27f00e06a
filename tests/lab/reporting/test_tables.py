from __future__ import annotations

from rich.console import Console

from gossamer_lab.reporting.tables import Bold, Table, mean_std, percent, print_tables

TABLE = Table(["name", "value", "unit"], [["a|b", Bold("1.5"), "m"], ["[bold]c", "20", ""]], "Title", "A note.")


def printed(table: Table, width: int = 80, terminal: bool = False) -> str:
    console = Console(width=width, force_terminal=terminal, color_system=None)
    with console.capture() as capture:
        print_tables(console, [table])
    return capture.get()


def test_markdown_has_a_rule_bold_cells_and_escaped_bars() -> None:
    assert TABLE.markdown().splitlines() == [
        "| name | value | unit |",
        "| --- | ---: | ---: |",
        "| a\\|b | **1.5** | m |",
        "| [bold]c | 20 |  |",
        "",
        "A note.",
    ]
    assert TABLE.markdown(titled=True).startswith("### Title\n\n| name |")


def test_alignment_is_given_for_the_leading_columns() -> None:
    table = Table(["a", "b", "c"], [], align="rl")
    assert table.markdown().splitlines()[1] == "| ---: | --- | ---: |"


def test_a_terminal_shows_the_same_without_markup() -> None:
    text = printed(TABLE)
    for part in ("Title", "name", "a|b", "1.5", "[bold]c", "A note."):
        assert part in text


def test_in_a_narrow_terminal_rows_and_columns_are_exchanged() -> None:
    columns = ("", *(f"heading {number}" for number in range(7)))
    rows = [[name, *(f"{name}{number}" for number in range(7))] for name in ("dense", "sparse")]
    text = printed(Table(columns, rows), width=60, terminal=True)
    assert max(map(len, text.splitlines())) <= 60
    assert ["heading 3", "dense3", "sparse3"] in [
        [part.strip() for part in line.split("  ") if part] for line in text.splitlines()
    ]


def test_a_table_that_is_wide_and_long_becomes_a_list() -> None:
    columns = ("", *(f"heading {number}" for number in range(7)))
    rows = [[f"row {row}", *(f"cell {row} {number}" for number in range(7))] for row in range(9)]
    lines = printed(Table(columns, rows), width=60, terminal=True).splitlines()
    assert max(map(len, lines)) <= 60
    assert lines[:3] == ["row 0", "  heading 0: cell 0 0", "  heading 1: cell 0 1"]
    assert len(lines) == 9 * 8


def test_a_wide_table_is_never_cut() -> None:
    cells = [f"cell-{number}-{'x' * 20}" for number in range(8)]
    text = printed(Table([f"column {number}" for number in range(8)], [cells]), width=40)
    assert "…" not in text
    assert all(cell in text for cell in cells)
    assert any(all(cell in line for cell in cells) for line in text.splitlines())


def test_numbers() -> None:
    assert mean_std([1.0]) == "1.00"
    assert mean_std([1.0, 3.0], 1) == "2.0 ± 1.4"
    assert percent(0.12345) == "12.35"
    assert percent(0.5, 0) == "50"
