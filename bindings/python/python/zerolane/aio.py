"""Connections for asyncio: calls that are awaited, driven by the event loop, without threads::

    connection = await zerolane.aio.connect("192.0.2.7:7411")
    async with connection:
        await connection.send(b"hello")

All connections and endpoints of an event loop are moved by one ``zerolane.Worker``, whose
descriptor the loop watches. A connection, or endpoint, belongs to the event loop it was made in: in
another one its calls raise RuntimeError. The buffer of a request is in use, and cannot be resized,
until the call returns.

Calls are cancel-safe. Cancelling one cancels its request, and frees its buffer. A message, number
or connection that came by then is the next call's. A message of which only a part had come fails at
its sender, which may send it again. Of what was sent, put or added it is not known whether the peer
saw it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from ipaddress import ip_address
from types import TracebackType
from typing import TYPE_CHECKING, Self
from weakref import WeakKeyDictionary, ref

import zerolane
from zerolane._deprecated import warn

if TYPE_CHECKING:
    from zerolane._zerolane import _Address, _Delivery, _Memory, _Source

__all__ = ["Connection", "Endpoint", "connect"]

_BACKLOG = 1024
"""Connections of an endpoint that wait for ``accept``, at most."""

_TOLD_TOGETHER = 64
"""So many less are kept before the connection is told: far less than it has room for."""


class _Driver:
    """The worker of one event loop. It holds no reference to that, which holds it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = ref(loop)
        self.worker = zerolane.Worker()
        self.connections: dict[int, Connection] = {}
        self.endpoints: dict[int, Endpoint] = {}
        self.connecting: dict[int, asyncio.Future[Connection]] = {}
        self._scheduled = False

    def check_loop(self) -> None:
        """Refuses calls from elsewhere than its loop, in which nothing would end them."""
        if asyncio.get_running_loop() is not self._loop():
            raise RuntimeError("it belongs to another event loop, the one that it was made in")

    def turn(self) -> None:
        """Makes progress, tells what happened, and has the loop watch for more."""
        self._scheduled = False
        more = self.worker.progress()
        for event in self.worker.events():
            self._tell(event)
        if more or not self.worker.arm():
            self.turn_soon()

    def turn_soon(self) -> None:
        """A turn behind what is ready to run: one for all that is posted until then."""
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self.turn)

    def own(self, number: int) -> Connection | None:
        """The connection of this number, which stands."""
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
        elif event.kind == "accepted":
            endpoint = self.endpoints.get(event.endpoint or 0)
            accepted = self.own(number)
            if endpoint is not None and accepted is not None:
                endpoint._accept(accepted)
            elif accepted is not None:
                accepted.abort()
        elif event.kind == "connected":
            connecting = self.connecting.get(number)
            # Owned at once: what comes next may be for it.
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


def _settle(future: asyncio.Future[None]) -> None:
    """Ends the waiting for ``future``, unless it is over."""
    if not future.done():
        future.set_result(None)


