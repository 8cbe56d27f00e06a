"""The table of results.jsonl and latency.json.

python experiments/architectures/table.py        # writes table.md
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

from gossamer.files import write_atomically
from gossamer_lab.reporting.tables import Table, mean_std, percent

__all__ = ["show"]

FOLDER = Path(__file__).parent
METHODS = ("dense", "unit", "integrated", "Torch-Pruning", "from scratch")
COLUMNS = ("architecture", "method", "seeds", "epochs", "score (%)", "weights (%)", "MACs (%)", "non-zero (%)")


def rows() -> list[list[str]]:
    """One row for each architecture and method: the mean over the seeds."""
    lines = (FOLDER / "results.jsonl").read_text().splitlines()
    found: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for value in map(json.loads, lines):
        found[value["job"]["architecture"], value["job"]["method"]].append(value["outcome"])
    latency = FOLDER / "latency.json"
    times = json.loads(latency.read_text()) if latency.exists() else {}
    names = list(dict.fromkeys(name for name, _ in found))
    ordered = sorted(found, key=lambda key: (names.index(key[0]), [key[1].startswith(m) for m in METHODS].index(True)))
    return [_row(*key, found[key], times.get(key[0], {}).get(key[1], {})) for key in ordered]


def _row(name: str, method: str, outcomes: list[dict[str, Any]], times: dict[str, float]) -> list[str]:
    def mean(figure: str) -> str:
        return percent(sum(each[figure] for each in outcomes) / len(outcomes), 1)

    epochs = sorted({each["epochs"] for each in outcomes})
    return [
        *(name, method, str(len(outcomes)), " to ".join(map(str, dict.fromkeys((epochs[0], epochs[-1]))))),
        mean_std([100 * each["score"] for each in outcomes]),
        *(mean(figure) for figure in ("weights", "macs", "nonzero")),
        *(f"{times[batch]:.2f}" if batch in times else "" for batch in ("1", "64")),
    ]


def show() -> None:
    """Write table.md, and print it."""
    text = Table((*COLUMNS, "latency, batch 1", "batch 64"), rows(), align="ll").markdown()
    write_atomically(FOLDER / "table.md", text.encode())
    print(text)


if __name__ == "__main__":
    show()
