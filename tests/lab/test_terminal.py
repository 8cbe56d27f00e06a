"""The command on terminals without Unicode, and interrupted before it has begun."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ASCII = {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0"}


def gossamer(*words: object, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gossamer_lab", *map(str, words)],
        cwd=folder, env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_a_whole_run_in_ascii(tmp_path: Path) -> None:
    result = gossamer("train", "digits", "--epochs", 1, "--no-compare", folder=tmp_path, **ASCII)
    assert result.returncode == 0, result.stderr
    assert result.stdout.isascii()
    assert " us" in result.stdout
    assert "?" not in result.stdout


def test_help_is_ascii_and_alone_it_says_what_to_do(tmp_path: Path) -> None:
    result = gossamer("train", "--help", folder=tmp_path, **ASCII)
    assert (result.returncode, result.stderr) == (0, "")
    assert "Strength lambda" in result.stdout
    assert "Example: gossamer train digits" in result.stdout
    alone = gossamer(folder=tmp_path)
    assert (alone.returncode, alone.stderr) == (0, "")
    assert "gossamer train digits" in alone.stdout


def test_help_does_without_torch(tmp_path: Path) -> None:
    code = """
import sys
from gossamer_lab.__main__ import main
sys.argv = ["gossamer", "--help"]
try:
    main()
except SystemExit:
    print([name for name in ("torch", "numpy", "sklearn", "matplotlib") if name in sys.modules], file=sys.stderr)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert result.stderr == "[]\n"


@pytest.mark.parametrize("module", ["typer", "torch", "matplotlib"])
def test_ctrl_c_during_an_import_gives_no_traceback(tmp_path: Path, module: str) -> None:
    # The module is imported slowly, and says when it has begun.
    (tmp_path / f"{module}.py").write_text("import time\nopen('begun', 'w').close()\ntime.sleep(60)\n")
    process = subprocess.Popen(
        [sys.executable, "-m", "gossamer_lab", "train", "digits"],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    while not (tmp_path / "begun").exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (130, "", "interrupted\n")
