"""Tests contexts, timeouts, batches and memory of requests."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import zerolane
from conftest import Pair, interrupt, serving
from zerolane import FetchOp, Rights


def take(connection: zerolane.Connection, count: int) -> list[zerolane.Completion]:
    """The next completions, in batches."""
    taken: list[zerolane.Completion] = []
    for _ in range(1000):
        taken += connection.wait_batch(count - len(taken), timeout=20)
        if len(taken) == count:
            return taken
    raise AssertionError("not in time")


def test_context__comes_back_from_every_request(pair: Pair) -> None:
    ours, peers = pair
    region = zerolane.ExportedRegion(bytearray(1024))
    key = peers.export_named("memory", region, Rights.ALL)
    posts: list[Callable[[int], int]] = [
        lambda n: ours.post_send(b"sent", context=n),
        lambda n: ours.post_recv(bytearray(8), context=n),
        lambda n: ours.post_message(b"control", context=n),
        lambda n: ours.post_message_recv(bytearray(8), context=n),
        lambda n: ours.post_put(key, 0, b"put", context=n),
        lambda n: ours.post_put_vectored(key, [(8, b"put"), (80, b"it")], context=n),
        lambda n: ours.post_get(key, 0, bytearray(8), context=n),
        lambda n: ours.post_get_vectored(key, [(8, bytearray(1)), (9, bytearray(1))], context=n),
        lambda n: ours.post_fetch_op(key, 16, FetchOp.increment(), context=n),
        lambda n: ours.post_open_region("memory", Rights.READ, context=n),
    ]
    contexts = {post(2**64 - 1 - n): 2**64 - 1 - n for n, post in enumerate(posts)}
    peers.post_recv(bytearray(8))
    peers.post_message_recv()
    peers.post_send(b"sent")
    peers.post_message(b"control")
    with serving(peers):
        completions = take(ours, len(posts))
    assert {it.id: it.context for it in completions} == contexts
    assert all(it.error is None for it in completions)
    opened = [it.region for it in completions if it.kind == "open_region"]
    assert [it is not None and it.length for it in opened] == [1024]
    with pytest.raises(OverflowError):
        ours.post_send(b"", context=2**64)


def test_unsignalled__completes_if_it_fails_alone(pair: Pair) -> None:
    ours, peers = pair
    for n in range(5):
        ours.post_send(b"quiet", signalled=False, context=n)
        peers.post_recv(bytearray(5 if n != 2 else 1))
    last = ours.post_send(b"loud")
    peers.post_recv(bytearray(5))
    with serving(peers):
        failed, told = take(ours, 2)
    assert isinstance(failed.error, zerolane.MessageTooLarge) and failed.context == 2
    assert told.id == last
    assert ours.in_flight == 0


def test_timeout__ends_a_blocking_call_and_the_connection_goes_on(
    pair: Pair, executor: ThreadPoolExecutor
) -> None:
    ours, peers = pair
    assert ours.timeout is None
    ours.set_timeout(0.05)
    assert ours.timeout == 0.05
    region = zerolane.ExportedRegion(bytearray(8))
    key = peers.export(region, Rights.ALL)
    place = bytearray(8)
    calls: list[Callable[[], Any]] = [
        lambda: ours.recv_into(place),
        lambda: ours.send(place),
        lambda: ours.recv_message(place),
        lambda: ours.put(key, 0, place),
        lambda: ours.open_region("nothing", Rights.ALL),
    ]
    for call in calls:
        with pytest.raises(zerolane.TimedOut, match="50ms") as caught:
            call()
        assert isinstance(caught.value, TimeoutError)
        # It is free, and the connection goes on.
        place.append(1)
        place.pop()
    ours.set_timeout(None)
    assert ours.timeout is None
    sending = executor.submit(peers.send, b"next")
    assert ours.recv_into(place) == 4 and place[:4] == b"next"
    sending.result()
    with pytest.raises(ValueError, match="not a time"):
        ours.set_timeout(-1)


def test_finish__ends_the_peers_receives_and_the_other_direction_goes_on(
    pair: Pair, executor: ThreadPoolExecutor
) -> None:
    ours, peers = pair
    place = bytearray(10)
    sending = executor.submit(ours.send, b"last")
    assert peers.recv_into(place) == 4 and place[:4] == b"last"
    sending.result()
    ours.finish()
    with pytest.raises(zerolane.Finished, match="this end finished"):
        ours.send(b"more")
    keeping = executor.submit(ours.recv_into, bytearray(10))
    with pytest.raises(zerolane.Finished, match="the peer finished") as caught:
        peers.recv_into(place)
    assert isinstance(caught.value, EOFError)
    with pytest.raises(zerolane.Finished):
        peers.recv_message(place)
    peers.send(b"back")
    assert keeping.result() == 4


def test_arrived__of_a_receive_in_progress(pair: Pair, executor: ThreadPoolExecutor) -> None:
    ours, peers = pair
    content = bytes(range(256)) * 4096
    place = bytearray(len(content))
    id = peers.post_recv(place)
    assert peers.arrived(id) == 0 and peers.arrived(id + 1) is None
    assert peers.wait_arrived(id, 0, timeout=0.01) is None
    sending = executor.submit(ours.send, content)
    seen = 0
    while (arrived := peers.wait_arrived(id, seen)) is not None:
        assert arrived > seen and place[seen:arrived] == content[seen:arrived]
        seen = arrived
    completion = peers.wait()
    assert completion is not None and completion.length == len(content)
    assert place == content and peers.arrived(id) is None
    sending.result()


def test_batches__of_what_is_there(pair: Pair) -> None:
    ours, peers = pair
    assert ours.poll_batch(10) == [] and ours.wait_batch(10, timeout=0.01) == []
    ids = [ours.post_send(bytes([n])) for n in range(10)]
    for _ in range(11):
        peers.post_recv(bytearray(1))
    with serving(peers):
        # Sends end in order: then all are there.
        ours.send(b"x")
    assert [it.id for it in ours.poll_batch(4)] == ids[:4]
    assert [it.id for it in ours.wait_batch(4)] == ids[4:8]
    assert [it.id for it in ours.wait_batch()] == ids[8:]
    ours.wake()
    assert ours.wait_batch() == []


def test_local_addr__is_where_the_peer_sends(pair: Pair) -> None:
    ours, peers = pair
    assert ours.local_addr is not None and ours.local_addr[1] == peers.peer_addr[1]
    ours.abort()
    assert ours.local_addr is None and ours.peer_addr == peers.local_addr


def test_open_region__is_interrupted_while_the_peer_is_silent(pair: Pair) -> None:
    ours, _ = pair
    with pytest.raises(KeyboardInterrupt), interrupt():
        ours.open_region("memory", Rights.ALL)


def test_memory__is_what_was_posted_cut_to_what_came(pair: Pair) -> None:
    ours, peers = pair
    places: list[Any] = [
        bytearray(100),
        np.zeros((5, 5), dtype=np.int64),
        np.zeros((5, 5), order="F"),
        np.zeros((0, 5)),
        memoryview(bytearray(100))[10:60],
    ]
    sent = [bytes(range(n)) for n in (7, 200, 9, 0, 50)]
    for n, (place, data) in enumerate(zip(places, sent, strict=True)):
        peers.post_recv(place, context=n)
        ours.post_send(data)
    with serving(ours):
        # One without data may be over before others.
        received = sorted(take(peers, len(places)), key=lambda it: it.context)
    for place, data, completion in zip(places, sent, received, strict=True):
        memory = completion.memory
        assert memory is not None and memory == data
        assert (memory.ndim, memory.itemsize, memory.readonly) == (1, 1, False)
        assert not data or np.shares_memory(memory, place)
    # The view keeps its memory, and that it cannot be resized.
    first = received[0].memory
    with pytest.raises(BufferError):
        places[0].clear()
    del first
    places[0].clear()


def test_memory__of_gets_messages_and_pieces(pair: Pair) -> None:
    ours, peers = pair
    memory = bytearray(range(100))
    key = peers.export(zerolane.ExportedRegion(memory), Rights.ALL)
    with serving(peers):
        place = bytearray(10)
        got = ours.get(key, 20, place)
        assert got == memory[20:30] and np.shares_memory(got, place)
        ours.post_get_vectored(key, [(0, bytearray(3)), (50, bytearray(4))])
        (completion,) = take(ours, 1)
        assert completion.memory is None and completion.buffer is None
        assert completion.pieces == [memory[:3], memory[50:54]]
        ours.post_put(key, 0, b"read-only")
        (completion,) = take(ours, 1)
        assert completion.memory is not None and completion.memory.readonly
    peers.post_message(b"control", b"payload")
    receive = ours.post_message_recv(bytearray(100))
    with serving(peers):
        (completion,) = take(ours, 1)
    assert completion.id == receive
    assert (completion.control, completion.memory) == (b"control", b"payload")
    ours.post_recv(bytearray(1))
    peers.post_send(b"too long")
    with serving(peers):
        (completion,) = take(ours, 1)
    assert completion.memory is not None and completion.memory.nbytes == 0


def test_fetch_op__each_operation(pair: Pair) -> None:
    ours, peers = pair
    region = zerolane.ExportedRegion(bytearray(16))
    key = peers.export(region, Rights.ATOMIC)
    steps = [
        (FetchOp.add(5), 0),
        (FetchOp.add(-2), 5),
        (FetchOp.increment(), 3),
        (FetchOp.decrement(), 4),
        (FetchOp.swap(2**64 - 1), 3),
        (FetchOp.compare_and_swap(1, 7), 2**64 - 1),
        (FetchOp.compare_and_swap(2**64 - 1, 7), 2**64 - 1),
        (FetchOp.clear(), 7),
    ]
    with serving(peers):
        for op, before in steps:
            assert ours.fetch_op(key, 8, op) == before, op
    assert region.load(8) == 0
    assert FetchOp.add(1) == FetchOp.add(1) != FetchOp.increment()
    assert repr(FetchOp.swap(3)) == "FetchOp.Swap(3)"
