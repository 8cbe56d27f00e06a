"""`export_c`: one C99 file that compiles without a warning and computes what the model computes."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from torch import nn

import gossamer
from gossamer import GossamerError

from .test_native import Chain, Several, network

STRICT = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-O2"]


@pytest.fixture
def model() -> nn.Module:
    return network()


EXAMPLE = torch.randn(2, 2, 12, 12, generator=torch.Generator().manual_seed(0))


def compiled(folder: Path, name: str, compiler: str = "cc", *more: str) -> ctypes.CDLL:
    library = folder / f"{name}-{compiler}-{len(more)}.so"
    subprocess.run(
        [compiler, *STRICT, *more, "-shared", "-fPIC", f"{folder}/{name}.c", "-o", library, "-lm"], check=True
    )
    return ctypes.CDLL(str(library))


def pointer(tensor: torch.Tensor) -> ctypes.c_void_p:
    return ctypes.c_void_p(tensor.data_ptr())


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_the_file_computes_what_the_model_computes(model: nn.Module, tmp_path: Path, compiler: str) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    source = gossamer.export_c(model, tmp_path / "small_net.c", EXAMPLE)
    library = compiled(tmp_path, "small_net", compiler)
    assert library.small_net_selftest() == 0
    inputs, outputs = torch.randn(5, 2, 12, 12), torch.empty(5, 10)
    with torch.no_grad():
        wanted = model(inputs)
    assert library.small_net_run(pointer(inputs), pointer(outputs)) == 0
    torch.testing.assert_close(outputs[0], wanted[0], rtol=1e-5, atol=1e-5)
    assert library.small_net_run_batch(pointer(inputs), pointer(outputs), 5) == 0
    torch.testing.assert_close(outputs, wanted, rtol=1e-5, atol=1e-5)
    workspace = torch.full((source.workspace // 4,), torch.nan)
    assert library.small_net_run_in(pointer(workspace), pointer(inputs[3]), pointer(outputs)) == 0
    torch.testing.assert_close(outputs[0], wanted[3], rtol=1e-5, atol=1e-5)


def test_parts_can_be_left_out(model: nn.Module, tmp_path: Path) -> None:
    gossamer.export_c(model, tmp_path / "net.c", EXAMPLE)
    assert not hasattr(compiled(tmp_path, "net", "cc", "-DNET_NO_SELFTEST"), "net_selftest")
    bare = compiled(tmp_path, "net", "cc", "-DNET_NO_SELFTEST", "-DNET_NO_STATIC_WORKSPACE")
    assert not hasattr(bare, "net_run")
    assert hasattr(bare, "net_run_in")


def test_the_head_says_what_it_is(model: nn.Module, tmp_path: Path) -> None:
    source = gossamer.export_c(model, tmp_path / "net.c", EXAMPLE)
    text, header = (tmp_path / "net.c").read_text(), (tmp_path / "net.h").read_text()
    assert (text, header) == (source.source, source.header)
    head = text[: text.index("*/")]
    for fact in (
        "Sequential",
        "input 288 floats, output 10 floats",
        f"Constants (flash): {source.constants} bytes",
        f"Workspace (RAM): {source.workspace} bytes",
        source.checksum,
        "cc -std=c99",
        "net_selftest()",
    ):
        assert fact in head
    nonzero = sum(int(layer.weight.count_nonzero()) for layer in (model[0], model[4], model[7]))
    assert sum(int(n) for n in re.findall(r"(\d+) of \d+ weights are not zero", head)) == nonzero
    assert f"#define NET_WORKSPACE {source.workspace // 4}" in header
    assert "malloc" not in text
    assert re.findall(r"#include (\S+)", text) == ['"net.h"', "<limits.h>", "<math.h>", "<stdint.h>"]


def test_only_nonzeros_are_stored(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(100, 100, bias=False)).eval()
    with torch.no_grad():
        model[0].weight[torch.rand(100, 100) < 0.9] = 0.0
    kept = int(model[0].weight.count_nonzero())
    source = gossamer.export_c(model, tmp_path / "net.c", torch.randn(1, 100))
    assert source.constants <= kept * 6 + 2 * 100 + 64  # a float and 16 bits for each, and a count for each row


def test_a_layer_without_any_nonzero(tmp_path: Path) -> None:
    """C has no empty arrays."""
    model = nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 3)).eval()
    with torch.no_grad():
        model[0].weight.zero_()
    gossamer.export_c(model, tmp_path / "net.c", torch.zeros(1, 2, dtype=torch.int64))
    assert compiled(tmp_path, "net").net_selftest() == 0


@pytest.mark.parametrize("level", ["-Os", "-O2", "-O3"])
def test_the_stated_sizes_are_those_of_a_microcontroller(model: nn.Module, tmp_path: Path, level: str) -> None:
    arm = shutil.which("arm-none-eabi-gcc")
    if arm is None:
        pytest.skip("arm-none-eabi-gcc is not installed")
    source = gossamer.export_c(model, tmp_path / "net.c", torch.randn(2, 2, 12, 12))
    assert f"Constants (flash): {source.constants} bytes" in source.source
    assert f"Workspace (RAM): {source.workspace} bytes" in source.source
    flags = ["-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16", "-DNET_NO_SELFTEST", *STRICT, level]
    subprocess.run([arm, *flags, "-c", tmp_path / "net.c", "-o", tmp_path / "net.o"], check=True)
    size = ["arm-none-eabi-size", "-A", tmp_path / "net.o"]
    listed = subprocess.run(size, check=True, capture_output=True, text=True).stdout
    sections = dict(re.findall(r"^(\.\w+) +(\d+)", listed, re.MULTILINE))
    assert sections[".rodata"] == str(source.constants)
    assert sections[".bss"] == str(source.workspace)
    assert sections[".data"] == "0"


def test_the_self_test_notices_a_changed_weight(model: nn.Module, tmp_path: Path) -> None:
    gossamer.export_c(model, tmp_path / "net.c", EXAMPLE)
    file = tmp_path / "net.c"
    text = file.read_text()
    start = text.index("static const float net_c")
    weight = re.compile(r"-?\d+\.\d+f").search(text, start)
    assert weight is not None
    file.write_text(f"{text[: weight.start()]}77.0f{text[weight.end() :]}")
    assert compiled(tmp_path, "net").net_selftest() == 1


def test_several_inputs_and_outputs(tmp_path: Path) -> None:
    model = Several().eval()
    gossamer.export_c(model, tmp_path / "net.c", (torch.randint(0, 7, (2, 5)), torch.randn(2, 5, 4)))
    library = compiled(tmp_path, "net")
    assert library.net_selftest() == 0
    indices, x = torch.randint(0, 7, (1, 5)), torch.randn(1, 5, 4)
    outputs = [torch.empty(1, 5, 3), torch.empty(1, 1, 3), torch.empty(1, 5, 4)]
    given = indices.float()
    assert library.net_run(*map(pointer, (given, x, *outputs))) == 0
    with torch.no_grad():
        wanted = model(indices, x)
    torch.testing.assert_close(outputs[0], wanted["output"], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(outputs[1], wanted["rest"][0], rtol=1e-5, atol=1e-5)
    given[0, 2] = 7.0
    assert library.net_run(*map(pointer, (given, x, *outputs))) == 1


@pytest.mark.parametrize("name", ["net", "net.cpp", "2nd.c", "my-net.c", "näh.c", ".c"])
def test_the_name_has_to_be_one_of_c(model: nn.Module, tmp_path: Path, name: str) -> None:
    with pytest.raises(GossamerError, match="named after the file"):
        gossamer.export_c(model, tmp_path / name, EXAMPLE)
    assert not list(tmp_path.iterdir())


class Unused(nn.Module):
    """A model that must not be called."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise AssertionError("work was done before the path was checked")


