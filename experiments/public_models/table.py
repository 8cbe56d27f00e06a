"""Write the table of `README.md` from `results.jsonl`: `python experiments/public_models/table.py`."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

from gossamer.files import write_atomically

HERE = Path(__file__).parent
START, END = "<!-- table -->\n", "<!-- end of table -->\n"
RATIO = "over export and five forwards"
DYNAMIC = "over export with the same dynamic sizes and five forwards"
FINE = ("same", "refused", "not accepted")


def wrong(row: dict[str, Any]) -> list[str]:
    """What differs, by mode and kind of input."""
    modes = {mode: row.get(mode, {}) for mode in ("evaluation", "training")}
    return [
        f"{mode}, {name}: {said}"
        for mode, found in modes.items()
        for name, said in found.items()
        if said not in FINE and not said.startswith("refused")
    ]


def cell(row: dict[str, Any]) -> str:
    failed = row.get("error", row.get("exception"))
    checked = "; ".join(wrong(row)) or "same"
    if failed is not None:
        return f"| {row['package']} | {row['network']} | {row['dead units']} | | | | | | | {failed} |"
    parameters = row["parameters"]
    dynamic = f"{row[DYNAMIC]:.1f}" if DYNAMIC in row else ""
    training = f"{row['left in training'] / parameters:.1%}" if "left in training" in row else "refused"
    return (
        f"| {row['package']} | {row['network']} | {row['dead units']} | {row['parameters']:,} | "
        f"{row['left'] / row['parameters']:.1%} | {row['form']} | "
        f"{training} | {row['seconds']:.1f} "
        f"({row[RATIO]:.1f}) | {dynamic} | {checked} |"
    )


def within_three(ratios: list[float]) -> str:
    """How many are at most three, and the median."""
    return f"{sum(ratio <= 3 for ratio in ratios)}, in the median {statistics.median(ratios):.1f} times as long"


def summary(rows: list[dict[str, Any]]) -> str:
    done = [row for row in rows if "left" in row]
    networks = {(row["package"], row["network"]) for row in rows}
    smaller = sum(row["left"] < row["parameters"] for row in done)
    ratios = {form: [row[RATIO] for row in done if row["form"] == form] for form in ("module", "graph")}
    times = "; ".join(f"of {len(found)} that end as a {form}, {within_three(found)}" for form, found in ratios.items())
    graphs = [row[DYNAMIC] for row in done if DYNAMIC in row]
    dynamic = f"of {len(graphs)}, {within_three(graphs)}"
    whole = [f"{row['network']} ({row['dead units']})" for row in done if row["left"] == row["parameters"]]
    only_evaluation = sum(row["left"] < row["parameters"] == row.get("left in training") for row in done)
    return (
        f"{len(rows)} rows of {len(networks)} networks: {smaller} got smaller, {sum(map(bool, map(wrong, done)))} "
        f"have other outputs, {sum('error' in row for row in rows)} were refused with a message, "
        f"{sum('exception' in row for row in rows)} ended with a raw exception or took too long. At most three times "
        f"as long as `torch.export` and five forward passes took: {times}; over `torch.export` with the same dynamic "
        f"sizes, which is what a graph compares with: {dynamic}. Stayed as they are: {', '.join(whole)}. Got "
        f"smaller in evaluation mode only: {only_evaluation} rows.\n"
    )


def main() -> None:
    rows = [json.loads(line) for line in (HERE / "results.jsonl").read_text().splitlines()]
    header = (
        "| package | network | dead units | parameters | left | form | left in training | seconds (ratio) | "
        "ratio, dynamic | outputs |\n| --- | --- | --- | ---: | ---: | --- | ---: | ---: | ---: | --- |\n"
    )
    table = header + "\n".join(map(cell, rows)) + "\n"
    text = (HERE / "README.md").read_text()
    before, _, rest = text.partition(START)
    _, _, after = rest.partition(END)
    write_atomically(HERE / "README.md", f"{before}{START}{summary(rows)}\n{table}{END}{after}".encode())


if __name__ == "__main__":
    main()
