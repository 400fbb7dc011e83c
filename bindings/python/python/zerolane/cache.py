"""Keeps objects in the memory of other hosts, which forget those that were used least recently.

A host lends memory::

    python -m zerolane.cache --listen 0.0.0.0:9187 --memory 64GiB

Others keep objects there, spread over the hosts by consistent hashing (``pip install uhashring``)::

    cache = zerolane.cache.Cache(["node1:9187", "node2:9187"])
    cache.put([(key, array)])
    if cache.get([(key, array)]) == [True]: ...

Only short messages go to the server's program: content is put into its memory and got from there. A
host that does not answer has no objects. What a client reads stays in place until it is done, and
is compared with the checksum of what was put: it gets all of an object, or nothing.
"""

from __future__ import annotations

import argparse
import math
import struct
import threading
import time
import zlib
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from enum import IntEnum
from typing import Any, NamedTuple

import zerolane
from zerolane import ConnectionHandle, Event, ExportedRegion, Key, Options, Pending, Rights, Worker

__all__ = ["KEY_BYTES", "Cache", "CacheServer"]

PORT = 9187
KEY_BYTES = 16
"""Length of a key: of a digest, so that no two objects have the same."""

_MAGIC = b"ZLca"
_VERSION = 1
_REGION = 1
"""The number under which a server exports its memory."""
_RECORDS = 1024
"""Most records of a message."""
_ANSWERS = 64
"""Most answers that a client may leave waiting."""
_CLIENTS = 256
_ALIGNMENT = 4096
"""Bytes: objects start at multiples, and take at least as many."""
_OBJECTS = 1 << 20
"""Most objects of a server: it needs some 500 bytes beside the memory for each."""
_HELD = 1 << 16
"""Most objects that one client pins or reserves."""
_SLOWEST = 16 << 20
"""Bytes per second that content moves at least."""
_PAUSES = (1.0, 30.0)
"""Seconds until a host that did not answer is asked again: at first, and at most."""

_HEAD = struct.Struct("<4sBBH")
_KEY = struct.Struct(f"<{KEY_BYTES}s")
_WANTED = struct.Struct(f"<{KEY_BYTES}sQ")
_PLACE = struct.Struct("<QQQI")
_DONE = struct.Struct(f"<{KEY_BYTES}sQI")
_NUMBER = struct.Struct("<Q")
_FLAG = struct.Struct("<B")


class _Op(IntEnum):
    """The requests, each with records of one form and as many answers."""

    HELLO = 0
    """The server's capacity in bytes."""
    EXISTS = 1
    PIN = 2
    """The places of objects, which stay until `UNPIN`, or until the connection is over."""
    UNPIN = 3
    RESERVE = 4
    """Room for new objects, which others do not see before `COMMIT`."""
    COMMIT = 5
    CANCEL = 6
    DELETE = 7


_FORMS = {
    _Op.HELLO: (_NUMBER, _NUMBER),
    _Op.EXISTS: (_KEY, _FLAG),
    _Op.PIN: (_KEY, _PLACE),
    _Op.UNPIN: (_NUMBER, _FLAG),
    _Op.RESERVE: (_WANTED, _PLACE),
    _Op.COMMIT: (_DONE, _FLAG),
    _Op.CANCEL: (_NUMBER, _FLAG),
    _Op.DELETE: (_KEY, _FLAG),
}
_LARGEST = max(max(form.size for form in forms) for forms in _FORMS.values()) * _RECORDS


class _Place(NamedTuple):
    """Where an object is. Generation 0: there is none, or no room."""

    offset: int
    length: int
    generation: int
    checksum: int


_NOWHERE = _Place(0, 0, 0, 0)


class _Room:
    """Free memory, in pieces that are joined again."""

    def __init__(self, capacity: int) -> None:
        self._starts = [0]
        self._lengths = {0: capacity}

    def take(self, length: int) -> int | None:
        """The start of the first piece that is long enough."""
        for index, start in enumerate(self._starts):
            there = self._lengths[start]
            if there >= length:
                del self._lengths[start]
                if there > length:
                    self._starts[index] = start + length
                    self._lengths[start + length] = there - length
                else:
                    del self._starts[index]
                return start
        return None

    def give_back(self, start: int, length: int) -> None:
        index = bisect_left(self._starts, start)
        if index < len(self._starts) and self._starts[index] == start + length:
            length += self._lengths.pop(self._starts.pop(index))
        if index > 0:
            before = self._starts[index - 1]
            if before + self._lengths[before] == start:
                self._lengths[before] += length
                return
        self._starts.insert(index, start)
        self._lengths[start] = length


