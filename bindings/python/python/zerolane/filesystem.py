"""Serves `zl://` to fsspec: the directory that another host serves with ``zerolane serve``.

    import pandas
    pandas.read_parquet("zl://node1/runs/a.parquet")

It needs fsspec, which finds it by name. Storage options are the arguments of
``ZerolaneFileSystem``; ``FSSPEC_ZL_IDENTITY`` and the like in the environment set defaults.
"""

from __future__ import annotations

import datetime
import functools
import os
import posixpath
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from fsspec.callbacks import DEFAULT_CALLBACK
from fsspec.spec import AbstractBufferedFile, AbstractFileSystem
from fsspec.utils import isfilelike, stringify_path

from zerolane import FileClient, FileStatus, FileUpload, Options

__all__ = ["ZerolaneFile", "ZerolaneFileSystem"]

_T = TypeVar("_T")

_SCHEME = "zl://"
_CONNECTIONS = 8
"""Most connections of a process to a host for short requests: a server admits 24 of one address."""
_DIRECT = 1 << 18
"""Bytes from which on ``readinto`` reads into the caller's buffer, past the cache of the file."""


class _Host:
    """A host, as all file systems of this process with the same options use it."""

    def __init__(self, address: str, options: Options) -> None:
        self.client = FileClient(address, options)
        self.free = threading.BoundedSemaphore(_CONNECTIONS)

    def call(self, function: Callable[..., _T], *arguments: Any, **keywords: Any) -> _T:
        """Calls a method of the client, when a connection is free."""
        with self.free:
            return function(*arguments, **keywords)


@functools.cache
def _host(_process: int, address: str, given: tuple[tuple[str, Any], ...]) -> _Host:
    return _Host(address, Options(**dict(given)))


