"""Data sets of a few images in the published formats, and where the real ones are."""

from __future__ import annotations

import hashlib
import io
import os
import struct
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gossamer_lab.data import SOURCES, Source, find
from gossamer_lab.data.sources import Part

Contents = dict[str, bytes]


def _idx(array: np.ndarray) -> bytes:
    return bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def _tar_gz(files: Contents) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return stream.getvalue()


def _zipped(files: Contents) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return stream.getvalue()


def _contents(name: str) -> Contents:
    """The files of a data set with only a few images, made by a fixed seed."""
    random = np.random.default_rng(len(name))
    labels = np.arange(20, dtype=np.uint8) % 10
    if name in ("mnist", "fashion-mnist"):
        pixels = random.integers(0, 256, (20, 28, 28), dtype=np.uint8)
        return {
            "train-images-idx3-ubyte": _idx(pixels),
            "train-labels-idx1-ubyte": _idx(labels),
            "t10k-images-idx3-ubyte": _idx(pixels[:10]),
            "t10k-labels-idx1-ubyte": _idx(labels[:10]),
        }
    if name == "pendigits":
        rows = np.column_stack([random.integers(0, 101, (20, 16)), labels])
        text = "".join(",".join(f"{value:3d}" for value in row) + "\n" for row in rows)
        return {"pendigits.tra": text.encode(), "pendigits.tes": text[: len(text) // 2].encode()}
    if name == "sdd":
        rows = [[*random.normal(size=48), label] for label in range(1, 12) for _ in range(10)]
        text = "".join(" ".join(f"{value:.6g}" for value in row) + "\n" for row in rows)
        return {"Sensorless_drive_diagnosis.txt": text.encode()}
    batch = np.column_stack([labels, random.integers(0, 256, (20, 3072), dtype=np.uint8)])
    return {
        **{f"data_batch_{number}.bin": np.roll(batch, number, axis=0).tobytes() for number in range(1, 6)},
        "test_batch.bin": batch.tobytes(),
    }


@pytest.fixture
def small() -> Callable[[str], Contents]:
    """Make the files of a small data set."""
    return _contents


@pytest.fixture
def pack() -> Callable[[str, Contents], bytes]:
    """Make an archive of the kind that its name says."""
    return lambda name, files: (_zipped if name.endswith(".zip") else _tar_gz)(files)


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No data of this machine, except where a test asks for it."""
    monkeypatch.delenv("GOSSAMER_DATA", raising=False)
    monkeypatch.setattr("gossamer_lab.data.files.cache_dir", lambda: tmp_path / "cache")
    monkeypatch.setattr("gossamer_lab.data.fetching.cache_dir", lambda: tmp_path / "cache")
    monkeypatch.setattr("gossamer_lab.data.files._SYSTEM", tmp_path / "system")


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Contents], Source]:
    """Let these be the published files of a data set."""

    def publish(name: str, contents: Contents) -> Source:
        parts = [Part(file, len(data), hashlib.sha256(data).hexdigest()) for file, data in contents.items()]
        monkeypatch.setitem(SOURCES, name, replace(SOURCES[name], parts=tuple(parts)))
        return SOURCES[name]

    return publish


# Read before a test takes the variable away.
_REAL = os.environ.get("GOSSAMER_DATA")


@pytest.fixture
def real() -> Callable[[str], Path]:
    """The folder of the real data; the test is skipped where it is not."""

    def folder(name: str) -> Path:
        if not _REAL:
            pytest.skip("GOSSAMER_DATA does not say where the real data sets are")
        if len(find(SOURCES[name], [Path(_REAL)])) < len(SOURCES[name].parts):
            pytest.skip(f"GOSSAMER_DATA holds no {name}")
        return Path(_REAL)

    return folder
