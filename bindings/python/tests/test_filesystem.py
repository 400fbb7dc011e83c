"""Tests the file system ``zl://`` of fsspec, by fsspec's own suite and by programs that use it."""

import os
import pickle
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pandas as pd
import pytest
from fsspec.tests.abstract import (
    AbstractCopyTests,
    AbstractFixtures,
    AbstractGetTests,
    AbstractOpenTests,
    AbstractPipeTests,
    AbstractPutTests,
)

import zerolane
from conftest import Served, pattern, program, serving_files
from zerolane.filesystem import ZerolaneFileSystem

MIB = 1 << 20


def file_system(served: Served) -> ZerolaneFileSystem:
    fs = fsspec.filesystem("zl", host=served.address)
    assert isinstance(fs, ZerolaneFileSystem)
    return fs


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One server for all tests of fsspec's suite."""
    with serving_files(tmp_path_factory.mktemp("suite") / "share") as it:
        yield it


class Fixtures(AbstractFixtures):  # type: ignore[misc]
    """What fsspec's suite runs on."""

    @pytest.fixture
    def fs(self, whole: Served) -> ZerolaneFileSystem:
        return file_system(whole)

    @pytest.fixture
    def fs_path(self) -> str:
        return "inside"


class TestCopy(AbstractCopyTests, Fixtures):  # type: ignore[misc]
    """fsspec's own tests."""


class TestGet(AbstractGetTests, Fixtures):  # type: ignore[misc]
    """fsspec's own tests."""


class TestPut(AbstractPutTests, Fixtures):  # type: ignore[misc]
    """fsspec's own tests."""


class TestOpen(AbstractOpenTests, Fixtures):  # type: ignore[misc]
    """fsspec's own tests."""


class TestPipe(AbstractPipeTests, Fixtures):  # type: ignore[misc]
    """fsspec's own tests."""


@pytest.fixture
def fs(served: Served) -> ZerolaneFileSystem:
    return file_system(served)


def test_url__is_registered_and_leads_to_the_file(served: Served) -> None:
    (served.directory / "a").mkdir()
    (served.directory / "a" / "b.txt").write_text("one\ntwo\n")
    url = f"zl://{served.address}/a/b.txt"
    with fsspec.open(url, "rt") as file:
        assert file.readlines() == ["one\n", "two\n"]
    fs, path = fsspec.url_to_fs(url)
    assert isinstance(fs, ZerolaneFileSystem) and path == "a/b.txt"
    assert fs.unstrip_protocol(path) == url
    assert fsspec.url_to_fs(f"zl://{served.address}")[1] == ""


def test_directories(fs: ZerolaneFileSystem, served: Served) -> None:
    fs.makedirs("a/b/c")
    with pytest.raises(FileExistsError):
        fs.mkdir("a/b")
    fs.makedirs("a/b", exist_ok=True)
    fs.pipe("a/one", b"1")
    fs.pipe("a/b/two", b"22")
    os.symlink("a/one", served.directory / "link")
    assert fs.ls("", detail=False) == ["a", "link"]
    link = fs.ls("")[1]
    assert (link["type"], link["size"], link["islink"]) == ("file", 1, True)
    assert fs.ls("a/one", detail=False) == ["a/one"]
    files = ["a/b/two", "a/one"]
    assert fs.find("a") == files and fs.find("a", maxdepth=1) == ["a/one"]
    assert fs.find("a", withdirs=True) == ["a", "a/b", "a/b/c", *files[:1], "a/one"]
    assert fs.find("a/one") == ["a/one"] and fs.find("none") == []
    assert fs.glob("a/**/t*") == ["a/b/two"] and fs.du("a") == 3
    assert fs.isdir("a") and fs.isfile("a/one") and not fs.exists("a/none")
    with pytest.raises(OSError, match="not empty"):
        fs.rmdir("a/b")
    with pytest.raises(NotADirectoryError):
        fs.rmdir("a/one")
    fs.rmdir("a/b/c")
    fs.mv("a/one", "a/moved")
    with pytest.raises(IsADirectoryError):
        fs.rm("a")
    fs.rm("a", recursive=True)
    assert fs.ls("", detail=False) == ["link"]


def test_read__cached_and_into_the_buffer(fs: ZerolaneFileSystem, served: Served) -> None:
    content = pattern(5 * MIB + 3)
    (served.directory / "file").write_bytes(content.tobytes())
    data = content.tobytes()
    for cache in ("readahead", "none", "bytes", "all"):
        with fs.open("file", "rb", cache_type=cache) as file:
            assert file.seek(-3, 2) == len(data) - 3 and file.read() == data[-3:]
            assert file.seek(MIB) == MIB and file.read(100) == data[MIB : MIB + 100]
            place = np.zeros(2 * MIB, dtype=np.uint8)
            assert file.readinto(place) == place.size and file.tell() == 3 * MIB + 100
            assert place.tobytes() == data[MIB + 100 : 3 * MIB + 100]
            assert file.readinto(bytearray(10 * MIB)) == len(data) - file.tell() or True
    assert fs.cat_file("file", 5, 9) == data[5:9] and fs.cat_file("file", -4) == data[-4:]
    assert fs.cat_file("file", 3, -7) == data[3:-7] and fs.cat_file("file", 9, 2**40) == data[9:]
    assert fs.cat_ranges(["file", "file"], [0, 7], [3, 8]) == [data[:3], data[7:8]]
    place = np.zeros(9, dtype=np.uint8)
    assert fs.read_into("file", place, 11) == 9 and place.tobytes() == data[11:20]
    with fs.open("file", "rb") as file:
        file.seek(2 * MIB)
        again = pickle.loads(pickle.dumps(file))
        assert again.read(5) == data[2 * MIB : 2 * MIB + 5]


