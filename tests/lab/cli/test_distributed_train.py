"""`gossamer train --distributed`: two processes of torchrun train like one, go on after a kill, and fail together."""

import fcntl
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack

import pytest

from gossamer.errors import GossamerError
from gossamer_lab.training import TrainingConfig, open_run
from gossamer_lab.training.processes import process_group

TORCHRUN = ["-m", "torch.distributed.run", "--standalone"]
DISTRIBUTED = ["-m", "gossamer_lab", "train", "digits", "--distributed"]
LAUNCH = [*TORCHRUN, "--nproc-per-node=2", *DISTRIBUTED]
SETTINGS = ["--no-compare", "--compact", "--json"]


def start(folder, *words, **variables):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
    return subprocess.Popen(
        [sys.executable, *words], cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def finished(process):
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    return json.loads(out.splitlines()[-1])


def interrupted(process, run):
    """End a training after its first epoch; return the command that it names, which is named once."""
    metrics = run / "metrics.jsonl"
    while not metrics.exists() or not metrics.read_text():
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)  # torchrun passes it on
    _, err = process.communicate(timeout=60)
    (line,) = [line for line in err.splitlines() if "resume with: " in line]
    return shlex.split(line.partition("resume with: ")[2])


def test_two_processes_train_like_one_and_go_on_after_a_kill(tmp_path):
    train = ["--epochs", "6", "--strength", "1e-3", *SETTINGS]
    one = start(tmp_path, "-m", "gossamer_lab", "train", "digits", *train, "--run-dir", "one")
    two = start(tmp_path, *LAUNCH, *train, "--run-dir", "two runs/two", "--data-dir", "data")
    resume = interrupted(two, tmp_path / "two runs" / "two")
    assert resume[0] == "torchrun"
    assert resume[resume.index("--data-dir") :][:2] == ["--data-dir", "data"]
    expected = finished(one)
    received = finished(start(tmp_path, *TORCHRUN, *resume[1:], "--json"))
    assert 0.05 < expected["params_kept"] < 0.95
    # Sums over two halves of a batch round differently.
    assert received["params_kept"] == pytest.approx(expected["params_kept"], rel=0.05)
    assert received["accuracy"] == pytest.approx(expected["accuracy"], abs=0.03)
    epochs = [json.loads(line)["epoch"] for line in (tmp_path / "two runs/two/metrics.jsonl").read_text().splitlines()]
    assert epochs == [1, 2, 3, 4, 5, 6]


def test_two_processes_lead_to_a_target_and_one_goes_on(tmp_path):
    target = ["--target-params", "20%", "--epochs", "6", *SETTINGS]
    interrupted(start(tmp_path, *LAUNCH, *target, "--run-dir", "two"), tmp_path / "two")
    alone = ["-m", "gossamer_lab", "train", "digits", *SETTINGS, "--resume", "--run-dir", "two"]
    received = finished(start(tmp_path, *alone))
    assert received["params_kept"] == pytest.approx(0.2, abs=1e-3)
    assert received["accuracy"] > 0.5


ONE_BY_ONE = """
import json, os, sys
from gossamer_lab.cli.app import main

for folder, port, *words in json.loads(sys.argv[1]):
    os.chdir(folder)
    os.environ["MASTER_PORT"] = port
    sys.argv = ["gossamer", "train", "digits", "--distributed", *words]
    try:
        main()
    except SystemExit as end:
        print("exit code", end.code, file=sys.stderr)
"""


def printed_by_two(cases):
    """What two processes print that take one case after the other, each in its folder."""
    with ExitStack() as stack:
        free = [stack.enter_context(socket.socket()) for _ in cases]
        for each in free:
            each.bind(("127.0.0.1", 0))
        ports = [str(each.getsockname()[1]) for each in free]
    address = {"MASTER_ADDR": "127.0.0.1", "WORLD_SIZE": "2"}
    processes = []
    for rank in (0, 1):
        own = [(str(folders[rank]), port, *words) for port, (folders, *words) in zip(ports, cases, strict=True)]
        processes.append(start(None, "-c", ONE_BY_ONE, json.dumps(own), RANK=str(rank), **address))
    try:
        return [process.communicate(timeout=120)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()


def test_all_processes_end_with_the_error_of_any(tmp_path):
    foreign, busy, one, other = folders = [tmp_path / name for name in ("foreign", "busy", "one", "other")]
    for folder in folders:
        folder.mkdir()
    (foreign / "weights.safetensors").write_bytes(b"of others")
    open_run(busy, TrainingConfig("digits", "none", epochs=1))
    descriptor = os.open(busy, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        first, second = printed_by_two(
            [
                ([foreign, foreign], "--run-dir", str(foreign)),
                ([busy, busy], "--no-compare", "--resume", "--run-dir", str(busy)),
                ([one, other], "--no-compare", "--run-dir", "run"),  # machines without a file system that they share
            ]
        )
    finally:
        os.close(descriptor)
    assert first == second
    expected = [f"error: {foreign} is not a run directory", f"error: Another run is in progress in {busy}"]
    expected.append("error: run holds no run on")
    lines = first.splitlines()
    assert lines[1::2] == ["exit code 2"] * 3
    for line, start_of_line in zip(lines[::2], expected, strict=True):
        assert line.startswith(start_of_line)


def test_without_torchrun_it_is_refused(monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(GossamerError, match="torchrun"), process_group(True):
        pass
