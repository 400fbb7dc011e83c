"""Tests several buffers sent as one message, and several pieces put as one: the content, and the
return of the buffers."""

import asyncio
import threading
from array import array
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from test_aio import run

import zerolane
from conftest import Pair, is_exported, serving
from zerolane import Pieces, Rights, Worker, aio

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


def of_indices(
    rows: int, seed: int
) -> tuple[np.ndarray[Any, np.dtype[np.int64]], np.ndarray[Any, np.dtype[np.uint64]]]:
    """Offsets of pieces of 8 bytes, in another order here than there."""
    order = np.random.default_rng(seed)
    local = order.permutation(rows).astype(np.int64) * 8
    remote = order.permutation(rows).astype(np.uint64) * np.uint64(8)
    return local, remote


@pytest.mark.parametrize("count", [1, 7, 4096, 100_000])
def test_pieces__by_arrays_of_indices(pair: Pair, count: int) -> None:
    ours, peers = pair
    memory = np.zeros(count, dtype=np.uint64)
    with zerolane.ExportedRegion(memory) as region, serving(peers):
        key = peers.export(region, Rights.ALL)
        local, remote = of_indices(count, 1)
        values = np.arange(1, count + 1, dtype=np.uint64)
        posted = ours.post_put_vectored(key, Pieces(values, local, remote, 8), context=7)
        completion = complete(ours)
        assert (completion.id, completion.context, completion.length) == (posted, 7, 8 * count)
        assert completion.memory is None
        assert [it.nbytes for it in completion.pieces] == [values.nbytes]
        assert (memory[remote // 8] == values[local // 8]).all()
        # The other way, with lengths of their own.
        place = bytearray(8 * count)
        lengths = np.full(count, 8, dtype=np.int64)
        pieces = Pieces(place, local, remote, lengths)
        assert len(pieces) == count
        for _ in range(2):
            place[:] = bytes(8 * count)
            ours.post_get_vectored(key, pieces)
            assert is_exported(place), "one pin, until the request is over"
            assert complete(ours).length == 8 * count
            assert (np.frombuffer(place, dtype=np.uint64) == values).all()
        place.clear()


def test_pieces__of_lists_and_of_a_handle() -> None:
    with Worker().spawn() as worker:
        endpoint = worker.listen("127.0.0.1:0").wait(20)
        ours = worker.connect(endpoint.local_addr).wait(20)
        peers = endpoint.accept().wait(20)
        with zerolane.ExportedRegion(memory := bytearray(16)) as region:
            key = peers.export(region, Rights.ALL).wait(20)
            pieces = Pieces(b"here and there", [0, 9], [8, 1], [4, 5])
            assert ours.put_vectored(key, pieces).wait(20).length == 9
            assert memory == b"\0there\0\0here\0\0\0\0"
            place = bytearray(9)
            got = ours.get_vectored(key, Pieces(place, [0, 4], [8, 1], array("Q", [4, 5])))
            assert got.wait(20).length == 9 and place == b"herethere"


def test_pieces__that_wait_for_room_let_nothing_overtake_them(pair: Pair) -> None:
    ours, peers = pair
    memory = np.zeros(100_000, dtype=np.uint64)
    with zerolane.ExportedRegion(memory) as region, serving(peers):
        key = peers.export(region, Rights.ALL)
        local, remote = of_indices(len(memory), 2)
        values = np.arange(len(memory), dtype=np.uint64)
        posted = ours.post_put_vectored(key, Pieces(values, local, remote, 8))
        with pytest.raises(zerolane.QueueFull):
            ours.post_put(key, 0, b"8 bytes.")
        with pytest.raises(zerolane.QueueFull):
            ours.put(key, 0, b"8 bytes.")
        with pytest.raises(zerolane.QueueFull):
            ours.post_get_vectored(key, [(0, bytearray(8))])
        assert ours.cancel(posted)
        completion = ours.wait(timeout=20)
        assert completion is not None and isinstance(completion.error, zerolane.Cancelled)
        ours.put(key, 0, b"8 bytes.")
        assert memory[:1].tobytes() == b"8 bytes."


def test_pieces__that_are_wrong_say_which(pair: Pair) -> None:
    ours, peers = pair
    with zerolane.ExportedRegion(bytearray(64)) as region:
        key = peers.export(region, Rights.ALL)
        place = bytearray(16)
        wrong: list[tuple[Any, Any, Any, type[Exception], str]] = [
            ([0, 8], [0], 8, ValueError, "2 local offsets, 1 remote ones and 2 lengths"),
            ([0, 8], [0, 8], [8], ValueError, "1 lengths"),
            ([0, -8], [0, 8], 8, OverflowError, r"local\[1\]"),
            ([0], [2**64], 8, OverflowError, r"remote\[0\]"),
            (np.array([0.5]), [0], 8, TypeError, r"local\[0\]"),
            (np.zeros((1, 1), dtype=np.int64), [0], 8, TypeError, r"local\[0\]"),
            ([0], [0], -1, OverflowError, "negative"),
            (7, [0], 8, TypeError, "iterable"),
        ]
        for local, remote, length, error, match in wrong:
            with pytest.raises(error, match=match):
                Pieces(place, local, remote, length)
        outside: list[tuple[Any, Any, str]] = [
            ([0, 9], 8, "piece 1: 8 bytes at 9 of a buffer of 16"),
            ([0, 17], 0, "piece 1: 0 bytes at 17"),
            ([0, 2**64 - 1], 8, "piece 1"),
            ([0, 8], [8, 2**64 - 1], "piece 1"),
        ]
        for local, length, match in outside:
            pieces = Pieces(place, local, [0, 8], length)
            for post in (ours.post_put_vectored, ours.post_get_vectored):
                with pytest.raises(ValueError, match=match):
                    post(key, pieces)
        with pytest.raises(BufferError, match="read-only"):
            ours.post_get_vectored(key, Pieces(b"read", [0], [0], 4))
        with pytest.raises(zerolane.OutOfBounds):
            ours.post_put_vectored(key, Pieces(place, [0], [60], 8))
        with pytest.raises(TypeError):
            ours.post_put_vectored(key, Pieces("text", [0], [0], 1))  # type: ignore[arg-type]
        place.clear()
        assert ours.in_flight == 0
