"""Real processes under torchrun: every way to spread a model gives the zeros of one process on the same batch."""

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.parametrize("processes", [2, 4])
def test_several_processes_train_like_one(tmp_path, processes):
    torchrun(processes, "worker", str(tmp_path))


@pytest.mark.parametrize(("writers", "readers"), [(4, 2), (2, 4)])
def test_a_checkpoint_is_read_by_another_number_of_processes(tmp_path, writers, readers):
    torchrun(writers, "resumed", str(tmp_path), "write")
    torchrun(readers, "resumed", str(tmp_path), "read")


def test_where_one_process_has_no_compiler_all_take_the_same_step():
    torchrun(2, "compilers")


def torchrun(processes, module, *arguments):
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    command = [sys.executable, *launcher, "-m", f"distributed.{module}", *arguments]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=400, cwd=HERE)
    assert result.returncode == 0, result.stderr