class Connection:
    """A connection driven by the event loop. Leaving it as a context manager closes it."""

    def __init__(self, connection: zerolane.Connection) -> None:
        """Takes over ``connection``, in a running event loop: it is closed to others then."""
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
        """Received for calls that were cancelled."""
        self._immediates: deque[int] = deque()
        self._told = 0
        """How many of all those the connection was told of."""
        self._news: set[asyncio.Future[None]] = set()
        """Waiting for an immediate, or for the end."""
        self._end: Exception | None = None
        driver.connections[number] = self

    @property
    def peer_addr(self) -> tuple[str, int]:
        """The peer's address when the connection was made: host and port."""
        return self._requests.peer_addr

    @property
    def peer_address(self) -> tuple[str, int]:
        """Deprecated: ``peer_addr``."""
        warn("Connection.peer_address", "peer_addr")
        return self.peer_addr

    @property
    def peer_key(self) -> str | None:
        """The key that the peer proved to own; None if the connection is plain."""
        return self._requests.peer_key

    async def send(self, buffer: _Source, *, delivery: _Delivery = "interrupt") -> None:
        """Sends the bytes of ``buffer``, or of several in a list or tuple, as one message; returns
        when the peer has all of them.
        ``delivery``: see ``zerolane.Connection.send``."""
        await self._request(lambda it: it.post_send(buffer, delivery=delivery))

    async def recv_into(self, buffer: _Memory) -> int:
        """Receives the next message into ``buffer``; returns its length in bytes."""
        kept = self._take_kept("receive", buffer)
        if kept is not None:
            return kept.length
        return (await self._request(lambda it: it.post_recv(buffer))).length

    async def receive_into(self, buffer: _Memory) -> int:
        """Deprecated: ``recv_into``."""
        warn("Connection.receive_into", "recv_into")
        return await self.recv_into(buffer)

    async def put(
        self,
        key: zerolane.Key,
        offset: int,
        buffer: _Source,
        *,
        immediate: int | None = None,
    ) -> None:
        """Writes ``buffer``, or several in a list or tuple, to the peer's memory; returns when
        it is placed and visible there."""
        await self._request(lambda it: it.post_put(key, offset, buffer, immediate=immediate))

    async def get(self, key: zerolane.Key, offset: int, buffer: _Memory) -> memoryview:
        """Reads the peer's memory into the whole of ``buffer``; returns the memory of that."""
        memory = (await self._request(lambda it: it.post_get(key, offset, buffer))).memory
        assert memory is not None, "it was posted"
        return memory

    async def fetch_op(self, key: zerolane.Key, offset: int, op: zerolane.FetchOp) -> int:
        """Does an atomic operation on a word of the peer's memory; returns what it was before."""
        return (await self._request(lambda it: it.post_fetch_op(key, offset, op))).value

    async def fetch_add(self, key: zerolane.Key, offset: int, value: int = 1) -> int:
        """Adds to a word of the peer's memory; returns what it was before."""
        return await self.fetch_op(key, offset, zerolane.FetchOp.add(value))

    async def compare_and_swap(
        self, key: zerolane.Key, offset: int, expected: int, value: int
    ) -> int:
        """Sets a word of the peer's memory if it is ``expected``; returns what it was before."""
        op = zerolane.FetchOp.compare_and_swap(expected, value)
        return await self.fetch_op(key, offset, op)

    async def open_region(self, name: str, rights: int) -> zerolane.Key:
        """Asks the peer for the key of the memory it exports as ``name``, with ``rights``."""
        region = (await self._request(lambda it: it.post_open_region(name, rights))).region
        if region is None:
            raise zerolane.UnknownRegion("the peer told no key")
        return region

    async def send_message(self, control: bytes, payload: _Source | None = None) -> None:
        """Sends a message of at most 128 bytes, and a payload: a buffer, or several in a list."""
        await self._request(lambda it: it.post_message(control, payload))

    async def recv_message(self, payload: _Memory | None = None) -> tuple[bytes, memoryview | None]:
        """Receives the next message; returns it, and the memory of ``payload`` cut to what came."""
        kept = self._take_kept("message_received", payload)
        if kept is not None:
            memory = None if payload is None else self._requests._bytes_of(payload)[: kept.length]
            return kept.control, memory
        completion = await self._request(lambda it: it.post_message_recv(payload))
        return completion.control, completion.memory

    async def receive_message(self, payload: _Memory | None = None) -> tuple[bytes, int]:
        """Deprecated: ``recv_message``, which returns the memory in place of its length."""
        warn("Connection.receive_message", "recv_message")
        control, memory = await self.recv_message(payload)
        return control, 0 if memory is None else memory.nbytes

    async def immediate(self) -> int:
        """The number of the peer's next put that has one. When none can come, raises why. While
        1024 were not asked for, the peer waits with messages and immediates."""
        self._driver.check_loop()
        while not self._immediates:
            if self._end is not None:
                raise self._end
            await self._news_comes()
        # Only now, so that cancelling takes none.
        immediate = self._immediates.popleft()
        self._tell_kept()
        return immediate

    def export(
        self, region: zerolane.ExportedRegion, rights: int, name: str | None = None
    ) -> zerolane.Key:
        """Exports memory to the peer of this connection. (A ``name`` is deprecated:
        ``export_named``.)"""
        if name is not None:
            warn("Connection.export with a name", "export_named")
            return self.export_named(name, region, rights)
        return self._requests.export(region, rights)

    def export_named(self, name: str, region: zerolane.ExportedRegion, rights: int) -> zerolane.Key:
        """The same, and the peer may ask for it with ``open_region`` by ``name``."""
        return self._requests.export_named(name, region, rights)

    def revoke(self, key: zerolane.Key) -> bool:
        """Takes memory back from the peer of this connection, at once."""
        return self._requests.revoke(key)

    def revoke_region(self, region: zerolane.ExportedRegion) -> bool:
        """The same for all exports of ``region`` on this connection: for this peer alone."""
        return self._requests.revoke_region(region)

    def finish(self) -> None:
        """Finishes sending: what was posted is delivered; sends and messages after it raise
        ``Finished``, and so do the peer's receives that none of it meets. The rest goes on."""
        self._driver.check_loop()
        self._requests.finish()
        self._driver.turn_soon()

    async def close(self) -> None:
        """Waits until the peer has all that was sent, then disconnects."""
        self._driver.check_loop()
        if self._end is not None or not self._driver.worker.close(self._number):
            return
        self._driver.turn_soon()
        while self._end is None:
            await self._news_comes()
        if not isinstance(self._end, zerolane.Closed):
            raise self._end

    def abort(self) -> None:
        """Disconnects at once."""
        if self._end is None:
            connection = self._driver.worker.release(self._number)
            if connection is not None:
                connection.abort()
            self._driver.connections.pop(self._number, None)
            self._finish(zerolane.Closed("connection: closed by this end"))

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
        """Posts a request and awaits its end."""
        self._driver.check_loop()
        if self._end is not None:
            raise self._end
        id = post(self._requests)
        # In any delivery mode.
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
        """Cancels a request that is not waited for any more; keeps what it received."""
        if waiting.done() and not waiting.cancelled():
            if waiting.exception() is None:
                self._keep(waiting.result())
        elif self._waiting.pop(id, None) is not None and self._end is None:
            # Over, its completion is an event yet to be told, and kept then.
            self._requests.cancel(id)
            self._driver.turn_soon()

    def _keep(self, completion: zerolane.Completion) -> None:
        kept = self._kept.get(completion.kind)
        if kept is not None and completion.error is None:
            kept.append(completion)
            self._tell_kept()

    def _take_kept(self, kind: str, buffer: _Memory | None) -> zerolane.Completion | None:
        """What was received for a call that was cancelled, copied into ``buffer``."""
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
        """Has the peer wait while much is kept that no call asked for."""
        kept = len(self._immediates) + sum(map(len, self._kept.values()))
        # Of each that goes the peer would learn nothing.
        if kept > self._told or kept + _TOLD_TOGETHER <= self._told:
            self._requests._set_kept(kept)
            if kept < self._told:
                self._driver.turn_soon()
            self._told = kept

    async def _news_comes(self) -> None:
        """Waits for an immediate, or for the end."""
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
        """Gives a completion to what waits for it."""
        if completion.kind == "immediate":
            self._immediates.append(completion.value)
            self._tell_kept()
            self._tell()
            return
        waiting = self._waiting.pop(completion.id, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(completion)
        else:
            self._keep(completion)

    def _finish(self, end: Exception) -> None:
        """The connection is over, and all that wait with it."""
        self._end = end
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(end)
        self._tell()


class Endpoint:
    """A listening UDP port for asyncio, made in a running event loop. A context manager: leaving it
    stops listening.

    1024 connections wait for ``accept``. When one more comes, those of them that are over are
    forgotten; if all stand, it is turned away, unless the endpoint exports memory, which they use
    without being accepted."""

    def __init__(self, address: _Address, options: zerolane.Options | None = None) -> None:
        self._driver = _driver()
        self._accepted: deque[Connection] = deque()
        """Not yet taken."""
        self._exports = False
        """Clients have something to use without being accepted."""
        self._look_at = 0
        """How many of those may wait before it is looked which are over."""
        self._news: set[asyncio.Future[None]] = set()
        """Waiting for a connection, or for the end."""
        self._end: Exception | None = None
        worker = self._driver.worker
        self._number = worker.listen(address, options)
        listener = worker.endpoint(self._number)
        assert listener is not None, "it listens"
        self._listener = listener
        self._driver.endpoints[self._number] = self
        self._driver.turn_soon()

    @property
    def local_addr(self) -> tuple[str, int]:
        """The address listened on: host and port."""
        return self._listener.local_addr

    @property
    def address(self) -> tuple[str, int]:
        """Deprecated: ``local_addr``."""
        warn("Endpoint.address", "local_addr")
        return self.local_addr

    @property
    def public_key(self) -> str | None:
        """The key by which clients know this end; None if connections are plain."""
        return self._listener.public_key

    @property
    def key(self) -> str | None:
        """Deprecated: ``public_key``."""
        warn("Endpoint.key", "public_key")
        return self.public_key

    def export(self, name: str, region: zerolane.ExportedRegion, rights: int) -> None:
        """Lets every client that connects from now on use ``region`` with ``rights``, by
        ``name``."""
        self._driver.worker.export(self._number, name, region, rights)
        self._exports = True

    async def accept(self) -> Connection:
        """The next connection. One that comes when the call was cancelled is the next call's."""
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
        # Only now, so that cancelling takes none.
        return self._accepted.popleft()

    def close(self) -> None:
        """Stops listening. Connections it accepted go on, without those that no call has taken."""
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


async def connect(address: _Address, options: zerolane.Options | None = None) -> Connection:
    """Connects to ``address``, to the first of its addresses that answers. A name is resolved as
    the event loop does it."""
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
            # No "host:port", or none of a name: who connects there says what is wrong.
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
    """Host and port; a link-local host with its interface behind a ``%``."""
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
