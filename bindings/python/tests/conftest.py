"""Makes pairs of connections over loopback, content, interrupts, and servers of files."""

import _thread
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pytest

import zerolane
from zerolane.cache import CacheServer

Pair: TypeAlias = tuple[zerolane.Connection, zerolane.Connection]


def make_pair(options: zerolane.Options | None = None) -> Pair:
    """A connected pair: connecting needs an accepting end at the same time."""
    with (
        ThreadPoolExecutor(1) as executor,
        zerolane.Endpoint("127.0.0.1:0", options) as endpoint,
    ):
        connecting = executor.submit(zerolane.connect, endpoint.local_addr, options)
        accepted = endpoint.accept(timeout=10)
        return connecting.result(), accepted


def pattern(length: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """So many bytes without repetition."""
    return np.random.default_rng(length).integers(0, 256, length, dtype=np.uint8)


def is_exported(buffer: bytearray) -> bool:
    """Whether something uses ``buffer``. If not, it is empty then."""
    try:
        buffer.clear()
    except BufferError:
        return True
    return False


@contextmanager
def serving(connection: zerolane.Connection) -> Iterator[None]:
    """Drives a connection in a thread, for the peer that works on its memory."""
    stop = threading.Event()

    def serve() -> None:
        try:
            while not stop.is_set():
                connection.wait()
        except zerolane.ConnectionEnded:
            pass

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        connection.wake()
        thread.join()


@contextmanager
def interrupt() -> Iterator[None]:
    """Interrupts the main thread in what it does half a second later.

    The time starts inside whatever catches the interrupt.
    """
    timer = threading.Timer(0.5, _thread.interrupt_main)
    timer.start()
    try:
        yield
    finally:
        # What ended before is not interrupted.
        timer.cancel()
        timer.join()


@pytest.fixture
def pair() -> Iterator[Pair]:
    """Two ends of one connection; whatever a test leaves of them is gone after it."""
    ours, peers = make_pair()
    yield ours, peers
    ours.abort()
    peers.abort()


@pytest.fixture
def executor() -> Iterator[ThreadPoolExecutor]:
    """A thread for the peer's side."""
    with ThreadPoolExecutor(2) as executor:
        yield executor


def program() -> Path | None:
    """The command ``zerolane``, if it is built or installed."""
    target = Path(__file__).parents[3] / "target"
    found = [
        os.environ.get("ZEROLANE_PROGRAM"),
        target / "debug" / "zerolane",
        target / "release" / "zerolane",
        shutil.which("zerolane"),
    ]
    return next((Path(it) for it in found if it and Path(it).exists()), None)


class Served(NamedTuple):
    """A directory that a server of files serves."""

    address: str
    directory: Path
    process: subprocess.Popen[str]
    key: str


@contextmanager
def serving_files(directory: Path, *options: str, at: str = "127.0.0.1:0") -> Iterator[Served]:
    """Serves ``directory``, to everyone unless the options have a list of keys."""
    command = program()
    if command is None:
        pytest.skip("the command zerolane is not built")
    directory.mkdir(exist_ok=True)
    home = directory.with_name(f"{directory.name}-keys")
    process = subprocess.Popen(
        [command, "serve", directory, "--listen", at, *(options or ["--anyone"])],
        env={**os.environ, "ZEROLANE_HOME": str(home)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        said = re.search(r" on (\S+) for ", process.stdout.readline())
        key = re.search(r"zl:\S+", process.stdout.readline())
        assert said is not None and key is not None
        yield Served(said[1], directory, process, key[0])
    finally:
        process.kill()
        process.communicate()


def freeze(process: subprocess.Popen[str]) -> None:
    """Stops a process, and returns when all its threads stand still."""
    process.send_signal(signal.SIGSTOP)
    tasks = Path(f"/proc/{process.pid}/task")
    ends = time.monotonic() + 60
    while any(
        (it / "stat").read_text().rpartition(")")[2].split()[0] != "T" for it in tasks.iterdir()
    ):
        assert time.monotonic() < ends
        time.sleep(0.001)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """A directory that clients may read and write."""
    with serving_files(tmp_path / "share") as it:
        yield it


@contextmanager
def lending(memory: Any, at: str = "127.0.0.1:0") -> Iterator[CacheServer]:
    """A server of a cache, in a thread."""
    server = CacheServer(at, memory)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        yield server
    finally:
        server.stop()
        thread.join()


def address_of(server: CacheServer) -> str:
    host, port = server.local_addr
    return f"{host}:{port}"