@pytest.mark.parametrize("blocked", ["nowhere/net.c", "net.c", "net.h"])
def test_a_path_that_cannot_be_written(tmp_path: Path, blocked: str) -> None:
    """A missing folder, a folder in the place of the file, and one in that of its header: said before any work."""
    if "/" not in blocked:
        (tmp_path / blocked).mkdir()
    with pytest.raises(GossamerError, match="cannot write"):
        gossamer.export_c(Unused(), (tmp_path / blocked).with_suffix(".c"), EXAMPLE)
    assert [file.name for file in tmp_path.rglob("*")] == ([] if "/" in blocked else [blocked])


def test_nothing_is_written_on_an_error(tmp_path: Path) -> None:
    (tmp_path / "net.c").write_text("before")
    with pytest.raises(GossamerError, match=r"aten\.cumsum"):
        gossamer.export_c(Chain(lambda x: x.cumsum(1)).eval(), tmp_path / "net.c", torch.randn(3, 4))
    assert [file.name for file in tmp_path.iterdir()] == ["net.c"]
    assert (tmp_path / "net.c").read_text() == "before"


def test_a_model_that_mixes_samples_is_refused(tmp_path: Path) -> None:
    with pytest.raises(GossamerError, match="depends on the other samples"):
        gossamer.export_c(Chain(lambda x: x - x.mean(0)).eval(), tmp_path / "net.c", torch.randn(3, 4))
    assert not list(tmp_path.iterdir())


def test_no_compiler_is_needed(model: nn.Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as without:
        without.delenv("CC", raising=False)
        without.setenv("PATH", "")
        gossamer.export_c(model, tmp_path / "net.c", EXAMPLE)
    assert compiled(tmp_path, "net").net_selftest() == 0
