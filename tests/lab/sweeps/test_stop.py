"""Sweeps that are really stopped: nothing goes on behind their back, and the next call finishes them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from gossamer_lab.sweeps import finished_trials, run_studies

HERE = Path(__file__).parent
STORAGE = "sweep.db"


class Sweep:
    """A sweep in a group of processes of its own, whose workers report by a pipe that is open while they live."""

    def __init__(self, folder: Path, at: float, workers: int) -> None:
        os.mkfifo(folder / "alive")
        self._pipe = os.open(folder / "alive", os.O_RDONLY | os.O_NONBLOCK)
        self.process = subprocess.Popen(
            [sys.executable, HERE / "sweep_process.py", folder, str(at), str(workers)],
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            # A shell starts its background jobs deaf to Ctrl-C, and what they start inherits that.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )

    def wait_for_blocked(self, workers: int) -> list[int]:
        """Look until so many workers are in the middle of a trial; give their process ids."""
        said = b""
        while said.count(b"\n") < workers:
            assert self.process.poll() is None, self.process.communicate()
            said += self._read() or b""
        return [int(line) for line in said.splitlines()]

    def wait_for_workers_gone(self) -> None:
        """Look until no worker has the pipe open."""
        while self._read() != b"":
            pass

    def _read(self) -> bytes | None:
        time.sleep(0.01)  # only to leave the processor to the sweep
        try:
            return os.read(self._pipe, 1000)
        except BlockingIOError:
            return None

    def close(self) -> None:
        os.close(self._pipe)
        with suppress(ProcessLookupError):  # as it should be
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.process.stderr.close()


@pytest.fixture
def start(tmp_path):
    started = []

    def start(at, workers):
        started.append(Sweep(tmp_path, at, workers))
        return started[-1]

    yield start
    for sweep in started:
        sweep.close()


def calls(folder):
    return Counter(map(float, (folder / "calls").read_text().split()))


def resume(folder):
    from sweep_objectives import Blocking
    from sweep_process import study

    (folder / "go").touch()
    return run_studies([(study(), Blocking(folder, at=0))], folder / STORAGE, workers=1)


def check_resumed(folder, blocked):
    """Everything is finished once; only what was being tried was tried again."""
    before = finished_trials(folder / STORAGE, "blocking")
    assert len(before) <= 6 - blocked
    trials = resume(folder)
    assert trials[: len(before)] == before
    assert sorted(trial.parameters["x"] for trial in trials) == list(range(6))
    again = {x for x, times in calls(folder).items() if times == 2}
    assert set(calls(folder).values()) <= {1, 2}
    assert len(again) == blocked
    assert not again & {trial.parameters["x"] for trial in before}


@pytest.mark.parametrize(
    ("number", "whole_group"),
    [
        (signal.SIGKILL, False),
        (signal.SIGKILL, True),
        (signal.SIGTERM, False),
        (signal.SIGINT, True),  # what a terminal does at Ctrl-C
    ],
)
def test_stopped_and_resumed(start, tmp_path, number, whole_group):
    sweep = start(at=3, workers=2)
    sweep.wait_for_blocked(2)
    (os.killpg if whole_group else os.kill)(sweep.process.pid, number)
    sweep.wait_for_workers_gone()
    _, err = sweep.process.communicate()
    assert sweep.process.returncode == (130 if number == signal.SIGINT else -number)
    assert "Traceback" not in err
    check_resumed(tmp_path, blocked=2)


def test_a_killed_worker_ends_the_sweep_and_its_point_is_tried_again(start, tmp_path):
    sweep = start(at=3, workers=2)
    one, _ = sweep.wait_for_blocked(2)
    os.kill(one, signal.SIGKILL)
    sweep.wait_for_workers_gone()
    _, err = sweep.process.communicate()
    assert sweep.process.returncode == 1
    assert "A worker process exited unexpectedly with code -9" in err
    check_resumed(tmp_path, blocked=2)