class ZerolaneFileSystem(AbstractFileSystem):  # type: ignore[misc]
    """The files that the host ``host`` ("name", "name:port") serves.

    ``identity`` is the file of this end's key, as ``zerolane keygen`` makes it, which the server's
    list of keys must have unless it lets in everyone; ``trust`` has the keys of accepted servers.
    ``plain``, ``authenticated`` and ``lane`` are those of ``zerolane.Options``.

    A file gets its name when all of it has arrived, and an exception in ``with`` keeps it from
    that. A file that changes while it is read raises OSError. Files cannot be appended to. With
    ``auto_mkdir`` writing a file makes the directories above it.
    """

    protocol: ClassVar[str] = "zl"
    root_marker: ClassVar[str] = ""

    def __init__(
        self,
        host: str,
        *,
        identity: str | None = None,
        trust: list[str] | None = None,
        plain: bool = False,
        authenticated: bool = False,
        lane: str = "best",
        auto_mkdir: bool = True,
        **storage_options: Any,
    ) -> None:
        if self._cached:
            return
        super().__init__(**storage_options)
        self.host = host
        self.auto_mkdir = auto_mkdir
        given: dict[str, Any] = {"plain": plain, "authenticated": authenticated, "lane": lane}
        if identity is not None:
            given["identity"] = os.path.expanduser(identity)
        if trust is not None:
            given["trust"] = tuple(trust)
        self._given = tuple(given.items())
        # An error in the options is an error here.
        self._at()

    def _at(self) -> _Host:
        return _host(os.getpid(), self.host, self._given)

    @property
    def fsid(self) -> str:
        return f"zl-{self.host}"

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(it) for it in path]
        path = stringify_path(path)
        if path.startswith(_SCHEME):
            _, _, path = path.removeprefix(_SCHEME).partition("/")
        return path.strip("/")

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> dict[str, str]:
        if not path.startswith(_SCHEME):
            return {}
        host, _, _ = path.removeprefix(_SCHEME).partition("/")
        return {"host": host} if host else {}

    def unstrip_protocol(self, name: str) -> str:
        return f"{_SCHEME}{self.host}/{self._strip_protocol(name)}"

    # What is there

    def status(self, path: str) -> FileStatus:
        """The status of what is at ``path``."""
        host = self._at()
        return host.call(host.client.status, self._strip_protocol(path))

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        path = self._strip_protocol(path)
        return _described(path, self.status(path))

    def exists(self, path: str, **_: Any) -> bool:
        try:
            self.status(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def _list(self, path: str, *, recursive: bool) -> Iterator[dict[str, Any]]:
        host = self._at()
        for name, status in host.call(host.client.list, path, recursive=recursive):
            full = posixpath.join(path, name) if name else path
            described = _described(full, status)
            if status.kind == "link":
                with suppress(OSError):
                    end = self.status(full)
                    if end.kind == "file":
                        described = {**_described(full, end), "destination": status.target}
                described["islink"] = True
            yield described

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        entries = list(self._list(self._strip_protocol(path), recursive=False))
        return entries if detail else [it["name"] for it in entries]

    def find(
        self,
        path: str,
        maxdepth: int | None = None,
        withdirs: bool = False,
        detail: bool = False,
        **options: Any,
    ) -> Any:
        if maxdepth is not None:
            return super().find(path, maxdepth, withdirs, detail, **options)
        path = self._strip_protocol(path)
        found: dict[str, dict[str, Any]] = {}
        try:
            for entry in self._list(path, recursive=True):
                if withdirs or entry["type"] != "directory":
                    found[entry["name"]] = entry
            if withdirs and path and path not in found:
                found[path] = self.info(path)
        except (FileNotFoundError, NotADirectoryError):
            pass
        names = sorted(found)
        return {it: found[it] for it in names} if detail else names

    def modified(self, path: str) -> datetime.datetime:
        return datetime.datetime.fromtimestamp(self.info(path)["mtime"], datetime.UTC)

    # Directories, names

    def mkdir(self, path: str, create_parents: bool = True, **_: Any) -> None:
        path = self._strip_protocol(path)
        if create_parents:
            self._make(posixpath.dirname(path))
        host = self._at()
        host.call(host.client.make_directory, path)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        if exist_ok:
            self._make(self._strip_protocol(path))
        else:
            self.mkdir(path)

    def _make(self, path: str) -> None:
        """Makes a directory, with those above it, unless it exists."""
        if path:
            host = self._at()
            host.call(host.client.make_directory, path, parents=True)

    def _make_parent(self, path: str) -> None:
        above = posixpath.dirname(path)
        if self.auto_mkdir and above and not self.exists(above):
            self._make(above)

    def rmdir(self, path: str) -> None:
        self._remove(self._strip_protocol(path), empty=True)

    def _remove(self, path: str, **how: bool) -> None:
        host = self._at()
        host.call(host.client.remove, path, **how)

    def rm_file(self, path: str) -> None:
        self._remove(self._strip_protocol(path), recursive=False)

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        if maxdepth is not None:
            raise NotImplementedError("zl:// removes a directory as a whole, not to a depth")
        for it in reversed(self.expand_path(path)):
            self._remove(it, recursive=recursive)

    def mv(
        self,
        path1: str,
        path2: str,
        recursive: bool = False,
        maxdepth: int | None = None,
        **_: Any,
    ) -> None:
        host = self._at()
        source, target = self._strip_protocol(path1), self._strip_protocol(path2)
        host.call(host.client.rename, source, target)

    def cp_file(self, path1: str, path2: str, **_: Any) -> None:
        """Copies by way of this host: the file service has no copy of its own."""
        path1, path2 = self._strip_protocol(path1), self._strip_protocol(path2)
        if self.isdir(path1):
            return self._make(path2)
        with self.open(path1, "rb", cache_type="none") as source, self.open(path2, "wb") as target:
            buffer = memoryview(bytearray(self.blocksize))
            while length := source.readinto(buffer):
                target.write(buffer[:length])

    # Content

    def read_into(
        self, path: str, buffer: Any, offset: int = 0, unchanged: FileStatus | None = None
    ) -> int:
        """Reads from ``offset`` on into ``buffer``, without a copy; returns the number of bytes."""
        host = self._at()
        path = self._strip_protocol(path)
        read = host.call(host.client.read_into, path, offset, buffer, unchanged=unchanged)
        return read[0]

    def cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **_: Any
    ) -> bytes:
        start, status, last = start or 0, None, end
        if start < 0 or last is None or last < 0 or last - start > _DIRECT:
            status = self.status(path)
            if start < 0:
                start = max(0, status.size + start)
            if last is None or last < 0:
                last = status.size + (last or 0)
            last = min(last, status.size)
        buffer = bytearray(max(0, last - start))
        if not buffer:
            if (status or self.status(path)).kind == "directory":
                raise IsADirectoryError(f"{path}: is a directory")
            return b""
        length = self.read_into(path, buffer, start, status)
        return bytes(memoryview(buffer)[:length])

    def pipe_file(self, path: str, value: Any, mode: str = "overwrite", **_: Any) -> None:
        with self.open(path, "xb" if mode == "create" else "wb") as file:
            file.write(value)

    def get_file(
        self, rpath: str, lpath: Any, callback: Any = DEFAULT_CALLBACK, **options: Any
    ) -> None:
        if isfilelike(lpath) or options.get("outfile") is not None:
            super().get_file(rpath, lpath, callback=callback, **options)
            return
        rpath = self._strip_protocol(rpath)
        status = self.status(rpath)
        if status.kind == "directory":
            os.makedirs(lpath, exist_ok=True)
            return
        Path(lpath).parent.mkdir(parents=True, exist_ok=True)
        callback.set_size(status.size)
        host = self._at()
        host.call(host.client.get, rpath, os.fspath(lpath))
        callback.absolute_update(status.size)

    def put_file(
        self,
        lpath: Any,
        rpath: str,
        callback: Any = DEFAULT_CALLBACK,
        mode: str = "overwrite",
        **options: Any,
    ) -> None:
        rpath = self._strip_protocol(rpath)
        if os.path.isdir(lpath):
            return self._make(rpath)
        if mode == "create":
            with open(lpath, "rb") as source, self.open(rpath, "xb") as target:
                while data := source.read(self.blocksize):
                    target.write(data)
            return None
        self._make_parent(rpath)
        if self.isdir(rpath):
            raise IsADirectoryError(f"{rpath}: is a directory")
        size = os.path.getsize(lpath)
        callback.set_size(size)
        host = self._at()
        host.call(host.client.put, os.fspath(lpath), rpath)
        callback.absolute_update(size)

    def _open(self, path: str, mode: str = "rb", **options: Any) -> ZerolaneFile:
        return ZerolaneFile(self, path, mode, **options)


