"""Tests connections of an event loop."""

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import pytest

import zerolane
from zerolane import FetchOp, Rights, aio

Body = Callable[[aio.Connection, aio.Connection], Awaitable[None]]


def run(body: Body) -> None:
    """Runs a test with a pair of connections of one loop."""

    async def main() -> None:
        with aio.Endpoint("127.0.0.1:0") as endpoint:
            accepting = asyncio.create_task(endpoint.accept())
            ours = await aio.connect(endpoint.local_addr)
            peers = await accepting
        try:
            await asyncio.wait_for(body(ours, peers), 30)
        finally:
            ours.abort()
            peers.abort()

    asyncio.run(main())


def test_send__many_at_once_arrive_in_order() -> None:
    async def body(ours: aio.Connection, peers: aio.Connection) -> None:
        sent = np.random.default_rng(1).integers(0, 256, (10, 300_000), dtype=np.uint8)
        places = [bytearray(300_000) for _ in sent]
        receives = [asyncio.create_task(peers.recv_into(place)) for place in places]
        await asyncio.gather(*(ours.send(row) for row in sent))
        assert await asyncio.gather(*receives) == [300_000] * 10
        assert places == [row.tobytes() for row in sent]

    run(body)


def test_memory__of_the_peer_in_the_same_loop() -> None:
    async def body(ours: aio.Connection, peers: aio.Connection) -> None:
        memory = np.zeros(1_000_000)
        with zerolane.ExportedRegion(memory) as region:
            key = peers.export(region, Rights.ALL)
            row = np.arange(1000.0)
            await ours.put(key, 8000, row, immediate=3)
            told = await peers.immediate()
            assert (told.value, told.region, told.length) == (3, key, row.nbytes)
            assert (memory[1000:2000] == row).all()
            back = np.zeros(1000)
            await ours.get(key, 8000, back)
            assert (back == row).all()
            added = await asyncio.gather(*(ours.fetch_add(key, 0) for _ in range(50)))
            assert sorted(added) == list(range(50))
            assert await ours.compare_and_swap(key, 0, 50, 1) == 50
            with pytest.raises(zerolane.OutOfBounds):
                await ours.put(key, memory.nbytes, b"x")

    run(body)


def test_messages__both_ways() -> None:
    async def body(ours: aio.Connection, peers: aio.Connection) -> None:
        place = bytearray(5)
        receiving = asyncio.create_task(peers.recv_message(place))
        await ours.send_message(b"control", b"bytes")
        assert await receiving == (b"control", b"bytes")
        assert place == b"bytes"

    run(body)


def test_cancel__frees_the_buffer_and_the_connection_goes_on() -> None:
    async def body(ours: aio.Connection, peers: aio.Connection) -> None:
        place = bytearray(10)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(ours.recv_into(place), 0.05)
        place.clear()
        receiving = asyncio.create_task(ours.recv_into(place := bytearray(4)))
        await peers.send(b"next")
        assert await receiving == 4 and place == b"next"

    run(body)


def test_close__of_the_peer_ends_what_waits() -> None:
    async def body(ours: aio.Connection, peers: aio.Connection) -> None:
        receiving = asyncio.create_task(ours.recv_into(bytearray(1)))
        await asyncio.sleep(0)
        await peers.close()
        with pytest.raises(zerolane.ConnectionEnded):
            await receiving
        with pytest.raises(zerolane.ConnectionEnded):
            await ours.send(b"too late")

    run(body)


def test_closed__returns_the_reason_whoever_ends_it() -> None:
    async def body(ours: aio.Connection, peers: aio.Connection) -> None:
        watching = [asyncio.create_task(it.closed()) for it in (ours, ours, peers)]
        cancelled = asyncio.create_task(ours.closed())
        await asyncio.sleep(0)
        cancelled.cancel()
        assert not any(it.done() for it in watching)
        await peers.close()
        for end in [*await asyncio.gather(*watching), await ours.closed()]:
            assert isinstance(end, zerolane.Closed)

    run(body)


