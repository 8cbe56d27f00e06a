from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

Command = Callable[..., subprocess.Popen[str]]

# The command, with a checkpoint after every epoch however short it is.
_COMMAND = """
import gossamer_lab.training.loop
from gossamer_lab.cli import main

gossamer_lab.training.loop._CHECKPOINT_SECONDS = 0.0
main()
"""


@pytest.fixture
def without_bundle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make pages without Plotly's script in them, whether it is installed or not."""
    for name in ("gossamer.visualization.page", "gossamer.visualization", "gossamer_lab.cli.report"):
        monkeypatch.setattr(f"{name}.check_plotly", lambda: None)
    monkeypatch.setattr("gossamer.visualization.page.plotly_script", lambda: "/* Plotly */")


@pytest.fixture
def command(tmp_path: Path) -> Iterator[Command]:
    """Start ``gossamer`` as a process of its own, in a folder of its own."""
    started: list[subprocess.Popen[str]] = []

    def start(*words: str | int | Path) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", _COMMAND, *map(str, words)],
            cwd=tmp_path,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # A shell starts its background jobs deaf to Ctrl-C, and what they start inherits that.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()
