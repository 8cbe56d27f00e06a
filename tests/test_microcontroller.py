"""The example for a small device, in emulators, where these and the cross compilers are installed."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "examples" / "microcontroller"
TOOLS = ("arm-none-eabi-gcc", "arm-none-eabi-size", "qemu-system-arm", "aarch64-linux-gnu-gcc", "qemu-aarch64")
MISSING = [tool for tool in TOOLS if shutil.which(tool) is None]

needs_tools = pytest.mark.skipif(bool(MISSING), reason=f"`make device` installs {', '.join(MISSING)}")


def run(*words, path=None):
    command = [sys.executable, str(FOLDER / "run.py"), *map(str, words)]
    environment = None if path is None else {"PATH": path, "PYTHONPATH": ":".join(sys.path)}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def figures(text):
    found = re.search(r"network on the Cortex-M4: ([\d,]+) bytes of flash .*?, ([\d,]+) bytes of RAM", text)
    return [int(number.replace(",", "")) for number in found.groups()]


@needs_tools
def test_the_board_reads_digits_as_pytorch_does():
    result = run()
    assert result.returncode == 0, result.stdout + result.stderr
    for machine in ("Cortex-M4", "aarch64"):
        assert f"{machine}: the outputs agree with PyTorch" in result.stdout
    found, right = re.search(r"the board reads (.*); they are (.*)", result.stdout).groups()
    assert found == right
    flash, ram = figures(result.stdout)  # compared with `size` by the example itself
    assert flash < 20_000
    assert ram < 5_000


@needs_tools
def test_lenet_fits_into_64_kilobytes():
    result = run(ROOT / "benchmarks/networks/lenet5-single.safetensors", "--images", 1)
    assert result.returncode == 0, result.stdout + result.stderr
    assert max(figures(result.stdout)) <= 64 * 1024


def test_without_the_tools_it_says_how_to_get_them(tmp_path):
    result = run(path=str(tmp_path))
    assert result.returncode == 1
    assert result.stderr.startswith("missing: arm-none-eabi-gcc, ")
    assert "`make device` installs them" in result.stderr
