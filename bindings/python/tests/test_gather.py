"""Tests several buffers sent as one message: the content, and the return of the buffers."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from test_aio import run

import zerolane
from conftest import Pair, serving
from zerolane import Rights, Worker, aio

TOTAL = 300_000


def shapes() -> list[list[Any] | tuple[Any, ...]]:
    """None; short ones, which are copied; many; long ones of other kinds, one of them twice."""
    row = np.random.default_rng(1).integers(0, 256, 90_000, dtype=np.uint8)
    return [
        [],
        (b"", bytearray()),
        [b"head", bytearray(b"body")],
        [bytes([n % 256]) for n in range(3000)],
        (b"head", row, row.data[5:80_000], row, np.ones((3, 7), order="F")),
    ]


def whole(pieces: list[Any] | tuple[Any, ...]) -> bytes:
    return b"".join(
        it.tobytes(order="A") if isinstance(it, np.ndarray) else bytes(it) for it in pieces
    )


def complete(connection: zerolane.Connection) -> zerolane.Completion:
    completion = connection.wait(timeout=20)
    assert completion is not None
    assert completion.error is None
    return completion


@contextmanager
def receiving_one(connection: zerolane.Connection) -> Iterator[Callable[[], int]]:
    """Drives a connection in a thread, for its peer; tells the length of its one completion."""
    stop = threading.Event()

    def serve() -> int:
        length = complete(connection).length
        while not stop.is_set():
            assert connection.wait(timeout=0.01) is None
        return length

    with ThreadPoolExecutor(1) as executor:
        running = executor.submit(serve)

        def length() -> int:
            stop.set()
            return running.result()

        try:
            yield length
        finally:
            stop.set()


def test_post__several_buffers_arrive_as_one(pair: Pair) -> None:
    ours, peers = pair
    memory = bytearray(TOTAL)
    region = zerolane.ExportedRegion(memory)
    key = peers.export_named("memory", region, Rights.ALL)
    for pieces in shapes():
        expected = whole(pieces)
        length = len(expected)
        place = bytearray(TOTAL)
        peers.post_recv(place)
        sent = ours.post_send(pieces, context=5)
        with receiving_one(peers) as received:
            completion = complete(ours)
        assert (completion.id, completion.context, completion.length) == (sent, 5, length)
        assert completion.buffer is None and completion.memory is None
        assert [bytes(it) for it in completion.pieces] == [whole([it]) for it in pieces]
        assert received() == length and place == expected.ljust(TOTAL, b"\0")

        place = bytearray(TOTAL)
        peers.post_message_recv(place)
        ours.post_message(b"control", pieces)
        with receiving_one(peers) as received:
            assert complete(ours).length == length
        assert received() == length and place == expected.ljust(TOTAL, b"\0")

        memory[:] = bytes(TOTAL)
        ours.post_put(key, 9, pieces)
        with serving(peers):
            assert complete(ours).length == length
        assert memory[9 : 9 + length] == expected and not any(memory[9 + length :])


def test_blocking__several_buffers_arrive_as_one(pair: Pair) -> None:
    ours, peers = pair
    pieces: list[Any] = [b"one ", np.frombuffer(b"and another", dtype=np.uint8)]
    place = bytearray(15)
    peers.post_recv(place)
    with receiving_one(peers) as received:
        ours.send(pieces)
    assert received() == 15 and place == b"one and another"
    place[:] = bytes(15)
    peers.post_message_recv(place)
    with receiving_one(peers) as received:
        ours.send_message(b"control", tuple(pieces))
    assert received() == 15 and place == b"one and another"
    region = zerolane.ExportedRegion(memory := bytearray(64))
    key = peers.export(region, Rights.ALL)
    with serving(peers):
        ours.put(key, 3, pieces)
    assert memory[:18] == b"\0\0\0one and another"


def test_handle__several_buffers_arrive_as_one() -> None:
    with Worker().spawn() as worker:
        endpoint = worker.listen("127.0.0.1:0").wait(20)
        ours = worker.connect(endpoint.local_addr).wait(20)
        sends_of_handles(ours, endpoint.accept().wait(20))


def sends_of_handles(ours: zerolane.ConnectionHandle, peers: zerolane.ConnectionHandle) -> None:
    region = zerolane.ExportedRegion(memory := bytearray(TOTAL))
    key = peers.export(region, Rights.ALL).wait()
    for pieces in shapes():
        expected = whole(pieces)
        receiving = peers.recv(bytearray(TOTAL))
        sent = ours.send(pieces).wait(timeout=20)
        assert sent.length == len(expected) and len(sent.pieces) == len(pieces)
        assert receiving.wait(timeout=20).memory == expected
        receiving = peers.recv_message(bytearray(TOTAL))
        ours.send_message(b"control", pieces).wait(timeout=20)
        message = receiving.wait(timeout=20)
        assert (message.control, message.memory) == (b"control", expected)
        ours.put(key, 0, pieces).wait(timeout=20)
        assert memory[: len(expected)] == expected


def test_asyncio__several_buffers_arrive_as_one() -> None:
    async def body(ours: aio.Connection, peers: aio.Connection) -> None:
        region = zerolane.ExportedRegion(memory := bytearray(TOTAL))
        key = peers.export(region, Rights.ALL)
        for pieces in shapes():
            expected = whole(pieces)
            place = bytearray(TOTAL)
            _, length = await asyncio.gather(ours.send(pieces), peers.recv_into(place))
            assert place[:length] == expected
            sending = ours.send_message(b"control", pieces)
            _, message = await asyncio.gather(sending, peers.recv_message(place))
            assert message == (b"control", expected)
            await ours.put(key, 0, pieces)
            assert memory[: len(expected)] == expected

    run(body)


@pytest.mark.parametrize(
    ("pieces", "error"),
    [
        (["text"], TypeError),
        ([b"good", 7], TypeError),
        ([b"good", [b"in a list"]], TypeError),
        ((None,), TypeError),
        ([b"good", np.zeros((4, 4))[:, 1]], BufferError),
    ],
)
def test_refused__and_the_buffers_are_free(
    pair: Pair, pieces: list[Any] | tuple[Any, ...], error: type[Exception]
) -> None:
    ours, _peers = pair
    free = bytearray(b"free")
    refused = [free, *pieces]
    posts: list[Callable[[], Any]] = [
        lambda: ours.post_send(refused),
        lambda: ours.send(tuple(refused)),
        lambda: ours.post_message(b"", refused),
        lambda: ours.send_message(b"", refused),
    ]
    for post in posts:
        with pytest.raises(error):
            post()
    free.append(1)
    assert ours.in_flight == 0
