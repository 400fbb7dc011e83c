"""Tests workers that their user calls, and workers in their own threads."""

import asyncio
import ctypes
import gc
import os
import queue
import select
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TypeAlias

import pytest

import zerolane
from conftest import is_exported, make_pair
from zerolane import FetchOp, Rights, Worker

Handles: TypeAlias = tuple[
    zerolane.WorkerThread, zerolane.ConnectionHandle, zerolane.ConnectionHandle
]


def address_of(worker: Worker, endpoint: int) -> tuple[str, int]:
    """Where an endpoint of a worker listens."""
    listener = worker.endpoint(endpoint)
    assert listener is not None
    return listener.local_addr


def requests_of(worker: Worker, connection: int | None) -> zerolane.Requests:
    """A connection of a worker that is not over."""
    requests = worker.connection(connection or 0)
    assert requests is not None
    return requests


def until(worker: Worker, done: Callable[[zerolane.Event], bool]) -> None:
    """Gives the worker's events to ``done`` until it is."""
    for _ in range(1000):
        worker.wait(timeout=20)
        for event in worker.events(max=3):
            if done(event):
                return
    raise AssertionError("not in time")


def test_worker__both_ends_of_many_connections_in_one_thread() -> None:
    with Worker() as worker:
        endpoint = worker.listen("127.0.0.1:0")
        address = address_of(worker, endpoint)
        ours = {worker.connect(address): n for n in range(20)}
        for connection, n in ours.items():
            # Posted before it is connected: it waits.
            requests_of(worker, connection).post_send(bytes([n]) * 3000, context=n)
        received: list[bytes] = []
        left = {"connected": 20, "accepted": 20, "sent": 20, "received": 20}

        def serve(event: zerolane.Event) -> bool:
            if event.kind == "announced":
                # What comes before the connection is told of, and has a receive.
                return False
            what = event.kind
            if event.kind == "accepted":
                assert event.endpoint == endpoint
                requests_of(worker, event.connection).post_recv(bytearray(4000))
            elif event.completion is not None:
                completion = event.completion
                assert completion.error is None
                if completion.kind == "receive":
                    what = "received"  # type: ignore[assignment]
                    assert completion.memory is not None
                    received.append(completion.memory.tobytes())
                else:
                    what = "sent"  # type: ignore[assignment]
                    assert ours[event.connection or 0] == completion.context
            left[what] -= 1
            return not any(left.values())

        until(worker, serve)
        assert sorted(received) == [bytes([n]) * 3000 for n in range(20)]
        assert worker.connections == 40 and worker.close_endpoint(endpoint)
        assert not worker.close_endpoint(endpoint) and worker.endpoint(endpoint) is None


def test_worker__descriptor_tells_of_what_arrives_and_of_timers(
    executor: ThreadPoolExecutor,
) -> None:
    with Worker() as worker:
        address = address_of(worker, worker.listen("127.0.0.1:0"))
        connecting = executor.submit(zerolane.connect, address)
        poller = select.poll()
        poller.register(worker.fileno(), select.POLLIN)
        kinds: list[str] = []
        for _ in range(1000):
            while worker.progress():
                pass
            kinds += [it.kind for it in worker.events()]
            if kinds:
                break
            if worker.arm():
                assert poller.poll(20_000)
        assert kinds == ["accepted"]
        connecting.result().abort()
        until(worker, lambda event: event.kind == "closed")
        # Nothing listens there any more, or answers: a timer tells.
        options = zerolane.Options(connect_timeout=0.05)
        worker.connect(("127.0.0.1", 1), options)
        assert worker.next_timeout == 0
        ended = False
        for _ in range(1000):
            while worker.progress():
                pass
            events = worker.events()
            ended = any(it.kind == "closed" and it.error is not None for it in events)
            if ended:
                break
            if worker.arm():
                assert worker.next_timeout is not None
                assert poller.poll(20_000)
        assert ended


def test_wait__ends_by_events_wakes_and_timeouts(executor: ThreadPoolExecutor) -> None:
    with Worker() as worker:
        worker.set_spin(0)
        assert not worker.wait(timeout=0) and not worker.wait(timeout=0.01)
        waiting = executor.submit(worker.wait)
        # A short call of another thread gets in, and does not end it.
        assert worker.connections == 0 and worker.events() == []
        worker.wake()
        assert waiting.result(timeout=20) is False
        with pytest.raises(ValueError, match="not a time"):
            worker.wait(timeout=-1)


