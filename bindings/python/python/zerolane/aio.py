"""Connections for asyncio, driven by the event loop, without threads::

    connection = await zerolane.aio.connect("192.0.2.7:7411")
    async with connection:
        await connection.send(b"hello")

One ``zerolane.Worker`` drives all connections and endpoints of an event loop, which watches its
descriptor. A connection or endpoint belongs to the event loop in which it was made: in another one
its calls raise RuntimeError. Calls that are not coroutines also work without a loop. One that is
still open when its loop is gone is aborted, with a ResourceWarning. The buffer of a request is in
use, and cannot be resized, until the call returns.

Calls are cancel-safe. Cancelling a call cancels its request and frees its buffer. A message, number
or connection that has come by then goes to the next call. A message that has come only in part
fails at its sender, which may send it again. A cancelled send, put or atomic operation may or may
not have reached the peer.
"""

from __future__ import annotations

import asyncio
import warnings
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from ipaddress import ip_address
from types import TracebackType
from typing import TYPE_CHECKING, Self
from weakref import WeakKeyDictionary, ref

import zerolane
from zerolane._pending import bell
from zerolane._pending import settle as _settle
from zerolane._streams import pair

if TYPE_CHECKING:
    from zerolane._zerolane import _Address, _Delivery, _Memory, _Role, _Source

__all__ = ["Connection", "Endpoint", "Incoming", "Streams", "connect"]

_BACKLOG = 1024
"""Most connections of an endpoint that wait for ``accept``."""

_TOLD_TOGETHER = 64
"""Decreases of the number of kept completions are reported in steps of this size."""


