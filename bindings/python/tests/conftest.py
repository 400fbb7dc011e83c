"""Makes pairs of connections over loopback, content, and interrupts."""

import _thread
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np
import pytest

import zerolane

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
