"""`gossamer train --distributed`: two processes of torchrun train like one, and go on after a kill."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from gossamer.errors import GossamerError
from gossamer_lab.training.processes import process_group

TRAIN = ["train", "digits", "--epochs", "6", "--strength", "1e-3", "--no-compare", "--compact", "--json"]
LAUNCH = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "gossamer_lab"]


def start(folder, *words):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, *words], cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def finished(process):
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    return json.loads(out.splitlines()[-1])


def test_two_processes_train_like_one_and_go_on_after_a_kill(tmp_path):
    one = start(tmp_path, "-m", "gossamer_lab", *TRAIN, "--run-dir", "one")
    two = start(tmp_path, *LAUNCH, *TRAIN, "--distributed", "--run-dir", "two")
    metrics = tmp_path / "two" / "metrics.jsonl"
    while not metrics.exists() or not metrics.read_text():
        assert two.poll() is None, two.communicate()
        time.sleep(0.05)
    two.send_signal(signal.SIGTERM)  # torchrun passes it on
    two.communicate(timeout=60)
    expected = finished(one)
    received = finished(start(tmp_path, *LAUNCH, *TRAIN, "--distributed", "--run-dir", "two", "--resume"))
    assert 0.05 < expected["params_kept"] < 0.95
    # Sums over two halves of a batch round differently.
    assert received["params_kept"] == pytest.approx(expected["params_kept"], rel=0.05)
    assert received["accuracy"] == pytest.approx(expected["accuracy"], abs=0.03)
    epochs = [json.loads(line)["epoch"] for line in metrics.read_text().splitlines()]
    assert epochs == [1, 2, 3, 4, 5, 6]


def test_without_torchrun_it_is_refused(monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(GossamerError, match="torchrun"), process_group(True):
        pass
