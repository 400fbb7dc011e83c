"""Tests streams in threads and in event loops: content, half-close, resets, peers that die."""

import asyncio
import contextlib
import io
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import zerolane
from conftest import make_pair, pattern
from zerolane import Options, Stream, Streams, aio

UDP = Options(lane="udp")
LONG = 60.0
Both = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Body = Callable[[aio.Streams, aio.Streams], Awaitable[None]]


@contextlib.contextmanager
def joined(options: Options | None = None) -> Iterator[tuple[Streams, Streams]]:
    """Both ends: the connector's, and the acceptor's."""
    connector, acceptor = make_pair(options)
    ours, peers = Streams(connector, "connector"), Streams(acceptor, "acceptor")
    try:
        yield ours, peers
    finally:
        ours.abort()
        peers.abort()


def stream_of(ours: Streams, peers: Streams) -> tuple[Stream, Stream]:
    """A stream and its other end."""
    one = ours.open(b"test")
    other = peers.accept(LONG)
    assert other is not None and other.purpose == b"test" and other.id == one.id
    one.accepted()
    return one, other


def fill(stream: Stream) -> int:
    """Writes until there is no room for half a second; returns how many bytes."""
    written, idle = 0, 0
    while idle < 50:
        put = stream._write_now(bytes(100_000))
        written += put
        idle = 0 if put else idle + 1
        time.sleep(0.0 if put else 0.01)
    return written


@pytest.mark.parametrize("options", [None, UDP], ids=["shared memory", "udp"])
def test_stream__content_by_reads_of_many_sizes(options: Options | None) -> None:
    sent = pattern(5_000_000).tobytes()
    with joined(options) as (ours, peers), ThreadPoolExecutor(1) as executor:
        one, other = stream_of(ours, peers)

        def write() -> None:
            assert one.write(sent) == len(sent)
            one.finish()

        writing = executor.submit(write)
        got, size = bytearray(), 1
        place = bytearray(300_000)
        while True:
            if size % 2:
                part = other.read(size)
            else:
                part = bytes(place[: other.readinto(memoryview(place)[:size])])
            if not part:
                break
            assert len(part) <= size
            got += part
            size = size * 7 % 299_993 + 1
        writing.result()
        assert got == sent
        # The other direction lives on.
        other.write(b"back")
        other.finish()
        assert one.read() == b"back"
        with pytest.raises(zerolane.Finished):
            one.write(b"more")


def test_streams__a_thousand_flow_beside_one_that_nobody_reads() -> None:
    contents = [pattern(1 + n * 7).tobytes() for n in range(1000)]
    with joined() as (ours, peers), ThreadPoolExecutor(1) as executor:
        stuck, unread = stream_of(ours, peers)
        written = fill(stuck)
        assert written >= 1 << 18

        def write() -> None:
            for content in contents:
                with ours.open(priority=len(content) % 8) as stream:
                    stream.write(content)

        writing = executor.submit(write)
        over = zerolane.PendingSet()
        stuck.watch("write", over, 2**64 - 1)
        got: dict[int, bytes] = {}
        held: dict[int, Stream] = {}
        peers.watch(over, 2**63)
        done = 0
        while done < len(contents):
            assert select.select([over], [], [], LONG)[0]
            for token in over.poll_batch():
                if token == 2**63:
                    with contextlib.suppress(TimeoutError):
                        while (accepted := peers.accept(0)) is not None:
                            held[accepted.id] = accepted
                            accepted.watch("read", over, accepted.id)
                    peers.watch(over, 2**63)
                    continue
                assert token in held, "nobody reads the first"
                data = held[token]._read_now(1 << 20)
                if data == b"":
                    done += 1
                    continue
                got[token] = got.get(token, b"") + (data or b"")
                held[token].watch("read", over, token)
        writing.result()
        # Each end's streams have every second number.
        assert [got[stuck.id + 2 * n] for n in range(1, 1001)] == contents
        read = 0
        while read < written:
            data = unread.read(1 << 20)
            assert data and not any(data)
            read += len(data)
        assert read == written
        assert over.wait(LONG) == 2**64 - 1


