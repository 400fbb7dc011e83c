"""Makes a stream of a connection a transport of asyncio, under StreamReader and StreamWriter."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from zerolane._errors import Error

if TYPE_CHECKING:
    from collections.abc import Callable

    from zerolane._pending import Bell
    from zerolane._zerolane import Stream, _Ready

_READ_BYTES = 256 << 10
"""Most bytes read at once."""

_HIGH_WATER = 64 << 10
"""Bytes that wait for room in the stream's queue before the protocol is asked to pause, as in
asyncio."""


class Transport(asyncio.Transport):
    """Moves bytes between a stream and a protocol, in calls of the event loop alone."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        bell: Bell,
        stream: Stream,
        protocol: asyncio.Protocol,
        extra: dict[str, Any],
    ) -> None:
        super().__init__(extra)
        self._loop = loop
        self._bell = bell
        self._stream = stream
        self._protocol: asyncio.Protocol = protocol
        self._unsent = bytearray()
        """Bytes that had no room in the stream's queue."""
        self._high, self._low = _HIGH_WATER, _HIGH_WATER // 4
        self._reads = False
        """Whether a token tells when there is something to read."""
        self._writes = False
        """Whether a token tells when there is room."""
        self._paused = False
        self._told_to_pause = False
        """Whether the protocol was asked to pause."""
        self._ended = False
        """Whether the peer has ended its direction."""
        self._finished = False
        """Whether the program has ended its direction."""
        self._closing = False
        self._lost = False
        protocol.connection_made(self)
        self._watch_reads()

    def __repr__(self) -> str:
        state = "closing" if self._closing else "open"
        return f"<zerolane transport of {self._stream!r}, {state}>"

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Changes the protocol."""
        assert isinstance(protocol, asyncio.Protocol), "streams have bytes"
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        """The protocol."""
        return self._protocol

    def is_closing(self) -> bool:
        """Whether it is closed, or will be."""
        return self._closing

    def is_reading(self) -> bool:
        """Whether the protocol gets what comes."""
        return not (self._paused or self._closing)

    def pause_reading(self) -> None:
        """Gives the protocol nothing until ``resume_reading``."""
        self._paused = True

    def resume_reading(self) -> None:
        """Gives the protocol what comes again."""
        self._paused = False
        self._watch_reads()

    def _watch_reads(self) -> None:
        if self._reads or self._paused or self._ended or self._closing:
            return
        self._reads = True
        self._watch("read", self._readable)

    def _watch(self, what: _Ready, call: Callable[[], None]) -> None:
        token = self._bell.token(call)
        try:
            self._stream.watch(what, self._bell.news, token)
        except (Error, OSError) as error:
            self._bell.forget(token)
            self._lose(error)

    def _readable(self) -> None:
        self._reads = False
        if self._paused or self._closing:
            return
        try:
            data = self._stream._read_now(_READ_BYTES)
        except (Error, OSError) as error:
            self._lose(error)
            return
        if data:
            self._protocol.data_received(data)
        elif data is not None:
            self._ended = True
            if not self._protocol.eof_received():
                self.close()
        self._watch_reads()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Queues ``data``, which may be changed afterwards."""
        if self._finished:
            raise RuntimeError("cannot write after write_eof")
        if self._closing:
            return
        rest = memoryview(data).cast("B")
        if not self._unsent:
            rest = rest[self._put(rest) :]
        if rest and not self._lost:
            self._unsent += rest
            self._watch_writes()
            self._check_high()

    def _put(self, data: memoryview | bytearray) -> int:
        """Writes as much as there is room for; returns how much."""
        at = 0
        try:
            with memoryview(data) as view:
                while at < len(view):
                    with view[at:] as rest:
                        put = self._stream._write_now(rest)
                    if put == 0:
                        break
                    at += put
        except (Error, OSError) as error:
            self._lose(error)
        return at

    def _watch_writes(self) -> None:
        if not self._writes:
            self._writes = True
            self._watch("write", self._writable)

    def _writable(self) -> None:
        self._writes = False
        if self._lost:
            return
        put = self._put(self._unsent)
        if self._lost:
            return
        del self._unsent[:put]
        if self._told_to_pause and len(self._unsent) <= self._low:
            self._told_to_pause = False
            self._protocol.resume_writing()
        if self._unsent:
            self._watch_writes()
            return
        if self._closing:
            self._lose(None)
        elif self._finished:
            self._finish()

    def _check_high(self) -> None:
        if not self._told_to_pause and len(self._unsent) > self._high:
            self._told_to_pause = True
            self._protocol.pause_writing()

    def can_write_eof(self) -> bool:
        """True: a stream's directions end by themselves."""
        return True

    def write_eof(self) -> None:
        """Ends the direction to the peer behind what was written."""
        if self._finished or self._closing:
            return
        self._finished = True
        if not self._unsent:
            self._finish()

    def _finish(self) -> None:
        try:
            self._stream.finish()
        except (Error, OSError) as error:
            self._lose(error)

    def get_write_buffer_size(self) -> int:
        """Bytes that had no room in the stream's queue."""
        return len(self._unsent)

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """The bytes at which the protocol resumes, and above which it pauses."""
        return self._low, self._high

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Sets the bytes above which the protocol pauses, and at which it resumes."""
        if high is None:
            high = _HIGH_WATER if low is None else 4 * low
        if low is None:
            low = high // 4
        if not high >= low >= 0:
            raise ValueError(f"high ({high!r}) must be >= low ({low!r}) must be >= 0")
        self._high, self._low = high, low
        self._check_high()

    def close(self) -> None:
        """Closes the stream behind what was written."""
        if self._closing:
            return
        self._closing = True
        if not self._unsent:
            self._lose(None)

    def abort(self) -> None:
        """Resets the stream at once."""
        # A child of fork has no such stream to reset.
        with suppress(Error):
            self._stream.reset("the program at the other end gave it up")
        self._lose(None)

    def _lose(self, error: Exception | None) -> None:
        """Closes the stream, and tells the protocol."""
        if self._lost:
            return
        self._lost = self._closing = True
        # Not cleared: it may be in use.
        self._unsent = bytearray()
        self._stream.close()
        self._loop.call_soon(self._protocol.connection_lost, error)


def pair(
    loop: asyncio.AbstractEventLoop, bell: Bell, stream: Stream, limit: int, extra: dict[str, Any]
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """The two ends of ``stream`` in this program, as of ``asyncio.open_connection``."""
    reader = asyncio.StreamReader(limit=limit, loop=loop)
    protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
    transport = Transport(loop, bell, stream, protocol, extra)
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)