class _Object:
    """An object, or the room for one."""

    def __init__(self, key: bytes, offset: int, length: int, generation: int) -> None:
        self.key = key
        self.place = _Place(offset, length, generation, 0)
        self.pins = 0
        self.is_complete = False
        self.is_deleted = False

    @property
    def room(self) -> int:
        return -(-max(1, self.place.length) // _ALIGNMENT) * _ALIGNMENT


class _Client:
    """What a connection holds, by generation."""

    def __init__(self) -> None:
        self.pinned: dict[int, tuple[_Object, int]] = {}
        self.reserved: dict[int, _Object] = {}
        self.held = 0
        """Bytes of both."""
        self.answers = 0
        """Answers on their way."""
        self.is_refused = False
        """It did something wrong: its connection is about to end."""


class _Store:
    """Which object is where: the server without its network."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._room = _Room(capacity // _ALIGNMENT * _ALIGNMENT)
        self._objects: dict[bytes, _Object] = {}
        self._idle: OrderedDict[bytes, _Object] = OrderedDict()
        """Complete objects without pins, those used least recently first."""
        self._generation = 0

    def exists(self, key: bytes) -> bool:
        found = self._objects.get(key)
        if found is None or not found.is_complete:
            return False
        if key in self._idle:
            self._idle.move_to_end(key)
        return True

    def pin(self, client: _Client, key: bytes) -> _Place:
        found = self._objects.get(key)
        if found is None or not found.is_complete or not self._may_hold(client, found.room):
            return _NOWHERE
        self._idle.pop(key, None)
        found.pins += 1
        _, times = client.pinned.get(found.place.generation, (found, 0))
        client.pinned[found.place.generation] = found, times + 1
        client.held += found.room
        return found.place

    def unpin(self, client: _Client, generation: int) -> bool:
        found, times = client.pinned.pop(generation, (None, 0))
        if found is None:
            return False
        if times > 1:
            client.pinned[generation] = found, times - 1
        client.held -= found.room
        found.pins -= 1
        if found.pins == 0:
            if found.is_deleted:
                self._room.give_back(found.place.offset, found.room)
            else:
                self._idle[found.key] = found
        return True

    def reserve(self, client: _Client, key: bytes, length: int) -> _Place:
        """Room for a new object. One that exists already has no room for another."""
        if length > self.capacity or key in self._objects:
            return _NOWHERE
        self._generation += 1
        new = _Object(key, 0, length, self._generation)
        if not self._may_hold(client, new.room):
            return _NOWHERE
        while len(self._objects) >= _OBJECTS or (offset := self._room.take(new.room)) is None:
            if not self._idle:
                return _NOWHERE
            self._forget(next(iter(self._idle.values())))
        new.place = new.place._replace(offset=offset)
        self._objects[key] = new
        client.reserved[self._generation] = new
        client.held += new.room
        return new.place

    def commit(self, client: _Client, key: bytes, generation: int, checksum: int) -> bool:
        new = client.reserved.get(generation)
        if new is None or new.key != key:
            return False
        del client.reserved[generation]
        client.held -= new.room
        new.place = new.place._replace(checksum=checksum)
        new.is_complete = True
        self._idle[key] = new
        return True

    def cancel(self, client: _Client, generation: int) -> bool:
        new = client.reserved.pop(generation, None)
        if new is None:
            return False
        client.held -= new.room
        del self._objects[new.key]
        self._room.give_back(new.place.offset, new.room)
        return True

    def delete(self, key: bytes) -> bool:
        found = self._objects.get(key)
        if found is None or not found.is_complete:
            return False
        self._forget(found)
        return True

    def leave(self, client: _Client) -> None:
        """Frees what a client held whose connection is over: it writes no more."""
        for generation, (_, times) in list(client.pinned.items()):
            for _ in range(times):
                self.unpin(client, generation)
        for generation in list(client.reserved):
            self.cancel(client, generation)

    def _may_hold(self, client: _Client, room: int) -> bool:
        holds = len(client.pinned) + len(client.reserved)
        return holds < _HELD and client.held + room <= self.capacity // 2

    def _forget(self, found: _Object) -> None:
        del self._objects[found.key]
        self._idle.pop(found.key, None)
        found.is_deleted = True
        if found.pins == 0:
            self._room.give_back(found.place.offset, found.room)


class CacheServer:
    """Lends ``memory`` bytes, or a writable buffer, to clients that connect to ``address``.

    Whoever may connect may read, change and delete everything: name the clients' keys with
    ``Options(identity=..., trust=[...])``. One client pins or reserves half of the memory at most.
    """

    def __init__(self, address: Any, memory: Any, options: Options | None = None) -> None:
        buffer = bytearray(memory) if isinstance(memory, int) else memory
        self._region = ExportedRegion(buffer)
        self._store = _Store(self._region.length)
        self._clients: dict[int, _Client] = {}
        self._is_over = False
        self._worker = Worker()
        self._pool = zerolane.ReceivePool()
        for _ in range(_ANSWERS):
            self._pool.add(bytearray(_LARGEST))
        self._worker.share_receives(self._pool)
        self._worker.export_numbered(_REGION, self._region, Rights.READ | Rights.WRITE)
        listener = self._worker.endpoint(self._worker.listen(address, options))
        assert listener is not None
        self.local_addr = listener.local_addr
        self.public_key = listener.public_key

    def run(self) -> None:
        """Serves until ``stop`` is called, which any thread may do."""
        try:
            while not self._is_over:
                self._worker.wait(1.0)
                for event in self._worker.events():
                    self._take(event)
        finally:
            self._worker.abort()
            self._region.revoke()

    def stop(self) -> None:
        """Ends ``run``."""
        self._is_over = True
        self._worker.wake()

    def _take(self, event: Event) -> None:
        number, done = event.connection, event.completion
        if number is None:
            return
        if event.kind == "accepted":
            self._clients[number] = _Client()
            if len(self._clients) > _CLIENTS:
                self._refuse(number)
        elif event.kind == "closed":
            # Until now it could write.
            self._store.leave(self._clients.pop(number, _Client()))
        elif done is not None and done.kind == "message":
            client = self._clients.get(number)
            if client is not None:
                client.answers -= 1
        elif done is not None and done.kind == "message_received":
            self._answer(number, done)
            if done.buffer is not None:
                self._pool.add(done.buffer)

    def _refuse(self, number: int) -> None:
        """Ends the connection of a client that does something wrong."""
        self._clients[number].is_refused = True
        self._worker.close(number)

    def _answer(self, number: int, done: zerolane.Completion) -> None:
        client = self._clients.get(number)
        connection = self._worker.connection(number)
        if client is None or client.is_refused or connection is None or done.error is not None:
            return
        answer = None
        if client.answers < _ANSWERS:
            answer = self._answer_to(client, done.control, bytes(done.memory or b""))
        if answer is None:
            return self._refuse(number)
        client.answers += 1
        with suppress(zerolane.Error):
            connection.post_message(done.control, answer)
        return None

    def _answer_to(self, client: _Client, control: bytes, payload: bytes) -> bytes | None:
        """The answer to a request; None if it is none."""
        if len(control) != _HEAD.size:
            return None
        magic, version, op, count = _HEAD.unpack(control)
        if magic != _MAGIC or version != _VERSION or op not in _FORMS or count > _RECORDS:
            return None
        asked, told = _FORMS[_Op(op)]
        if len(payload) != count * asked.size:
            return None
        records = asked.iter_unpack(payload)
        return b"".join(told.pack(*self._do(client, _Op(op), *it)) for it in records)

    def _do(self, client: _Client, op: _Op, *values: Any) -> Sequence[int]:
        store = self._store
        match op:
            case _Op.HELLO:
                return (store.capacity,)
            case _Op.EXISTS:
                return (store.exists(*values),)
            case _Op.PIN:
                return store.pin(client, *values)
            case _Op.UNPIN:
                return (store.unpin(client, *values),)
            case _Op.RESERVE:
                return store.reserve(client, *values)
            case _Op.COMMIT:
                return (store.commit(client, *values),)
            case _Op.CANCEL:
                return (store.cancel(client, *values),)
            case _Op.DELETE:
                return (store.delete(*values),)


class _Down(Exception):
    """The host does not answer."""


def _over(pending: Pending[zerolane.Completion], timeout: float) -> zerolane.Completion:
    """Waits for a request; when this returns or raises, it uses its buffers no more."""
    try:
        return pending.wait(timeout)
    except TimeoutError:
        pending.cancel()
        with suppress(zerolane.Error):
            pending.wait()
        raise


class _Host:
    """A connection to a server, made anew when it is over."""

    def __init__(self, address: str, options: Options, timeout: float) -> None:
        self.address = address
        self._options = options
        self._timeout = timeout
        self._lock = threading.Lock()
        self._connecting: Pending[ConnectionHandle] | None = None
        self._handle: ConnectionHandle | None = None
        self._ended: Pending[Exception] | None = None
        self._retry_at = 0.0
        self._pause = _PAUSES[0]
        self.key = Key.numbered(_REGION)

    def handle(self, patience: float = 0.0) -> ConnectionHandle:
        """The connection. While there is none, it is made in the background."""
        with self._lock:
            if self._ended is not None and self._ended.done():
                self._drop()
            if self._handle is not None:
                return self._handle
            if self._connecting is None:
                if time.monotonic() < self._retry_at:
                    raise _Down(self.address)
                worker = zerolane.background()
                self._connecting = worker.connect(self.address, self._options)
            connecting = self._connecting
            if not patience and not connecting.done():
                raise _Down(self.address)
            try:
                handle = connecting.wait(patience or self._timeout)
            except TimeoutError as error:
                if not isinstance(error, zerolane.ConnectTimeout):
                    raise _Down(self.address) from error
                self._fail()
                raise _Down(self.address) from error
            except (zerolane.Error, OSError) as error:
                self._fail()
                raise _Down(self.address) from error
            self._connecting = None
            self._handle = handle
            self._ended = handle.closed()
            self._pause = _PAUSES[0]
            return handle

    def _drop(self) -> None:
        if self._ended is not None:
            with suppress(zerolane.Error):
                self._ended.detach()
        self._handle = self._ended = None

    def _fail(self) -> None:
        self._connecting = None
        self._retry_at = time.monotonic() + self._pause
        self._pause = min(2 * self._pause, _PAUSES[1])

    def forget(self, handle: ConnectionHandle) -> None:
        """Ends a connection on which something went wrong: its answers would be those to others."""
        with self._lock:
            if self._handle is handle:
                self._drop()
                self._retry_at = 0.0
        with suppress(zerolane.Error):
            handle.close().detach()

    def close(self) -> None:
        """Ends the connection, or the attempt to make one."""
        with self._lock:
            if self._connecting is not None:
                self._connecting.cancel()
                with suppress(zerolane.Error):
                    self._connecting.detach()
            self._connecting, self._retry_at = None, math.inf
            handle = self._handle
        if handle is not None:
            self.forget(handle)
            self._retry_at = math.inf

    def ask(self, op: _Op, records: Sequence[Sequence[Any]]) -> list[Sequence[int]]:
        """The answers to records."""
        asked, told = _FORMS[op]
        answers: list[Sequence[int]] = []
        handle = self.handle()
        for first in range(0, len(records), _RECORDS):
            some = records[first : first + _RECORDS]
            head = _HEAD.pack(_MAGIC, _VERSION, op, len(some))
            place = bytearray(told.size * len(some))
            try:
                # Answers come in the order of the requests.
                with self._lock:
                    payload = b"".join(asked.pack(*it) for it in some)
                    handle.send_message(head, payload).detach()
                    receiving = handle.recv_message(place)
                answer = _over(receiving, self._timeout)
                if answer.control != head or answer.length != len(place):
                    raise _Down(self.address)
            except (zerolane.Error, TimeoutError, _Down) as error:
                self.forget(handle)
                raise _Down(self.address) from error
            answers += told.iter_unpack(place)
        return answers

    def move(
        self, moving: Pending[zerolane.Completion], handle: ConnectionHandle, length: int
    ) -> None:
        """Waits until content has moved."""
        try:
            _over(moving, self._timeout + length / _SLOWEST)
        except (zerolane.Error, TimeoutError) as error:
            self.forget(handle)
            raise _Down(self.address) from error


class Cache:
    """Objects in the memory of ``hosts`` ("name:port"). Keys have ``KEY_BYTES`` bytes.

    Each host has the keys that consistent hashing (uhashring) gives it, whether it answers or not:
    the objects of a host that is down are missing. ``timeout``: the seconds that a host has for an
    answer, and for content in addition to its length at 16 MiB/s. ``checksum=False`` leaves out the
    comparison of content, which takes a core's time. Any thread may call the methods.
    """

    def __init__(
        self,
        hosts: Sequence[str],
        *,
        options: Options | None = None,
        timeout: float = 5.0,
        checksum: bool = True,
    ) -> None:
        try:
            from uhashring import HashRing
        except ImportError as error:
            raise ImportError("a cache needs uhashring: pip install uhashring") from error
        if not hosts:
            raise ValueError("there are no hosts")
        options = options or Options(connect_timeout=2.0, idle_timeout=5.0, keep_alive=True)
        self._hosts = {it: _Host(it, options, timeout) for it in hosts}
        self._ring = HashRing(nodes=list(self._hosts))
        self._checksum = checksum
        self._pins: dict[bytes, list[tuple[ConnectionHandle, int]]] = {}
        self._lock = threading.Lock()
        for host in self._hosts.values():
            with suppress(_Down):
                host.handle(timeout)

    def _by_host(self, keys: Iterable[bytes]) -> list[tuple[_Host, list[int]]]:
        """The hosts of keys, with the keys' positions."""
        found: dict[str, list[int]] = {}
        for position, key in enumerate(keys):
            if len(key) != KEY_BYTES:
                raise ValueError(f"a key has {KEY_BYTES} bytes, not {len(key)}")
            found.setdefault(self._ring.get_node(key.hex()), []).append(position)
        return [(self._hosts[name], positions) for name, positions in found.items()]

    def _flags(self, op: _Op, keys: Sequence[bytes]) -> list[bool]:
        flags = [False] * len(keys)
        for host, positions in self._by_host(keys):
            with suppress(_Down):
                answers = host.ask(op, [(keys[it],) for it in positions])
                for position, (flag,) in zip(positions, answers, strict=True):
                    flags[position] = bool(flag)
        return flags

    def exists(self, keys: Sequence[bytes]) -> list[bool]:
        """Whether each object is there. It may be gone a moment later."""
        return self._flags(_Op.EXISTS, keys)

    def delete(self, keys: Sequence[bytes]) -> list[bool]:
        """Deletes objects; says which were there."""
        return self._flags(_Op.DELETE, keys)

    def put(self, objects: Sequence[tuple[bytes, Any]]) -> list[bool]:
        """Stores buffers under keys; says which are there now. One that is there already stays."""
        views = [memoryview(it).cast("B") for _, it in objects]
        stored = [False] * len(objects)
        for host, positions in self._by_host(key for key, _ in objects):
            with suppress(_Down):
                self._put(host, [(it, objects[it][0], views[it]) for it in positions], stored)
        return stored

    def _put(
        self, host: _Host, objects: list[tuple[int, bytes, memoryview]], stored: list[bool]
    ) -> None:
        handle = host.handle()
        wanted = [(key, view.nbytes) for _, key, view in objects]
        places = [_Place(*it) for it in host.ask(_Op.RESERVE, wanted)]
        new = [(it, place) for it, place in zip(objects, places, strict=True) if place.generation]
        pieces = [(place.offset, view) for (_, _, view), place in new if view.nbytes]
        done = []
        try:
            if pieces:
                length = sum(view.nbytes for _, view in pieces)
                host.move(handle.put_vectored(host.key, pieces), handle, length)
            for (_, key, view), place in new:
                done.append((key, place.generation, zlib.crc32(view) if self._checksum else 0))
        finally:
            if len(done) < len(new):
                with suppress(_Down):
                    host.ask(_Op.CANCEL, [(place.generation,) for _, place in new])
        for ((position, _, _), _), (flag,) in zip(new, host.ask(_Op.COMMIT, done), strict=True):
            stored[position] = bool(flag)
        old = [it for it, place in zip(objects, places, strict=True) if not place.generation]
        if old:
            answers = host.ask(_Op.EXISTS, [(key,) for _, key, _ in old])
            for (position, _, _), (flag,) in zip(old, answers, strict=True):
                stored[position] = bool(flag)

    def get(self, objects: Sequence[tuple[bytes, Any]]) -> list[bool]:
        """Fills a buffer with the object of each key; says which were there and have its length.

        The content of the other buffers is undefined.
        """
        views = [memoryview(it).cast("B") for _, it in objects]
        found = [False] * len(objects)
        for host, positions in self._by_host(key for key, _ in objects):
            with suppress(_Down):
                self._get(host, [(it, objects[it][0], views[it]) for it in positions], found)
        return found

    def _get(
        self, host: _Host, objects: list[tuple[int, bytes, memoryview]], found: list[bool]
    ) -> None:
        handle = host.handle()
        places = [_Place(*it) for it in host.ask(_Op.PIN, [(key,) for _, key, _ in objects])]
        there = [(it, at) for it, at in zip(objects, places, strict=True) if at.generation]
        wanted = [(it, place) for it, place in there if place.length == it[2].nbytes]
        pieces = [(place.offset, view) for (_, _, view), place in wanted if view.nbytes]
        try:
            if pieces:
                length = sum(view.nbytes for _, view in pieces)
                host.move(handle.get_vectored(host.key, pieces), handle, length)
        finally:
            with suppress(_Down):
                host.ask(_Op.UNPIN, [(place.generation,) for _, place in there])
        for (position, key, view), place in wanted:
            if not self._checksum or not place.checksum or zlib.crc32(view) == place.checksum:
                found[position] = True
            else:
                host.ask(_Op.DELETE, [(key,)])

    def pin(self, keys: Sequence[bytes]) -> list[bool]:
        """Keeps objects where they are until ``unpin``; says which are there."""
        found = [False] * len(keys)
        for host, positions in self._by_host(keys):
            with suppress(_Down):
                handle = host.handle()
                places = host.ask(_Op.PIN, [(keys[it],) for it in positions])
                with self._lock:
                    for position, (_, _, generation, _) in zip(positions, places, strict=True):
                        if generation:
                            found[position] = True
                            pins = self._pins.setdefault(keys[position], [])
                            pins.append((handle, generation))
        return found

    def unpin(self, keys: Sequence[bytes]) -> None:
        """Takes one pin off each object that has one of this cache."""
        for host, positions in self._by_host(keys):
            with suppress(_Down):
                handle = host.handle()
                generations = []
                with self._lock:
                    for position in positions:
                        pins = self._pins.get(keys[position], [])
                        if pins:
                            of, generation = pins.pop()
                            # Those of an earlier connection ended with it.
                            if of is handle:
                                generations.append((generation,))
                        if not pins:
                            self._pins.pop(keys[position], None)
                host.ask(_Op.UNPIN, generations)

    def capacities(self) -> dict[str, int | None]:
        """The bytes that each host lends; None if it does not answer."""
        found: dict[str, int | None] = dict.fromkeys(self._hosts)
        for name, host in self._hosts.items():
            with suppress(_Down):
                found[name] = host.ask(_Op.HELLO, [(0,)])[0][0]
        return found

    def close(self) -> None:
        """Ends the connections; from now on nothing is there."""
        for host in self._hosts.values():
            host.close()


_UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


def _size(text: str) -> int:
    for unit, bytes in _UNITS.items():
        if text.endswith(unit):
            return int(text.removesuffix(unit)) * bytes
    return int(text)


def main() -> None:
    """Lends memory until it is interrupted."""
    parser = argparse.ArgumentParser(prog="python -m zerolane.cache", description=main.__doc__)
    parser.add_argument("--listen", default=f"127.0.0.1:{PORT}", metavar="HOST:PORT")
    parser.add_argument("--memory", required=True, type=_size, metavar="SIZE", help="such as 64GiB")
    parser.add_argument("--identity", metavar="FILE", help="the file of this end's key")
    parser.add_argument("--trust", action="append", metavar="KEY", help="let in only these clients")
    given = parser.parse_args()
    options = Options(identity=given.identity, trust=given.trust, keep_alive=True)
    server = CacheServer(given.listen, given.memory, options)
    host, port = server.local_addr
    print(f"Lending {given.memory} bytes on {host}:{port}. Key: {server.public_key}", flush=True)
    with suppress(KeyboardInterrupt):
        server.run()


if __name__ == "__main__":
    main()