def test_read__a_file_that_changes(fs: ZerolaneFileSystem, served: Served) -> None:
    path = served.directory / "file"
    path.write_bytes(bytes(MIB))
    with fs.open("file", "rb", cache_type="none") as file:
        file.read(10)
        served.directory.joinpath("new").write_bytes(b"\1" * MIB)
        os.replace(served.directory / "new", path)
        with pytest.raises(OSError, match="changed"):
            file.read(10)
        with pytest.raises(OSError, match="changed"):
            file.readinto(bytearray(10))


def test_write__appears_as_a_whole_or_not(fs: ZerolaneFileSystem, served: Served) -> None:
    content = pattern(12 * MIB).tobytes()
    with fs.open("deep/er/file", "wb") as file:
        for at in range(0, len(content), MIB):
            file.write(content[at : at + MIB])
        assert not fs.exists("deep/er/file")
    assert (served.directory / "deep/er/file").read_bytes() == content
    with pytest.raises(RuntimeError), fs.open("deep/er/file", "wb") as file:
        file.write(bytes(7 * MIB))
        raise RuntimeError
    assert (served.directory / "deep/er/file").read_bytes() == content
    with fs.transaction:
        fs.pipe("late", b"1")
        assert not fs.exists("late")
    assert fs.cat("late") == b"1"
    with pytest.raises(NotImplementedError, match="append"):
        fs.open("late", "ab")
    with pytest.raises(FileExistsError), fs.open("new", "xb") as file:
        (served.directory / "new").write_bytes(b"theirs")
        file.write(b"ours")
    assert sorted(os.listdir(served.directory)) == ["deep", "late", "new"]
    assert fs.cat("new") == b"theirs"


def test_write__at_a_server_that_is_read_only(tmp_path: Path) -> None:
    with serving_files(tmp_path / "share", "--read-only", "--anyone") as served:
        (served.directory / "file").write_bytes(b"x")
        fs = file_system(served)
        assert fs.cat("file") == b"x"
        for change in (
            lambda: fs.pipe("new", b"y"),
            lambda: fs.pipe("new", bytes(11 * MIB)),
            lambda: fs.rm("file"),
            lambda: fs.mkdir("new"),
        ):
            with pytest.raises(PermissionError, match="the server is read-only"):
                change()


def test_keys__decide_who_reads_and_who_writes(tmp_path: Path) -> None:
    identity, other, allowed = (str(tmp_path / it) for it in ("mine", "other", "allowed"))
    command = program()
    if command is None:
        pytest.skip("the command zerolane is not built")
    key = zerolane.Options(identity=identity).key
    assert key is not None
    home = {**os.environ, "ZEROLANE_HOME": str(tmp_path)}
    adding = [str(command), "keys", "add", "--allowed", allowed, str(key), "read"]
    subprocess.run(adding, check=True, env=home)
    with serving_files(tmp_path / "share", "--allowed", allowed) as served:
        (served.directory / "file").write_bytes(b"content")
        url = f"zl://{served.address}/file"
        given: dict[str, Any] = {"identity": identity, "trust": [served.key]}
        with fsspec.open(url, "rb", **given) as file:
            assert file.read() == b"content"
        with pytest.raises(PermissionError, match="may only read"):
            fsspec.filesystem("zl", host=served.address, **given).pipe("new", b"x")
        with pytest.raises(zerolane.ConnectionEnded):
            fsspec.open(url, "rb", **{**given, "identity": other}).open()
        with pytest.raises(zerolane.Untrusted):
            fsspec.open(url, "rb", **{**given, "trust": [key]}).open()


def test_threads_and_a_child_of_fork(fs: ZerolaneFileSystem, served: Served) -> None:
    parts = [pattern(100_000 + n).tobytes() for n in range(32)]
    for n, part in enumerate(parts):
        (served.directory / str(n)).write_bytes(part)

    def read(n: int) -> bool:
        url = f"zl://{served.address}/{n % 32}"
        with fsspec.open(url, "rb") as file:
            return bool(file.read() == parts[n % 32])

    with ThreadPoolExecutor(32) as executor:
        assert all(executor.map(read, range(96)))
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if read(5) and fs.cat("6") == parts[6] else 2
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    again: Any = pickle.loads(pickle.dumps(fs))
    assert again is fs and again.cat("7") == parts[7]


def test_programs__numpy_and_pandas(served: Served) -> None:
    url = f"zl://{served.address}"
    array = np.arange(300_000.0).reshape(3, -1)
    with fsspec.open(f"{url}/array.npy", "wb") as file:
        np.save(file, array)
    with fsspec.open(f"{url}/array.npy", "rb") as file:
        assert (np.load(file) == array).all()
    table = pd.DataFrame({"a": range(1000), "b": ["x"] * 1000})
    table.to_csv(f"{url}/tables/one.csv", index=False)
    assert pd.read_csv(f"{url}/tables/one.csv").equals(table)
