"""Downloads from a real server on this machine, good and bad."""

from __future__ import annotations

import gzip
import hashlib
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from gossamer.errors import GossamerError
from gossamer.files import scratch_folder
from gossamer_lab.cli import main
from gossamer_lab.data import SOURCES, Source, fetch, load, obtain
from gossamer_lab.data.sources import Mirror

Contents = dict[str, bytes]
Publish = Callable[[str, Contents], Source]
Make = Callable[[str], Contents]
Pack = Callable[[str, Contents], bytes]


class Server:
    """Serves `files`; of what is in `truncated` only half, of what is in `slow` some bytes, one now and then.

    Remembers what it was asked for.
    """

    def __init__(self) -> None:
        self.files: Contents = {}
        self.truncated: set[str] = set()
        self.slow: set[str] = set()
        self.closing = threading.Event()
        self.asked: list[str] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                name = self.path[1:]
                server.asked.append(name)
                if name not in server.files:
                    self.send_error(404)
                    return
                data = server.files[name]
                self.send_response(200)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                if name in server.slow:
                    for byte in data[:100]:
                        self.wfile.write(bytes([byte]))
                        if server.closing.wait(0.1):
                            break
                    return
                self.wfile.write(data[: len(data) // 2] if name in server.truncated else data)

            def log_message(self, *_: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_port}/"
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def close(self) -> None:
        self.closing.set()
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    server = Server()
    yield server
    server.close()


@pytest.fixture
def refusing() -> str:
    """An address where nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}/"


def md5(data: bytes) -> str:
    return f"md5:{hashlib.md5(data).hexdigest()}"


@pytest.fixture
def mnist(
    server: Server, published: Publish, small: Make, monkeypatch: pytest.MonkeyPatch
) -> Callable[[list[str]], Contents]:
    """Let a small MNIST be on these mirrors, the server one of them; return what is sent."""

    def publish(mirrors: list[str]) -> Contents:
        contents = small("mnist")
        sent = {f"{name}.gz": gzip.compress(data, mtime=0) for name, data in contents.items()}
        checksums = {name: md5(data) for name, data in sent.items()}
        source = published("mnist", contents)
        mirrored = replace(source, mirrors=tuple(Mirror(url, checksums) for url in mirrors))
        monkeypatch.setitem(SOURCES, "mnist", mirrored)
        server.files.update(sent)
        return sent

    return publish


def test_what_was_fetched_can_be_loaded_and_is_not_fetched_again(
    server: Server, mnist: Callable[[list[str]], Contents], tmp_path: Path
) -> None:
    sent = mnist([server.url])
    calls: list[tuple[str, int, int]] = []
    new = fetch("mnist", tmp_path / "data", lambda *call: calls.append(call))
    assert {path.relative_to(tmp_path / "data" / "mnist").as_posix(): path.read_bytes() for path in new} == sent
    assert len(list((tmp_path / "data" / "mnist").iterdir())) == len(sent)
    assert all((name, len(data), len(data)) in calls for name, data in sent.items())
    assert all(0 <= done <= total for _, done, total in calls)
    assert len(load("mnist", tmp_path / "data").train_images) == 20
    assert fetch("mnist", tmp_path / "data") == []
    assert len(server.asked) == len(sent)


def test_what_a_killed_download_left_is_removed(
    server: Server, mnist: Callable[[list[str]], Contents], tmp_path: Path
) -> None:
    sent = mnist([server.url])
    (tmp_path / "mnist").mkdir()
    with scratch_folder(tmp_path / "mnist", "fetch") as used:
        left = used.with_name(used.name.replace(".partial", ".killed.partial"))
        left.mkdir()
        (left / next(iter(sent))).write_text("half")
        fetch("mnist", tmp_path)
        assert used.exists()  # another process downloads there
    assert {path.name for path in (tmp_path / "mnist").iterdir()} == set(sent)


def test_without_a_folder_the_cache_takes_the_files(
    server: Server, mnist: Callable[[list[str]], Contents], tmp_path: Path
) -> None:
    mnist([server.url])
    assert {path.parent for path in fetch("mnist")} == {tmp_path / "cache" / "mnist"}
    assert load("mnist").name == "mnist"


def test_only_what_is_nowhere_is_fetched(
    server: Server, mnist: Callable[[list[str]], Contents], tmp_path: Path
) -> None:
    sent = mnist([server.url])
    obtain("mnist", tmp_path / "data")
    assert len(load("mnist", tmp_path / "data").train_images) == 20
    assert {path.name for path in (tmp_path / "cache" / "mnist").iterdir()} == set(sent)
    obtain("mnist")
    (tmp_path / "cache").rename(tmp_path / "data")
    obtain("mnist", tmp_path / "data")
    obtain("digits")
    assert len(server.asked) == len(sent)


def test_what_can_neither_be_found_nor_fetched_is_said_by_the_command(
    refusing: str,
    mnist: Callable[[list[str]], Contents],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    mnist([refusing])
    for words in (["train", "mnist", "--run-dir", str(tmp_path / "run")], ["paper", "filters", "--quick"]):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr("sys.argv", ["gossamer", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 2
        message = capsys.readouterr().err
        assert message.startswith(f"error: Data set 'mnist' could not be downloaded: {refusing} could not be reached.")
        assert "--data-dir" in message
        assert message.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["pendigits", "sdd", "cifar-10"])
def test_an_archive_without_a_known_checksum_is_judged_by_what_it_holds(
    name: str,
    server: Server,
    published: Publish,
    small: Make,
    pack: Pack,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    contents = small(name)
    source = published(name, contents)
    (archive,) = source.archives
    monkeypatch.setitem(SOURCES, name, replace(source, mirrors=(Mirror(server.url, {archive: None}),)))
    first = next(iter(contents))
    for wrong in (b"<html>busy</html>", pack(archive, {**contents, first: b"other"}), pack(archive, {})):
        server.files[archive] = wrong
        with pytest.raises(GossamerError, match=f"sent a .*{first}.* not the published"):
            fetch(name, tmp_path / "data")
        assert not (tmp_path / "data").exists()
    server.files[archive] = pack(archive, contents)
    assert fetch(name, tmp_path / "data") == [tmp_path / "data" / name / archive]
    assert load(name, tmp_path / "data").name == name


@pytest.mark.parametrize("failure", ["checksum", "truncated", "404", "refused"])
def test_a_failed_download_is_one_line_and_leaves_nothing(
    failure: str, server: Server, refusing: str, mnist: Callable[[list[str]], Contents], tmp_path: Path
) -> None:
    mnist([refusing if failure == "refused" else server.url])
    last = "t10k-labels-idx1-ubyte.gz"
    if failure == "checksum":
        server.files[last] = gzip.compress(b"other")
    elif failure == "truncated":
        server.truncated.add(last)
    elif failure == "404":
        del server.files[last]
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "mine.txt").write_text("mine")
    said = {
        "checksum": f"sent a {last} that is not the published one",
        "truncated": "closed the connection in the middle of a file",
        "404": "failed .404 ",
        "refused": "could not be reached",
    }
    with pytest.raises(GossamerError, match=said[failure]) as caught:
        fetch("mnist", tmp_path / "data")
    message = str(caught.value)
    assert "\n" not in message
    assert f"to {tmp_path / 'data' / 'mnist'}" in message
    assert [path.name for path in tmp_path.rglob("*")] == ["data", "mine.txt"]


@pytest.mark.parametrize("failure", ["checksum", "truncated", "404", "refused"])
def test_the_next_mirror_is_tried(
    failure: str, server: Server, refusing: str, mnist: Callable[[list[str]], Contents], tmp_path: Path
) -> None:
    sent = mnist([refusing if failure == "refused" else f"{server.url}bad/", server.url])
    for name, data in sent.items():
        if failure != "404":
            server.files[f"bad/{name}"] = data
    if failure == "checksum":
        server.files["bad/t10k-labels-idx1-ubyte.gz"] = b"other"
    elif failure == "truncated":
        server.truncated.add("bad/train-images-idx3-ubyte.gz")
    assert len(fetch("mnist", tmp_path)) == 4
    assert sorted(path.name for path in (tmp_path / "mnist").iterdir()) == sorted(sent)


def test_a_wrong_file_that_is_already_there_is_not_touched(
    server: Server, mnist: Callable[[list[str]], Contents], tmp_path: Path
) -> None:
    mnist([server.url])
    (tmp_path / "mnist").mkdir()
    (tmp_path / "mnist" / "train-labels-idx1-ubyte").write_bytes(b"mine")
    with pytest.raises(GossamerError, match=r"train-labels-idx1-ubyte holds 4 bytes.*Delete it and run"):
        fetch("mnist", tmp_path)
    assert (tmp_path / "mnist" / "train-labels-idx1-ubyte").read_bytes() == b"mine"
    assert server.asked == []


def test_digits_needs_no_download() -> None:
    assert fetch("digits") == []


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    with pytest.raises(GossamerError, match=r"Unknown data set 'minst'. Available: digits, mnist"):
        fetch("minst")


def test_a_file_that_does_not_end_is_stopped(
    server: Server, mnist: Callable[[list[str]], Contents], tmp_path: Path
) -> None:
    name = next(iter(mnist([server.url])))
    server.files[name] = bytes(3 << 20)
    with pytest.raises(GossamerError, match=rf"sent more than the [\d,]+ bytes that {name} can have"):
        fetch("mnist", tmp_path / "data")
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("limit", [-1.0, 0.3])
def test_a_file_that_takes_too_long_is_stopped(
    limit: float,
    server: Server,
    mnist: Callable[[list[str]], Contents],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gossamer_lab.data.fetching._TIME_LIMIT", limit)
    name = next(iter(mnist([server.url])))
    server.slow.add(name)
    with pytest.raises(GossamerError, match=f"took too long to send {name}"):
        fetch("mnist", tmp_path / "data")