def test_adopt_and_release__a_connection_changes_hands() -> None:
    ours, peers = make_pair()
    with Worker() as worker:
        number = worker.adopt(ours)
        with pytest.raises(zerolane.Closed):
            ours.poll()
        with pytest.raises(zerolane.Closed):
            worker.adopt(ours)
        requests = requests_of(worker, number)
        peers.post_recv(bytearray(5))
        requests.post_send(b"hello")
        with ThreadPoolExecutor(1) as executor:
            receiving = executor.submit(peers.wait, 20)
            until(worker, lambda event: event.kind == "completed")
            completion = receiving.result()
        assert completion is not None and completion.memory == b"hello"
        again = worker.release(number)
        assert again is not None and again.peer_addr == peers.local_addr
        assert worker.connection(number) is None and worker.release(number) is None
        with pytest.raises(zerolane.Closed):
            requests.post_send(b"gone")
        again.abort()
        peers.abort()


def test_adopt__not_while_completions_are_kept(executor: ThreadPoolExecutor) -> None:
    ours, peers = make_pair()
    posted = ours.post_send(b"posted")
    receiving = executor.submit(lambda: [peers.recv_into(bytearray(8)) for _ in range(2)])
    ours.send(b"blocking")
    receiving.result()
    with Worker() as worker:
        with pytest.raises(ValueError, match="take those first"):
            worker.adopt(ours)
        completion = ours.poll()
        assert completion is not None and completion.id == posted
        worker.close(worker.adopt(ours))
        peers.abort()


def test_listen_on__an_endpoint_changes_hands(executor: ThreadPoolExecutor) -> None:
    endpoint = zerolane.Endpoint("127.0.0.1:0")
    with Worker() as worker:
        number = worker.listen_on(endpoint)
        assert address_of(worker, number) == endpoint.local_addr
        with pytest.raises(ValueError, match="closed"):
            worker.listen_on(endpoint)
        connecting = executor.submit(zerolane.connect, endpoint.local_addr)
        until(worker, lambda event: event.kind == "accepted")
        connecting.result().abort()


def test_with__sends_what_was_posted_or_ends_at_once(executor: ThreadPoolExecutor) -> None:
    for error in (None, KeyError()):
        ours, peers = make_pair()
        place = bytearray(100_000)
        peers.post_recv(place)

        def receive(peers: zerolane.Connection) -> zerolane.Completion | None:
            completion = peers.wait(20)
            # It answers what ends the connection.
            with suppress(zerolane.ConnectionEnded):
                peers.wait(20)
            return completion

        receiving = executor.submit(receive, peers)
        try:
            with Worker() as worker:
                requests_of(worker, worker.adopt(ours)).post_send(b"x" * 100_000)
                if error is not None:
                    raise error
        except KeyError:
            pass
        completion = receiving.result()
        assert completion is not None
        if error is None:
            assert completion.memory == b"x" * 100_000
        else:
            assert isinstance(completion.error, zerolane.Closed)
        with pytest.raises(zerolane.Closed):
            worker.progress()
        worker.abort()
        peers.abort()


def test_export__of_a_worker_is_every_clients(executor: ThreadPoolExecutor) -> None:
    with Worker() as worker, zerolane.ExportedRegion(bytearray(64)) as region:
        endpoint = worker.listen("127.0.0.1:0")
        worker.export(endpoint, "shared", region, Rights.ALL)
        address = address_of(worker, endpoint)

        def client(n: int) -> None:
            with zerolane.connect(address) as connection:
                key = connection.open_region("shared", Rights.ALL)
                connection.fetch_add(key, 0, 1 << n)

        clients = [executor.submit(client, n) for n in range(4)]
        ended: list[int | None] = []

        def over(event: zerolane.Event) -> bool:
            if event.kind == "closed":
                ended.append(event.connection)
            return len(ended) == 4

        until(worker, over)
        for it in clients:
            it.result()
        assert region.load(0) == 15
        with pytest.raises(zerolane.Closed):
            worker.export(7, "none", region, Rights.ALL)


