"""Runs that are killed with SIGKILL again and again end with the same bytes as a run that nobody disturbed.

Run as `PYTHONPATH=. python -m tests.lab.soak.kills 1000`. Half of the kills come at a random moment, half before a
random operation on a file: opening, renaming, creating or removing. Every run is resumed after each kill until it
finishes. The network, the shrunk network, the metrics (all but the seconds) and the result are compared.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import TCPStore

import gossamer
from gossamer.files import abandoned
from gossamer_lab.training import RunDirectory, TrainingConfig, assemble, load_dataset, loop, open_run, train

from .children import fork

_SETTINGS: dict[str, Any] = {
    "dataset": "digits", "regularizer": "integrated-tl1", "strength": 2e-3, "a": 1.0, "s": 0.1, "epochs": 12,
    "images": 300, "seed": 3,
}  # fmt: skip
_FILE_EVENTS = ("open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "shutil.copyfile", "os.listdir")


@dataclass(frozen=True)
class Case:
    """A configuration, and how many processes train it."""

    name: str
    config: TrainingConfig
    processes: int = 1


CASES = (
    Case("plain", TrainingConfig(**_SETTINGS)),
    Case("compaction", TrainingConfig(**_SETTINGS, compact_every=2)),
    Case("regrowth", TrainingConfig(**_SETTINGS, regrow=True)),
    Case("target", TrainingConfig(**{**_SETTINGS, "strength": 0.0, "target_params": 0.1, "epochs": 20})),
    Case("distributed", TrainingConfig(**_SETTINGS, compact_every=4), processes=2),
)
_SHARE = (0.3, 0.25, 0.2, 0.2, 0.05)  # of the kills


class Soak:
    """The killed runs of one case beside one that nobody disturbs."""

    def __init__(self, case: Case, folder: Path, draw: random.Random) -> None:
        self.case, self.draw = case, draw
        self.run = RunDirectory(folder / case.name)
        self.errors = folder / f"{case.name}.errors"
        self.data = load_dataset(case.config)
        self.kills, self.at_files, self.runs = 0, 0, 0
        started = time.perf_counter()
        assert not self.attempt()
        self.seconds = time.perf_counter() - started
        self.expected = contents(self.run)
        self.operations = int((folder / f"{case.name}.operations").read_text())

    def kill_until_done(self, kills: int) -> None:
        """Start a run, and kill and resume it until it is finished or has been killed so many times."""
        shutil.rmtree(self.run.path)
        while self.kills < kills:
            at_file = self.draw.random() < 0.5
            killed = self.attempt(
                seconds=None if at_file else self.draw.uniform(0, 1.2 * self.seconds),
                operation=self.draw.randrange(int(1.2 * self.operations)) if at_file else None,
            )
            if not killed:
                break
            self.kills, self.at_files = self.kills + 1, self.at_files + at_file
        else:
            assert not self.attempt()
        self.runs += 1
        received = contents(self.run)
        different = [name for name, content in self.expected.items() if received[name] != content]
        assert not different, f"{self.case.name}: after {self.kills} kills other bytes in {', '.join(different)}"
        left = [str(path) for file in self.run.files for path in abandoned(file)]
        assert not left, f"{self.case.name}: left behind: {left}"

    def attempt(self, seconds: float | None = None, operation: int | None = None) -> bool:
        """Start or resume the run, and kill it after some seconds or before an operation; whether that ended it."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        ranks = range(self.case.processes)
        dying = self.draw.choice(ranks)
        children = [
            fork(lambda rank=rank: self.train(rank, port, operation if rank == dying else None), self.errors)
            for rank in ranks
        ]
        if seconds is not None:
            time.sleep(seconds)
            for child in children:
                os.kill(child, signal.SIGKILL)  # a child that has ended is not waited for yet, so its number is its own
        codes = codes_of(children)
        if -signal.SIGKILL in codes:
            assert len(codes) > 1 or codes == [-signal.SIGKILL], self.said()  # the others see a broken connection
            return True
        assert set(codes) == {0}, f"{self.case.name}: {codes}, {self.said()}"
        return False

    def train(self, rank: int, port: int, operation: int | None) -> None:
        """What a child does."""
        torch.set_num_threads(1)
        counted = count_file_operations(operation)
        if self.case.processes > 1:
            store = TCPStore("127.0.0.1", port, self.case.processes, is_master=rank == 0)
            dist.init_process_group("gloo", store=store, rank=rank, world_size=self.case.processes)
        model, regularizer = assemble(self.case.config, self.data)
        if rank == 0:
            open_run(self.run.path, self.case.config, resume=True)
        if self.case.processes > 1:
            dist.barrier()
        for _ in train(model, self.data, regularizer, self.case.config, self.run):
            pass
        if rank == 0 and operation is None:
            self.errors.with_suffix(".operations").write_text(str(counted()))

    def said(self) -> str:
        return self.errors.read_text() if self.errors.exists() else ""


def codes_of(children: list[int]) -> list[int]:
    """Wait for processes, as torchrun does: if one fails, the others are ended."""
    alive, codes = set(children), []
    while alive:
        child, status = os.waitpid(-1, 0)
        alive.remove(child)
        codes.append(os.waitstatus_to_exitcode(status))
        for other in alive if codes[-1] != 0 else ():
            os.kill(other, signal.SIGKILL)
    return codes


def count_file_operations(last: int | None) -> Callable[[], int]:
    """Count operations on files in this process, which kills itself before the one of number `last`."""
    count = 0

    def hook(event: str, args: tuple[object, ...]) -> None:
        nonlocal count
        if event in _FILE_EVENTS:
            if count == last:
                os.kill(os.getpid(), signal.SIGKILL)
            count += 1

    sys.addaudithook(hook)
    return lambda: count


def contents(run: RunDirectory) -> dict[str, object]:
    """What must not depend on kills: everything but times."""
    result = json.loads(run.result.read_text())
    metrics = [json.loads(line) for line in run.metrics.read_text().splitlines()]
    for record in (result, *metrics):
        record.pop("seconds")
        record.pop("sha256")  # covers the seconds, as the fingerprint does
    result.pop("fingerprint")
    result["small"] = {name: value for name, value in result["small"].items() if "seconds" not in name}
    return {
        "weights": run.weights.read_bytes(),
        "shrunk network": run.small.read_bytes(),
        "metrics": metrics,
        "result": result,
    }


def warm_up(case: Case) -> tuple[torch.nn.Module, torch.Tensor]:
    """A network and its input: the first export of a process takes seconds, which every child would repeat."""
    data = load_dataset(case.config)
    return assemble(case.config, data)[0], data.example


def main(kills: int) -> None:
    loop._CHECKPOINT_SECONDS = 0.0  # a checkpoint after every epoch, however short it is
    gossamer.shrink(*warm_up(CASES[0]))
    print(f"gossamer {gossamer.__version__}, torch {torch.__version__}, seed 0", flush=True)
    started, draw, total = time.perf_counter(), random.Random(0), 0
    with TemporaryDirectory() as folder:
        for case, share in zip(CASES, _SHARE, strict=True):
            soak = Soak(case, Path(folder), draw)
            wanted = round(share * kills)
            while soak.kills < wanted:
                soak.kill_until_done(wanted)
            total += soak.kills
            print(
                f"{case.name}: {soak.kills} kills, {soak.at_files} of them before an operation on a file; {soak.runs} "
                f"runs of {soak.seconds:.1f} s ended with the same bytes; {time.perf_counter() - started:.0f} s",
                flush=True,
            )
    print(f"{total} kills", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