def test_immediate__not_asked_for_has_its_sender_wait_and_nobody_else() -> None:
    async def body(ours: aio.Connection, peers: aio.Connection) -> None:
        puts, kept = 3 * 1024, 1024
        with zerolane.ExportedRegion(bytearray(8)) as region:
            key = peers.export(region, Rights.ALL)
            putting = [
                asyncio.create_task(ours.put(key, 0, b"x", immediate=number))
                for number in range(puts)
            ]
            place = bytearray(8)
            rounds = 50
            while rounds:
                receiving = asyncio.create_task(peers.recv_into(place))
                await ours.send(b"told")
                assert await receiving == 4
                if sum(it.done() for it in putting) >= kept:
                    rounds -= 1
            # Besides those kept, as many as one turn of the worker brings.
            assert sum(it.done() for it in putting) <= 2 * kept
            assert [(await peers.immediate()).value for _ in range(puts)] == list(range(puts))
            await asyncio.gather(*putting)

    run(body)


def test_immediate__ends_with_the_connection() -> None:
    async def body(ours: aio.Connection, peers: aio.Connection) -> None:
        memory = bytearray(8)
        with zerolane.ExportedRegion(memory) as region:
            key = ours.export(region, Rights.ALL)
            await peers.put(key, 0, b"came", immediate=5)
            waiting = [asyncio.create_task(ours.immediate()) for _ in range(3)]
            await peers.close()
            outcomes = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 10)
            first = outcomes[0]
            assert isinstance(first, zerolane.Completion) and first.value == 5
            assert [type(outcome) for outcome in outcomes[1:]] == [zerolane.Closed] * 2
            with pytest.raises(zerolane.ConnectionEnded):
                await asyncio.wait_for(ours.immediate(), 10)

    run(body)


def test_immediate__ends_when_closed_here() -> None:
    async def body(ours: aio.Connection, peers: aio.Connection) -> None:
        for end, leave in [(ours, ours.abort), (peers, peers.close)]:
            waiting = asyncio.create_task(end.immediate())
            await asyncio.sleep(0)
            if (left := leave()) is not None:
                await left
            with pytest.raises(zerolane.Closed):
                await asyncio.wait_for(waiting, 10)

    run(body)


def test_immediate__cancelled_takes_none() -> None:
    async def body(ours: aio.Connection, peers: aio.Connection) -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(ours.immediate(), 0.05)
        with zerolane.ExportedRegion(bytearray(8)) as region:
            key = ours.export(region, Rights.ALL)
            await peers.put(key, 0, b"x", immediate=6)
            assert (await asyncio.wait_for(ours.immediate(), 10)).value == 6

    run(body)


def test_accept__cancelled_loses_no_connection() -> None:
    async def main() -> None:
        with aio.Endpoint("127.0.0.1:0") as endpoint:
            accepting = asyncio.create_task(endpoint.accept())
            # Into its thread, which goes on for a while.
            await asyncio.sleep(0.05)
            accepting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await accepting
            ours = await aio.connect(endpoint.local_addr)
            peers = await asyncio.wait_for(endpoint.accept(), 10)
        place = bytearray(5)
        receiving = asyncio.create_task(peers.recv_into(place))
        await ours.send(b"hello")
        assert await receiving == 5 and place == b"hello"
        ours.abort()
        peers.abort()

    asyncio.run(asyncio.wait_for(main(), 30))


def test_accept__a_bounded_number_of_connections_waits_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(aio, "_BACKLOG", 4)

    async def main() -> None:
        with aio.Endpoint("127.0.0.1:0") as endpoint:
            for _ in range(20):
                await (await aio.connect(endpoint.local_addr)).close()
            stand = [await aio.connect(endpoint.local_addr) for _ in range(4)]
            turned_away = await aio.connect(endpoint.local_addr)
            with pytest.raises(zerolane.ConnectionEnded):
                await turned_away.immediate()
            accepted = [await endpoint.accept() for _ in stand]
            for ours, peers in zip(stand, accepted, strict=True):
                await ours_sends_next(ours, peers)
            last = await aio.connect(endpoint.local_addr)
            for it in [*stand, *accepted, last, await endpoint.accept()]:
                it.abort()

    asyncio.run(asyncio.wait_for(main(), 30))


