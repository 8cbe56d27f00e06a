"""The threads that stay: under sanitizers, after a fork, with many callers, and when the interpreter ends."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import gossamer
from gossamer.inference import workers

from .test_native import assert_same, network

STRESS = Path(__file__).with_name("workers_stress.c")
STRICT = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-O1", "-pthread"]
# In a process that is forked from several threads the locks of a sanitizer may stay locked.
SANITIZERS = {
    "none": [],
    "address": ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-DWITHOUT_FORK"],
    "thread": ["-fsanitize=thread", "-DWITHOUT_FORK"],
}


@pytest.mark.parametrize("sanitizer", SANITIZERS)
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_every_block_is_done_once(compiler: str, sanitizer: str, tmp_path: Path) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    program = tmp_path / "stress"
    sources = [workers._SOURCE, STRESS]
    subprocess.run([compiler, *STRICT, *SANITIZERS[sanitizer], *sources, "-o", program], check=True)
    result = subprocess.run([program], capture_output=True, text=True, timeout=60, check=False)
    if "unexpected memory mapping" in result.stderr:
        pytest.skip("the sanitizer does not run under this kernel")
    assert result.returncode == 0, result.stderr


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_has_its_own() -> None:
    model = network()
    fast = gossamer.native(model, torch.randn(1, 2, 12, 12), threads=2)
    fast.run_as(vector_from=1, samples_per_thread=1)
    inputs = torch.randn(100, 2, 12, 12)
    expected = fast(inputs)
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if fast(inputs).equal(expected) else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert_same(fast, model, inputs)


# The threads call the compiled function itself: those of Python that are inside of PyTorch when the interpreter ends
# may abort the process, whatever they compute.
_ENDING = """
import threading, time, torch, gossamer
from torch import nn

torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(30, 30), nn.ReLU(), nn.Linear(30, 3)).eval()
fast = gossamer.native(model, torch.randn(2, 30), threads=3)
fast.run_as(1, samples_per_thread=1)
inputs = torch.randn(500, 30)
expected, calls = fast(inputs), [0] * 4
outputs = [torch.zeros(500, 3) for _ in calls]

def call(number, source, target):
    while True:
        fast.call_compiled(500, source, target)
        calls[number] += 1

for number, output in enumerate(outputs):
    threading.Thread(target=call, args=(number, inputs.data_ptr(), output.data_ptr()), daemon=True).start()
while min(calls) < 5:
    time.sleep(0.001)
assert all(output.equal(expected) for output in outputs)
print("ends")
"""


def test_the_interpreter_ends_while_they_work() -> None:
    result = subprocess.run([sys.executable, "-c", _ENDING], capture_output=True, text=True, timeout=120, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (0, "ends\n", "")
