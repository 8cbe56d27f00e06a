"""Where files are looked for, in which layouts, and what is said about those that are missing or damaged."""

from __future__ import annotations

import gzip
import io
import lzma
import pickle
import struct
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from gossamer.errors import GossamerError
from gossamer_lab.data import LOADERS, SOURCES, Source, inspect, load

Contents = dict[str, bytes]
Publish = Callable[[str, Contents], Source]
Make = Callable[[str], Contents]
Pack = Callable[[str, Contents], bytes]
NAMES = [name for name in LOADERS if SOURCES[name].parts]


def idx(array: np.ndarray) -> bytes:
    return bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def write(folder: Path, files: Contents, compression: str = "") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    pack = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress}[compression]
    for name, data in files.items():
        (folder / f"{name}{compression}").write_bytes(pack(data))


def test_digits_is_the_only_one_without_files() -> None:
    assert [name for name in SOURCES if name not in NAMES] == ["digits"]
    assert list(SOURCES) == list(LOADERS) == ["digits", "mnist", "fashion-mnist", "pendigits", "sdd", "cifar-10"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("compression", ["", ".gz", ".xz"])
def test_every_layout_gives_the_same_images(
    name: str, compression: str, tmp_path: Path, published: Publish, small: Make, pack: Pack
) -> None:
    contents = small(name)
    source = published(name, contents)
    loaded = []
    for number, folder in enumerate(source.folders):
        write(tmp_path / str(number) / folder, contents, compression)
        loaded.append(load(name, tmp_path / str(number)))
    for archive in source.archives:
        # In another order, with something else in it.
        files = {"readme.html": b"hello", **dict(reversed(contents.items()))}
        write(tmp_path / "archive" / name, {archive: pack(archive, files)})
        loaded.append(load(name, tmp_path / "archive"))
    for dataset in loaded:
        assert dataset.name == name
        assert dataset.input_shape == source.input_shape
        assert dataset.train_images.dtype == dataset.test_images.dtype == torch.float32
        assert dataset.train_labels.dtype == dataset.test_labels.dtype == torch.int64
        assert set(dataset.train_labels.tolist()) == set(range(source.classes))
        assert torch.equal(dataset.train_images, loaded[0].train_images)
        assert torch.equal(dataset.test_images, loaded[0].test_images)


def test_pixels_are_where_they_were(tmp_path: Path, published: Publish, small: Make) -> None:
    for name in ("mnist", "fashion-mnist", "cifar-10", "pendigits"):
        contents = small(name)
        published(name, contents)
        write(tmp_path / name, contents)
    pixels = np.frombuffer(small("mnist")["t10k-images-idx3-ubyte"], np.uint8, offset=16)
    images = load("mnist", tmp_path).test_images
    assert torch.equal((255 * images).round().to(torch.uint8).flatten(), torch.tensor(pixels))
    pixels = np.frombuffer(small("fashion-mnist")["t10k-images-idx3-ubyte"], np.uint8, offset=16)
    images = load("fashion-mnist", tmp_path).test_images
    expected = (torch.tensor(pixels).double() / 255 - 0.2860) / 0.3530
    torch.testing.assert_close(images.flatten().double(), expected, rtol=0, atol=1e-6)
    batch = np.frombuffer(small("cifar-10")["test_batch.bin"], np.uint8).reshape(-1, 3073)
    images = load("cifar-10", tmp_path).test_images
    blue = (torch.tensor(batch[3, 1 + 2 * 1024 + 32 * 5 + 7]).double() / 255 - 0.4465) / 0.2616
    torch.testing.assert_close(images[3, 2, 5, 7].double(), blue, rtol=0, atol=1e-6)
    first = small("pendigits")["pendigits.tra"].decode().splitlines()[0].split(",")
    assert not load("pendigits", tmp_path).is_image
    assert load("pendigits", tmp_path).train_images[0].flatten().mul(100).round().tolist() == list(map(int, first[:16]))


def test_cifar_batches_keep_their_order(tmp_path: Path, published: Publish, small: Make, pack: Pack) -> None:
    contents = small("cifar-10")
    published("cifar-10", contents)
    write(tmp_path / "cifar-10", {"cifar-10-binary.tar.gz": pack(".tar.gz", dict(reversed(contents.items())))})
    labels = [contents[f"data_batch_{number}.bin"][::3073] for number in range(1, 6)]
    assert load("cifar-10", tmp_path).train_labels.tolist() == list(b"".join(labels))


def test_sdd_is_standardised_by_its_training_part_and_clipped(tmp_path: Path, published: Publish, small: Make) -> None:
    rows = [line.split() for line in small("sdd")["Sensorless_drive_diagnosis.txt"].decode().splitlines()]
    rows[0][0] = "4000"
    contents = {"Sensorless_drive_diagnosis.txt": "\n".join(map(" ".join, rows)).encode()}
    published("sdd", contents)
    write(tmp_path / "sdd", contents)
    dataset = load("sdd", tmp_path)
    assert not dataset.is_image
    assert (len(dataset.train_images), len(dataset.test_images)) == (88, 22)
    assert dataset.test_labels.bincount().tolist() == [2] * 11
    assert dataset.train_images[:, 0, 1:].mean(dim=0).abs().max() < 1e-6
    torch.testing.assert_close(dataset.train_images[:, 0, 1:].std(dim=0, correction=0), torch.ones(47))
    assert max(dataset.train_images.max(), dataset.test_images.max()) == 8


def test_places_are_looked_at_in_their_order(
    tmp_path: Path, published: Publish, monkeypatch: pytest.MonkeyPatch, small: Make
) -> None:
    contents = small("pendigits")
    source = published("pendigits", contents)
    monkeypatch.setenv("GOSSAMER_DATA", str(tmp_path / "named"))
    for place in ("system", "cache", "named", "folder"):
        write(tmp_path / place / "pendigits", contents, ".gz")
        load("pendigits", tmp_path / "folder")
        # Damaged, it is noticed if and only if it comes first.
        write(tmp_path / place / "pendigits", dict.fromkeys(contents, b"1"), ".gz")
        with pytest.raises(GossamerError, match=f"/{place}/pendigits/pendigits.tra.gz holds"):
            load("pendigits", tmp_path / "folder")
    assert inspect(source, [tmp_path / "nowhere"])[0].state == "missing"


@pytest.mark.parametrize("fault", ["method", "name"])
def test_a_strange_zip_archive_is_named(fault: str, tmp_path: Path, published: Publish, small: Make) -> None:
    contents = small("sdd")
    (archive,) = published("sdd", contents).archives
    ((name, data),) = contents.items()
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_LZMA if fault == "method" else zipfile.ZIP_STORED) as packed:
        packed.writestr(name if fault == "method" else f"{name}\u00fc", data)
    content = stream.getvalue() if fault == "method" else stream.getvalue().replace("\u00fc".encode(), b"\xff\xff")
    write(tmp_path / "sdd", {archive: content})
    said = "is packed by method 14" if fault == "method" else "cannot be read .*utf-8"
    with pytest.raises(GossamerError, match=rf"diagnosis\.zip .*{said}.*Delete it"):
        load("sdd", tmp_path)