def test_accept__is_not_needed_by_clients_of_exported_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(aio, "_BACKLOG", 4)

    async def main() -> None:
        with aio.Endpoint("127.0.0.1:0") as endpoint, zerolane.ExportedRegion(bytearray(64)) as it:
            endpoint.export("shared", it, Rights.ALL)
            clients = [await aio.connect(endpoint.local_addr) for _ in range(10)]
            for client in clients:
                await client.open_region("shared", Rights.READ)
            for _ in range(60):
                await (await aio.connect(endpoint.local_addr)).close()
            assert len(endpoint._accepted) <= 21, "those that are over are forgotten"
            for client in clients:
                await client.open_region("shared", Rights.READ)
                client.abort()

    asyncio.run(asyncio.wait_for(main(), 30))


def test_accept__of_a_closed_endpoint_fails() -> None:
    async def main() -> None:
        endpoint = aio.Endpoint("127.0.0.1:0")
        accepting = asyncio.create_task(endpoint.accept())
        await asyncio.sleep(0.05)
        endpoint.close()
        with pytest.raises(ValueError, match="closed"):
            await accepting
        with pytest.raises(ValueError, match="closed"):
            await endpoint.accept()

    asyncio.run(asyncio.wait_for(main(), 30))


def test_recv_into__returns_however_it_is_delivered() -> None:
    async def body(ours: aio.Connection, peers: aio.Connection) -> None:
        for delivery in ("silent", "polled", "interrupt"):
            place = bytearray(5)
            receiving = asyncio.create_task(peers.recv_into(place))
            await ours.send(b"hello", delivery=delivery)
            assert await asyncio.wait_for(receiving, 10) == 5 and place == b"hello"

    run(body)


def test_recv_into__cancelled_when_it_was_over_keeps_the_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def body(ours: aio.Connection, peers: aio.Connection) -> None:
        receiving = asyncio.create_task(peers.recv_into(bytearray(100)))
        take = peers._take

        def take_and_cancel(completion: zerolane.Completion) -> None:
            take(completion)
            receiving.cancel()

        monkeypatch.setattr(peers, "_take", take_and_cancel)
        await ours.send(b"not lost")
        with pytest.raises(asyncio.CancelledError):
            await receiving
        monkeypatch.undo()
        with pytest.raises(zerolane.MessageTooLarge, match="8 bytes"):
            await peers.recv_into(bytearray(7))
        place = np.zeros((10, 10), order="F", dtype=np.uint8)
        assert await peers.recv_into(place) == 8
        assert place.T.tobytes()[:8] == b"not lost"
        await ours_sends_next(ours, peers)

    run(body)


def test_recv__cancelled_before_its_end_is_told_keeps_the_message() -> None:
    async def body(ours: aio.Connection, peers: aio.Connection) -> None:
        receiving = asyncio.create_task(peers.recv_message(bytearray(100)))
        sending = asyncio.create_task(ours.send_message(b"control", b"not lost"))
        await asyncio.sleep(0)
        for _ in range(100_000):
            peers._driver.worker.progress()
            if not peers._requests.in_flight:
                break
        receiving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await receiving
        await sending
        control, memory = await peers.recv_message(bytearray(8))
        assert (control, memory) == (b"control", b"not lost")
        await ours_sends_next(ours, peers)

    run(body)


async def ours_sends_next(ours: aio.Connection, peers: aio.Connection) -> None:
    """The next message is received by the next call, and its content with it."""
    place = bytearray(10)
    receiving = asyncio.create_task(peers.recv_into(place))
    await ours.send(b"next")
    assert await receiving == 4 and place[:4] == b"next"


