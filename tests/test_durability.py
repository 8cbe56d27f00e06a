"""What is written is on the disk before its name is, and its name before anything relies on it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import nn

from gossamer import export_c, save
from gossamer.compiler import load_library
from gossamer.files import write_atomically
from gossamer.regularizers import l1
from gossamer_lab.bench.journal import Journal
from gossamer_lab.data import Dataset
from gossamer_lab.reporting.results import ResultsFile
from gossamer_lab.sweeps import write_trials
from gossamer_lab.training import EpochMetrics, RunDirectory, TrainingConfig, open_run, train

Events = list[tuple[str, int]]


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> Events:
    """Calls of fsync and rename, with the number of the file or folder."""
    seen: Events = []
    fsync, replace = os.fsync, os.replace

    def flushed(descriptor: int) -> None:
        seen.append(("flush", os.fstat(descriptor).st_ino))
        fsync(descriptor)

    def renamed(source: str | Path, target: str | Path) -> None:
        seen.append(("rename", os.stat(source).st_ino))
        replace(source, target)

    monkeypatch.setattr(os, "fsync", flushed)
    monkeypatch.setattr(os, "replace", renamed)
    return seen


def durable(path: Path, events: Events) -> bool:
    """Whether a file was flushed, then renamed, and then its folder flushed."""
    number, folder = path.stat().st_ino, path.parent.stat().st_ino
    renamed = last(events, ("rename", number))
    return ("flush", number) in events[:renamed] and ("flush", folder) in events[renamed:]


def last(events: Events, event: tuple[str, int]) -> int:
    """When an event happened last: numbers of files that are gone are given again."""
    return len(events) - 1 - events[::-1].index(event)


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))


@pytest.mark.parametrize(
    ("write", "names"),
    [
        (lambda path: write_atomically(path, b"content"), ["file"]),
        (lambda path: save(net(), path), ["file"]),
        (lambda path: write_trials(path, []), ["file"]),
        (lambda path: export_c(net(), path.with_suffix(".c"), torch.zeros(1, 4)), ["file.c", "file.h"]),
    ],
    ids=["bytes", "weights", "trials", "c"],
)
def test_a_file(write: Callable[[Path], object], names: list[str], tmp_path: Path, events: Events) -> None:
    write(tmp_path / "file")
    assert all(durable(tmp_path / name, events) for name in names)


@dataclass(frozen=True)
class Number:
    value: int


@pytest.mark.parametrize(
    "append",
    [
        lambda path: Journal(path).measured("key", lambda: {"value": 1.5}),
        lambda path: ResultsFile(path, Number, Number).complete([Number(1)], lambda job: job, minutes=1),
    ],
    ids=["benchmark", "results"],
)
def test_a_line(append: Callable[[Path], object], tmp_path: Path, events: Events) -> None:
    append(tmp_path / "lines")
    number, folder = (tmp_path / "lines").stat().st_ino, tmp_path.stat().st_ino
    assert events[-1] == ("flush", number) or events[-2:] == [("flush", number), ("flush", folder)]


def test_a_compiled_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, events: Events) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    load_library("int answer(void) { return 42; }\n", "test", [["-shared", "-fPIC"]])
    (library,) = (tmp_path / "gossamer-libraries").glob("*.so")
    assert durable(library, events)


def test_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, events: Events) -> None:
    append = RunDirectory.append_metrics

    def appended(run: RunDirectory, metrics: EpochMetrics) -> None:
        append(run, metrics)
        events.append(("append", run.metrics.stat().st_ino))

    monkeypatch.setattr(RunDirectory, "append_metrics", appended)
    monkeypatch.setattr("gossamer_lab.training.loop._CHECKPOINT_SECONDS", 0.0)
    config = TrainingConfig(dataset="blobs", regularizer="l1", strength=1e-3, epochs=3, batch_size=16)
    points, labels = torch.randn(32, 4), torch.arange(32) % 2
    dataset = Dataset("blobs", points, labels, points, labels, classes=2)
    run = open_run(tmp_path / "run", config)
    assert ("flush", tmp_path.stat().st_ino) in events
    model = net()
    for _ in train(model, dataset, l1(model, 1e-3), config, run):
        # The metrics of the epoch were flushed before the checkpoint that relies on them got its name.
        metrics, checkpoint = run.metrics.stat().st_ino, run.checkpoint.stat().st_ino
        written, renamed = last(events, ("append", metrics)), last(events, ("rename", checkpoint))
        assert ("flush", metrics) in events[written:renamed]
    files = [file for file in run.files if file.exists()]
    assert {file.name for file in files} >= {
        "config.json", "metrics.jsonl", "checkpoint.pt", "checkpoint.previous.pt", "weights.safetensors",
        "small.safetensors", "result.json",
    }  # fmt: skip
    assert all(durable(file, events) for file in files)
