"""Tests private data, and that a program decides about requests for connections."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

import zerolane
from zerolane import Options, Worker, aio

CLIENT = Options(private_data=b"a client")
ASKS = Options(private_data=b"as usual", asks=True)


def test_options__refuse_what_is_too_long() -> None:
    Options(private_data=bytes(64))
    with pytest.raises(ValueError, match="65 bytes: give at most 64"):
        Options(private_data=bytes(65))


@pytest.mark.parametrize("backlog", [0, 64])
def test_connect__private_data_both_ways(executor: ThreadPoolExecutor, backlog: int) -> None:
    options = Options(private_data=b"answer", backlog=backlog)
    with zerolane.Endpoint("127.0.0.1:0", options) as endpoint:
        connecting = executor.submit(zerolane.connect, endpoint.local_addr, CLIENT)
        accepted = endpoint.accept(timeout=20)
        connected = connecting.result()
    assert (accepted.peer_data, connected.peer_data) == (b"a client", b"answer")
    accepted.abort()
    connected.abort()


@pytest.mark.parametrize("backlog", [0, 64])
def test_incoming__is_accepted_or_refused(executor: ThreadPoolExecutor, backlog: int) -> None:
    options = Options(private_data=b"as usual", asks=True, backlog=backlog)
    assert options.asks and not CLIENT.asks
    with zerolane.Endpoint("127.0.0.1:0", options) as endpoint:
        with pytest.raises(TimeoutError, match="no request came in time"):
            endpoint.incoming(timeout=0.01)
        for answer in (b"first", None):
            connecting = executor.submit(zerolane.connect, endpoint.local_addr, CLIENT)
            incoming = endpoint.incoming(timeout=20)
            assert incoming.data == b"a client"
            assert incoming.peer_addr[0] == "127.0.0.1"
            assert incoming.peer_key is not None
            with pytest.raises(ValueError, match="at most 64"):
                incoming.accept(bytes(65))
            accepted = incoming.accept(answer)
            for again in (incoming.accept, incoming.refuse):
                with pytest.raises(ValueError, match="accepted or refused already"):
                    again()
            connected = connecting.result()
            assert connected.peer_data == (answer or b"as usual")
            assert accepted.peer_data == b"a client"
            accepted.abort()
            connected.abort()
        for refuses in (True, False):
            connecting = executor.submit(zerolane.connect, endpoint.local_addr, CLIENT)
            incoming = endpoint.incoming(timeout=20)
            if refuses:
                incoming.refuse()
            del incoming
            with pytest.raises(zerolane.Rejected, match="the program there refused"):
                connecting.result()
    with pytest.raises(ValueError, match="the endpoint is closed"):
        endpoint.incoming()
    with (
        zerolane.Endpoint("127.0.0.1:0") as endpoint,
        pytest.raises(ValueError, match="accepts by itself"),
    ):
        endpoint.incoming(timeout=1)


def test_requested__a_worker_decides(executor: ThreadPoolExecutor) -> None:
    with Worker() as worker:
        number = worker.listen("127.0.0.1:0", ASKS)
        listener = worker.endpoint(number)
        assert listener is not None

        def next_event(kind: str) -> int:
            while True:
                assert worker.wait(20)
                for event in worker.events(1):
                    if event.kind == kind:
                        assert event.connection is not None
                        return event.connection

        connecting = executor.submit(zerolane.connect, listener.local_addr, CLIENT)
        asked = next_event("requested")
        requests = worker.connection(asked)
        assert requests is not None and requests.peer_data == b"a client"
        assert worker.accept_request(asked, b"yes")
        assert not worker.accept_request(asked) and not worker.refuse_request(asked)
        while not connecting.done():
            worker.wait(0.01)
        with connecting.result() as connected:
            assert connected.peer_data == b"yes"
            connecting = executor.submit(zerolane.connect, listener.local_addr, CLIENT)
            assert worker.refuse_request(next_event("requested"))
            next_event("closed")
            with pytest.raises(zerolane.Rejected):
                connecting.result()
            connected.abort()


def test_incoming__of_a_workers_thread() -> None:
    with Worker().spawn() as thread:
        endpoint = thread.listen("127.0.0.1:0", ASKS).wait(20)
        connecting = thread.connect(endpoint.local_addr, CLIENT)
        incoming = endpoint.incoming().wait(20)
        assert incoming.data == b"a client"
        accepted = incoming.accept(b"yes")
        assert isinstance(accepted, zerolane.ConnectionHandle)
        assert connecting.wait(20).peer_data == b"yes"
        assert accepted.peer_data == b"a client"
        connecting = thread.connect(endpoint.local_addr, CLIENT)
        endpoint.incoming().wait(20).refuse()
        with pytest.raises(zerolane.Rejected):
            connecting.wait(20)


def test_incoming__of_asyncio() -> None:
    async def decide() -> None:
        with aio.Endpoint("127.0.0.1:0", ASKS) as endpoint:
            connecting = asyncio.create_task(aio.connect(endpoint.local_addr, CLIENT))
            incoming = await endpoint.incoming()
            assert incoming.data == b"a client" and incoming.peer_key is not None
            accepted = incoming.accept(b"yes")
            with pytest.raises(ValueError, match="already"):
                incoming.refuse()
            connected = await connecting
            assert (connected.peer_data, accepted.peer_data) == (b"yes", b"a client")
            for end in (connected, accepted):
                end.abort()
            connecting = asyncio.create_task(aio.connect(endpoint.local_addr, CLIENT))
            accepted = await endpoint.accept()
            connected = await connecting
            assert connected.peer_data == b"as usual"
            for end in (connected, accepted):
                end.abort()
            for refuses in (True, False):
                connecting = asyncio.create_task(aio.connect(endpoint.local_addr, CLIENT))
                incoming = await endpoint.incoming()
                if refuses:
                    incoming.refuse()
                del incoming
                with pytest.raises(zerolane.Rejected):
                    await connecting
        with (
            aio.Endpoint("127.0.0.1:0") as endpoint,
            pytest.raises(ValueError, match="accepts by itself"),
        ):
            await endpoint.incoming()

    asyncio.run(asyncio.wait_for(decide(), 60))
