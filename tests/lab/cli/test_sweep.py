import json
import signal
import time
from pathlib import Path

import pytest

from gossamer.errors import GossamerError
from gossamer_lab.cli.sweep import SweepOptions, run_sweep
from gossamer_lab.training import RunDirectory


def options(**given):
    default = {
        "dataset": "digits",
        "vary": ("strength=1e-3,1e-2",),
        "trials": None,
        "regularizer": "integrated-tl1",
        "epochs": 1,
        "workers": 1,
        "storage": "sweep.db",
        "name": None,
        "output": Path("sweeps"),
        "seed": 0,
        "data_dir": None,
        "quiet": False,
        "as_json": True,
    }
    return SweepOptions(**{**default, **given})


def test_a_grid_is_trained_and_the_next_call_trains_nothing(command, tmp_path):
    words = ("sweep", "digits", "--vary", "strength=1e-3,1e-2", "--epochs", 1, "--workers", 2, "--json")
    seen = []
    for _ in range(2):
        process = command(*words)
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
        seen.append(json.loads(out))
    assert seen[0] == seen[1]
    assert seen[0]["finished"] == 2
    assert {row["point"]["strength"] for row in seen[0]["front"]} <= {1e-3, 1e-2}
    assert (tmp_path / seen[0]["figure"]).stat().st_size > 1000
    page = (tmp_path / "sweeps" / "digits-integrated-tl1" / "report.html").read_text(encoding="utf-8")
    assert "<h1>digits: sweep of integrated-tl1</h1>" in page
    assert "--vary strength=1e-3,1e-2" in page
    assert page.count('<th scope="row">trial') == 2
    runs = sorted((tmp_path / "sweeps" / "digits-integrated-tl1").glob("*/result.json"))
    assert len(runs) == 2
    assert not [file for run in runs for file in run.parent.glob("checkpoint*")]
    process = command(*words, "--epochs", 2)
    _, err = process.communicate(timeout=120)
    assert process.returncode != 0
    assert "epochs was 1, and is 2 now" in err


def test_two_machines_work_on_one_study_of_a_server(command, tmp_path, postgresql):
    words = ("sweep", "digits", "--vary", "strength=1e-3:1e-2", "--trials", 4, "--epochs", 1, "--storage", postgresql)
    processes = [command(*words, "--json", "--output", f"machine-{number}") for number in range(2)]
    for process in processes:
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
        assert json.loads(out)["finished"] == 4
    runs = [RunDirectory(file.parent) for file in tmp_path.glob("machine-*/*/*/result.json")]
    assert len({run.read_config().strength for run in runs}) == len(runs) == 4


def test_ctrl_c_and_the_same_command_again(command, tmp_path):
    words = ("sweep", "digits", "--vary", "strength=1e-3:1e-2", "--trials", 3, "--epochs", 30, "--workers", 2)
    process = command(*words)
    while not list(tmp_path.glob("sweeps/*/*/metrics.jsonl")):
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted; the same command goes on" in err
    process = command(*words, "--json")
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    seen = json.loads(out)
    assert seen["finished"] + seen["pruned"] == 3
    assert "3 of 3, " in err


def test_workers_end_with_a_command_that_is_killed(command, tmp_path):
    process = command("sweep", "digits", "--vary", "strength=1e-3", "--epochs", 100_000, "--quiet")
    while not (started := list(tmp_path.glob("sweeps/digits-integrated-tl1/00000-*/metrics.jsonl"))):
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    run = RunDirectory(started[0].parent)
    with pytest.raises(GossamerError, match="in progress"), run.lock():
        pass
    process.kill()
    deadline = time.monotonic() + 30
    while True:  # until the worker is gone, whose lock this is
        try:
            with run.lock():
                return
        except GossamerError:
            assert time.monotonic() < deadline
            time.sleep(0.05)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"dataset": "imagenet"}, "Unknown data set"),
        ({"vary": ("strength",)}, "NAME=VALUES"),
        ({"vary": ("epochs=1,2",)}, "NAME is one of"),
        ({"vary": ("strength=1e-3,1e-3",)}, "distinct numbers"),
        ({"vary": ("strength=a,b",)}, "distinct numbers"),
        ({"vary": ("strength=1e-3", "s=0.1,0.9")}, "`s` must be a number from 0 to 1/2; received 0.9"),
        ({"vary": ("strength=1e-3,1e-2",), "trials": 4}, "LOW:HIGH"),
        ({"vary": ("strength=1e-2:1e-3",), "trials": 4}, "LOW:HIGH"),
        ({"storage": "x?.db"}, "must not contain a question mark"),
        ({"storage": "mysterious://host/x"}, "SQLite files and on PostgreSQL servers"),
        ({"vary": ("strength=1e-3", "strength=1e-2")}, "`--vary strength=...` is given twice"),
        ({"vary": ("strength=1e-3:1e-2",), "trials": 10**9}, "1,000,000,000 trainings, and a study has 10,000"),
        ({"vary": tuple(f"{name}={','.join(f'0.{n:03}' for n in range(1, 500))}" for name in "as")}, "249,001"),
        ({"name": ".."}, r"`--name` must be the name of a folder.*received '\.\.'"),
        ({"name": "a/../../b"}, "`--name` must be the name of a folder"),
        ({"name": ""}, "`--name` must be the name of a folder"),
        ({"name": "a\nb"}, "`--name` must be the name of a folder"),
    ],
)
def test_bad_options_are_refused(given, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(GossamerError, match=words):
        run_sweep(options(**given))
    assert not list(tmp_path.iterdir())
