"""How much of the code a command runs through, and what it imports."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

# Runs the command and prints the files of ours that it enters, imports excluded.
_ENTERED = """
import os
import sys

from gossamer_lab.__main__ import main

source, words = sys.argv[1], sys.argv[2:]
entered, importing = set(), 0


def profile(frame, event, argument):
    global importing
    code = frame.f_code
    if code.co_name == "<module>":
        importing += {"call": 1, "return": -1}.get(event, 0)
    elif event == "call" and not importing and code.co_filename.startswith(source):
        entered.add(os.path.relpath(code.co_filename, source))


sys.argv = ["gossamer", *words]
sys.setprofile(profile)
try:
    main()
finally:
    sys.setprofile(None)
    print("\\n".join(sorted(entered)), file=sys.stderr)
"""

_MODULES = """
import sys

from gossamer_lab.__main__ import main

sys.argv = ["gossamer", *sys.argv[1:]]
try:
    main()
finally:
    print("torch" in sys.modules, "matplotlib" in sys.modules, "sklearn" in sys.modules, file=sys.stderr)
"""


def run(code: str, *words: str | Path) -> tuple[str, str]:
    process = subprocess.run(
        [sys.executable, "-c", code, *map(str, words)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )
    return process.stdout, process.stderr


def test_showing_the_table_enters_at_most_ten_files() -> None:
    out, err = run(_ENTERED, ROOT / "src", "paper", "table", "--results", ROOT / "experiments")
    entered = err.splitlines()
    assert "CIFAR-10" in out
    assert "gossamer_lab/paper/table.py" in entered
    assert not [file for file in entered if file.startswith("gossamer/")]
    assert len(entered) <= 10, entered


@pytest.mark.parametrize("words", [["--help"], ["train", "--help"], ["paper", "--help"], ["bench", "--help"]])
def test_help_imports_no_torch(words: list[str]) -> None:
    out, err = run(_MODULES, *words)
    assert "Usage: gossamer" in out
    assert err.split() == ["False", "False", "False"]
