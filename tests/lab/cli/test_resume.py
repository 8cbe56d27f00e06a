"""Processes that are really killed: what they leave behind must be enough to end with the same bits."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from gossamer_lab.cli.options import RunOptions
from gossamer_lab.cli.train import run_training
from gossamer_lab.training import RunDirectory

Command = Callable[..., subprocess.Popen[str]]
EPOCHS = 30  # the last six of them with the zeros held


@pytest.fixture
def weights(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> bytes:
    """The weights of a run that nobody disturbed."""
    path = tmp_path / "whole"
    options = RunOptions(run_dir=path, compare=False, as_json=True)
    assert run_training("digits", {"epochs": EPOCHS, "seed": 3}, options) == 0
    capsys.readouterr()
    return RunDirectory(path).weights.read_bytes()


def wait_for_epochs(process: subprocess.Popen[str], run: Path, epochs: int) -> None:
    """Look until so many epochs are written down; the process must not end before."""
    metrics = run / "metrics.jsonl"
    while not metrics.exists() or metrics.read_bytes().count(b"\n") < epochs:
        assert process.poll() is None, "the run ended before it could be stopped"
        time.sleep(0.01)  # only to leave the processor to the run


def test_killed_twice_and_resumed_the_weights_are_the_same_bytes(
    command: Command, tmp_path: Path, weights: bytes
) -> None:
    run = tmp_path / "killed"
    options = ("--no-compare", "--epochs", EPOCHS, "--seed", 3)
    process = command("train", "digits", *options, "--run-dir", run)
    for epochs, phase in ((2, "sparsify"), (26, "hold")):
        wait_for_epochs(process, run, epochs)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        assert torch.load(run / "checkpoint.pt", weights_only=True)["progress"]["phase"] == phase
        assert not (run / "weights.safetensors").exists()
        # The options that are left out are the run's own.
        process = command("train", "digits", "--no-compare", "--resume", "--run-dir", run)
    assert process.wait() == 0, process.stderr and process.stderr.read()
    assert (run / "weights.safetensors").read_bytes() == weights
    assert len((run / "metrics.jsonl").read_text().splitlines()) == EPOCHS


@pytest.mark.parametrize("request_to_end", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_says_how_to_go_on(command: Command, tmp_path: Path, request_to_end: signal.Signals) -> None:
    run = tmp_path / "interrupted"
    process = command("train", "digits", "--no-compare", "--epochs", "1000", "--run-dir", run)
    wait_for_epochs(process, run, 1)
    process.send_signal(request_to_end)
    out, err = process.communicate()
    assert process.returncode == 130
    assert out == ""
    assert err.splitlines()[-1].endswith(f"gossamer train digits --resume --run-dir {run} --no-compare")
    assert "Traceback" not in err


@pytest.mark.parametrize("choice", ["--resume", "--overwrite"])
def test_a_run_that_is_under_way_is_left_alone(command: Command, tmp_path: Path, choice: str) -> None:
    run = tmp_path / "busy"
    options = ("train", "digits", "--no-compare", "--epochs", "1000", "--run-dir", run)
    first = command(*options)
    wait_for_epochs(first, run, 1)
    second = command(*options, choice)
    assert second.wait() == 2
    assert second.stderr is not None
    assert second.stderr.read().splitlines()[-1].startswith(f"error: Another run is in progress in {run}.")
    metrics = run / "metrics.jsonl"
    wait_for_epochs(first, run, metrics.read_bytes().count(b"\n") + 1)  # the first goes on
    first.send_signal(signal.SIGKILL)
    first.wait()
    epochs = metrics.read_bytes().count(b"\n")
    wait_for_epochs(command(*options, choice), run, epochs + 1)  # who is dead holds nothing
