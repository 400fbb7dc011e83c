"""Connections for asyncio: calls that are awaited, driven by the event loop, without threads::

    connection = await zerolane.aio.connect("192.0.2.7:7411")
    async with connection:
        await connection.send(b"hello")

A connection belongs to the event loop it was made in. Cancelling a call cancels its request. The
buffer of a request is in use, and cannot be resized, until the call returns.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self

import zerolane

if TYPE_CHECKING:
    from zerolane._zerolane import _Address, _Delivery, _Memory

__all__ = ["Connection", "Endpoint", "connect"]

_ACCEPT_SLICE = 0.5
"""Seconds after which a thread that accepts checks whether it still should."""


class Connection:
    """A connection driven by the event loop. Leaving it as a context manager closes it."""

    def __init__(self, connection: zerolane.Connection) -> None:
        """Takes over ``connection``, in a running event loop: do not use it otherwise."""
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[int, asyncio.Future[zerolane.Completion]] = {}
        self._immediates: deque[int] = deque()
        self._news = asyncio.Event()
        """Set when there is an immediate, or the end."""
        self._end: Exception | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._fd = connection.fileno()
        self._writing = False
        self._loop.add_reader(self._fd, self._advance)
        self._advance()

    @property
    def peer_address(self) -> tuple[str, int]:
        """The peer's address: host and port."""
        return self._connection.peer_address

    @property
    def peer_key(self) -> str | None:
        """The key that the peer proved to own; None if the connection is plain."""
        return self._connection.peer_key

    async def send(self, buffer: _Memory, *, delivery: _Delivery = "interrupt") -> None:
        """Sends the bytes of ``buffer`` as one message; returns when the peer has all of them.
        ``delivery``: see ``zerolane.Connection.send``."""
        await self._finish(lambda: self._connection.post_send(buffer, delivery=delivery))

    async def receive_into(self, buffer: _Memory) -> int:
        """Receives the next message into ``buffer``; returns its length in bytes."""
        return (await self._finish(lambda: self._connection.post_receive(buffer))).length

    async def put(
        self,
        key: zerolane.Key,
        offset: int,
        buffer: _Memory,
        *,
        immediate: int | None = None,
    ) -> None:
        """Writes ``buffer`` to the peer's memory; returns when it is placed and visible there."""
        await self._finish(
            lambda: self._connection.post_put(key, offset, buffer, immediate=immediate)
        )

    async def get(self, key: zerolane.Key, offset: int, buffer: _Memory) -> None:
        """Reads the peer's memory into the whole of ``buffer``."""
        await self._finish(lambda: self._connection.post_get(key, offset, buffer))

    async def fetch_add(self, key: zerolane.Key, offset: int, value: int = 1) -> int:
        """Adds to a word of the peer's memory; returns what it was before."""
        return (
            await self._finish(lambda: self._connection.post_fetch_add(key, offset, value))
        ).value

    async def compare_and_swap(
        self, key: zerolane.Key, offset: int, expected: int, value: int
    ) -> int:
        """Sets a word of the peer's memory if it is ``expected``; returns what it was before."""
        return (
            await self._finish(
                lambda: self._connection.post_compare_and_swap(key, offset, expected, value)
            )
        ).value

    async def send_message(self, control: bytes, payload: _Memory | None = None) -> None:
        """Sends a message of at most 128 bytes, and a payload."""
        await self._finish(lambda: self._connection.post_message(control, payload))

    async def receive_message(self, payload: _Memory | None = None) -> tuple[bytes, int]:
        """Receives the next message; returns it and the length of its payload."""
        completion = await self._finish(lambda: self._connection.post_receive_message(payload))
        return completion.control, completion.length

    async def immediate(self) -> int:
        """The number of the peer's next put that has one. When none can come, raises why."""
        while not self._immediates:
            if self._end is not None:
                raise self._end
            self._news.clear()
            await self._news.wait()
        # Only now, so that cancelling takes none.
        return self._immediates.popleft()

    def export(
        self, region: zerolane.ExportedRegion, rights: int, name: str | None = None
    ) -> zerolane.Key:
        """Exports memory to the peer of this connection."""
        return self._connection.export(region, rights, name)

    async def close(self) -> None:
        """Waits until the peer has all that was sent, then disconnects."""
        self._stop()
        await asyncio.to_thread(self._connection.close)

    def abort(self) -> None:
        """Disconnects at once."""
        self._stop()
        self._connection.abort()

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

    async def _finish(self, post: Callable[[], int]) -> zerolane.Completion:
        """Posts a request and awaits its end."""
        id = post()
        # In any delivery mode.
        self._connection.notify(id)
        waiting: asyncio.Future[zerolane.Completion] = self._loop.create_future()
        self._waiting[id] = waiting
        self._advance()
        try:
            completion = await waiting
        except asyncio.CancelledError:
            if self._waiting.pop(id, None) is not None:
                self._connection.cancel(id)
                self._advance()
            raise
        completion.result()
        return completion

    def _advance(self) -> None:
        """Makes progress, hands out completions, and sets a timer for the next turn."""
        try:
            while (completion := self._connection.wait(timeout=0)) is not None:
                self._hand_out(completion)
        except (zerolane.Error, OSError) as error:
            self._fail(error)
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        delay = self._connection.next_timeout
        if delay is not None:
            self._timer = self._loop.call_later(delay, self._advance)
        self._watch_room(self._connection.wants_write)

    def _watch_room(self, wanted: bool) -> None:
        """Whether the loop has to report when there is room to send."""
        if wanted and not self._writing:
            self._loop.add_writer(self._fd, self._advance)
        elif self._writing and not wanted:
            self._loop.remove_writer(self._fd)
        self._writing = wanted

    def _hand_out(self, completion: zerolane.Completion) -> None:
        if completion.kind == "immediate":
            self._immediates.append(completion.value)
            self._news.set()
            return
        waiting = self._waiting.pop(completion.id, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(completion)

    def _fail(self, error: zerolane.Error | OSError) -> None:
        """The connection is over, and all that wait with it."""
        self._finished(error)
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(error)

    def _stop(self) -> None:
        self._finished(zerolane.Closed("connection: closed by this end"))
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            future.cancel()

    def _finished(self, end: Exception) -> None:
        """The connection is over, because of ``end``."""
        if self._end is None:
            self._end = end
        self._news.set()
        self._loop.remove_reader(self._fd)
        self._watch_room(False)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Endpoint:
    """A listening UDP port for asyncio. A context manager: leaving it stops listening."""

    def __init__(self, address: _Address, options: zerolane.Options | None = None) -> None:
        self._endpoint = zerolane.Endpoint(address, options)
        self._accepted: deque[zerolane.Connection] = deque()
        """Accepted by a thread, and not yet taken: the call may have been cancelled meanwhile."""
        self._closed = False

    @property
    def address(self) -> tuple[str, int]:
        """The address listened on: host and port."""
        return self._endpoint.address

    @property
    def key(self) -> str | None:
        """The key by which clients know this end; None if connections are plain."""
        return self._endpoint.key

    async def accept(self) -> Connection:
        """The next connection. Accepts in a thread, in slices, so that it can be cancelled: what
        its thread accepts then is the next call's."""
        while True:
            with contextlib.suppress(IndexError):
                return Connection(self._accepted.popleft())
            await asyncio.to_thread(self._accept_slice)

    def _accept_slice(self) -> None:
        """Accepts for a while, in a thread that may outlive the call that wanted it."""
        try:
            self._accepted.append(self._endpoint.accept(_ACCEPT_SLICE))
        except TimeoutError:
            return
        if self._closed:
            self._drop_accepted()

    def _drop_accepted(self) -> None:
        while self._accepted:
            # Another thread may have been quicker.
            with contextlib.suppress(IndexError):
                self._accepted.popleft().abort()

    def close(self) -> None:
        """Stops listening. Connections it accepted go on, without those that no call has taken."""
        self._closed = True
        self._endpoint.close()
        self._drop_accepted()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        class_: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


async def connect(address: _Address, options: zerolane.Options | None = None) -> Connection:
    """Connects to ``address``, in a thread: it may have to wait for a name server."""
    return Connection(await asyncio.to_thread(zerolane.connect, address, options))