def test_each_part_of_a_zip_archive_is_read_once(
    tmp_path: Path, published: Publish, small: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Entries that share their bytes would be unpacked again and again."""
    contents = small("sdd")
    (archive,) = published("sdd", contents).archives
    ((name, data),) = contents.items()
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as packed:
        for number in range(5):
            packed.writestr(f"{number}/{name}", data)
    write(tmp_path / "sdd", {archive: stream.getvalue()})
    opened, whole = [], zipfile.ZipFile.open
    monkeypatch.setattr(zipfile.ZipFile, "open", lambda *args: opened.append(args[1]) or whole(*args))
    load("sdd", tmp_path)
    assert len(opened) == 1


def test_what_is_missing_is_one_error_with_all_remedies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOSSAMER_DATA", str(tmp_path / "named"))
    write(tmp_path / "folder" / "mnist", {"train-images-idx3-ubyte": b""})
    with pytest.raises(GossamerError) as caught:
        load("mnist", tmp_path / "folder")
    message = str(caught.value)
    assert message.startswith(
        "Data set 'mnist' was not found: no train-labels-idx1-ubyte, t10k-images-idx3-ubyte, t10k"
    )
    looked = [message.index(str(tmp_path / place / "mnist")) for place in ("folder", "named", "cache", "system")]
    assert looked == sorted(looked)
    assert "\n" not in message
    for remedy in ("`gossamer data fetch mnist`", "`--data-dir`", "GOSSAMER_DATA"):
        assert remedy in message


def damaged(data: bytes) -> dict[str, bytes]:
    packed = gzip.compress(data)
    return {
        ": holds .* bytes; t10k": gzip.compress(data[:-1]),
        ": holds more than": gzip.compress(data + b"x"),
        ": its SHA-256 differs": gzip.compress(data[:-2] + bytes((data[-2] ^ 1, data[-1]))),
        ": cannot be read .*in the middle of its data": packed[: len(packed) // 2],
        ": cannot be read .*incorrect header": data,
        ": cannot be read .*incorrect data check": packed[:-8] + bytes(4) + packed[-4:],
    }


@pytest.mark.parametrize("damage", list(damaged(bytes(9))))
def test_a_damaged_file_is_named_with_what_to_do(damage: str, tmp_path: Path, published: Publish, small: Make) -> None:
    contents = small("mnist")
    source = published("mnist", contents)
    write(tmp_path / "mnist", contents, ".gz")
    path = tmp_path / "mnist" / "t10k-images-idx3-ubyte.gz"
    path.write_bytes(damaged(contents["t10k-images-idx3-ubyte"])[damage])
    complaint = rf"{path} .*{damage.split(': ')[1]}.*\. Delete it and run `gossamer data fetch mnist`\."
    with pytest.raises(GossamerError, match=complaint):
        load("mnist", tmp_path)
    assert [state.state for state in inspect(source, [tmp_path])] == ["ok", "ok", "wrong", "ok"]


@pytest.mark.parametrize("name", ["pendigits", "cifar-10"])
def test_a_damaged_archive_is_named(name: str, tmp_path: Path, published: Publish, small: Make, pack: Pack) -> None:
    contents = small(name)
    (archive,) = published(name, contents).archives
    whole, incomplete = pack(archive, contents), pack(archive, dict(list(contents.items())[1:]))
    for data, complaint in ((whole[: len(whole) // 2], "cannot be read"), (incomplete, "does not hold")):
        write(tmp_path / name, {archive: data})
        with pytest.raises(GossamerError, match=rf"{archive.replace('+', '.')} {complaint}.*Delete it"):
            load(name, tmp_path)


@pytest.mark.parametrize(
    ("name", "file", "data", "complaint"),
    [
        ("mnist", "train-images-idx3-ubyte", b"\x00\x00\x0d\x03" + bytes(12), "is not an IDX file: it begins with"),
        (
            "mnist",
            "train-images-idx3-ubyte",
            idx(np.zeros((20, 27, 28), np.uint8)),
            r"holds an array of shape \(20, 27",
        ),
        ("mnist", "train-labels-idx1-ubyte", idx(np.full(20, 10, np.uint8)), "has labels from 10 to 10; mnist has"),
        ("pendigits", "pendigits.tes", b"1, 2, 3\n", "has 3 columns; 17 are expected"),
        ("pendigits", "pendigits.tes", b"1, 2, three\n", "is not a table of numbers"),
        ("pendigits", "pendigits.tes", b"\xff\n", "is not a table of numbers"),
        ("pendigits", "pendigits.tes", b"nan," * 16 + b" 1\n", "has values that are not finite"),
        (
            "sdd",
            "Sensorless_drive_diagnosis.txt",
            b"1 " * 48 + b"0\n",
            "has labels from 0 to 0; sdd has labels from 1 to 11",
        ),
        ("cifar-10", "test_batch.bin", bytes(3072), "holds 3,072 bytes, which is not a multiple of 3,073"),
        ("cifar-10", "test_batch.bin", b"\x0b" + bytes(3072), "has labels from 11 to 11"),
    ],
)
def test_what_no_loader_could_mean_is_refused(
    name: str, file: str, data: bytes, complaint: str, tmp_path: Path, published: Publish, small: Make
) -> None:
    # Published so, the checksum is right and only the parser can tell.
    contents = {**small(name), file: data}
    published(name, contents)
    write(tmp_path / name, contents)
    with pytest.raises(GossamerError, match=f"{file} {complaint}"):
        load(name, tmp_path)


@pytest.mark.parametrize("kind", ["folder", "archive"])
def test_the_pickled_version_of_cifar_is_never_opened(kind: str, tmp_path: Path, pack: Pack) -> None:
    class Trap:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return (pytest.fail, ("a pickle was opened",))

    if kind == "folder":
        write(tmp_path / "cifar-10" / "cifar-10-batches-py", {"data_batch_1": pickle.dumps(Trap())})
    else:
        write(tmp_path, {"cifar-10-python.tar.gz": pack(".tar.gz", {"data_batch_1": pickle.dumps(Trap())})})
    with pytest.raises(
        GossamerError, match=r"is the pickled version.*binary version: run `gossamer data fetch cifar-10`"
    ):
        load("cifar-10", tmp_path)


def test_an_archive_whose_header_claims_too_much_is_refused_quickly(
    tmp_path: Path, published: Publish, small: Make
) -> None:
    contents = small("cifar-10")
    (archive,) = published("cifar-10", contents).archives
    header = tarfile.TarInfo("cifar-10-batches-bin/readme.html")
    header.type, header.size = tarfile.XHDTYPE, 2**32  # tarfile would read such a header into memory
    packed = gzip.compress(header.tobuf(tarfile.USTAR_FORMAT) + bytes(2**23), mtime=0)
    write(tmp_path / "cifar-10", {archive: packed})
    with pytest.raises(GossamerError, match="unpacks to more than the published files"):
        load("cifar-10", tmp_path)


def test_an_xz_file_cannot_ask_for_more_memory_than_it_needs(tmp_path: Path, published: Publish, small: Make) -> None:
    contents = small("mnist")
    published("mnist", contents)
    write(tmp_path / "mnist", contents)
    name = next(iter(contents))
    filters = [{"id": lzma.FILTER_LZMA2, "dict_size": 2**29}]
    write(tmp_path / "mnist", {f"{name}.xz": lzma.compress(contents[name], filters=filters)})
    (tmp_path / "mnist" / name).unlink()
    with pytest.raises(GossamerError, match=r"cannot be read.*[Mm]emory"):
        load("mnist", tmp_path)


def many_members(archive: str) -> bytes:
    """Archives that take long to go through, and hold nothing."""
    if archive.endswith(".zip"):
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w") as packed:
            packed.writestr("a", b"")
        one = stream.getvalue()
        start, end = one.index(b"PK\x01\x02"), one.index(b"PK\x05\x06")
        count = 9_000
        entries = one[start:end] * count
        sizes = struct.pack("<HHII", count, count, len(entries), start)
        return one[:start] + entries + one[end : end + 8] + sizes + b"\0\0"
    members = tarfile.TarInfo("a").tobuf() * 4_000
    return gzip.compress(members + bytes(1024))


@pytest.mark.parametrize("name", ["sdd", "cifar-10"])
def test_an_archive_of_very_many_members_is_refused_quickly(
    name: str, tmp_path: Path, published: Publish, small: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    (archive,) = published(name, small(name)).archives
    write(tmp_path / name, {archive: many_members(archive)})
    made: list[object] = []
    for kind in (zipfile.ZipInfo, tarfile.TarInfo):
        monkeypatch.setattr(kind, "__init__", counting(kind.__init__, made))
    with pytest.raises(GossamerError, match=r"cannot be read .*(more than 500 members|which no published archive has)"):
        load(name, tmp_path)
    assert len(made) <= 501


def counting(method: Callable[..., None], made: list[object]) -> Callable[..., None]:
    def counted(self: object, *arguments: object, **options: object) -> None:
        made.append(self)
        method(self, *arguments, **options)

    return counted


def test_a_gzip_file_of_very_many_members_is_refused_quickly(tmp_path: Path, published: Publish, small: Make) -> None:
    contents = small("mnist")
    published("mnist", contents)
    write(tmp_path / "mnist", contents, ".gz")
    file = tmp_path / "mnist" / "t10k-labels-idx1-ubyte.gz"
    file.write_bytes(gzip.compress(b"") * 10_000 + file.read_bytes())
    with pytest.raises(GossamerError, match="holds 0 bytes"):
        load("mnist", tmp_path)


def test_a_file_that_is_larger_than_any_published_one_is_not_read(
    tmp_path: Path, published: Publish, small: Make
) -> None:
    contents = small("mnist")
    published("mnist", contents)
    write(tmp_path / "mnist", contents, ".xz")
    with (tmp_path / "mnist" / "t10k-labels-idx1-ubyte.xz").open("ab") as file:
        file.truncate(2**40)
    with pytest.raises(GossamerError, match="which no published file is"):
        load("mnist", tmp_path)
