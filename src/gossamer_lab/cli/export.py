"""The command `gossamer export`: a trained network as C or ONNX."""

from __future__ import annotations

import ctypes
import json
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from gossamer.compiler import find_compiler
from gossamer.errors import GossamerError
from gossamer.inference import PortableSource, export_c, native
from gossamer.store import export_onnx
from gossamer_lab.cli.display import Display
from gossamer_lab.cli.networks import Comparison, Contender, StoredNetwork, compare, open_network, open_network_of
from gossamer_lab.training import RunDirectory

__all__ = ["ExportOptions", "run_export"]

# The compilation that the head of the file suggests, as a library that Python can call.
_FLAGS = ("-std=c99", "-O3", "-shared", "-fPIC")


@dataclass(frozen=True)
class ExportOptions:
    """What to write, and whether to check it."""

    c: Path | None
    onnx: Path | None
    check: bool
    quiet: bool
    as_json: bool


def run_export(path: Path, options: ExportOptions) -> None:
    """Write the network of a run or a file as C, as ONNX or as both."""
    torch.set_num_threads(1)
    _require_usable(options)
    stored = _opened(path)
    display = Display(quiet=options.as_json, silent=options.quiet)
    # A blank input would test little more than the biases.
    example = torch.rand(2, *stored.example.shape[1:], generator=torch.Generator().manual_seed(0))
    answer: dict[str, Any] = {"network": str(path)}
    if options.c is not None:
        display.progress(f"writing {options.c}: lowering, compiling and comparing with PyTorch")
        written = export_c(stored.model, options.c, example)
        answer["c"] = _described(options.c, written)
        display.text(_c_lines(options.c, written))
        if options.check:
            answer["c"]["check"] = _checked(stored, example, options.c, written, display)
    if options.onnx is not None:
        display.progress(f"writing {options.onnx}: exporting and comparing with PyTorch")
        export_onnx(stored.model, options.onnx, example)
        size = options.onnx.stat().st_size
        answer["onnx"] = {"file": str(options.onnx), "bytes": size}
        display.text(f"{options.onnx}: {size / 1000:,.1f} kB")
    if options.as_json:
        print(json.dumps(answer))


def _require_usable(options: ExportOptions) -> None:
    """Refuse, before any work, what cannot be written."""
    if options.c is None and options.onnx is None:
        raise GossamerError("There is nothing to write. Give `--c net.c`, `--onnx net.onnx` or both.")
    if options.check and options.c is None:
        raise GossamerError("`--check` compiles and times the C file. Give `--c net.c` too.")
    for target in (options.c, options.onnx):
        if target is not None and not target.parent.is_dir():
            raise GossamerError(f"{target} cannot be written: there is no folder {target.parent}. Create it first.")


def _opened(path: Path) -> StoredNetwork:
    """The network of a file or of a run: there without its dead units, if that file is there."""
    if not path.is_dir():
        return open_network(path)
    run = RunDirectory(path)
    found = [file for file in (run.small, run.weights) if file.exists()]
    if not found:
        raise GossamerError(
            f"{path} has no trained network: it has no {run.weights.name}. "
            "Give the directory of a finished run, or a network file."
        )
    return open_network_of(run, found[0])


def _described(path: Path, written: PortableSource) -> dict[str, Any]:
    return {
        "source": str(path),
        "header": str(path.with_suffix(".h")),
        "constants_bytes": written.constants,
        "workspace_bytes": written.workspace,
        "sha256": written.checksum,
    }


def _c_lines(path: Path, written: PortableSource) -> str:
    name = path.stem
    return "\n".join(
        (
            f"{path}: {written.constants:,} bytes of constants (flash), {written.workspace:,} bytes of workspace (RAM)",
            f"{path.with_suffix('.h')}: int {name}_run(const float *input, float *output); int {name}_selftest(void);",
            f"compile with: cc -std=c99 -O3 -c {path}",
        )
    )


def _checked(
    stored: StoredNetwork, example: Tensor, path: Path, written: PortableSource, display: Display
) -> dict[str, Any]:
    """Compile the file, run its self-test, and time it beside PyTorch and the runtime."""
    compiled = _CompiledFile(path, _outputs(stored.model, example))
    runtime = native(stored.model, example, threads=1)
    dense = Contender.dense(stored.full, stored.example, None)
    contenders = {
        "dense, PyTorch": replace(dense, size=4 * dense.weights),
        "shrunk, PyTorch": Contender.dense(stored.model, stored.example, None),
        path.name: Contender.sparse(compiled, stored.model, stored.example, written.constants),
        "native": Contender.sparse(runtime, stored.model, stored.example, None),
    }
    compared = {one.name: one for one in compare(contenders, example)}
    display.comparison(list(compared.values()))
    before, after, in_batches = compared["dense, PyTorch"], compared[path.name], compared["native"]
    display.text(_conclusion(before, after, in_batches))
    return {
        "selftest": "passed",
        "dense_bytes": before.contender.size,
        "dense_seconds": before.seconds,
        "c_seconds": after.seconds,
        "native_seconds": in_batches.seconds,
    }


def _conclusion(before: Comparison, after: Comparison, in_batches: Comparison) -> str:
    """How much smaller and faster, in one line."""
    assert before.contender.size is not None
    assert after.contender.size is not None
    one, many = before.seconds.values()
    own, _ = after.seconds.values()
    _, together = in_batches.seconds.values()
    kilobytes, dense_kilobytes = after.contender.size / 1000, before.contender.size / 1000
    return (
        f"{after.name} compiles and passes its self-test. The network became "
        f"{dense_kilobytes / kilobytes:.1f} times smaller ({kilobytes:,.1f} kB instead of {dense_kilobytes:,.1f} kB), "
        f"{one / own:.1f} times faster for one sample ({1e6 * own:.1f} µs instead of {1e6 * one:.1f} µs), and for 64 "
        f"with `gossamer.native` {many / together:.1f} times ({1e6 * together:.0f} µs instead of {1e6 * many:.0f} µs)."
    )


@torch.no_grad()
def _outputs(model: nn.Module, example: Tensor) -> int:
    outputs: Tensor = model.eval()(example[:1])
    return outputs.numel()


class _CompiledFile(nn.Module):
    """An exported C file, compiled as its head suggests; its self-test has passed."""

    def __init__(self, path: Path, outputs: int) -> None:
        super().__init__()
        compiler = find_compiler("c")
        with tempfile.TemporaryDirectory() as folder:
            library = Path(folder, "network.so")
            result = compiler.run([*_FLAGS, str(path), "-o", str(library), "-lm"])
            if result.returncode != 0:
                raise GossamerError(f"{path} was written, but the compiler failed: {result.stderr.strip()[-500:]}")
            loaded = ctypes.CDLL(str(library))
        if loaded[f"{path.stem}_selftest"]() != 0:
            raise GossamerError(f"{path} was written, but does not pass its self-test. Please report this.")
        self._run = loaded[f"{path.stem}_run_batch"]
        self._outputs = outputs

    def forward(self, images: Tensor) -> Tensor:
        """The outputs, a row for each sample."""
        outputs = torch.empty(len(images), self._outputs)
        pointers = (ctypes.c_void_p(images.data_ptr()), ctypes.c_void_p(outputs.data_ptr()))
        failed = self._run(*pointers, ctypes.c_int(len(images)))
        assert failed == 0, "the self-test has passed"
        return outputs
