"""Tests that files of another host are read and written, and that refusals are errors of Python."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import zerolane
from conftest import Served, freeze, interrupt, is_exported, pattern, serving_files
from zerolane import FileClient

MIB = 1 << 20


def test_read_into__lands_in_the_buffer(served: Served) -> None:
    content = pattern(3 * MIB + 5)
    (served.directory / "file").write_bytes(content.tobytes())
    client = FileClient(served.address)
    place = np.zeros(content.size + 10, dtype=np.uint8)
    length, status = client.read_into("file", 0, place)
    assert (length, status.size, status.kind) == (content.size, content.size, "file")
    assert (place[:length] == content).all() and not place[length:].any()
    for offset, size in [(0, 1), (7, 9), (MIB - 1, 2), (MIB + 1, 2 * MIB), (content.size - 1, 1)]:
        part = np.zeros(size, dtype=np.uint8)
        assert client.read_into("file", offset, part)[0] == size
        assert (part == content[offset : offset + size]).all()
    assert client.read_into("file", content.size, bytearray(8))[0] == 0
    assert client.read_into("file", 2**64 - 1, bytearray(8))[0] == 0
    assert client.read_into("file", 0, bytearray())[0] == 0
    with pytest.raises(BufferError):
        client.read_into("file", 0, bytes(8))
    buffer = bytearray(8)
    client.read_into("file", 0, buffer)
    client.close()
    assert not is_exported(buffer)


def test_read_into__more_than_one_request(served: Served) -> None:
    with open(served.directory / "file", "wb") as file:
        file.truncate(130 * MIB)
        for at in range(0, 130 * MIB, MIB):
            os.pwrite(file.fileno(), at.to_bytes(8), at)
    place = np.ones(140 * MIB, dtype=np.uint8)
    assert FileClient(served.address).read_into("file", 0, place)[0] == 130 * MIB
    marks = place[: 130 * MIB].reshape(130, MIB)[:, :8]
    assert marks.tobytes() == b"".join(at.to_bytes(8) for at in range(0, 130 * MIB, MIB))


def test_status_and_list(served: Served) -> None:
    (served.directory / "sub" / "deeper").mkdir(parents=True)
    (served.directory / "sub" / "one [*]?\\").write_bytes(b"1")
    (served.directory / "sub" / "deeper" / "two").write_bytes(b"22")
    (served.directory / "link").symlink_to("sub/deeper/two")
    client = FileClient(served.address)
    assert client.status("").kind == client.status("sub").kind == "directory"
    status = client.status("link")
    assert (status.kind, status.size, status.target) == ("file", 2, None)
    stat = (served.directory / "sub/deeper/two").stat()
    assert (status.mtime_ns, status.mode) == (stat.st_mtime_ns, stat.st_mode & 0o7777)
    assert {name: it.kind for name, it in client.list("")} == {"sub": "directory", "link": "link"}
    assert dict(client.list(""))["link"].target == "sub/deeper/two"
    assert [name for name, _ in client.list("sub", recursive=True)] == [
        "deeper",
        "deeper/two",
        "one [*]?\\",
    ]
    assert client.list("sub/one [*]?\\")[0][1].size == 1
    with pytest.raises(FileNotFoundError):
        client.list("sub/*")
    for missing in ("none", "sub/none"):
        with pytest.raises(FileNotFoundError, match="no such file"):
            client.status(missing)
    with pytest.raises(PermissionError, match="leads outside"):
        client.status("../share")
    with pytest.raises(IsADirectoryError):
        client.read_into("sub", 0, bytearray(1))


def test_read_into__a_file_that_changed_since(served: Served) -> None:
    (served.directory / "file").write_bytes(b"before")
    client = FileClient(served.address)
    status = client.status("file")
    assert client.read_into("file", 0, bytearray(6), unchanged=status) == (6, status)
    (served.directory / "new").write_bytes(b"behind")
    os.replace(served.directory / "new", served.directory / "file")
    assert client.status("file") != status
    with pytest.raises(OSError, match="changed"):
        client.read_into("file", 0, bytearray(6), unchanged=status)


def test_put_get_and_names(served: Served, tmp_path: Path) -> None:
    content = pattern(2 * MIB + 9).tobytes()
    (tmp_path / "local").write_bytes(content)
    client = FileClient(served.address)
    client.make_directory("a/b/c", parents=True)
    with pytest.raises(FileExistsError):
        client.make_directory("a/b")
    client.put(tmp_path / "local", "a/file")
    assert (served.directory / "a" / "file").read_bytes() == content
    client.get("a/file", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == content
    client.rename("a/file", "a/other")
    client.put(tmp_path / "local", "a/file")
    with pytest.raises(FileExistsError):
        client.rename("a/file", "a/other", replace=False)
    with pytest.raises(IsADirectoryError):
        client.remove("a")
    client.remove("a/file")
    assert sorted(os.listdir(served.directory / "a")) == ["b", "other"]
    client.remove("a", recursive=True)
    assert os.listdir(served.directory) == []
    missing: list[Callable[[], None]] = [
        lambda: client.remove("none"),
        lambda: client.get("none", tmp_path / "back"),
        lambda: client.put(tmp_path / "none", "file"),
    ]
    for fails in missing:
        with pytest.raises(FileNotFoundError):
            fails()


def test_upload__appears_when_it_is_finished(served: Served) -> None:
    client = FileClient(served.address)
    path = served.directory / "file"
    upload = client.upload("file")
    content = pattern(3 * MIB + 1).tobytes()
    written = 0
    while written < len(content):
        written += os.write(upload.fileno(), memoryview(content)[written:])
    assert not path.exists()
    upload.finish()
    assert path.read_bytes() == content
    with pytest.raises(ValueError, match="over"):
        upload.fileno()
    upload.abort()
    upload = client.upload("file")
    os.write(upload.fileno(), b"not this")
    upload.abort()
    assert path.read_bytes() == content and os.listdir(served.directory) == ["file"]
    upload = client.upload("none/file")
    with pytest.raises(FileNotFoundError):
        upload.finish()
    upload = client.upload("file")
    with pytest.warns(ResourceWarning, match="nothing was written"):
        del upload


def test_client__of_a_server_that_is_read_only(tmp_path: Path) -> None:
    with serving_files(tmp_path / "share", "--read-only", "--anyone") as served:
        (served.directory / "file").write_bytes(b"x")
        client = FileClient(served.address)
        assert client.status("file").size == 1
        upload = client.upload("new")
        for change in (
            upload.finish,
            lambda: client.remove("file"),
            lambda: client.make_directory("new"),
            lambda: client.rename("file", "new"),
            lambda: client.put(__file__, "new"),
        ):
            with pytest.raises(PermissionError, match="the server is read-only"):
                change()
        assert os.listdir(served.directory) == ["file"]


def test_client__goes_on_when_the_server_was_restarted(tmp_path: Path) -> None:
    with serving_files(tmp_path / "share") as served:
        (served.directory / "file").write_bytes(b"content")
        client = FileClient(served.address, zerolane.Options(idle_timeout=1.0))
        assert client.status("file").size == 7
    with serving_files(tmp_path / "share", at=served.address):
        buffer = bytearray(7)
        client.read_into("file", 0, buffer)
        assert buffer == b"content"


def test_client__of_a_server_that_is_gone(served: Served) -> None:
    options = zerolane.Options(connect_timeout=1.0, idle_timeout=1.0)
    client = FileClient(served.address, options)
    client.status("")
    served.process.kill()
    served.process.wait()
    for fails in (
        lambda: client.status(""),
        lambda: client.list(""),
        client.upload("file").finish,
    ):
        with pytest.raises((zerolane.ConnectionEnded, OSError)):
            fails()


def test_read_into__can_be_interrupted(served: Served) -> None:
    (served.directory / "file").write_bytes(bytes(8))
    client = FileClient(served.address)
    client.status("file")
    freeze(served.process)
    try:
        buffer = bytearray(8)
        with pytest.raises(KeyboardInterrupt), interrupt():
            client.read_into("file", 0, buffer)
        assert not is_exported(buffer)
    finally:
        served.process.send_signal(signal.SIGCONT)


def test_client__after_a_fork(served: Served) -> None:
    (served.directory / "file").write_bytes(b"x" * 100)
    client = FileClient(served.address)
    client.status("file")
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if client.status("file").size == 100 else 2
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert client.status("file").size == 100