def test_reset__has_words_at_both_ends() -> None:
    with joined(UDP) as (ours, peers):
        one, other = stream_of(ours, peers)
        with ThreadPoolExecutor(1) as executor:
            reading = executor.submit(other.read)
            one.reset("enough of it")
            with pytest.raises(zerolane.StreamReset, match="enough of it"):
                reading.result()
        for call in (lambda: other.write(b"x"), one.read, other.finish):
            with pytest.raises(ConnectionResetError, match="enough of it"):
                call()
        # A with statement that fails is no end of file.
        one, other = stream_of(ours, peers)
        with pytest.raises(ZeroDivisionError), one:
            one.write(b"half")
            raise ZeroDivisionError
        with pytest.raises(zerolane.StreamReset):
            other.read()
        # The connection goes on.
        one, other = stream_of(ours, peers)
        one.write(b"still")
        assert other.read(100) == b"still"


def test_close__in_another_thread_ends_what_waits() -> None:
    with joined() as (ours, peers), ThreadPoolExecutor(3) as executor:
        one, other = stream_of(ours, peers)
        fill(one)
        waiting: list[Future[Any]] = [
            executor.submit(one.read, 8),
            executor.submit(one.readinto, bytearray(8)),
            executor.submit(one.write, bytes(8)),
        ]
        time.sleep(0.2)
        assert not any(it.done() for it in waiting)
        one.close()
        for call in waiting:
            with pytest.raises(zerolane.Closed):
                call.result(LONG)
        assert one.closed
        one.close()
        accepting = executor.submit(ours.accept)
        time.sleep(0.05)
        peers.close()
        assert accepting.result(LONG) is None
        other.close()


def test_timeout__loses_nothing() -> None:
    with joined(UDP) as (ours, peers):
        one, other = stream_of(ours, peers)
        other.set_timeout(0.02)
        for part in (b"one", b"two", b"three"):
            with pytest.raises(zerolane.TimedOut):
                other.read(100)
            one.write(part)
            other.set_timeout(LONG)
            assert other.read(len(part)) == part
            other.set_timeout(0.02)
        assert other.timeout == 0.02
        with pytest.raises(TimeoutError):
            peers.accept(0.02)
        fill(one)
        one.set_timeout(0.02)
        with pytest.raises(zerolane.TimedOut):
            one.write(bytes(1 << 20))
        with pytest.raises(TimeoutError):
            ours.close(0)


def test_interrupt__ends_a_wait_and_loses_nothing() -> None:
    with joined() as (ours, peers):
        one, other = stream_of(ours, peers)
        timer = threading.Timer(0.2, signal.raise_signal, [signal.SIGINT])
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            other.read(8)
        timer.join()
        one.write(b"whole")
        assert other.read(8) == b"whole"


def test_file__of_a_stream() -> None:
    with joined() as (ours, peers):
        one, other = stream_of(ours, peers)
        with io.TextIOWrapper(io.BufferedWriter(one), encoding="utf-8") as writer:
            writer.writelines(f"line {n} \u00e9\n" for n in range(1000))
        assert one.closed
        with io.TextIOWrapper(io.BufferedReader(other), encoding="utf-8") as reader:
            assert list(reader) == [f"line {n} \u00e9\n" for n in range(1000)]
        one, other = stream_of(ours, peers)
        for call in (one.tell, lambda: one.seek(0), lambda: one.truncate(0)):
            with pytest.raises(io.UnsupportedOperation):
                call()


def test_streams__close_delivers_and_abort_does_not_wait() -> None:
    with joined(UDP) as (ours, peers):
        one, other = stream_of(ours, peers)
        one.write(b"last")
        ours.close()
        ours.close()
        assert other.read(4) == b"last"
        with pytest.raises(zerolane.Closed):
            other.read()
        assert peers.accept() is None and ours.accept() is None
        with pytest.raises(zerolane.Closed):
            ours.open()
    with joined() as (ours, peers):
        one, _other = stream_of(ours, peers)
        fill(one)
        ours.abort()
        with pytest.raises(zerolane.Closed):
            one.read()


def test_streams__dropped_unclosed_warn() -> None:
    ours, peers = make_pair()
    streams, other = Streams(ours, "connector"), Streams(peers, "acceptor")
    stream = streams.open()
    del streams
    stream.write(b"its streams keep it")
    accepted = other.accept(LONG)
    assert accepted is not None and accepted.read(100) == b"its streams keep it"
    with pytest.warns(ResourceWarning, match="unclosed Streams"):
        del stream
    with pytest.raises(zerolane.Closed):
        accepted.read()
    other.close()


