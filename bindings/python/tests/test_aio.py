"""Connections of an event loop."""

import asyncio
from collections.abc import Awaitable, Callable

import numpy as np
import pytest

import zerolane
from zerolane import Rights, aio

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
            assert await peers.immediate() == 3
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
        assert await receiving == (b"control", 5)
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


def test_immediate__ends_with_the_connection() -> None:
    async def body(ours: aio.Connection, peers: aio.Connection) -> None:
        memory = bytearray(8)
        with zerolane.ExportedRegion(memory) as region:
            key = ours.export(region, Rights.ALL)
            await peers.put(key, 0, b"came", immediate=5)
            waiting = [asyncio.create_task(ours.immediate()) for _ in range(3)]
            await peers.close()
            outcomes = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 10)
            assert outcomes[0] == 5
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
            assert await asyncio.wait_for(ours.immediate(), 10) == 6

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


def test_receive_into__returns_however_it_is_delivered() -> None:
    async def body(ours: aio.Connection, peers: aio.Connection) -> None:
        for delivery in ("silent", "polled", "interrupt"):
            place = bytearray(5)
            receiving = asyncio.create_task(peers.recv_into(place))
            await ours.send(b"hello", delivery=delivery)
            assert await asyncio.wait_for(receiving, 10) == 5 and place == b"hello"

    run(body)
