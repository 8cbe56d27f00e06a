"""The random-network property at length, under sanitizers and with warnings as errors, for gcc and clang.

Run as `PYTHONPATH=. python -m tests.inference.soak 2000`; a part, of 250 networks from number 500 on, as `... 250 500`.
Every network is compiled as the portable C99 file that `export_c` writes and as the compiled runtime, into one program
without Python; it reads inputs from exactly as much memory as they take and writes what it computes, which is compared
with PyTorch in float64: to 1e-5 of the largest output. A few networks magnify rounding beyond that; they have to agree
to twice the error of PyTorch itself in float32, the largest of several in which the last bits of inputs and weights
differ (`gossamer.inference.rounding`).
"""

from __future__ import annotations

import math
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

import gossamer
from gossamer.inference.machine import Machine
from gossamer.inference.portable import SelfTest, portable_source
from gossamer.inference.runtime import Runtime, library_source, runtime

from .libraries import MACHINES
from .test_random_networks import BATCH, TOLERANCE, Lowered, lowered, recipes, relative_difference

CHUNK = 25
WARNINGS = ["-Wall", "-Wextra", "-Werror", "-pedantic"]
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-O0", "-g0"]
WAYS = ("portable", "batch", "sample")


def main(networks: int, first: int = 0, seed: int = 1) -> None:
    compilers = [name for name in ("gcc", "clang") if shutil.which(name)]
    missing = {"gcc", "clang"} - set(compilers)
    print(f"gossamer {gossamer.__version__}, torch {torch.__version__}, seed {seed}")
    for name in compilers:
        version = subprocess.run([name, "--version"], capture_output=True, text=True, check=True).stdout
        print(version.splitlines()[0])
    for name in sorted(missing):
        print(f"{name} is not installed: skipped")
    started, worst, magnifying = time.perf_counter(), 0.0, 0
    last = first + networks
    chosen = recipes(last, seed, blocks=5)
    for start in range(first, last, CHUNK):
        chunk = chosen[start : min(start + CHUNK, last)]
        found = lowered(chunk)
        machine = MACHINES[start // CHUNK % len(MACHINES)]
        differences = [max(pair) for pair in zip(*(check(found, machine, own) for own in compilers), strict=True)]
        worst = max([worst, *(own for own in differences if own <= TOLERANCE)])
        for number, network, own in zip(range(start, last), found, differences, strict=False):
            if own > TOLERANCE:
                magnifying += 1
                print(f"network {number} magnifies rounding: {own:.1e}, PyTorch's own error {network.magnified:.1e}")
        done, seconds = start + len(chunk), time.perf_counter() - started
        if done % 100 == 0 or done == last:
            names = " and ".join(compilers)
            print(
                f"networks {first} to {done - 1} agree under {names}, largest difference {worst:.1e}; {magnifying} "
                f"magnify rounding and agree to twice PyTorch's own error; {seconds:.0f} s",
                flush=True,
            )


def check(found: Sequence[Lowered], machine: Machine, compiler: str) -> list[float]:
    """Compile and run; the largest relative difference of each network."""
    with tempfile.TemporaryDirectory() as folder:
        outputs = run(found, machine, compiler, Path(folder))
    worst = []
    for network, ways in zip(found, outputs, strict=True):
        differences = [relative_difference(output.reshape(network.wanted.shape), network.wanted) for output in ways]
        for way, difference in zip(WAYS, differences, strict=True):
            assert network.accepts(difference), (
                f"{network.recipe} differs by {difference:.2e} as {way} under {compiler}; PyTorch's own error is "
                f"{network.magnified:.2e}"
            )
        worst.append(max(differences))
    return worst


def run(found: Sequence[Lowered], machine: Machine, compiler: str, folder: Path) -> list[list[Tensor]]:
    """What each network computes, in each way."""
    built = [runtime(network.program, machine, f"fast{number}") for number, network in enumerate(found)]
    (folder / "fast.c").write_text(library_source(built, machine))
    headers, texts = [], []
    for number, network in enumerate(found):
        test = SelfTest([network.inputs[:1].float()], [torch.zeros(shape) for shape in network.program.shapes])
        source = portable_source(network.program, f"net{number}", "a random network", test)
        headers.append(source.header)
        texts.append(source.source.replace(f'#include "net{number}.h"', source.header))
    (folder / "portable.c").write_text("\n".join(texts))
    (folder / "main.c").write_text(_main(found, built, machine, headers))
    for file, standard in (("portable.c", "-std=c99"), ("fast.c", "-std=gnu11"), ("main.c", "-std=c99")):
        own = ["-march=native", "-Wno-psabi"] if file == "fast.c" else []
        flags = [standard, *WARNINGS, *SANITIZERS, *own]
        _call([compiler, *flags, "-c", str(folder / file), "-o", str(folder / file) + ".o"])
    objects = [str(folder / f"{file}.c.o") for file in ("portable", "fast", "main")]
    _call([compiler, *SANITIZERS, *objects, "-o", str(folder / "run"), "-lm", "-pthread"])
    for number, network in enumerate(found):
        (folder / f"in{number}").write_bytes(network.inputs.float().contiguous().numpy().tobytes())
    for number, own_runtime in enumerate(built):
        (folder / f"constants{number}").write_bytes(own_runtime.constants.tobytes())
    _call([str(folder / "run")], folder)
    outputs = torch.frombuffer(bytearray((folder / "out").read_bytes()), dtype=torch.float32)
    sizes = [BATCH * math.prod(network.program.shapes[0]) for network in found for _ in WAYS]
    pieces = list(outputs.split(sizes))
    return [pieces[start : start + len(WAYS)] for start in range(0, len(pieces), len(WAYS))]


_MAIN = """
#include <stdio.h>
#include <stdlib.h>

typedef struct {
    const char *constants;
    long vector_from;
    long threads;
    long samples_per_thread;
    void *run_in_threads; /* not called: there is one thread */
} Settings;

static void *memory(size_t alignment, size_t bytes)
{
    void *p = NULL;
    if (posix_memalign(&p, alignment, bytes ? bytes : 1)) exit(2);
    return p;
}

static void *file(const char *path, size_t alignment, size_t bytes)
{
    void *p = memory(alignment, bytes);
    FILE *f = fopen(path, "rb");
    if (!f || fread(p, 1, bytes, f) != bytes) exit(3);
    fclose(f);
    return p;
}

static void write_out(int failed, const float *y, size_t count, FILE *out)
{
    if (failed || fwrite(y, 4, count, out) != count) exit(4);
}
"""


def _main(found: Sequence[Lowered], built: Sequence[Runtime], machine: Machine, headers: list[str]) -> str:
    """A program that runs every network in every way, each array in memory of its own."""
    declarations, calls = [], []
    for number, (network, own) in enumerate(zip(found, built, strict=True)):
        declarations.append(f"int fast{number}_run(const Settings *, char *, long, const float *, float *);")
        size = BATCH * math.prod(network.program.shapes[0])
        calls += [
            "{",
            f'float *x = file("in{number}", sizeof(void *), {4 * network.inputs.numel()});',
            f'char *c = file("constants{number}", 64, {own.constants.nbytes});',
            f"char *w = memory(64, {own.workspace});",
            f"float *y = memory(sizeof(void *), {4 * size});",
            f"write_out(net{number}_run_batch(x, y, {BATCH}), y, {size}, out);",
            f"const Settings batch = {{c, 1, 1, 1, NULL}}, sample = {{c, {machine.lanes + 1}, 1, 1, NULL}};",
            f"write_out(fast{number}_run(&batch, w, {BATCH}, x, y), y, {size}, out);",
            f"write_out(fast{number}_run(&sample, w, {BATCH}, x, y), y, {size}, out);",
            "free(x);",
            "free(c);",
            "free(w);",
            "free(y);",
            "}",
        ]
    body = "\n".join(["int main(void)", "{", 'FILE *out = fopen("out", "wb");', *calls, "return fclose(out);", "}", ""])
    return "\n".join(["#define _POSIX_C_SOURCE 200112L", _MAIN, *headers, *declarations, body])


def _call(command: list[str], folder: Path | None = None) -> None:
    result = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)
    if result.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{result.stdout[-3000:]}{result.stderr[-6000:]}")


if __name__ == "__main__":
    main(*(int(number) for number in sys.argv[1:] or ["2000"]))