class _Driver:
    """The worker of one event loop, which owns it; it has no reference to the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = ref(loop)
        self.worker = zerolane.Worker()
        self.connections: dict[int, Connection] = {}
        self.endpoints: dict[int, Endpoint] = {}
        self.connecting: dict[int, asyncio.Future[Connection]] = {}
        self._scheduled = False

    def __del__(self) -> None:
        # Objects that are still open warn themselves.
        self.worker.abort()

    def check_loop(self) -> None:
        """Refuses calls from other event loops, where nothing would complete them."""
        if asyncio.get_running_loop() is not self._loop():
            raise _of_another_loop()

    def check_no_other_loop(self) -> None:
        """Like ``check_loop``, but allows calls while no loop runs: for those that do not wait."""
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        own = self._loop()
        if running is not own and (running is not None or (own is not None and own.is_running())):
            raise _of_another_loop()

    def turn(self) -> None:
        """Makes progress, delivers events, and makes the loop watch for more."""
        self._scheduled = False
        more = self.worker.progress()
        for event in self.worker.events():
            self._tell(event)
        if more or not self.worker.arm():
            self.turn_soon()

    def turn_soon(self) -> None:
        """Schedules one turn after the callbacks that are ready, for all requests until then."""
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self.turn)

    def own(self, number: int) -> Connection | None:
        """The established connection of this number."""
        requests = self.worker.connection(number)
        if requests is None:
            return None
        connection = Connection.__new__(Connection)
        connection._begin(self, number, requests)
        return connection

    def _tell(self, event: zerolane.Event) -> None:
        number = event.connection
        if number is None:
            endpoint = self.endpoints.pop(event.endpoint or 0, None)
            if endpoint is not None:
                endpoint._fail(event.error or zerolane.Closed("endpoint failed"))
        elif event.kind in ("accepted", "requested"):
            endpoint = self.endpoints.get(event.endpoint or 0)
            accepted = self.own(number)
            if endpoint is not None and accepted is not None:
                endpoint._accept(accepted)
            elif accepted is not None:
                accepted.abort()
        elif event.kind == "connected":
            connecting = self.connecting.get(number)
            # Owned at once: the next event may be for it.
            if connecting is not None and not connecting.done():
                connected = self.own(number)
                if connected is not None:
                    connecting.set_result(connected)
        elif event.kind == "closed":
            error = event.error or zerolane.Closed("connection: closed")
            connecting = self.connecting.get(number)
            if connecting is not None and not connecting.done():
                connecting.set_exception(error)
            connection = self.connections.pop(number, None)
            if connection is not None:
                connection._finish(error)
        elif event.completion is not None:
            connection = self.connections.get(number)
            if connection is not None:
                connection._take(event.completion)


def _of_another_loop() -> RuntimeError:
    return RuntimeError("the object belongs to another event loop, the one in which it was made")


_drivers: WeakKeyDictionary[asyncio.AbstractEventLoop, _Driver] = WeakKeyDictionary()


def _driver() -> _Driver:
    """The driver of the running event loop."""
    loop = asyncio.get_running_loop()
    driver = _drivers.get(loop)
    if driver is None:
        driver = _drivers[loop] = _Driver(loop)
        loop.add_reader(driver.worker.fileno(), driver.turn)
        driver.turn()
    return driver


class Connection:
    """A connection driven by the event loop. As a context manager it closes on exit."""

    def __init__(self, connection: zerolane.Connection) -> None:
        """Takes over ``connection``, in a running event loop; its other users find it closed."""
        driver = _driver()
        number = driver.worker.adopt(connection)
        requests = driver.worker.connection(number)
        assert requests is not None, "it was adopted now"
        self._begin(driver, number, requests)
        driver.turn_soon()

    def _begin(self, driver: _Driver, number: int, requests: zerolane.Requests) -> None:
        self._driver = driver
        self._number = number
        self._requests = requests
        self._waiting: dict[int, asyncio.Future[zerolane.Completion]] = {}
        self._kept: dict[str, deque[zerolane.Completion]] = {
            "receive": deque(),
            "message_received": deque(),
        }
        """Completions received for cancelled calls."""
        self._immediates: deque[zerolane.Completion] = deque()
        self._told = 0
        """The number of kept completions that the connection was told."""
        self._news: set[asyncio.Future[None]] = set()
        """Futures that wait for an immediate or the end."""
        self._end: Exception | None = None
        driver.connections[number] = self

    def __del__(self, _warn: Callable[..., None] = warnings.warn) -> None:
        # Not there if it was never connected.
        if getattr(self, "_end", self) is None:
            _warn(f"unclosed {self!r}: close it, or use it in async with", ResourceWarning, 2, self)

    def __repr__(self) -> str:
        host, port = self.peer_addr
        return f"<zerolane.aio.Connection to {host} port {port}>"

    @property
    def peer_addr(self) -> tuple[str, int]:
        """The peer's address at the time when the connection was made: host and port."""
        return self._requests.peer_addr

    @property
    def peer_key(self) -> str | None:
        """The key that the peer proved it owns; None if the connection is plain."""
        return self._requests.peer_key

    @property
    def peer_data(self) -> bytes:
        """The peer's private data: of its request, or of its answer. Empty if there were none."""
        return self._requests.peer_data

    async def send(self, buffer: _Source, *, delivery: _Delivery = "interrupt") -> None:
        """Sends the bytes of ``buffer``, or of a list or tuple of buffers, as one message; returns
        when the peer has received all of them. ``delivery``: see ``zerolane.Connection.send``."""
        await self._request(lambda it: it.post_send(buffer, delivery=delivery))

    async def recv_into(self, buffer: _Memory) -> int:
        """Receives the next message into ``buffer``; returns its length in bytes."""
        kept = self._take_kept("receive", buffer)
        if kept is not None:
            return kept.length
        return (await self._request(lambda it: it.post_recv(buffer))).length

    async def put(
        self,
        key: zerolane.Key,
        offset: int,
        buffer: _Source,
        *,
        immediate: int | None = None,
    ) -> None:
        """Writes ``buffer``, or a list or tuple of buffers, to the peer's memory; returns when the
        bytes are placed and visible there."""
        await self._request(lambda it: it.post_put(key, offset, buffer, immediate=immediate))

    async def get(self, key: zerolane.Key, offset: int, buffer: _Memory) -> memoryview:
        """Reads the peer's memory into the whole of ``buffer``; returns its memory."""
        memory = (await self._request(lambda it: it.post_get(key, offset, buffer))).memory
        assert memory is not None, "it was posted"
        return memory

    async def fetch_op(self, key: zerolane.Key, offset: int, op: zerolane.FetchOp) -> int:
        """Does an atomic operation on a word of the peer's memory; returns its previous value."""
        return (await self._request(lambda it: it.post_fetch_op(key, offset, op))).value

    async def fetch_add(self, key: zerolane.Key, offset: int, value: int = 1) -> int:
        """Adds to a word of the peer's memory; returns its previous value."""
        return await self.fetch_op(key, offset, zerolane.FetchOp.add(value))

    async def compare_and_swap(
        self, key: zerolane.Key, offset: int, expected: int, value: int
    ) -> int:
        """Sets a word of the peer's memory if it is ``expected``; returns its previous value."""
        op = zerolane.FetchOp.compare_and_swap(expected, value)
        return await self.fetch_op(key, offset, op)

    async def open_region(self, name: str, rights: int) -> zerolane.Key:
        """Asks the peer for the key of the memory that it exports as ``name``, with ``rights``."""
        region = (await self._request(lambda it: it.post_open_region(name, rights))).region
        if region is None:
            raise zerolane.UnknownRegion("the peer told no key")
        return region

    async def send_message(self, control: bytes, payload: _Source | None = None) -> None:
        """Sends a message of at most 128 bytes, with a payload: a buffer, or a list of buffers."""
        await self._request(lambda it: it.post_message(control, payload))

    async def recv_message(self, payload: _Memory | None = None) -> tuple[bytes, memoryview | None]:
        """Receives the next message; returns it, and ``payload`` cut to the received bytes."""
        kept = self._take_kept("message_received", payload)
        if kept is not None:
            memory = None if payload is None else self._requests._bytes_of(payload)[: kept.length]
            return kept.control, memory
        completion = await self._request(lambda it: it.post_message_recv(payload))
        return completion.control, completion.memory

    async def immediate(self) -> zerolane.Completion:
        """Returns the completion of the peer's next put that has a number: ``value``, the memory's
        key in ``region``, the bytes of the put in ``length``. Raises the reason when none can come.
        While 1024 wait to be taken, the peer holds messages and immediates back."""
        self._driver.check_loop()
        while not self._immediates:
            if self._end is not None:
                raise self._end
            await self._news_comes()
        # Taken last, so that cancelling loses none.
        immediate = self._immediates.popleft()
        self._tell_kept()
        return immediate

    def export(self, region: zerolane.ExportedRegion, rights: int) -> zerolane.Key:
        """Exports memory to the connection's peer."""
        self._driver.check_no_other_loop()
        return self._requests.export(region, rights)

    def export_named(self, name: str, region: zerolane.ExportedRegion, rights: int) -> zerolane.Key:
        """Like ``export``; the peer can also ask for it with ``open_region`` by ``name``."""
        self._driver.check_no_other_loop()
        return self._requests.export_named(name, region, rights)

    def export_numbered(
        self, number: int, region: zerolane.ExportedRegion, rights: int
    ) -> zerolane.Key:
        """Like ``export``, under ``number``: the peer makes the key, by ``Key.numbered``."""
        self._driver.check_no_other_loop()
        return self._requests.export_numbered(number, region, rights)

    def revoke(self, key: zerolane.Key) -> bool:
        """Ends an export to the connection's peer, at once."""
        self._driver.check_no_other_loop()
        return self._requests.revoke(key)

    def revoke_region(self, region: zerolane.ExportedRegion) -> bool:
        """Ends all exports of ``region`` to the connection's peer; other peers keep theirs."""
        self._driver.check_no_other_loop()
        return self._requests.revoke_region(region)

    def finish(self) -> None:
        """Finishes sending: requests posted before are delivered; later sends and messages raise
        ``Finished``, and so do the peer's receives that no message matches. The other direction and
        remote memory stay open."""
        self._driver.check_loop()
        self._requests.finish()
        self._driver.turn_soon()

    async def closed(self) -> Exception:
        """Returns the reason when the connection is over, whichever end closed it. An idle
        connection over a network notices a dead peer only with ``Options(keep_alive=True)``."""
        self._driver.check_loop()
        while self._end is None:
            await self._news_comes()
        return self._end

    async def close(self) -> None:
        """Waits until the peer has received all that was sent, then disconnects."""
        self._driver.check_loop()
        if self._end is not None or not self._driver.worker.close(self._number):
            return
        self._driver.turn_soon()
        end = await self.closed()
        if not isinstance(end, zerolane.Closed):
            raise end

    def abort(self) -> None:
        """Disconnects at once."""
        self._driver.check_no_other_loop()
        if self._end is None:
            worker = self._driver.worker
            connection = worker.release(self._number)
            if connection is not None:
                connection.abort()
            else:
                worker.refuse_request(self._number)
            self._driver.connections.pop(self._number, None)
            self._finish(zerolane.Closed("connection: closed by this end"))

    def _give_away(self) -> zerolane.Connection:
        """Takes the connection away from the event loop."""
        self._driver.check_loop()
        if self._end is not None:
            raise self._end
        if self._waiting or self._immediates or any(self._kept.values()):
            raise ValueError("a call waits, or what came was not taken: take that first")
        connection = self._driver.worker.release(self._number)
        if connection is None:
            raise zerolane.Closed("the connection is over, or not accepted yet")
        self._driver.connections.pop(self._number, None)
        self._finish(zerolane.Closed("connection: given away"))
        return connection

    def _accept(self, data: bytes | None) -> None:
        """Accepts the request of this connection, if it waits for that."""
        if self._driver.worker.accept_request(self._number, data):
            self._driver.turn_soon()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        class_: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if class_ is None:
            await self.close()
        else:
            self.abort()

    async def _request(self, post: Callable[[zerolane.Requests], int]) -> zerolane.Completion:
        """Posts a request and awaits its completion."""
        self._driver.check_loop()
        if self._end is not None:
            raise self._end
        id = post(self._requests)
        # Wakes in any delivery mode.
        self._requests.notify(id)
        waiting: asyncio.Future[zerolane.Completion]
        waiting = asyncio.get_running_loop().create_future()
        self._waiting[id] = waiting
        self._driver.turn_soon()
        try:
            completion = await waiting
        except asyncio.CancelledError:
            self._give_up(id, waiting)
            raise
        completion.result()
        return completion

    def _give_up(self, id: int, waiting: asyncio.Future[zerolane.Completion]) -> None:
        """Cancels the request of a cancelled call; keeps the data that it received."""
        if waiting.done() and not waiting.cancelled():
            if waiting.exception() is None:
                self._keep(waiting.result())
        elif self._waiting.pop(id, None) is not None and self._end is None:
            # If it is already over, a later event brings its completion, which is kept.
            self._requests.cancel(id)
            self._driver.turn_soon()

    def _keep(self, completion: zerolane.Completion) -> None:
        kept = self._kept.get(completion.kind)
        if kept is not None and completion.error is None:
            kept.append(completion)
            self._tell_kept()

    def _take_kept(self, kind: str, buffer: _Memory | None) -> zerolane.Completion | None:
        """Copies data received for a cancelled call into ``buffer``."""
        self._driver.check_loop()
        kept = self._kept[kind]
        if not kept:
            return None
        memory = kept[0].memory
        if memory is not None and memory.nbytes:
            room = memoryview(b"") if buffer is None else self._requests._bytes_of(buffer)
            if room.nbytes < memory.nbytes:
                raise zerolane.MessageTooLarge(
                    f"the message has {memory.nbytes} bytes, and the buffer {room.nbytes}"
                )
            room[: memory.nbytes] = memory
        taken = kept.popleft()
        self._tell_kept()
        return taken

    def _tell_kept(self) -> None:
        """Makes the peer wait while much data is kept."""
        kept = len(self._immediates) + sum(map(len, self._kept.values()))
        # Increases are reported at once, decreases in steps.
        if kept > self._told or kept + _TOLD_TOGETHER <= self._told:
            self._requests._set_kept(kept)
            if kept < self._told:
                self._driver.turn_soon()
            self._told = kept

    async def _news_comes(self) -> None:
        """Waits for an immediate or the end."""
        news: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._news.add(news)
        try:
            await news
        finally:
            self._news.discard(news)

    def _tell(self) -> None:
        for news in self._news:
            _settle(news)

    def _take(self, completion: zerolane.Completion) -> None:
        """Gives a completion to its waiter."""
        if completion.kind == "immediate":
            self._immediates.append(completion)
            self._tell_kept()
            self._tell()
            return
        waiting = self._waiting.pop(completion.id, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(completion)
        else:
            self._keep(completion)

    def _finish(self, end: Exception) -> None:
        """Ends the connection and all waits."""
        self._end = end
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(end)
        self._tell()


class Endpoint:
    """A listening UDP port for asyncio, made in a running event loop. As a context manager it stops
    listening on exit.

    Up to 1024 connections wait for ``accept``. When another one comes, those that are over are
    dropped; if none is, the new one is closed, unless the endpoint exports memory, which clients
    use without being accepted."""

    def __init__(self, address: _Address, options: zerolane.Options | None = None) -> None:
        self._driver = _driver()
        self._accepted: deque[Connection] = deque()
        """Connections that wait for ``accept``."""
        self._exports = False
        """Whether clients may use memory without being accepted."""
        self._look_at = 0
        """How many may wait before those that are over are dropped."""
        self._news: set[asyncio.Future[None]] = set()
        """Futures that wait for a connection or the end."""
        self._end: Exception | None = None
        self._asks = options is not None and options.asks
        """Whether its program decides about requests."""
        worker = self._driver.worker
        self._number = worker.listen(address, options)
        listener = worker.endpoint(self._number)
        assert listener is not None, "it listens"
        self._listener = listener
        self._driver.endpoints[self._number] = self
        self._driver.turn_soon()

    def __del__(self, _warn: Callable[..., None] = warnings.warn) -> None:
        # Not there if it never listened.
        if hasattr(self, "_listener") and self._end is None:
            _warn(f"unclosed {self!r}: close it, or use it in with", ResourceWarning, 2, self)

    def __repr__(self) -> str:
        host, port = self.local_addr
        return f"<zerolane.aio.Endpoint at {host} port {port}>"

    @property
    def local_addr(self) -> tuple[str, int]:
        """The address listened on: host and port."""
        return self._listener.local_addr

    @property
    def public_key(self) -> str | None:
        """The key by which clients know this end; None if connections are plain."""
        return self._listener.public_key

    def export(self, name: str, region: zerolane.ExportedRegion, rights: int) -> None:
        """Lets every client that connects from now on use ``region`` with ``rights``, by
        ``name``."""
        self._driver.check_no_other_loop()
        self._driver.worker.export(self._number, name, region, rights)
        self._exports = True

    async def accept(self) -> Connection:
        """Returns the next connection. If the call is cancelled, the next call gets it."""
        connection = await self._next()
        connection._accept(None)
        return connection

    async def incoming(self) -> Incoming:
        """Returns the next request for a connection, to accept or refuse it, if the options have
        ``asks``. If the call is cancelled, the next call gets it."""
        if not self._asks:
            raise ValueError(
                "the endpoint accepts by itself: set Options(asks=True) to decide about requests"
            )
        connection = await self._next()
        incoming = Incoming.__new__(Incoming)
        incoming._begin(connection)
        return incoming

    async def _next(self) -> Connection:
        self._driver.check_loop()
        while not self._accepted:
            if self._end is not None:
                raise self._end
            news: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._news.add(news)
            try:
                await news
            finally:
                self._news.discard(news)
        # Taken last, so that cancelling loses none.
        return self._accepted.popleft()

    def close(self) -> None:
        """Stops listening. Accepted connections stay open; those that no call took are closed."""
        self._driver.check_no_other_loop()
        if self._driver.endpoints.pop(self._number, None) is not None:
            self._driver.worker.close_endpoint(self._number)
            self._fail(ValueError("the endpoint is closed"))
            for connection in self._accepted:
                connection.abort()
            self._accepted.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        class_: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _accept(self, connection: Connection) -> None:
        if len(self._accepted) >= max(_BACKLOG, self._look_at):
            self._accepted = deque(it for it in self._accepted if it._end is None)
            if self._exports:
                self._look_at = 2 * len(self._accepted)
            elif len(self._accepted) >= _BACKLOG:
                connection.abort()
                return
        self._accepted.append(connection)
        for news in self._news:
            _settle(news)

    def _fail(self, end: Exception) -> None:
        self._end = end
        for news in self._news:
            _settle(news)


class Incoming:
    """A client's request for a connection: see ``Endpoint.incoming``. One that is dropped undecided
    is refused."""

    _decided = True

    def _begin(self, connection: Connection) -> None:
        self._connection = connection
        self._decided = False

    def __del__(self) -> None:
        if not self._decided:
            with suppress(RuntimeError):
                self._connection.abort()

    @property
    def data(self) -> bytes:
        """The client's private data; empty if it gave none."""
        return self._connection.peer_data

    @property
    def peer_addr(self) -> tuple[str, int]:
        """The client's address: host and port."""
        return self._connection.peer_addr

    @property
    def peer_key(self) -> str | None:
        """The key that the client proved it owns; None if connections are plain."""
        return self._connection.peer_key

    def accept(self, private_data: bytes | None = None) -> Connection:
        """Accepts the request. The answer has ``private_data``, or that of the endpoint's options
        if it is None."""
        self._check()
        self._connection._accept(private_data)
        self._decided = True
        return self._connection

    def refuse(self) -> None:
        """Refuses the request: the client's ``connect`` raises ``Rejected``."""
        self._check()
        self._decided = True
        self._connection.abort()
        self._connection._driver.turn_soon()

    def _check(self) -> None:
        self._connection._driver.check_loop()
        if self._decided:
            raise ValueError("the request was accepted or refused already")


class Streams:
    """The streams of a connection, each as ``asyncio.open_connection`` gives it: an
    ``asyncio.StreamReader`` and an ``asyncio.StreamWriter``. See ``zerolane.Streams``. As a context
    manager it closes on exit, at once on an exception.

    A thread of the library drives the connection; all calls here belong to the event loop in which
    it was made. Cancelling a read or ``accept`` loses nothing."""

    def __init__(self, connection: Connection | zerolane.Connection, role: _Role) -> None:
        """Takes over ``connection``, in a running event loop; its other users find it closed.
        ``role`` is "connector" for the end that connected, and "acceptor" for the other."""
        self._loop = asyncio.get_running_loop()
        self._bell = bell()
        if isinstance(connection, Connection):
            connection = connection._give_away()
        self._streams = zerolane.Streams(connection, role)
        self._watched = False
        """Whether a token tells when there is something to accept."""
        self._news: set[asyncio.Future[None]] = set()
        """Futures that wait for something to accept."""

    def __repr__(self) -> str:
        host, port = self.peer_addr
        return f"<zerolane.aio.Streams to {host} port {port}>"

    @property
    def peer_addr(self) -> tuple[str, int]:
        """The peer's address at the time when the streams were made: host and port."""
        return self._streams.peer_addr

    def open(
        self, purpose: bytes = b"", *, priority: int = 3, limit: int = 1 << 16
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Opens a stream: see ``zerolane.Streams.open``. ``limit`` is that of the reader."""
        self._check(limit)
        return self._pair(self._streams.open(purpose, priority=priority), limit)

    async def accept(
        self, *, limit: int = 1 << 16
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        """Accepts the next stream that the peer opens; None when the peer, or this end, has
        disconnected. ``writer.get_extra_info("purpose")`` is what the peer said of it. If the call
        is cancelled, the next call gets it."""
        self._check(limit)
        while True:
            # Taken last, so that cancelling loses none.
            try:
                stream = self._streams.accept(0)
            except TimeoutError:
                await self._one_comes()
            else:
                return None if stream is None else self._pair(stream, limit)

    async def close(self) -> None:
        """Delivers what was written to the peer's library, and disconnects. Cancelling it
        disconnects at once."""
        self._check_loop()
        try:
            await self._loop.run_in_executor(None, self._streams.close)
        except asyncio.CancelledError:
            self._streams.abort()
            raise

    def abort(self) -> None:
        """Disconnects at once; what was not delivered is lost."""
        self._streams.abort()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        class_: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if class_ is None:
            await self.close()
        else:
            self.abort()

    def _check_loop(self) -> None:
        if asyncio.get_running_loop() is not self._loop:
            raise _of_another_loop()

    def _check(self, limit: int) -> None:
        """Refuses what would fail once a stream is there."""
        self._check_loop()
        if limit <= 0:
            raise ValueError(f"limit={limit}: a reader needs room")

    def _pair(
        self, stream: zerolane.Stream, limit: int
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        extra = {"peername": self.peer_addr, "purpose": stream.purpose, "stream": stream}
        return pair(self._loop, self._bell, stream, limit, extra)

    async def _one_comes(self) -> None:
        """Waits for something to accept."""
        news: asyncio.Future[None] = self._loop.create_future()
        self._news.add(news)
        if not self._watched:
            self._watched = True
            self._streams.watch(self._bell.news, self._bell.token(self._tell))
        try:
            await news
        finally:
            self._news.discard(news)

    def _tell(self) -> None:
        self._watched = False
        for news in self._news:
            _settle(news)


async def connect(address: _Address, options: zerolane.Options | None = None) -> Connection:
    """Connects to ``address``: to the first address of a name that answers. The event loop resolves
    names."""
    error: Exception = OSError(f"no address to connect to: {address!r}")
    for one in await _addresses(address):
        try:
            return await _connect(one, options)
        except (zerolane.Error, OSError) as failure:
            error = failure
    raise error


async def _addresses(address: _Address) -> Iterable[_Address]:
    if isinstance(address, str):
        host, _, digits = address.rpartition(":")
        bare = host.removeprefix("[").removesuffix("]")
        if not bare or not digits.isdecimal() or (host == bare and ":" in bare):
            # No "host:port", or no name: connecting reports the fault.
            return [address]
        host, port = bare, int(digits)
    else:
        host, port = _pair(*address)
    if not 0 <= port <= 65535:
        return [address]
    try:
        return [(str(ip_address(host)), port)]
    except ValueError:
        found = await asyncio.get_running_loop().getaddrinfo(host, port)
        return dict.fromkeys(_pair(*it[4]) for it in found)


def _pair(host: object, port: object, _flow: object = 0, interface: object = 0) -> tuple[str, int]:
    """Host and port; a link-local host has its interface after a ``%``."""
    scoped = interface and "%" not in str(host)
    return (f"{host}%{interface}" if scoped else str(host), int(str(port)))


async def _connect(address: _Address, options: zerolane.Options | None) -> Connection:
    driver = _driver()
    number = driver.worker.connect(address, options)
    connecting: asyncio.Future[Connection] = asyncio.get_running_loop().create_future()
    driver.connecting[number] = connecting
    driver.turn_soon()
    try:
        return await connecting
    except asyncio.CancelledError:
        if connecting.done() and not connecting.cancelled() and not connecting.exception():
            connecting.result().abort()
        else:
            driver.worker.close(number)
            driver.turn_soon()
        raise
    finally:
        del driver.connecting[number]
