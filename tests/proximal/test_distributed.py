"""Real processes under torchrun: every way to spread a model gives the zeros of one process on the same batch."""

import subprocess
import sys
from pathlib import Path

import pytest

WORKER = Path(__file__).parent / "distributed_worker.py"


@pytest.mark.parametrize("processes", [2, 4])
def test_several_processes_train_like_one(tmp_path, processes):
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    command = [sys.executable, *launcher, str(WORKER), str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=400)
    assert result.returncode == 0, result.stderr
