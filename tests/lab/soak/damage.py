"""Files that are damaged in every way: each is refused by one `GossamerError`, or gives exactly what was written.

Run as `PYTHONPATH=. python -m tests.lab.soak.damage 100000`. Batches of files are read in child processes, so that a
signal would be seen. Where damage is repaired (a cached library is compiled again, the previous checkpoint is taken)
the result must be the same, too.
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import shutil
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import nn

import gossamer
from gossamer import compiler
from gossamer.errors import GossamerError
from gossamer_lab.cli.config_file import read_options
from gossamer_lab.sweeps.search import Search, open_search, results
from gossamer_lab.sweeps.worker import work
from gossamer_lab.training import (
    RunDirectory,
    TrainingConfig,
    assemble,
    load_checkpoint,
    load_dataset,
    loop,
    open_run,
    train,
)

from .children import ended, fork

_BATCH = 250  # files for each child
_CONFIG = TrainingConfig(
    dataset="digits", regularizer="integrated-tl1", strength=2e-3, a=1.0, s=0.1, epochs=4, images=200
)
_SEARCH = Search("grid", {"x": [1.0, 2.0, 3.0]})
_SOURCE = "int answer(void) { return 42; }\n"
_FLAGS = [["-shared", "-fPIC"]]


@dataclass(frozen=True)
class Kind:
    """A kind of files: what a whole one holds, where it lies, and what reading it gives."""

    name: str
    path: Path
    read: Callable[[], Any]
    share: float


def damaged(content: bytes, draw: random.Random) -> bytes:
    """The content with one to three faults: bits, bytes, blocks, lost and repeated parts, digits of numbers."""
    data = bytearray(content)
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        size = max(1, len(data))
        start = draw.randrange(size)
        end = min(size, start + draw.choice((1, 4, 64, 512, 4096)))
        fault = draw.randrange(8)
        if fault == 0:
            data[start:end] = b""  # lost
        elif fault == 1:
            del data[start:]  # cut
        elif fault == 2:
            data[start:end] = bytes(end - start)
        elif fault == 3:
            data[start:end] = draw.randbytes(end - start)
        elif fault == 4:
            data[start:start] = data[start:end]  # repeated
        elif fault == 5 and any(48 <= byte < 58 for byte in data):
            digits = [i for i, byte in enumerate(data) if 48 <= byte < 58]
            data[draw.choice(digits)] = draw.randrange(48, 58)
        elif data:
            data[start % len(data)] ^= 1 << draw.randrange(8)
    return bytes(data)


def kinds(folder: Path) -> list[Kind]:
    """Whole files of every kind."""
    run = RunDirectory(folder / "run")
    data = load_dataset(_CONFIG)

    def network() -> nn.Module:
        return assemble(_CONFIG, data)[0]

    def weights(path: Path) -> Callable[[], Any]:
        return lambda: state_of(gossamer.load(path, network()))

    def checkpoint() -> Any:
        model = network()
        found = load_checkpoint(run, _CONFIG, model)
        assert found is not None
        return state_of(model), found.progress, found.parameters, repr(found.optimizer)

    def library() -> int:
        loaded: ctypes.CDLL = compiler.load_library(_SOURCE, "soak", _FLAGS)
        return int(loaded.answer())

    def options() -> None:
        read_options(run.options)  # people edit this file: it has no checksum

    def storage() -> Any:
        with open_search(_SEARCH, f"sqlite:///{folder / 'sweep.db'}") as study:
            return [(each.slot, each.number, each.point, each.values, each.figures) for each in results(study)]

    save_sparse(run, network, folder / "sparse.safetensors")
    with open_search(_SEARCH, f"sqlite:///{folder / 'sweep.db'}") as study:
        work(study, _SEARCH, objective)
    library()
    built = next((folder / "gossamer-libraries").glob("soak-*.so"))
    kept = folder / "library.so"
    shutil.copyfile(built, kept)
    # Compiling takes too long for thousands of times: the library that was compiled before is taken.
    compiler._compile = lambda compiler, flags, source, target: shutil.copyfile(kept, target)  # type: ignore[assignment]
    return [
        Kind("weights", run.weights, weights(run.weights), 0.2),
        Kind("sparse weights", folder / "sparse.safetensors", weights(folder / "sparse.safetensors"), 0.15),
        Kind("checkpoint", run.checkpoint, checkpoint, 0.2),
        Kind("configuration", run.config, run.read_config, 0.1),
        Kind("options (edited by people: only the errors are judged)", run.options, options, 0.05),
        Kind("metrics", run.metrics, run.read_metrics, 0.1),
        Kind("result", run.result, run.read_result, 0.05),
        Kind("library", built, library, 0.1),
        Kind("sweep storage", folder / "sweep.db", storage, 0.05),
    ]


def objective(trial: Any, point: dict[str, float]) -> tuple[float, float]:
    trial.set_user_attr("history", [[0.5, 0.25], [0.125, 0.1]])
    return point["x"] / 3, 1 / point["x"]


def train_once(folder: Path) -> None:
    """The files of a finished run; in a child, because the parent must not have run a backward pass."""
    loop._CHECKPOINT_SECONDS = 0.0
    data = load_dataset(_CONFIG)
    model, regularizer = assemble(_CONFIG, data)
    run = open_run(folder / "run", _CONFIG)
    for _ in train(model, data, regularizer, _CONFIG, run):
        pass
    run.previous_checkpoint.unlink()
    run.options.write_text('dataset = "digits"\nstrength = 0.002\nepochs = 4\n')


def save_sparse(run: RunDirectory, network: Callable[[], nn.Module], path: Path) -> None:
    gossamer.save(gossamer.load(run.weights, network()), path, sparse=True)


def state_of(model: nn.Module) -> dict[str, Any]:
    return {name: (tensor.dtype, tensor.tolist()) for name, tensor in model.state_dict().items()}


def remove(path: Path) -> None:
    """Remove a file; of a database also the log and index that reading a damaged one may have left beside it."""
    for each in (path, *(path.with_name(path.name + ending) for ending in ("-wal", "-shm", "-journal"))):
        each.unlink(missing_ok=True)


def read_batch(kind: Kind, whole: bytes, expected: str, seed: int, count: int, report: Path) -> None:
    """What a child does: damage and read so many files, and write down what came of them."""
    draw, seen = random.Random(seed), Counter[str]()
    warnings.simplefilter("ignore")
    for number in range(count):
        remove(kind.path)
        content = damaged(whole, draw)
        kind.path.write_bytes(content)
        kind.path.chmod(0o700)
        try:
            outcome = "the same" if repr(kind.read()) == expected else "OTHER CONTENT"
        except GossamerError as error:
            outcome = "refused" if str(error) and "Traceback" not in str(error) else "NO MESSAGE"
        except Exception as error:
            outcome = f"RAISED {type(error).__name__}: {error}"[:200]
        if outcome not in ("the same", "refused"):
            outcome = f"{outcome} (seed {seed}, file {number})"
            shutil.copyfile(kind.path, f"{report}.{seed}.{number}") if kind.path.exists() else None
        seen[outcome] += 1
    report.write_text(json.dumps(seen))


def soak(kind: Kind, files: int, folder: Path) -> Counter[str]:
    """Damage files of one kind, in children."""
    whole, expected, seen = kind.path.read_bytes(), repr(kind.read()), Counter[str]()
    report = folder / "report.json"
    for seed, first in enumerate(range(0, files, _BATCH)):
        count = min(_BATCH, files - first)
        report.unlink(missing_ok=True)
        code = ended(
            fork(lambda seed=seed, count=count: read_batch(kind, whole, expected, seed, count, report), report)
        )
        if code == 0:
            seen.update(json.loads(report.read_text()))
        else:
            said = report.read_text() if report.exists() else ""
            seen[f"ENDED with {code} (seed {seed}) {said}"] += count
    remove(kind.path)
    kind.path.write_bytes(whole)
    return seen


def main(files: int) -> int:
    print(f"gossamer {gossamer.__version__}, torch {torch.__version__}, seeds from 0", flush=True)
    begin, bad = time.perf_counter(), 0
    torch.set_num_threads(1)
    with TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["XDG_CACHE_HOME"] = name
        assert ended(fork(lambda: train_once(folder), folder / "errors")) == 0, (folder / "errors").read_text()
        for kind in kinds(folder):
            seen = soak(kind, round(kind.share * files), folder)
            faults = {outcome: count for outcome, count in seen.items() if outcome not in ("the same", "refused")}
            bad += sum(faults.values())
            print(
                f"{kind.name}: {seen.total():,} damaged files, {seen['refused']:,} refused, {seen['the same']:,} gave "
                f"what was written, {sum(faults.values()):,} anything else; {time.perf_counter() - begin:.0f} s",
                flush=True,
            )
            for outcome, count in islice(faults.items(), 10):
                print(f"  {count} times: {outcome}", flush=True)
    print("nothing loaded silently, no traceback, no signal" if not bad else f"{bad} FAULTS", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000))
