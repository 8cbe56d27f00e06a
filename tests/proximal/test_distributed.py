"""Real processes under torchrun: every way to spread a model gives the zeros of one process on the same batch."""

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.parametrize("processes", [2, 4])
def test_several_processes_train_like_one(tmp_path, processes):
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    command = [sys.executable, *launcher, "-m", "distributed.worker", str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=400, cwd=HERE)
    assert result.returncode == 0, result.stderr
