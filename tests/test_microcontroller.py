"""The example for a small device, in emulators, where these and the cross compilers are installed."""

import importlib.util
import re
import shutil
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TOOLS = ("arm-none-eabi-gcc", "arm-none-eabi-size", "qemu-system-arm", "aarch64-linux-gnu-gcc", "qemu-aarch64")
MISSING = [tool for tool in TOOLS if shutil.which(tool) is None]

needs_tools = pytest.mark.skipif(bool(MISSING), reason=f"`make device` installs {', '.join(MISSING)}")


@pytest.fixture
def run(monkeypatch, capsys):
    """Run the example in this process, and return what it printed."""
    spec = importlib.util.spec_from_file_location("microcontroller", ROOT / "examples/microcontroller/run.py")
    example = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "microcontroller", example)
    spec.loader.exec_module(example)

    def run_with(*words):
        monkeypatch.setattr(sys, "argv", ["run.py", *map(str, words)])
        example.main()
        return capsys.readouterr().out

    return run_with


def figures(text):
    found = re.search(r"network on the Cortex-M4: ([\d,]+) bytes of flash .*?, ([\d,]+) bytes of RAM", text)
    return [int(number.replace(",", "")) for number in found.groups()]


@needs_tools
def test_the_board_reads_digits_as_pytorch_does(run):
    text = run()
    for machine in ("Cortex-M4", "aarch64"):
        assert f"{machine}: the outputs agree with PyTorch" in text
    found, right = re.search(r"the board reads (.*); they are (.*)", text).groups()
    assert found == right
    flash, ram = figures(text)  # compared with `size` by the example itself
    assert flash < 20_000
    assert ram < 5_000


@needs_tools
def test_lenet_fits_into_64_kilobytes(run):
    text = run(ROOT / "benchmarks/networks/lenet5-single.safetensors", "--images", 1)
    assert max(figures(text)) <= 64 * 1024


def test_without_the_tools_it_says_how_to_get_them(run, monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(SystemExit, match=r"missing: arm-none-eabi-gcc, .*`make device` installs them"):
        run()
