from __future__ import annotations

import json
import math
import subprocess
import sys

import pytest

from gossamer import GossamerError
from gossamer_lab.sweeps import Trial, read_trials, write_trials

TRIALS = [
    Trial("a", 0, {"x": 0.1}, 1 / 3, {"accuracy": 0.97}, 1.5),
    Trial("a", 3, {"x": 1e-17}, math.inf, {}, 0.5, failure="the loss is nan"),
    Trial("b", 1, {"x": 3.0}, -2.0, {}, 0.0),
]


def test_round_trip_in_a_stable_order(tmp_path):
    path = tmp_path / "trials.jsonl"
    write_trials(path, reversed(TRIALS))
    assert read_trials(path) == TRIALS
    before = path.read_bytes()
    write_trials(path, TRIALS)
    assert path.read_bytes() == before
    for line in before.decode().splitlines():
        json.loads(line, parse_constant=pytest.fail)
    assert list(tmp_path.iterdir()) == [path]


def test_reading_needs_no_optuna(tmp_path):
    path = tmp_path / "trials.jsonl"
    write_trials(path, TRIALS)
    code = (
        "import sys; sys.modules['optuna'] = None\n"
        "from pathlib import Path; from gossamer_lab.sweeps import read_trials\n"
        "print(len(read_trials(Path(sys.argv[1]))))"
    )
    assert subprocess.check_output([sys.executable, "-c", code, path], text=True) == "3\n"


def test_a_number_that_is_not_finite_is_refused(tmp_path):
    with pytest.raises(GossamerError, match="must have finite numbers"):
        write_trials(tmp_path / "trials.jsonl", [Trial("a", 0, {"x": 0.1}, 1.0, {"loss": math.nan}, 1.0)])
    assert list(tmp_path.iterdir()) == []


WHOLE = {"study": "a", "number": 0, "parameters": {}, "value": 1.0, "figures": {}, "seconds": 1.0, "failure": None}


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "3",
        "{}",
        "[" * 100_000,
        json.dumps({**WHOLE, "value": math.nan}),
        json.dumps({**WHOLE, "value": None}),
        json.dumps({**WHOLE, "failure": "why"}),
        json.dumps({**WHOLE, "number": 1.5}),
        json.dumps({**WHOLE, "study": None}),
        json.dumps({**WHOLE, "parameters": [1]}),
        json.dumps({**WHOLE, "figures": {"accuracy": "high"}}),
        json.dumps({**WHOLE, "other": 1}),
    ],
)
def test_damaged_lines_are_named(tmp_path, line):
    path = tmp_path / "trials.jsonl"
    path.write_text(json.dumps(WHOLE) + "\n" + line + "\n")
    with pytest.raises(GossamerError, match=r"line 2, is not a trial: .*Restore the file"):
        read_trials(path)


def test_no_file(tmp_path):
    with pytest.raises(GossamerError, match=r"cannot be read.*Give a file that `write_trials` wrote"):
        read_trials(tmp_path / "missing.jsonl")
