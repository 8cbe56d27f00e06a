"""The files of each data set, their checksums and their public mirrors.

A file is identified by the SHA-256 of its uncompressed content, so one checksum serves every compression.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gossamer.errors import GossamerError

__all__ = ["SOURCES", "Mirror", "Part", "Source", "source"]


@dataclass(frozen=True)
class Part:
    """One published file: its name, and the size and SHA-256 of its uncompressed content."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Mirror:
    """A server with the whole data set.

    Attributes:
        url: Prefix of the file names.
        files: Checksum of each file as transferred, in pooch's notation; None where none was published. The parts
            inside are verified in any case.
    """

    url: str
    files: Mapping[str, str | None]


@dataclass(frozen=True)
class Source:
    """Files and sizes of a data set.

    Attributes:
        name: Name on the command line.
        input_shape: Shape of one image.
        train: Number of training images.
        test: Number of test images.
        classes: Number of classes.
        parts: The files; empty if the data set is distributed with another package.
        folders: Subfolders of a data folder to search. `fetch` writes to the first.
        archives: Archives of all parts, read without unpacking.
        pickles: File names of the pickled version, which is never opened because a pickle can execute code.
        mirrors: Servers in the order they are tried.
    """

    name: str
    input_shape: tuple[int, ...]
    train: int
    test: int
    classes: int
    parts: tuple[Part, ...] = ()
    folders: tuple[str, ...] = ()
    archives: tuple[str, ...] = ()
    pickles: tuple[str, ...] = ()
    mirrors: tuple[Mirror, ...] = field(default=(), repr=False)


_MNIST = (
    Part("train-images-idx3-ubyte", 47040016, "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"),
    Part("train-labels-idx1-ubyte", 60008, "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"),
    Part("t10k-images-idx3-ubyte", 7840016, "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"),
    Part("t10k-labels-idx1-ubyte", 10008, "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"),
)
_MNIST_SENT = {
    "train-images-idx3-ubyte.gz": "md5:f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "train-labels-idx1-ubyte.gz": "md5:d53e105ee54ea40749a09fcbcd1e9432",
    "t10k-images-idx3-ubyte.gz": "md5:9fb629c4189551a2d022fa330f9573f3",
    "t10k-labels-idx1-ubyte.gz": "md5:ec29112dd5afa0611ce80d1b7f02629c",
}

_FASHION = (
    Part("train-images-idx3-ubyte", 47040016, "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888"),
    Part("train-labels-idx1-ubyte", 60008, "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9"),
    Part("t10k-images-idx3-ubyte", 7840016, "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b"),
    Part("t10k-labels-idx1-ubyte", 10008, "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34"),
)
_FASHION_SENT = {
    "train-images-idx3-ubyte.gz": "md5:8d4fb7e6c68d591d4c3dfef9ec88bf0d",
    "train-labels-idx1-ubyte.gz": "md5:25c81989df183df01b3e8a0aad5dffbe",
    "t10k-images-idx3-ubyte.gz": "md5:bef4ecab320f06d8554ea6380940ec79",
    "t10k-labels-idx1-ubyte.gz": "md5:bb300cfdad3c16e7a12a480ee83cd310",
}

_PENDIGITS = (
    Part("pendigits.tra", 502098, "e2b9eb9f0d0467e2b64a4816a3420edf2b8043447576f4b84337aba44a9f97d3"),
    Part("pendigits.tes", 234366, "8bd03229c5c5291fefe43e45465dd948d2645bf23328b9d993e0b777666b2015"),
)
_PENDIGITS_ZIP = "pen+based+recognition+of+handwritten+digits.zip"

_SDD_TEXT = "Sensorless_drive_diagnosis.txt"
_SDD_ZIP = "dataset+for+sensorless+drive+diagnosis.zip"
_SDD = (Part(_SDD_TEXT, 25619870, "366b8c5c564a5a4d07600db9180d2871f51489104b554f6320781514059f35a9"),)

_CIFAR = (
    Part("data_batch_1.bin", 30730000, "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5"),
    Part("data_batch_2.bin", 30730000, "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed"),
    Part("data_batch_3.bin", 30730000, "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67"),
    Part("data_batch_4.bin", 30730000, "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48"),
    Part("data_batch_5.bin", 30730000, "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add"),
    Part("test_batch.bin", 30730000, "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b"),
)
_CIFAR_TAR = "cifar-10-binary.tar.gz"

# MNIST and Fashion-MNIST use the same file names, so each is searched in its own folders only. The second folder is
# torchvision's.
SOURCES: dict[str, Source] = {
    "digits": Source("digits", (1, 8, 8), 1437, 360, 10),
    "mnist": Source(
        name="mnist",
        input_shape=(1, 28, 28),
        train=60000,
        test=10000,
        classes=10,
        parts=_MNIST,
        folders=("mnist", "MNIST/raw"),
        mirrors=(
            Mirror("https://storage.googleapis.com/cvdf-datasets/mnist/", _MNIST_SENT),
            Mirror("https://ossci-datasets.s3.amazonaws.com/mnist/", _MNIST_SENT),
        ),
    ),
    "fashion-mnist": Source(
        name="fashion-mnist",
        input_shape=(1, 28, 28),
        train=60000,
        test=10000,
        classes=10,
        parts=_FASHION,
        folders=("fashion-mnist", "FashionMNIST/raw"),
        mirrors=(
            # This server has no https; the checksums protect the content.
            Mirror("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/", _FASHION_SENT),
            Mirror(
                "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/", _FASHION_SENT
            ),
        ),
    ),
    "pendigits": Source(
        name="pendigits",
        input_shape=(1, 4, 4),
        train=7494,
        test=3498,
        classes=10,
        parts=_PENDIGITS,
        folders=("pendigits", "."),
        archives=(_PENDIGITS_ZIP,),
        mirrors=(
            Mirror("https://archive.ics.uci.edu/static/public/81/", {_PENDIGITS_ZIP: None}),
            Mirror(
                "https://archive.ics.uci.edu/ml/machine-learning-databases/pendigits/",
                {part.name: f"sha256:{part.sha256}" for part in _PENDIGITS},
            ),
        ),
    ),
    "sdd": Source(
        name="sdd",
        input_shape=(1, 48),
        train=46807,
        test=11702,
        classes=11,
        parts=_SDD,
        folders=("sdd", "."),
        archives=(_SDD_ZIP,),
        mirrors=(
            Mirror("https://archive.ics.uci.edu/static/public/325/", {_SDD_ZIP: None}),
            Mirror(
                "https://archive.ics.uci.edu/ml/machine-learning-databases/00325/",
                {part.name: f"sha256:{part.sha256}" for part in _SDD},
            ),
        ),
    ),
    "cifar-10": Source(
        name="cifar-10",
        input_shape=(3, 32, 32),
        train=50000,
        test=10000,
        classes=10,
        parts=_CIFAR,
        folders=("cifar-10", "cifar-10/cifar-10-batches-bin", "cifar-10-batches-bin", "."),
        archives=(_CIFAR_TAR,),
        pickles=("cifar-10-python.tar.gz", "cifar-10-batches-py"),
        mirrors=(Mirror("https://www.cs.toronto.edu/~kriz/", {_CIFAR_TAR: "md5:c32a1d4ab5d03f1284b67883e8d87530"}),),
    ),
}


def source(name: str) -> Source:
    """Return the description of a data set's files."""
    if name not in SOURCES:
        raise GossamerError(f"Unknown data set {name!r}. Available: {', '.join(SOURCES)}.")
    return SOURCES[name]