def test_streams__bad_arguments() -> None:
    ours, peers = make_pair()
    with pytest.raises(ValueError, match="connector"):
        Streams(ours, "client")  # type: ignore[arg-type]
    with Streams(ours, "connector") as streams, Streams(peers, "acceptor"):
        with pytest.raises(zerolane.Closed):
            ours.send(b"given away")
        with pytest.raises(ValueError, match="1024 bytes"):
            streams.open(bytes(1025))
        opened = [streams.open() for _ in range(4096)]
        with pytest.raises(zerolane.QueueFull, match="4096"):
            streams.open()
        with pytest.raises(BufferError):
            opened[0].readinto(b"read-only")
        with pytest.raises(ValueError, match="accepted"):
            opened[0].watch("readable", zerolane.PendingSet(), 1)  # type: ignore[arg-type]
        for stream in opened:
            stream.close()


SERVER = """
import sys, time
import zerolane
options = zerolane.Options(lane="udp", idle_timeout=2.0, keep_alive=True)
with zerolane.Endpoint("127.0.0.1:0", options) as endpoint:
    print(endpoint.local_addr[1], flush=True)
    streams = zerolane.Streams(endpoint.accept(), "acceptor")
    stream = streams.accept()
    stream.write(b"alive")
    time.sleep(300)
"""


@contextlib.contextmanager
def server() -> Iterator[tuple[str, "subprocess.Popen[bytes]"]]:
    """A process that answers one stream with "alive", and its address."""
    with subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            yield f"127.0.0.1:{int(process.stdout.readline())}", process
        finally:
            process.kill()


DYING = Options(lane="udp", idle_timeout=2.0, keep_alive=True)


def test_death__of_the_peer_is_no_end_of_file() -> None:
    with server() as (address, process):
        streams = Streams(zerolane.connect(address, DYING), "connector")
        stream = streams.open()
        stream.write(b"x")
        assert stream.read(5) == b"alive"
        process.kill()
        with pytest.raises(zerolane.PeerDead):
            stream.read()
        with pytest.raises(zerolane.PeerDead):
            stream.write(b"x")
        with pytest.raises(zerolane.PeerDead):
            streams.accept()
        with pytest.raises(zerolane.PeerDead):
            streams.close()


CHILD = """
import os, signal, sys
import zerolane
from conftest import make_pair
ours, peers = make_pair()
ours, peers = zerolane.Streams(ours, "connector"), zerolane.Streams(peers, "acceptor")
one = ours.open()
other = peers.accept(20)
pid = os.fork()
if pid == 0:
    signal.alarm(60)
    for call in (
        one.read, one.finish, one.reset, ours.open, ours.close, lambda: one.write(b"x"), other.read
    ):
        try:
            call()
        except zerolane.Closed as error:
            assert "parent process" in str(error), error
        else:
            os._exit(1)
    one.close()
    ours.abort()
    del one, other, ours, peers
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
one.write(b"still")
assert other.read(5) == b"still"
ours.close()
peers.close()
"""


def test_fork__the_child_has_no_streams() -> None:
    tests = Path(__file__).parent
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CHILD], cwd=tests, check=True, timeout=120
    )


def run(body: Body, options: Options | None = None) -> None:
    """Runs a test with both ends in one event loop."""

    async def main() -> None:
        with aio.Endpoint("127.0.0.1:0", options) as endpoint:
            accepting = asyncio.create_task(endpoint.accept())
            ours = aio.Streams(await aio.connect(endpoint.local_addr, options), "connector")
            peers = aio.Streams(await accepting, "acceptor")
        try:
            await asyncio.wait_for(body(ours, peers), LONG)
        finally:
            while HELD:
                HELD.pop().close()
            ours.abort()
            peers.abort()

    asyncio.run(main())


HELD: list[asyncio.StreamWriter] = []
"""Writers, which warn if they are dropped unclosed."""


async def both(ours: aio.Streams, peers: aio.Streams) -> tuple[Both, Both]:
    """A stream's two ends."""
    opened = ours.open(b"test")
    accepted = await peers.accept()
    assert accepted is not None
    assert accepted[1].get_extra_info("purpose") == b"test"
    HELD.extend([opened[1], accepted[1]])
    return opened, accepted


