"""A trained network on an ARM Cortex-M4 without an operating system, and the same C file on 64-bit ARM, in QEMU.

    python examples/microcontroller/run.py                    # the committed DIGITS network
    python examples/microcontroller/run.py runs/mine          # that of a run, or of a network file

The network becomes C, is linked with the five other files of this folder, and runs on test images. The program prints
its outputs, which are compared with PyTorch's, and how much flash and RAM it takes, which is compared with `size`.
Needs gcc-arm-none-eabi, libnewlib-arm-none-eabi, qemu-system-arm, gcc-aarch64-linux-gnu and qemu-user (Debian's names).
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

import gossamer
from gossamer.store import load, read_manifest
from gossamer_lab.data import digits
from gossamer_lab.networks import build, example_input

HERE = Path(__file__).parent
NETWORK = HERE.parents[1] / "benchmarks" / "networks" / "digits.safetensors"
CORTEX_M4 = ("-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16")
FLAGS = ("-std=c99", "-O2", "-Wall", "-Wextra", "-Werror", "-pedantic", "-ffunction-sections", "-fdata-sections")
TOOLS = ("arm-none-eabi-gcc", "arm-none-eabi-size", "qemu-system-arm", "aarch64-linux-gnu-gcc", "qemu-aarch64")


@dataclass(frozen=True)
class Printed:
    """What the program printed: the outputs of each image, and figures in bytes or instructions, 0 if absent."""

    outputs: Tensor
    instructions: int
    flash: int
    ram: int


def main() -> None:
    options = parse()
    if missing := [tool for tool in TOOLS if shutil.which(tool) is None]:
        sys.exit(f"missing: {', '.join(missing)}. In the repository, `make device` installs them.")
    torch.set_num_threads(1)
    model, dense, images, labels = read(options.network, options.images)
    with torch.no_grad():
        expected = model(images)
    forms = {"network": model, "dense": dense} if options.dense else {"network": model}
    with tempfile.TemporaryDirectory() as folder:
        for name, form in forms.items():
            place = Path(options.build or folder) / name
            place.mkdir(parents=True, exist_ok=True)
            written = write(form, images, expected.shape[1], place)
            on_board = cortex_m4(place)
            report(name, on_board, written)
            if name == "network":
                check(place, written, on_board)
                require_equal("Cortex-M4", on_board.outputs, expected)
                require_equal("aarch64", aarch64(place).outputs, expected)
                show(on_board.outputs, images, labels)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("network", nargs="?", type=Path, default=NETWORK, help="a run, or a network file")
    parser.add_argument("--images", type=int, default=5, help="how many images the program holds (default: 5)")
    parser.add_argument("--build", type=Path, help="folder to keep the C files and programs in")
    parser.add_argument("--dense", action="store_true", help="also the network as it was before training, to compare")
    return parser.parse_args()


def read(path: Path, count: int) -> tuple[nn.Module, nn.Module, Tensor, list[int] | None]:
    """The trained network, the one that training started from, images, and their labels where they are real."""
    file = path / "small.safetensors" if path.is_dir() else path
    config = read_manifest(file).provenance["config"]
    name = config["network"] or config["dataset"]
    model, dense = load(file, build(name)).eval(), build(name, torch.Generator().manual_seed(0)).eval()
    if name == "digits":
        data = digits()
        return model, dense, data.test_images[:count], data.test_labels[:count].tolist()
    shape = example_input(name).shape[1:]
    return model, dense, torch.rand(count, *shape, generator=torch.Generator().manual_seed(0)), None


def write(model: nn.Module, images: Tensor, outputs: int, place: Path) -> gossamer.inference.PortableSource:
    """The network and the images as C."""
    written = gossamer.export_c(model, place / "network.c", images)
    rows = [", ".join(f"{pixel!r}f" for pixel in image.flatten().tolist()) for image in images]
    text = ",\n".join(f"    {{{row}}}" for row in rows)
    size = images[0].numel()
    header = (
        f"#define IMAGES {len(images)}\n#define OUTPUTS {outputs}\n\n"
        f"static const float images[IMAGES][{size}] = {{\n{text},\n}};\n"
    )
    (place / "images.h").write_text(header)
    return written


def cortex_m4(place: Path) -> Printed:
    """Build for the board, and run in its emulator."""
    program = compile_program(
        place, "arm-none-eabi-gcc", *CORTEX_M4, "--specs=nano.specs", "-nostartfiles", "-Wl,--gc-sections",
        "-T", HERE / "cortex_m4.ld", HERE / "cortex_m4.c",
    )  # fmt: skip
    return printed(
        "qemu-system-arm", "-M", "mps2-an386", "-display", "none", "-serial", "none", "-monitor", "none",
        "-semihosting-config", "enable=on,target=native", "-icount", "shift=0", "-kernel", program,
    )  # fmt: skip


def aarch64(place: Path) -> Printed:
    """Build for Linux on 64-bit ARM, and run in the emulator of its processor."""
    return printed("qemu-aarch64", compile_program(place, "aarch64-linux-gnu-gcc", "-static", HERE / "linux.c"))


def compile_program(place: Path, compiler: str, *words: object) -> Path:
    program = place / f"{compiler}.elf"
    sources = (HERE / "main.c", place / "network.c")
    run(compiler, *FLAGS, "-DNETWORK=network", f"-I{place}", f"-I{HERE}", *words, *sources, "-lm", "-o", program)
    return program


def printed(*command: object) -> Printed:
    text = run(*command)
    if "self-test passed" not in text:
        sys.exit(f"the program says:\n{text}")
    rows = re.findall(r"outputs((?: [0-9a-f]{8})+)", text)
    outputs = torch.stack([torch.frombuffer(bytearray.fromhex(row), dtype=torch.float32) for row in map(swapped, rows)])
    figures = [re.search(pattern, text) for pattern in (r"takes (\d+) inst", r"flash: (\d+)", r"RAM: (\d+)")]
    return Printed(outputs, *(int(found[1]) if found else 0 for found in figures))


def swapped(row: str) -> str:
    """The bytes of each number in the order of this machine."""
    return "".join(int(word, 16).to_bytes(4, sys.byteorder).hex() for word in row.split())


def check(place: Path, written: gossamer.inference.PortableSource, on_board: Printed) -> None:
    """The figures of the C file and of the program have to be those of `size`."""
    network = place / "network.o"
    # Not optimised: an optimising compiler puts an array of one number into the code.
    flags = (*FLAGS, *CORTEX_M4, "-O0", "-DNETWORK_NO_SELFTEST")
    run("arm-none-eabi-gcc", *flags, "-c", place / "network.c", "-o", network)
    sections = re.findall(r"^(\.\w+)\S*\s+(\d+)", run("arm-none-eabi-size", "-A", network), re.MULTILINE)
    found = {kind: sum(int(size) for name, size in sections if name == kind) for kind in (".rodata", ".bss")}
    require("constants", found[".rodata"], written.constants)
    require("workspace", found[".bss"], written.workspace)
    text, data, bss = map(int, run("arm-none-eabi-size", place / "arm-none-eabi-gcc.elf").splitlines()[1].split()[:3])
    require("flash", text + data, on_board.flash)
    require("RAM", data + bss, on_board.ram)


def require(name: str, found: int, said: int) -> None:
    if found != said:
        sys.exit(f"{name}: `size` says {found} bytes, we say {said}")


def require_equal(machine: str, found: Tensor, expected: Tensor) -> None:
    difference = float((found - expected).abs().max() / expected.abs().max())
    print(f"{machine}: the outputs agree with PyTorch to {difference:.1e} of the largest")
    if not difference < 1e-5:
        sys.exit(1)


def report(name: str, on_board: Printed, written: gossamer.inference.PortableSource) -> None:
    print(
        f"{name} on the Cortex-M4: {on_board.flash:,} bytes of flash ({written.constants:,} of constants), "
        f"{on_board.ram:,} bytes of RAM ({written.workspace:,} of workspace), "
        f"{on_board.instructions:,} instructions for an image"
    )


def show(outputs: Tensor, images: Tensor, labels: list[int] | None) -> None:
    if labels is None:
        return
    shades = " .:-=+*#%@"
    for line in images[0, 0].tolist():
        print("    " + "".join(2 * shades[round(9 * pixel)] for pixel in line))
    found = outputs.argmax(1).tolist()
    print(f"the board reads {', '.join(map(str, found))}; they are {', '.join(map(str, labels))}")


def run(*command: object) -> str:
    words = [str(word) for word in command]
    result = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    if result.returncode != 0:
        sys.exit(f"{words[0]} failed:\n{result.stdout}{result.stderr}")
    return result.stdout + result.stderr


if __name__ == "__main__":
    main()