def test_connect__cancelled_or_unanswered_leaves_nothing() -> None:
    async def main() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
            silent.bind(("127.0.0.1", 0))
            address = silent.getsockname()
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(aio.connect(address), 0.05)
            options = zerolane.Options(connect_timeout=0.05)
            with pytest.raises(zerolane.ConnectTimeout):
                await aio.connect(address, options)
        with aio.Endpoint("127.0.0.1:0") as endpoint:
            host, port = endpoint.local_addr
            ours = await aio.connect(f"{host}:{port}")
            (await endpoint.accept()).abort()
            await ours.close()
            assert ours._driver.connections == {} and ours._driver.connecting == {}

    asyncio.run(asyncio.wait_for(main(), 30))


def test_loop__makes_no_thread() -> None:
    async def main() -> None:
        with aio.Endpoint("127.0.0.1:0") as endpoint:
            pairs = [(await aio.connect(endpoint.local_addr), await endpoint.accept())]
            pairs.append((await aio.connect(endpoint.local_addr), await endpoint.accept()))
        for ours, peers in pairs:
            await ours_sends_next(ours, peers)
            await ours.close()
            assert peers._driver is ours._driver
        assert threading.active_count() == 1

    asyncio.run(asyncio.wait_for(main(), 30))


def test_export__of_an_endpoint_is_every_clients() -> None:
    async def main() -> None:
        memory = bytearray(64)
        with aio.Endpoint("127.0.0.1:0") as endpoint, zerolane.ExportedRegion(memory) as region:
            endpoint.export("shared", region, Rights.ALL)
            clients = [await aio.connect(endpoint.local_addr) for _ in range(3)]
            for n, client in enumerate(clients):
                key = await client.open_region("shared", Rights.ALL)
                assert await client.fetch_op(key, 0, FetchOp.increment()) == n
                with pytest.raises(zerolane.UnknownRegion):
                    await client.open_region("another", Rights.READ)
            for client in clients:
                await client.close()
            with pytest.raises(zerolane.Closed):
                await clients[0].fetch_add(key, 0)

    asyncio.run(asyncio.wait_for(main(), 30))


class Made(NamedTuple):
    """Objects of one event loop."""

    endpoint: aio.Endpoint
    ours: aio.Connection
    peers: aio.Connection
    streams: aio.Streams
    peers_streams: aio.Streams
    incoming: aio.Incoming
    asking: asyncio.Task[aio.Connection]
    """Waits for the answer to ``incoming``."""


def test_loop__another_one_is_refused_at_once() -> None:
    async def make() -> Made:
        endpoint = aio.Endpoint("127.0.0.1:0", zerolane.Options(asks=True))
        pairs = []
        for _ in range(2):
            connecting = asyncio.create_task(aio.connect(endpoint.local_addr))
            accepted = await endpoint.accept()
            pairs.append((await connecting, accepted))
        (ours, peers), (one, other) = pairs
        streams = aio.Streams(one, "connector"), aio.Streams(other, "acceptor")
        asking = asyncio.create_task(aio.connect(endpoint.local_addr))
        return Made(endpoint, ours, peers, *streams, await endpoint.incoming(), asking)

    async def use(made: Made) -> None:
        endpoint, ours, streams, incoming = made.endpoint, made.ours, made.streams, made.incoming
        calls: list[Callable[[], Awaitable[object]]] = [
            lambda: ours.send(b"hello"),
            lambda: ours.recv_into(bytearray(8)),
            lambda: ours.send_message(b"hello"),
            lambda: ours.recv_message(),
            lambda: ours.open_region("m", Rights.ALL),
            ours.immediate,
            ours.closed,
            ours.close,
            endpoint.accept,
            endpoint.incoming,
            streams.accept,
            streams.close,
            lambda: streams.__aexit__(None, None, None),
        ]
        for call in calls:
            with pytest.raises(RuntimeError, match="another event loop"):
                await asyncio.wait_for(call(), 20)
        for one in [
            *without_waiting(endpoint, ours),
            streams.open,
            lambda: aio.Streams(ours, "connector"),
            incoming.accept,
            incoming.refuse,
        ]:
            with pytest.raises(RuntimeError, match="another event loop"):
                one()

    async def go_on(made: Made) -> None:
        await talk(made.ours, made.peers)
        _, opened = made.streams.open(b"later")
        accepted = await made.peers_streams.accept()
        assert accepted is not None and accepted[1].get_extra_info("purpose") == b"later"
        for writer in (opened, accepted[1]):
            writer.close()
            await writer.wait_closed()
        accepts = made.incoming.accept()
        await talk(await made.asking, accepts)
        accepts.abort()
        (await made.asking).abort()

    async def give_up(asking: asyncio.Task[aio.Connection]) -> None:
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking

    for closed in (False, True):
        loop = asyncio.new_event_loop()
        made = loop.run_until_complete(make())
        if closed:
            loop.run_until_complete(give_up(made.asking))
            loop.close()
        asyncio.run(use(made))
        if not closed:
            # Nothing was posted, and its own loop goes on.
            loop.run_until_complete(asyncio.wait_for(go_on(made), 60))
        for it in (made.ours, made.peers, made.streams, made.peers_streams):
            it.abort()
        made.endpoint.close()
        loop.close()