@pytest.fixture
def handles() -> Iterator[Handles]:
    """Both ends of a connection, of one worker in a thread of its own."""
    with Worker().spawn() as worker:
        endpoint = worker.listen("127.0.0.1:0").wait(20)
        ours = worker.connect(endpoint.local_addr).wait(20)
        yield worker, ours, endpoint.accept().wait(20)


def test_spawn__handles_do_all_from_any_thread(handles: Handles) -> None:
    _, ours, peers = handles
    receiving = peers.recv(bytearray(100))
    sent = ours.send(b"hello", context=5).wait(20)
    assert (sent.kind, sent.context, sent.length) == ("send", 5, 5)
    assert receiving.wait(20).memory == b"hello" and receiving.done()
    assert receiving.wait().memory == b"hello", "once more the same"
    message = peers.recv_message(bytearray(10))
    ours.send_message(b"control", b"payload").wait(20)
    assert (message.wait(20).control, message.wait().memory) == (b"control", b"payload")
    memory = bytearray(1 << 16)
    region = zerolane.ExportedRegion(memory)
    key = peers.export(region, Rights.ALL).wait(20)
    named = peers.export_named("named", region, Rights.READ).wait(20)
    assert ours.open_region("named", Rights.READ).wait(20) == named
    with pytest.raises(zerolane.Denied):
        ours.open_region("named", Rights.WRITE).wait(20)
    with pytest.raises(zerolane.OutOfBounds):
        ours.put(key, 1 << 16, b"x").wait(20)

    def work(n: int) -> None:
        for step in range(20):
            offset = 1024 + n * 4096
            ours.put(key, offset, bytes([n, step]) * 1000).wait(20)
            back = ours.get(key, offset, bytearray(2000)).wait(20)
            assert back.memory == bytes([n, step]) * 1000
            ours.fetch_op(key, 0, FetchOp.increment()).wait(20)

    threads = [threading.Thread(target=work, args=[n]) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert region.load(0) == 160
    ours.put(key, 8, b"told", immediate=9).wait(20)
    immediate = peers.immediate().wait(20)
    assert (immediate.kind, immediate.value, immediate.length) == ("immediate", 9, 4)
    assert immediate.region == key and memory[8:12] == b"told"
    short = bytearray(b"short")
    placing = ours.put(key, 8, short, inline=True)
    telling = ours.send_message(b"", short, inline=True)
    short.clear()
    received = peers.recv_message(bytearray(9)).wait(20)
    assert received.memory == b"short" and memory[8:13] == b"short"
    assert placing.wait(20).buffer is None and telling.wait(20).buffer is None
    with pytest.raises(ValueError, match="at most 256"):
        ours.put(key, 8, bytes(257), inline=True)
    assert peers.revoke(key).wait(20) is True
    assert ours.account().wait(20).bytes_sent > 0
    assert ours.close().wait(20) is None
    with pytest.raises(zerolane.Closed):
        ours.send(b"too late")
    with pytest.raises(zerolane.ConnectionEnded):
        peers.recv(bytearray(1)).wait(20)


def test_revoke_region__ends_an_endpoints_export_for_one_peer() -> None:
    region = zerolane.ExportedRegion(bytearray(64))
    with Worker().spawn() as worker:
        endpoint = worker.listen("127.0.0.1:0").wait(20)
        endpoint.export("m", region, Rights.ALL).wait(20)
        ends = []
        for _ in range(2):
            client = worker.connect(endpoint.local_addr).wait(20)
            key = client.open_region("m", Rights.ALL).wait(20)
            ends.append((client, endpoint.accept().wait(20), key))
        assert ends[0][1].revoke_region(region).wait(20) is True
        assert ends[0][1].revoke_region(region).wait(20) is False
        with pytest.raises(zerolane.RequestFailed):
            ends[0][0].put(ends[0][2], 0, b"x").wait(20)
        ends[1][0].put(ends[1][2], 8, b"theirs").wait(20)
    with region:
        assert region.load(8) == int.from_bytes(b"theirs\0\0", "little")


def test_export_numbered__reaches_every_peer(handles: Handles) -> None:
    worker, ours, peers = handles
    region = zerolane.ExportedRegion(bytearray(64))
    worker.export_numbered(3, region, Rights.ALL).wait(20)
    with pytest.raises(ValueError, match="already"):
        worker.export_numbered(3, region, Rights.ALL).wait(20)
    key = zerolane.Key.numbered(3, 8)
    for end, word in [(ours, b"12345678"), (peers, b"87654321")]:
        end.put(key, 0, word).wait(20)
        assert region.read(8, 8) == word
    peers.export_numbered(4, region, Rights.WRITE).wait(20)
    ours.put(zerolane.Key.numbered(4), 0, b"x").wait(20)
    with pytest.raises(zerolane.UnknownRegion):
        peers.put(zerolane.Key.numbered(4), 0, b"x").wait(20)
    assert worker.revoke_number(3).wait(20) is True
    assert worker.revoke_number(3).wait(20) is False
    with pytest.raises(zerolane.UnknownRegion):
        ours.put(key, 0, b"x").wait(20)


def test_worker__exports_by_number_on_its_connections() -> None:
    region = zerolane.ExportedRegion(bytearray(64))
    with Worker() as worker:
        worker.export_numbered(1, region, Rights.ALL)
        with pytest.raises(ValueError, match="already"):
            worker.export_numbered(1, region, Rights.ALL)
        with pytest.raises(ValueError, match="24"):
            worker.revoke_number(2**24)
        assert worker.revoke_number(1) and not worker.revoke_number(1)


def test_release__a_connection_goes_to_another_worker(handles: Handles) -> None:
    _, ours, peers = handles
    receiving = peers.recv(bytearray(8))
    with pytest.raises(ValueError, match="pending requests"):
        peers.release().wait(20)
    ours.send(b"first").wait(20)
    assert receiving.wait(20).memory == b"first"
    with Worker().spawn() as other:
        adopted = other.adopt(peers.release().wait(20)).wait(20)
        with pytest.raises(zerolane.Closed):
            peers.recv(bytearray(8)).wait(20)
        receiving = adopted.recv(bytearray(8))
        ours.send(b"second").wait(20)
        assert receiving.wait(20).memory == b"second"


def test_handle__pieces_announcements_and_what_has_arrived(handles: Handles) -> None:
    _, ours, peers = handles
    memory = bytearray(1 << 16)
    key = peers.export(zerolane.ExportedRegion(memory), Rights.ALL).wait(20)
    put = ours.put_vectored(key, [(100, b"first"), (900, b"second")], immediate=3, context=6)
    assert (put.wait(20).context, put.wait().length) == (6, 11)
    assert (memory[100:105], memory[900:906]) == (b"first", b"second")
    places = [(900, bytearray(6)), (100, bytearray(5))]
    got = ours.get_vectored(key, places).wait(20)
    assert [bytes(it) for it in got.pieces] == [b"second", b"first"]
    with pytest.raises(zerolane.RequestFailed):
        ours.put_vectored(key, [(1 << 16, b"x")]).wait(20)
    early = peers.announced()
    with pytest.raises(TimeoutError):
        early.wait(0.01)
    source = bytes(range(256)) * (1 << 17)
    sending = ours.send(source)
    assert early.wait(20) == len(source) == peers.announced().wait(20)
    place = bytearray(len(source))
    receiving = peers.recv(place)
    seen = 0
    while (arrived := peers.wait_arrived(receiving, seen).wait(20)) is not None:
        assert arrived > seen and place[seen:arrived] == source[seen:arrived]
        seen = arrived
    assert receiving.wait(20).length == len(source) and place == source
    assert peers.arrived(receiving).wait(20) is None
    assert peers.arrived(sending).wait(20) is None, "another connection's"
    waiting = peers.recv(bytearray(1))
    assert peers.arrived(waiting).wait(20) == 0
    account = peers.account()
    with pytest.raises(TypeError):
        peers.arrived(account)  # type: ignore[arg-type]
    account.wait(20)
    # Numbers are there when the connection is over.
    ours.close().wait(20)
    with pytest.raises(zerolane.ConnectionEnded):
        waiting.wait(20)
    assert peers.immediate().wait(20).value == 3
    with pytest.raises(zerolane.Closed):
        peers.immediate().wait(20)


def test_pending__timed_out_goes_on_and_cancelled_loses_nothing(handles: Handles) -> None:
    _, ours, peers = handles
    place = bytearray(10)
    receiving = peers.recv(place)
    with pytest.raises(TimeoutError):
        receiving.wait(0.01)
    assert not receiving.done()
    receiving.cancel()
    with pytest.raises(zerolane.Cancelled):
        receiving.wait()
    # The last name of it cancels as well, and warns: the buffer will not be filled.
    del receiving
    with pytest.warns(ResourceWarning, match="the request is cancelled"):
        peers.recv(bytearray(10))
    sending = ours.send(b"kept")
    received = peers.recv(bytearray(10)).wait(20)
    sending.wait(20)
    assert received.memory == b"kept"
    # What is over cannot be cancelled any more.
    receiving = peers.recv(bytearray(10))
    ours.send(b"over").wait(20)
    for _ in range(2000):
        if receiving.done():
            break
        time.sleep(0.01)
    receiving.cancel()
    assert receiving.wait(20).memory == b"over"
    ours.send(b"detached").detach()
    assert peers.recv(bytearray(10)).wait(20).memory == b"detached"


def test_pending__dropped_where_nothing_is_received_goes_on(handles: Handles) -> None:
    worker, ours, peers = handles
    region = zerolane.ExportedRegion(bytearray(64))
    key = peers.export(region, Rights.ALL).wait(20)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ours.send(b"sent")
        ours.send_message(b"control", b"payload")
        ours.put(key, 8, b"put here")
        ours.put_vectored(key, [(16, b"and "), (20, b"here")])
        for _ in range(5):
            ours.fetch_op(key, 0, FetchOp.increment())
    texts = [str(it.message) for it in caught]
    assert len(texts) == 9 and all("the request continues" in it for it in texts), texts
    assert peers.recv(bytearray(10)).wait(20).memory == b"sent"
    assert peers.recv_message(bytearray(10)).wait(20).control == b"control"
    # Behind all of them.
    assert ours.fetch_op(key, 0, FetchOp.add(0)).wait(20).value == 5
    assert region.read(8, 16) == b"put hereand here"
    place = bytearray(8)
    with pytest.warns(ResourceWarning, match="the request is cancelled"):
        for _ in range(100):
            ours.get(key, 8, place)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(100):
            ours.fetch_op(key, 0, FetchOp.increment()).detach()
            ours.get(key, 8, bytearray(8)).cancel()
        ended = ours.fetch_op(key, 0, FetchOp.add(0))
        for _ in range(20_000):
            if ended.done():
                break
            time.sleep(0.001)
        # Its end was seen, if not its result.
        del ended
        gc.collect()
    # What takes effect without a waiter does, and tells.
    other = ours.fetch_op(key, 0, FetchOp.add(0)).wait(20).value
    assert other == 105
    with pytest.warns(ResourceWarning, match="the request continues"):
        peers.revoke(key)
    with pytest.raises(zerolane.RequestFailed):
        ours.fetch_op(key, 0, FetchOp.increment()).wait(20)
    with pytest.warns(ResourceWarning, match="the request continues"):
        peers.export_numbered(5, region, Rights.ALL)
    ours.put(zerolane.Key.numbered(5), 32, b"numbered").wait(20)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        worker.export_numbered(6, region, Rights.ALL)
        worker.revoke_number(6)
    texts = [str(it.message) for it in caught]
    assert len(texts) == 2 and all("the request continues" in it for it in texts), texts
    with pytest.raises(zerolane.UnknownRegion):
        ours.put(zerolane.Key.numbered(6), 0, b"x").wait(20)
    with pytest.warns(ResourceWarning, match="the request is cancelled"):
        ours.announced()
    # An exception that is on its way is no other.
    with pytest.warns(ResourceWarning), pytest.raises(KeyError):
        raise_with(peers.recv(bytearray(8)))
    region.revoke()


def raise_with(pending: object) -> None:
    """Lets go of an object while it raises."""
    held = [pending]
    del pending
    try:
        raise KeyError(len(held))
    finally:
        held.clear()


def test_closed__returns_the_reason_on_an_idle_connection(handles: Handles) -> None:
    worker, ours, _ = handles
    watching = zerolane.Options(keep_alive=True, lane="udp", idle_timeout=0.5)
    with zerolane.Endpoint("127.0.0.1:0", watching) as endpoint:
        address = endpoint.local_addr
        with ThreadPoolExecutor() as threads:
            connecting = threads.submit(zerolane.connect, address, zerolane.Options(lane="udp"))
            accepted = endpoint.accept(timeout=20)
            # It lives, and makes no call.
            silent = connecting.result(20)
        assert accepted is not None
        watched = worker.adopt(accepted).wait(20)
        assert isinstance(watched.closed().wait(20), zerolane.PeerDead)
        silent.abort()
    closed = ours.closed()
    assert not closed.done()
    handles[2].close().wait(20)
    assert isinstance(closed.wait(20), zerolane.Closed)
    assert isinstance(ours.closed().wait(20), zerolane.Closed)


def test_on_closed__is_called_once_with_the_reason(
    handles: Handles, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker, ours, peers = handles
    raised: queue.SimpleQueue[object] = queue.SimpleQueue()
    monkeypatch.setattr(sys, "unraisablehook", raised.put)
    told: queue.SimpleQueue[tuple[Exception, int]] = queue.SimpleQueue()

    def closed(reason: Exception) -> None:
        told.put((reason, threading.get_ident()))

    def fails(reason: Exception) -> None:
        raise KeyError(str(reason))

    for function in (closed, fails, closed):
        ours.on_closed(function)
    with pytest.raises(TypeError, match="callable"):
        ours.on_closed(7)  # type: ignore[arg-type]
    assert told.empty()
    peers.close().wait(20)
    for _ in range(2):
        reason, thread = told.get(timeout=20)
        assert isinstance(reason, zerolane.Closed)
        assert thread != threading.get_ident()
    assert isinstance(raised.get(timeout=20).exc_value, KeyError)  # type: ignore[attr-defined]
    # It is over, and the worker lives.
    ours.on_closed(closed)
    assert isinstance(told.get(timeout=20)[0], zerolane.Closed)
    worker.abort()
    assert told.empty()


def test_background__is_the_workers_of_the_process() -> None:
    with zerolane.background() as worker:
        endpoint = worker.listen("127.0.0.1:0").wait(20)
    # It goes on, for others.
    again = zerolane.background()
    again.stop()
    again.abort()
    accepting = endpoint.accept()
    ours = again.connect(endpoint.local_addr).wait(20)
    peers = accepting.wait(20)
    ours.send(b"hello").detach()
    assert peers.recv(bytearray(5)).wait(20).memory == b"hello"


def test_worker__handles_of_before_its_thread(handles: Handles) -> None:
    others, _, _ = handles
    worker = Worker()
    number = worker.listen("127.0.0.1:0")
    address = address_of(worker, number)
    connecting = others.connect(address)
    accepted: list[int] = []

    def is_accepted(event: zerolane.Event) -> bool:
        accepted.append(event.connection or 0)
        return event.kind == "accepted"

    until(worker, is_accepted)
    endpoint, ours = worker.endpoint_handle(number), worker.connection_handle(accepted[-1])
    assert endpoint is not None and ours is not None
    assert worker.endpoint_handle(number) is None
    assert worker.connection_handle(accepted[-1]) is None
    assert worker.connection_handle(4711) is None and worker.endpoint_handle(4711) is None
    with worker.spawn():
        theirs = connecting.wait(20)
        theirs.send(b"early").detach()
        assert ours.recv(bytearray(5)).wait(20).memory == b"early"
        others.connect(address).wait(20).send(b"late").detach()
        assert endpoint.accept().wait(20).recv(bytearray(4)).wait(20).memory == b"late"
        ours.close().wait(20)


def test_set__has_the_tokens_of_requests_that_are_over(handles: Handles) -> None:
    _, ours, peers = handles
    over = zerolane.PendingSet()
    places = [bytearray(1) for _ in range(100)]
    receives = [peers.recv(place) for place in places]
    for token, receiving in enumerate(receives):
        over.add(receiving, token)
    assert over.poll_batch() == [] and over.wait(0) is None and over.wait(0.01) is None
    assert select.select([over], [], [], 0)[0] == []
    for n in range(100):
        ours.send(bytes([n])).detach()
    came: set[int] = set()
    while len(came) < 100:
        assert select.select([over], [], [], 20)[0] == [over]
        for token in over.poll_batch(max=7):
            assert receives[token].done() and receives[token].wait(0).memory == bytes([token])
            came.add(token)
    assert select.select([over], [], [], 0)[0] == []
    # One that is over, and one that was cancelled.
    over.add(receives[0], 2**64 - 1)
    assert over.wait(20) == 2**64 - 1
    cancelled = peers.recv(bytearray(1))
    cancelled.cancel()
    over.add(cancelled, 7)
    assert over.wait(20) == 7
    for wrong in (-1, 2**64):
        with pytest.raises(OverflowError):
            over.add(receives[0], wrong)
    # Another thread ends a wait.
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(over.wait)
        over.signal(9)
        assert waiting.result(20) == 9


def test_pending__is_awaited(handles: Handles) -> None:
    _, ours, peers = handles

    async def main() -> None:
        receives = [peers.recv(bytearray(10)) for _ in range(10)]

        async def end(pending: zerolane.Pending[zerolane.Completion]) -> zerolane.Completion:
            return await pending

        ends = [asyncio.create_task(end(it)) for it in receives]
        for n in range(10):
            assert (await ours.send(bytes([n]))).length == 1
        assert [it.memory for it in await asyncio.gather(*ends)] == [bytes([n]) for n in range(10)]
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(end(peers.recv(bytearray(10))), 0.02)
        receiving = peers.recv(bytearray(10))
        await ours.send(b"next")
        assert (await receiving).memory == b"next"
        with pytest.raises(zerolane.UnknownRegion):
            await ours.open_region("nothing", Rights.READ)

    asyncio.run(asyncio.wait_for(main(), 30))


PEER = """
import sys, zerolane
from zerolane import Rights
with zerolane.connect(("127.0.0.1", int(sys.argv[1]))) as connection:
    connection.set_timeout(20)
    key = connection.open_region("memory", Rights.ALL)
    for n in range(50):
        data = bytes([n]) * (1 + n * 1000)
        connection.put(key, 64, data)
        assert connection.get(key, 64, bytearray(len(data))) == data
        assert connection.fetch_add(key, 0) == n
"""


def waits_with_the_interpreter_held(process: subprocess.Popen[bytes]) -> int:
    """The exit code of ``process``, for which no thread of Python's runs until then."""
    status = ctypes.c_int()
    assert ctypes.PyDLL(None).waitpid(process.pid, ctypes.byref(status), 0) == process.pid
    process.returncode = os.waitstatus_to_exitcode(status.value)
    return process.returncode


def test_spawn__serves_memory_while_the_interpreter_is_held() -> None:
    with Worker().spawn() as worker, zerolane.ExportedRegion(bytearray(1 << 16)) as region:
        endpoint = worker.listen("127.0.0.1:0").wait(20)
        endpoint.export("memory", region, Rights.ALL).wait(20)
        port = str(endpoint.local_addr[1])
        process = subprocess.Popen([sys.executable, "-c", PEER, port])
        assert waits_with_the_interpreter_held(process) == 0
        assert region.load(0) == 50


def test_spawn__lets_go_of_buffers_without_the_interpreter() -> None:
    with Worker().spawn() as worker, zerolane.ExportedRegion(bytearray(1 << 16)) as region:
        endpoint = worker.listen("127.0.0.1:0").wait(20)
        endpoint.export("memory", region, Rights.ALL).wait(20)
        ours = worker.connect(endpoint.local_addr).wait(20)
        place = bytearray(10)
        receiving = ours.recv(place)
        port = str(endpoint.local_addr[1])
        process = subprocess.Popen([sys.executable, "-c", PEER, port])
        receiving.cancel()
        # The worker lets go of `place`, and serves its peer, without the interpreter.
        assert waits_with_the_interpreter_held(process) == 0
        gc.collect()
        ours.recv(bytearray(1)).cancel()
        place.clear()


def test_spawn__lets_go_of_buffers_whenever_the_main_thread_looks() -> None:
    # What the interpreter does between two instructions, at the pace of the worker.
    looks = ctypes.pythonapi.Py_MakePendingCalls
    with Worker().spawn() as worker:
        endpoint = worker.listen("127.0.0.1:0").wait(20)
        ours = worker.connect(endpoint.local_addr).wait(20)
        for _ in range(500):
            places = [bytearray(1) for _ in range(16)]
            receiving = [ours.recv(place) for place in places]
            for pending in receiving:
                pending.cancel()
            bound = time.monotonic() + 20
            while any(is_exported(place) for place in places):
                looks()
                assert time.monotonic() < bound, "all are let go of in time"


def test_spawn__is_the_end_of_the_worker_that_was() -> None:
    worker = Worker()
    number = worker.listen("127.0.0.1:0")
    with worker.spawn():
        with pytest.raises(zerolane.Closed):
            worker.endpoint(number)
        with pytest.raises(zerolane.Closed):
            worker.spawn()
        worker.stop()
        worker.abort()
    thread = Worker().spawn()
    pending = thread.listen("127.0.0.1:0")
    endpoint = pending.wait(20)
    accepting = endpoint.accept()
    thread.abort()
    with pytest.raises(zerolane.Closed):
        accepting.wait(20)
    with pytest.raises(zerolane.Closed):
        thread.connect(endpoint.local_addr).wait(20)
    thread.stop()


def test_spawn__signals_are_for_the_threads_of_the_program() -> None:
    program = """
import os, signal, time, zerolane
handled = []
signal.signal(signal.SIGUSR1, lambda number, frame: handled.append(number))
with zerolane.Worker().spawn(), zerolane.Endpoint("127.0.0.1:0"):
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    for _ in range(20):
        os.kill(os.getpid(), signal.SIGUSR1)
        # In which another thread would take it.
        time.sleep(0.001)
        # A thread that takes it leaves none to wait for.
        assert signal.sigtimedwait([signal.SIGUSR1], 10) is not None
    assert handled == []
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_receive_pool__serves_the_connections_of_a_worker() -> None:
    pool = zerolane.ReceivePool()
    with Worker() as server, Worker() as clients:
        server.share_receives(pool)
        server.share_receives(pool)
        with pytest.raises(ValueError, match="another receive pool"):
            server.share_receives(zerolane.ReceivePool())
        address = address_of(server, server.listen("127.0.0.1:0"))
        for n in range(5):
            client = requests_of(clients, clients.connect(address))
            client.post_message(b"from %d" % n, bytes([n]) * 1000)
        sender = clients.spawn()
        memory = [bytearray(1000), bytearray(1000)]

        def add() -> None:
            for number, buffer in enumerate(memory):
                pool.add(buffer, number)

        threading.Timer(0.05, add).start()
        received: set[bytes] = set()

        def receive(event: zerolane.Event) -> bool:
            if event.completion is not None:
                done = event.completion
                assert done.buffer is memory[done.context]
                assert done.memory == bytes([done.control[-1] - ord("0")]) * 1000
                received.add(done.control)
                pool.add(done.buffer, done.context)
            return len(received) == 5

        until(server, receive)
        assert len(pool) == 2
        pool.close()
        with pytest.raises(zerolane.Closed):
            pool.add(bytearray(8))
        first, second = pool.remove(), pool.remove()
        assert first is not None and second is not None and pool.remove() is None
        assert sorted(context for _, context in (first, second)) == [0, 1]
        sender.abort()
        with pytest.raises(BufferError):
            zerolane.ReceivePool().add(b"read-only")


def test_receive_pool__messages_of_a_handle() -> None:
    pool = zerolane.ReceivePool()
    memory = bytearray(100)
    with Worker().spawn() as thread:
        thread.share_receives(pool).wait(20)
        endpoint = thread.listen("127.0.0.1:0").wait(20)
        with zerolane.connect(endpoint.local_addr) as client:
            peer = endpoint.accept().wait(20)
            peer.set_receive_pool(pool).wait(20)
            message = peer.message()
            client.post_message(b"one")
            pool.add(memory, 7)
            client.wait(20)
            done = message.wait(20)
            assert (done.control, done.context, done.buffer is memory) == (b"one", 7, True)
            peer.message().cancel()