async def echo(peers: aio.Streams) -> None:
    """Answers each stream with its own bytes, until the peer disconnects."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(50_000):
            writer.write(data)
            await writer.drain()
        writer.close()
        await writer.wait_closed()

    async with asyncio.TaskGroup() as tasks:
        while (accepted := await peers.accept()) is not None:
            tasks.create_task(answer(*accepted))


@pytest.mark.parametrize("options", [None, UDP], ids=["shared memory", "udp"])
def test_asyncio__many_streams_go_and_come(options: Options | None) -> None:
    async def body(ours: aio.Streams, peers: aio.Streams) -> None:
        answering = asyncio.create_task(echo(peers))

        async def goes_and_comes(length: int) -> None:
            sent = pattern(length).tobytes()
            reader, writer = ours.open()

            async def write() -> None:
                for at in range(0, length, 70_000):
                    writer.write(sent[at : at + 70_000])
                    await writer.drain()
                writer.write_eof()

            writing = asyncio.create_task(write())
            assert await reader.read() == sent
            await writing
            writer.close()
            await writer.wait_closed()

        await asyncio.gather(*(goes_and_comes(1 << n % 21) for n in range(60)))
        await ours.close()
        await answering

    run(body, options)


def test_asyncio__lines_and_exact_reads() -> None:
    async def body(ours: aio.Streams, peers: aio.Streams) -> None:
        (reader, writer), (others, to_ours) = await both(ours, peers)
        writer.writelines([b"one\n", b"two\nthree", b" and more\n\0rest"])
        assert await others.readline() == b"one\n"
        assert await others.readexactly(3) == b"two"
        assert await others.readuntil(b"\0") == b"\nthree and more\n\0"
        writer.write_eof()
        assert await others.read() == b"rest" and others.at_eof()
        with pytest.raises(asyncio.IncompleteReadError) as caught:
            await others.readexactly(1)
        assert caught.value.partial == b""
        # The other direction lives on.
        to_ours.write(b"answer")
        to_ours.close()
        await to_ours.wait_closed()
        assert await reader.read() == b"answer"
        with pytest.raises(RuntimeError):
            writer.write(b"after the end")
        writer.close()

    run(body)


def test_asyncio__a_cancelled_read_loses_no_byte() -> None:
    async def body(ours: aio.Streams, peers: aio.Streams) -> None:
        (_, writer), (reader, _) = await both(ours, peers)
        sent = pattern(300_000).tobytes()
        got = bytearray()

        async def write() -> None:
            for at in range(0, len(sent), 1000):
                writer.write(sent[at : at + 1000])
                await asyncio.sleep(0.0005)
            writer.write_eof()

        writing = asyncio.create_task(write())
        cancelled = 0
        while len(got) < len(sent):
            reading = asyncio.create_task(reader.read(3000))
            await asyncio.sleep(0 if len(got) % 3 else 0.0002)
            reading.cancel()
            try:
                got += await reading
            except asyncio.CancelledError:
                cancelled += 1
        await writing
        assert got == sent and cancelled > 0
        accepting = asyncio.create_task(peers.accept())
        another = asyncio.create_task(peers.accept())
        await asyncio.sleep(0.01)
        accepting.cancel()
        ours.open(b"for the other")[1].close()
        accepted = await another
        assert accepted is not None
        assert accepted[1].get_extra_info("purpose") == b"for the other"
        accepted[1].close()

    run(body, UDP)


def test_asyncio__one_that_is_not_read_stops_its_writer_alone() -> None:
    async def body(ours: aio.Streams, peers: aio.Streams) -> None:
        (_, writer), (unread, _) = await both(ours, peers)
        answering = asyncio.create_task(echo(peers))
        chunk = pattern(500_000).tobytes()
        chunks = 0
        with pytest.raises(TimeoutError):
            while True:
                writer.write(chunk)
                chunks += 1
                await asyncio.wait_for(writer.drain(), 0.5)
        assert chunks < 100
        for n in range(50):
            reader, others = ours.open()
            others.write(b"%d" % n)
            others.write_eof()
            assert await reader.read() == b"%d" % n
            others.close()
        # Nothing is lost of what was written.
        for _ in range(chunks):
            assert await unread.readexactly(len(chunk)) == chunk
        await writer.drain()
        writer.close()
        assert await unread.read() == b""
        await ours.close()
        await answering

    run(body)


def test_asyncio__a_reset_reaches_reader_and_writer() -> None:
    async def body(ours: aio.Streams, peers: aio.Streams) -> None:
        (reader, writer), (others, to_ours) = await both(ours, peers)
        reading = asyncio.create_task(others.read())
        await asyncio.sleep(0.01)
        writer.transport.abort()
        with pytest.raises(zerolane.StreamReset, match="gave it up"):
            await reading
        with pytest.raises(ConnectionResetError):
            to_ours.write(b"x")
            await to_ours.drain()
        with pytest.raises(ConnectionResetError):
            await to_ours.wait_closed()
        assert await reader.read() == b""
        await writer.wait_closed()
        (reader, writer), (others, _) = await both(ours, peers)
        others.feed_data(b"")
        writer.get_extra_info("stream").reset("in words")
        with pytest.raises(zerolane.StreamReset, match="in words"):
            await others.read()
        with pytest.raises(zerolane.StreamReset, match="in words"):
            await reader.read()

    run(body)


def test_asyncio__death_of_the_peer() -> None:
    async def main() -> None:
        with server() as (address, process):
            streams = aio.Streams(await aio.connect(address, DYING), "connector")
            reader, writer = streams.open()
            writer.write(b"x")
            assert await reader.readexactly(5) == b"alive"
            accepting = asyncio.create_task(streams.accept())
            process.kill()
            with pytest.raises(zerolane.PeerDead):
                await reader.read()
            with pytest.raises(zerolane.PeerDead):
                await accepting
            with pytest.raises(zerolane.PeerDead):
                await streams.close()
            with pytest.raises(zerolane.PeerDead):
                await writer.wait_closed()

    asyncio.run(asyncio.wait_for(main(), LONG))


def test_asyncio__takes_connections_of_either_kind() -> None:
    async def body(ours: aio.Connection, peers: aio.Connection) -> None:
        waiting = asyncio.create_task(ours.recv_into(bytearray(8)))
        await asyncio.sleep(0)
        with pytest.raises(ValueError, match="a call waits"):
            aio.Streams(ours, "connector")
        await peers.send(b"message")
        assert await waiting == 7
        async with aio.Streams(ours, "connector") as one, aio.Streams(peers, "acceptor") as other:
            with pytest.raises(zerolane.Closed):
                await ours.send(b"given away")
            (_, writer), (reader, _) = await both(one, other)
            writer.write(b"then a stream")
            assert await reader.readexactly(13) == b"then a stream"
            while HELD:
                HELD.pop().close()

    async def main() -> None:
        with aio.Endpoint("127.0.0.1:0") as endpoint:
            accepting = asyncio.create_task(endpoint.accept())
            ours = await aio.connect(endpoint.local_addr)
            await asyncio.wait_for(body(ours, await accepting), LONG)
        connector, acceptor = make_pair()
        async with aio.Streams(connector, "connector") as one:
            other = aio.Streams(acceptor, "acceptor")
            (_, writer), (reader, _) = await both(one, other)
            writer.write(b"plain")
            assert await reader.readexactly(5) == b"plain"
            while HELD:
                HELD.pop().close()
        other.abort()

    asyncio.run(main())


def test_asyncio__limits_of_a_transport() -> None:
    async def body(ours: aio.Streams, peers: aio.Streams) -> None:
        (_, writer), (reader, _) = await both(ours, peers)
        transport = writer.transport
        assert transport.get_write_buffer_size() == 0 and not transport.is_closing()
        transport.set_write_buffer_limits(high=8)
        with pytest.raises(ValueError, match="must be"):
            transport.set_write_buffer_limits(high=1, low=2)
        sent = bytearray(pattern(30_000_000).tobytes())
        writer.write(sent)
        kept = bytes(sent)
        sent[:] = bytes(len(sent))
        assert transport.get_write_buffer_size() > 8
        draining = asyncio.create_task(writer.drain())
        await asyncio.sleep(0.01)
        assert not draining.done()
        assert await reader.readexactly(len(kept)) == kept
        await draining
        writer.close()
        assert transport.is_closing()
        await writer.wait_closed()

    run(body)