def without_waiting(endpoint: aio.Endpoint, ours: aio.Connection) -> list[Callable[[], object]]:
    """The calls that are no coroutines."""
    region = zerolane.ExportedRegion.memfd(64)
    key = zerolane.Key.from_bytes(bytes(24))
    return [
        ours.finish,
        lambda: ours.export(region, Rights.ALL),
        lambda: ours.export_named("m", region, Rights.ALL),
        lambda: ours.export_numbered(1, region, Rights.ALL),
        lambda: ours.revoke(key),
        lambda: ours.revoke_region(region),
        lambda: endpoint.export("m", region, Rights.ALL),
        ours.abort,
        endpoint.close,
    ]


def test_loop__that_runs_in_another_thread_is_not_disturbed(executor: ThreadPoolExecutor) -> None:
    async def body() -> None:
        with aio.Endpoint("127.0.0.1:0") as endpoint:
            ours = await aio.connect(endpoint.local_addr)
            peers = await endpoint.accept()
            calls = without_waiting(endpoint, ours)
            loop = asyncio.get_running_loop()
            for call in calls:
                with pytest.raises(RuntimeError):
                    await loop.run_in_executor(executor, call)
            await talk(ours, peers)
            ours.abort()
            peers.abort()

    asyncio.run(asyncio.wait_for(body(), 30))


def test_loop__that_does_not_run_is_not_needed_for_calls_that_do_not_wait() -> None:
    loop = asyncio.new_event_loop()

    async def make() -> tuple[aio.Endpoint, aio.Connection, aio.Connection]:
        endpoint = aio.Endpoint("127.0.0.1:0")
        ours = await aio.connect(endpoint.local_addr)
        return endpoint, ours, await endpoint.accept()

    endpoint, ours, peers = loop.run_until_complete(make())
    for call in without_waiting(endpoint, ours)[1:]:
        call()
    peers.abort()
    loop.close()


async def talk(ours: aio.Connection, peers: aio.Connection) -> None:
    place = bytearray(5)
    assert (await asyncio.gather(peers.recv_into(place), ours.send(b"hello")))[0] == 5
    assert place == b"hello"


def test_connect__says_what_is_wrong_with_an_address() -> None:
    async def main() -> None:
        with pytest.raises(ValueError, match="has no port"):
            await aio.connect("127.0.0.1")
        with pytest.raises(ValueError, match="65536 is not a port"):
            await aio.connect(("127.0.0.1", 65536))
        with pytest.raises(ValueError, match=r"\[::1\]:PORT"):
            await aio.connect("::1")
        with pytest.raises(OSError):
            await aio.connect("no-such-host.invalid:1")

    asyncio.run(main())