class ZerolaneFile(AbstractBufferedFile):  # type: ignore[misc]
    """A file to read at any place, or to write from its start to its end."""

    def __init__(self, fs: ZerolaneFileSystem, path: str, mode: str = "rb", **options: Any) -> None:
        self._upload: FileUpload | None = None
        self._place = path
        # What __del__ finds if this raises.
        self.closed = True
        if mode == "ab":
            raise NotImplementedError("zl:// cannot append to a file: write a new one")
        if mode == "xb" and fs.exists(path):
            raise FileExistsError(f"{path}: already exists")
        self._status = fs.status(path) if mode == "rb" else None
        if self._status is not None:
            if self._status.kind == "directory":
                raise IsADirectoryError(f"{path}: is a directory")
            self._details = _described(path, self._status)
            options["size"] = self._status.size
        super().__init__(fs, path, mode, **options)

    def _fetch_range(self, start: int, end: int) -> bytes:
        buffer = bytearray(end - start)
        length = self.fs.read_into(self.path, buffer, start, self._status)
        return bytes(memoryview(buffer)[:length])

    def readinto(self, b: Any) -> int:
        """Fills ``b``. The bytes of a large or uncached read land there without a copy."""
        if self.closed or self.mode != "rb":
            raise ValueError("the file is not open for reading")
        view = memoryview(b).cast("B")
        if view.nbytes < _DIRECT and self.cache.name != "none":
            length: int = super().readinto(b)
            return length
        length = self.fs.read_into(self.path, view, self.loc, self._status)
        self.loc += length
        return length

    def _initiate_upload(self) -> None:
        self.fs._make_parent(self.path)
        if self.mode == "xb":
            above, name = posixpath.split(self.path)
            self._place = posixpath.join(above, f".{name}.{secrets.token_hex(8)}.zlnew")
        self._upload = self.fs._at().client.upload(self._place)

    def _upload_chunk(self, final: bool = False) -> bool:
        upload = self._upload
        assert upload is not None
        with self.buffer.getbuffer() as content:
            done = 0
            try:
                while done < len(content):
                    done += os.write(upload.fileno(), content[done:])
            except BrokenPipeError:
                self.closed, self._upload = True, None
                upload.finish()
                raise
        if final and self.autocommit:
            self.commit()
        return True

    def commit(self) -> None:
        """Waits until the file is in place."""
        if self._upload is None:
            return
        self._upload.finish()
        self._upload = None
        if self._place != self.path:
            client = self.fs._at().client
            try:
                client.rename(self._place, self.path, replace=False)
            except OSError:
                with suppress(OSError):
                    client.remove(self._place)
                raise

    def discard(self) -> None:
        """Leaves what is at the path as it is."""
        if self._upload is not None:
            self._upload.abort()
            self._upload = None

    def __exit__(self, kind: type[BaseException] | None, *_: Any) -> None:
        if kind is not None and self.writable():
            self.closed = True
            self.discard()
        self.close()


def _described(path: str, status: FileStatus) -> dict[str, Any]:
    """The description of an entry, as fsspec has it."""
    return {
        "name": path,
        "size": 0 if status.kind == "directory" else status.size,
        "type": status.kind if status.kind in ("file", "directory") else "other",
        "mtime": status.mtime_ns / 1e9,
        "mode": status.mode,
        "version": status.version,
        "islink": False,
    }
