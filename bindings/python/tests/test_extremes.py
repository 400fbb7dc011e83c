"""Tests empty, huge, negative and endless arguments of every public call.

The calls are read from the stubs and from ``aio``: a new one, or a new type of argument, fails here
until it has a row. Each argument in turn is replaced by each extreme of its type. A call may then
refuse it, return, or wait: a signal ends the wait. What no type of the call can hold must be
refused.
"""

import ast
import asyncio
import inspect
import math
import operator
import signal
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import numpy as np
import pytest

import zerolane
from conftest import make_pair, serving
from zerolane import FetchOp, Options, Rights, Worker, aio

# The end of a wait may drop what the call has made.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")

PACKAGE = Path(inspect.getfile(zerolane)).parent

INTEGERS = [0, 2**31, 2**32 - 1, 2**32, 2**63 - 1, 2**63, 2**64 - 1]
NO_INTEGERS = [-1, -(2**31), -(2**63), 2**64, 10**30, -(10**30)]
TIMES = [0.0, -0.0, 5e-324, 1e-9, 1e19, 1e300, math.inf]
NO_TIMES = [-1.0, -5e-324, -1e300, -math.inf, math.nan]
TEXTS = ["", "\0", "name\0", "x" * 33, "x" * 100_000, "\u00e9" * 17]
MEMORIES: list[Any] = [
    b"",
    bytearray(),
    memoryview(bytearray(8))[:0],
    np.zeros(0),
    np.zeros((0, 7)),
    np.zeros((1 << 16, 0, 3)),
    bytearray(1 << 22),
]
PIECES: list[Any] = [
    [],
    zerolane.Pieces(b"", [], [], 0),
    zerolane.Pieces(bytearray(8), [0, 8] * 3000, [0, 2**64 - 1] * 3000, 0),
    zerolane.Pieces(bytearray(8), [2**64 - 1], [2**64 - 1], 2**64 - 1),
    [(0, bytearray())],
    [(0, bytearray())] * 4097,
    [(8 * n, bytearray(8)) for n in range(4097)],
    [(2**64 - 1, bytearray(8))],
    [(2**64 - 8, bytearray(8))],
]
ADDRESSES: list[Any] = [("", 0), "[::]:0", "0.0.0.0:0"]
NO_ADDRESSES: list[Any] = [
    "",
    ":",
    "::",
    "127.0.0.1",
    "127.0.0.1:",
    "127.0.0.1:-1",
    "127.0.0.1:" + "9" * 1000,
    "x" * 100_000 + ":1",
    "\0:1",
    ("127.0.0.1", -1),
    ("127.0.0.1", 65536),
    ("127.0.0.1", 10**30),
    ("::1", 1, -1, 0),
    ("::1", 1, 0, 2**32),
    (),
]


class Extremes(NamedTuple):
    """The extremes of a type of argument."""

    allowed: list[Any] = []  # noqa: RUF012
    refused: list[Any] = []  # noqa: RUF012
    """What no call may take."""


NONE = Extremes()
TEXT = Extremes(TEXTS, ["\ud800"])
MEMORY = Extremes(MEMORIES)
SOURCE = Extremes([*MEMORIES, [], (), [b""] * 5000, [[]]])
CHOICE = Extremes([], ["", "\0", "no such", "x" * 100_000])
FILE = Extremes([], ["", "\0", "/", "/proc/no such/file", "x" * 100_000])
KEYS = Extremes([[]], [[""], ["\0"], ["zl:"], ["x" * 100_000], ["zl:" + "0" * 64] * 2])
NUMBERS = Extremes(
    [[], [0], [2**64 - 1], np.zeros(0, dtype=np.int64), [0] * 10_000],
    [[-1], [2**64], [0.5], np.array([-1]), np.zeros((1, 1), dtype=np.int64), None],
)
BY_TYPE: dict[str, Extremes] = {
    "int": Extremes(INTEGERS, NO_INTEGERS),
    "float": Extremes(TIMES, NO_TIMES),
    "str": TEXT,
    "bytes": Extremes([b"", bytes(128), bytes(129), bytes(1 << 20)]),
    "_Memory": MEMORY,
    "_Source": SOURCE,
    "_Address": Extremes(ADDRESSES, NO_ADDRESSES),
    "_Delivery": CHOICE,
    "Callable[[Exception], object]": Extremes([], [7, "", b"", []]),
    "_Bits": Extremes([64, 32], [0, -1, 33, 255, 256, 2**64, 10**30]),
    "_LaneChoice": CHOICE,
    "_Slow": CHOICE,
    "_Role": CHOICE,
    "_Ready": CHOICE,
    "str | PathLike[str]": FILE,
    "Sequence[str]": KEYS,
    "_Pieces": Extremes(PIECES, [[(-1, bytearray(8))], [(2**64, bytearray(8))], [()], [(0,)]]),
    "_Numbers": NUMBERS,
    "int | _Numbers": Extremes([8, 2**64 - 1, *NUMBERS.allowed], [-1, 2**64, *NUMBERS.refused]),
    "Sequence[_Address]": Extremes([[]], [[""], ["\0"], [("127.0.0.1", 65536)]]),
    # Objects of this package, and what has two values.
    **dict.fromkeys(
        ["bool", "Connection", "Endpoint", "EthernetDevice", "ExportedRegion", "FetchOp", "Key"],
        NONE,
    ),
    **dict.fromkeys(
        ["CompletionQueue", "Options", "Pending[Completion]", "Pending[Any]", "ReceivePool"], NONE
    ),
    "FileStatus": NONE,
    **dict.fromkeys(["PendingSet", "Connection | Connection"], NONE),
}
BY_NAME: dict[str, Extremes] = {
    # Words, which may be negative.
    "value": Extremes([*INTEGERS, -1, -(2**63)], [2**64, -(2**63) - 1, 10**30]),
    "private_data": Extremes([b"", bytes(64)], [bytes(65), bytes(1 << 20), "text", 7]),
    "expected": Extremes([*INTEGERS, -1, -(2**63)], [2**64, -(2**63) - 1, 10**30]),
}
OWN: dict[tuple[str, str], Extremes] = {
    # Smaller ones are allocated.
    ("ExportedRegion.memfd", "length"): Extremes([0], [*NO_INTEGERS, 1 << 60, 2**63 - 1, 2**63]),
    ("CompletionQueue.__new__", "capacity"): Extremes([0, 1], [*NO_INTEGERS, 2**60, 2**64 - 1]),
    ("Key.from_int", "value"): Extremes(INTEGERS, NO_INTEGERS),
    # Everything until the end.
    ("Stream.read", "size"): Extremes([*INTEGERS, -1, -(2**63)], [2**64, 10**30, -(10**30)]),
    ("Streams.open", "purpose"): Extremes([b"", bytes(1024)], [bytes(1025), bytes(1 << 20)]),
    **dict.fromkeys(
        [("Streams.open", "priority"), ("aio.Streams.open", "priority")],
        Extremes([0, 7], [8, *NO_INTEGERS, *INTEGERS[1:]]),
    ),
    # That of asyncio's readers.
    ("aio.Streams.open", "limit"): Extremes([1, 2**31, 2**64], [0, -1]),
    ("aio.Streams.accept", "limit"): Extremes([1, 2**31, 2**64], [0, -1]),
    # A host has the port of casts.
    ("CastReceiver.__new__", "address"): Extremes(
        [*ADDRESSES, "::", "127.0.0.1"],
        [it for it in NO_ADDRESSES if it not in ("::", "127.0.0.1")],
    ),
    # A host has the port of the file service.
    ("FileClient.__new__", "address"): Extremes(
        [*ADDRESSES, "::", "127.0.0.1"],
        [it for it in NO_ADDRESSES if it not in ("::", "127.0.0.1")],
    ),
    # The server, which is not there, is asked first.
    ("FileClient.put", "source"): Extremes(FILE.refused),
    ("FileClient.get", "target"): Extremes(FILE.refused),
    # The flow and the interface of a global address do not matter.
    ("aio.connect", "address"): Extremes(
        [*ADDRESSES, *NO_ADDRESSES[-3:-1]], [*NO_ADDRESSES[:-3], NO_ADDRESSES[-1]]
    ),
}

EXPECTED = (
    ValueError,
    TypeError,
    OverflowError,
    LookupError,
    BufferError,
    MemoryError,
    OSError,
    zerolane.Error,
)
"""How a call may refuse."""


class Waits(Exception):
    """The call would wait on."""


class Call(NamedTuple):
    """A public call: its arguments with their types."""

    name: str
    arguments: dict[str, str]

    def extremes(self, argument: str) -> Extremes:
        own = OWN.get((self.name, argument), BY_NAME.get(argument))
        if own is not None:
            return own
        return BY_TYPE[self.arguments[argument].removesuffix(" | None").replace("zerolane.", "")]


def calls_of(file: str, prefix: str = "") -> Iterator[Call]:
    """The public calls of a module or stub that take arguments."""
    for owner in ast.parse((PACKAGE / file).read_text()).body:
        inside = owner.body if isinstance(owner, ast.ClassDef) else [owner]
        if owner.__dict__.get("name", "_").startswith("_"):
            continue
        for it in inside:
            if not isinstance(it, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            decorators = " ".join(map(ast.unparse, it.decorator_list))
            is_public = not it.name.startswith("_") or it.name in ("__new__", "__init__")
            if "property" in decorators or not is_public:
                continue
            arguments = [*it.args.posonlyargs, *it.args.args, *it.args.kwonlyargs]
            types = {arg.arg: ast.unparse(arg.annotation) for arg in arguments if arg.annotation}
            if types:
                name = it.name if owner is it else f"{owner.__dict__['name']}.{it.name}"
                yield Call(prefix + name, types)


CALLS = [*calls_of("_zerolane.pyi"), *calls_of("aio.py", "aio.")]


class Place:
    """What the calls are called on."""

    def __init__(self, stack: ExitStack) -> None:
        self.ours, self.peers = make_pair()
        stack.callback(self.peers.abort)
        stack.callback(self.ours.abort)
        self.ours.set_timeout(0.05)
        self.region = stack.enter_context(zerolane.ExportedRegion(bytearray(4096)))
        self.key = self.peers.export_named("name", self.region, Rights.ALL)
        stack.enter_context(serving(self.peers))
        self.worker = Worker()
        stack.callback(self.worker.abort)
        self.number = self.worker.listen("127.0.0.1:0")
        self.thread = Worker().spawn()
        stack.callback(self.thread.abort)
        self.listening = self.thread.listen("127.0.0.1:0").wait(20)
        self.handle = self.thread.connect(self.listening.local_addr).wait(20)
        self.accepted = self.listening.accept().wait(20)
        self.handle_key = self.accepted.export(self.region, Rights.ALL).wait(20)
        self.over = zerolane.PendingSet()
        self.receiving = self.handle.recv(bytearray(8))
        stack.callback(self.receiving.cancel)
        self.executor = stack.enter_context(ThreadPoolExecutor(8))
        self.files = self.client(("127.0.0.1", 1))
        ours, peers = make_pair()
        self.streams = zerolane.Streams(ours, "connector")
        stack.callback(self.streams.abort)
        self.peers_streams = zerolane.Streams(peers, "acceptor")
        stack.callback(self.peers_streams.abort)
        self.unread = self.streams.open()
        self.unread.set_timeout(0.05)

    def client(self, address: Any, options: Options | None = None) -> zerolane.FileClient:
        """A client of a server that is not there."""
        return zerolane.FileClient(address, options or Options(connect_timeout=0.05))

    def ask(self, **keywords: Any) -> zerolane.FileStatus:
        """Asks something of such a host."""
        return self.client(**keywords).status("")

    def requests(self) -> zerolane.Requests:
        """A worker's connection."""
        number = self.worker.connect(self.listening.local_addr)
        requests = self.worker.connection(number)
        assert requests is not None
        return requests

    def use(self, **keywords: Any) -> None:
        """Moves bytes with such options."""
        options = Options(**keywords)
        with ExitStack() as stack:
            worker = Worker()
            stack.callback(worker.abort)
            listener = worker.endpoint(worker.listen("127.0.0.1:0", options))
            assert listener is not None
            connection = worker.connection(worker.connect(listener.local_addr, options))
            assert connection is not None
            connection.post_send(bytes(100_000))
            for _ in range(100):
                worker.wait(0.001)
                for event in worker.events():
                    if event.kind == "accepted":
                        accepted = worker.connection(event.connection or 0)
                        if accepted is not None:
                            accepted.post_recv(bytearray(100_000))
                    elif event.kind in ("completed", "closed"):
                        return

    def export_numbered(self, **keywords: Any) -> bool:
        """Exports by number, and has the number free for the next call."""
        return self.ours.revoke(self.ours.export_numbered(**keywords))

    def export_of_worker(self, number: int, **keywords: Any) -> bool:
        self.worker.export_numbered(number, **keywords)
        return self.worker.revoke_number(number)

    def export_of_thread(self, number: int, **keywords: Any) -> zerolane.Pending[bool]:
        self.thread.export_numbered(number, **keywords).wait(20)
        return self.thread.revoke_number(number)

    def export_of_handle(self, **keywords: Any) -> zerolane.Pending[bool]:
        return self.handle.revoke(self.handle.export_numbered(**keywords).wait(20))

    def accept_incoming(self, **keywords: Any) -> None:
        """Accepts a request."""
        options = Options(plain=True, asks=True)
        with zerolane.Endpoint("127.0.0.1:0", options) as endpoint:
            connecting = self.thread.connect(endpoint.local_addr, Options(plain=True))
            try:
                endpoint.incoming(20).accept(**keywords).abort()
            finally:
                connecting.cancel()

    def make_streams(self, **keywords: Any) -> zerolane.Streams:
        """Makes streams of a connection that nobody uses."""
        connection, other = make_pair()
        try:
            return zerolane.Streams(**{**keywords, "connection": connection})
        finally:
            connection.abort()
            other.abort()

    def stream(self) -> zerolane.Stream:
        """A stream that nobody reads."""
        stream = self.streams.open()
        stream.set_timeout(0.05)
        return stream

    def post_message(self, **keywords: Any) -> bool:
        """Posts a message, and does not let later operations wait for its receive."""
        return self.ours.cancel(self.ours.post_message(**keywords))

    def put_pieces(self, **keywords: Any) -> int:
        """Puts such pieces."""
        return self.ours.post_put_vectored(self.key, zerolane.Pieces(**keywords))

    def receiver(self, **keywords: Any) -> zerolane.CastReceiver:
        return zerolane.CastReceiver(**{"buffer": bytearray(8), **keywords})

    def cast(self, **keywords: Any) -> zerolane.CastOutcome:
        """Casts to one host."""
        with self.receiver(address="127.0.0.1:0") as receiver:
            self.executor.submit(receiver.receive, 0.5)
            return zerolane.cast(**{"hosts": [receiver.local_addr], **keywords})

    def receive(self, **keywords: Any) -> int:
        """Receives a cast."""
        with self.receiver(address="127.0.0.1:0") as receiver:
            self.executor.submit(zerolane.cast, bytes(8), [receiver.local_addr], gather=0.3)
            return receiver.receive(**keywords)


Row = Callable[[Place], Callable[..., Any]]


def named(path: str) -> Row:
    """The method of an object of ``Place``, such as "ours.send"."""

    return operator.attrgetter(path)


def each(of: str, on: str, names: str) -> dict[str, Row]:
    return {f"{of}.{name}": named(f"{on}.{name}") for name in names.split()}


def of_class(owner: type, names: str) -> dict[str, Row]:
    def row(name: str) -> Row:
        return lambda _: getattr(owner, name)

    return {f"{owner.__name__}.{name}": row(name) for name in names.split()}


def of_connection(names: str) -> dict[str, Callable[[aio.Connection], Callable[..., Any]]]:
    return {f"aio.Connection.{name}": operator.attrgetter(name) for name in names.split()}


ROWS: dict[str, Row] = {
    "EthernetDevice.__new__": lambda _: zerolane.EthernetDevice,
    "Options.__new__": named("use"),
    "CompletionQueue.__new__": lambda _: zerolane.CompletionQueue,
    "CompletionQueue.poll_batch": lambda _: zerolane.CompletionQueue(4).poll_batch,
    "CompletionQueue.wait": lambda _: zerolane.CompletionQueue(4).wait,
    "ReceivePool.add": lambda _: zerolane.ReceivePool().add,
    "Key.from_bytes": lambda _: zerolane.Key.from_bytes,
    "Key.from_int": lambda _: zerolane.Key.from_int,
    "Key.numbered": lambda _: zerolane.Key.numbered,
    "ExportedRegion.__new__": lambda _: zerolane.ExportedRegion,
    "ExportedRegion.memfd": lambda _: zerolane.ExportedRegion.memfd,
    **each("ExportedRegion", "region", "read write load store fetch_add fetch_op"),
    **of_class(FetchOp, "add increment decrement clear swap compare_and_swap"),
    **of_class(FetchOp, "and_ or_ xor min max"),
    "Pieces.__new__": named("put_pieces"),
    "Endpoint.__new__": lambda _: zerolane.Endpoint,
    "Endpoint.accept": lambda _: accept_of_none,
    "Endpoint.incoming": lambda _: incoming_of_none,
    "Incoming.accept": named("accept_incoming"),
    **each("Requests", "ours", "post_send post_recv post_message_recv notify"),
    "Requests.post_message": named("post_message"),
    "Requests.export_numbered": named("export_numbered"),
    "Requests.honour_delivery": named("ours.honour_delivery"),
    **each("Requests", "ours", "arrived cancel add_path remove_path export export_named revoke"),
    **each("Requests", "ours", "revoke_region post_open_region post_put post_put_vectored"),
    **each("Requests", "ours", "post_get post_get_vectored post_fetch_op"),
    **each("Connection", "ours", "set_timeout send recv_into announced poll_batch wait"),
    **each("Connection", "ours", "wait_for wait_arrived wait_batch open_region put get fetch_op"),
    **each("Connection", "ours", "fetch_add fetch_clear swap compare_and_swap send_message"),
    **each("Connection", "ours", "recv_message set_completion_queue set_receive_pool"),
    **each("Connection", "ours", "send_datagram recv_datagram"),
    **each("Worker", "worker", "set_spin listen listen_on connect adopt release connection"),
    **each("Worker", "worker", "endpoint connection_handle endpoint_handle export revoke_number"),
    **each("Worker", "worker", "close_endpoint close wait events accept_request refuse_request"),
    "Worker.export_numbered": named("export_of_worker"),
    **each("Worker", "worker", "share_receives"),
    "Pending.wait": named("receiving.wait"),
    **each("PendingSet", "over", "add signal poll_batch wait"),
    **each("WorkerThread", "thread", "listen connect adopt revoke_number"),
    "WorkerThread.export_numbered": named("export_of_thread"),
    **each("WorkerThread", "thread", "share_receives"),
    **each("EndpointHandle", "listening", "export"),
    **each("ConnectionHandle", "handle", "send recv send_message recv_message put get"),
    **each("ConnectionHandle", "handle", "put_vectored get_vectored fetch_op open_region export"),
    **each("ConnectionHandle", "handle", "export_named revoke revoke_region arrived wait_arrived"),
    "ConnectionHandle.export_numbered": named("export_of_handle"),
    **each("ConnectionHandle", "handle", "set_receive_pool on_closed"),
    "FileClient.__new__": named("ask"),
    **each(
        "FileClient", "files", "status read_into list put get upload remove make_directory rename"
    ),
    "Streams.__new__": named("make_streams"),
    **each("Streams", "streams", "open accept watch"),
    "Streams.close": named("peers_streams.close"),
    "Stream.set_timeout": lambda it: it.stream().set_timeout,
    "Stream.write": lambda it: it.stream().write,
    "Stream.reset": lambda it: it.stream().reset,
    **each("Stream", "unread", "read readinto watch seek truncate"),
    "CastReceiver.__new__": named("receiver"),
    "CastReceiver.receive": named("receive"),
    "cast": named("cast"),
    "connect": lambda _: zerolane.connect,
}
"""What each public call is called on."""

AIO_ROWS: dict[str, Callable[[aio.Connection], Callable[..., Any]]] = {
    **of_connection("send recv_into put get fetch_op fetch_add compare_and_swap open_region"),
    **of_connection("send_message recv_message export export_named revoke revoke_region"),
    "aio.Connection.export_numbered": lambda it: export_of(it),
    "aio.Connection.__init__": lambda _: aio.Connection,
    "aio.Endpoint.__init__": lambda _: aio.Endpoint,
    "aio.Endpoint.export": lambda _: export_of_an_endpoint,
    "aio.Incoming.accept": lambda it: lambda **keywords: accept_of(it, **keywords),
    "aio.Streams.__init__": lambda it: lambda **keywords: streams_of(**keywords).abort(),
    "aio.Streams.open": lambda _: lambda **keywords: open_of(**keywords),
    "aio.Streams.accept": lambda _: lambda **keywords: accept_stream_of(**keywords),
    "aio.connect": lambda _: aio.connect,
}


def accept_of_none(timeout: float) -> zerolane.Connection:
    with zerolane.Endpoint("127.0.0.1:0") as endpoint:
        return endpoint.accept(timeout)


def incoming_of_none(timeout: float) -> object:
    with zerolane.Endpoint("127.0.0.1:0", Options(asks=True)) as endpoint:
        return endpoint.incoming(timeout)


def accept_of(connection: aio.Connection, **keywords: Any) -> None:
    incoming = aio.Incoming.__new__(aio.Incoming)
    incoming._begin(connection)
    try:
        incoming.accept(**keywords)
    finally:
        incoming._decided = True


def streams_of(role: Any = "connector", **_: Any) -> aio.Streams:
    """Streams of a connection that nobody uses."""
    connection, other = make_pair()
    try:
        return aio.Streams(connection, role)
    finally:
        connection.abort()
        other.abort()


def open_of(**keywords: Any) -> None:
    streams = streams_of()
    try:
        streams.open(**keywords)
    finally:
        streams.abort()


async def accept_stream_of(limit: int) -> object:
    streams = streams_of()
    try:
        return await streams.accept(limit=limit)
    finally:
        streams.abort()


def export_of(connection: aio.Connection) -> Callable[..., bool]:
    return lambda **keywords: connection.revoke(connection.export_numbered(**keywords))


def export_of_an_endpoint(name: str, region: zerolane.ExportedRegion, rights: int) -> None:
    with aio.Endpoint("127.0.0.1:0") as endpoint:
        endpoint.export(name, region, rights)


def good(place: Place, call: Call) -> dict[str, Any]:
    """Arguments that the call takes, for those that it needs."""
    of_handle = call.name.split(".")[0] in ("ConnectionHandle", "EndpointHandle")
    arguments = {
        "address": place.listening.local_addr if "connect" in call.name else "127.0.0.1:0",
        "buffer": bytearray(8),
        "bytes": bytes(place.key),
        "connection": 7,
        "control": b"control",
        "data": b"data",
        "endpoint": place.number,
        "expected": 0,
        "function": print,
        "id": 7,
        "index": 1,
        "interface": "no such",
        "key": place.handle_key if of_handle else place.key,
        "length": 8,
        "link": "127.0.0.1=127.0.0.1",
        "local": [0],
        "name": "name",
        "number": 7,
        "offset": 0,
        "op": FetchOp.increment(),
        "path": "file",
        "pending": place.receiving,
        "pieces": [(0, bytearray(8))],
        "pool": zerolane.ReceivePool(),
        "private_data": b"data",
        "queue": zerolane.CompletionQueue(4),
        "region": place.region,
        "request": place.receiving,
        "remote": [0],
        "rights": 7,
        "source": "/proc/self/comm",
        "role": "connector",
        "set": place.over,
        "size": 8,
        "spin": 0.0,
        "target": "/proc/no such/file",
        "timeout": 0.01,
        "token": 7,
        "value": 1,
        "what": "read",
    }
    needed = {
        "Options.__new__": [],
        "EthernetDevice.__new__": ["interface"],
        "CastReceiver.__new__": ["address"],
        "cast": ["buffer"],
        "CompletionQueue.__new__": [],
    }
    names = needed.get(call.name, [it for it in call.arguments if it in arguments])
    return {name: arguments[name] for name in names if OWN.get((call.name, name)) is not NONE}


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Ends a call that waits for so long, as Ctrl-C does."""

    def ring(_signal: int, _frame: FrameType | None) -> None:
        raise Waits

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def let_go(result: Any) -> None:
    """Closes what a call made."""
    if isinstance(result, zerolane.Pending):
        with suppress(*EXPECTED):
            let_go(result.wait(0.02))
        result.cancel()
    for name in ("abort", "close"):
        end = getattr(result, name, None)
        if end is not None:
            ended = end()
            if isinstance(ended, zerolane.Pending):
                ended.detach()
            break


def attempt(
    call: Callable[..., Any], arguments: dict[str, Any], seconds: float = 0.1
) -> Exception | None:
    """How ``call`` refuses the arguments; None if it does not."""
    result = None
    try:
        with limited(seconds):
            result = call(**arguments)
            if isinstance(result, zerolane.Pending):
                held, result = result, None
                try:
                    let_go(held.wait(0.02))
                except TimeoutError:
                    pass
                finally:
                    held.cancel()
    except EXPECTED as error:
        return error
    except Waits:
        return None
    finally:
        let_go(result)
    return None


def check(call: Call, argument: str, value: Any, refused: Exception | None, must: bool) -> None:
    shown = repr(value)[:60]
    if must:
        assert refused is not None, f"{call.name}({argument}={shown}) was not refused"
        assert not isinstance(refused, TimeoutError | zerolane.ConnectionEnded), (
            f"{call.name}({argument}={shown}): {refused!r}"
        )


def test_rows__are_those_of_the_public_calls() -> None:
    assert {it.name for it in CALLS} == {*ROWS, *AIO_ROWS}
    assert len(CALLS) > 80


@pytest.mark.parametrize("call", CALLS, ids=lambda it: it.name)
def test_call__with_extremes(call: Call) -> None:
    if call.name in AIO_ROWS:
        asyncio.run(in_a_loop(call))
        return
    with ExitStack() as stack:
        place = Place(stack)
        for argument in call.arguments:
            extremes = call.extremes(argument)
            for value in [*extremes.allowed, *extremes.refused]:
                arguments = {**good(place, call), argument: value}
                must = any(value is it for it in extremes.refused)
                refused = attempt(ROWS[call.name](place), arguments, 5 if must else 0.1)
                check(call, argument, value, refused, must)
        # The connections and the worker's thread live on.
        if call.name != "Connection.set_completion_queue":
            place.ours.set_timeout(20)
            # Pieces of a request may still wait for room.
            for _ in range(400):
                with suppress(zerolane.QueueFull):
                    assert place.ours.fetch_add(place.key, 8) >= 0
                    break
                place.ours.wait(timeout=0.05)
            else:
                pytest.fail("no room")
        assert place.handle.fetch_op(place.handle_key, 8, FetchOp.add(1)).wait(20).value >= 0


async def in_a_loop(call: Call) -> None:
    with ExitStack() as stack:
        place = Place(stack)
        endpoint = stack.enter_context(aio.Endpoint("127.0.0.1:0"))
        ours = await aio.connect(endpoint.local_addr)
        peers = await endpoint.accept()
        stack.callback(peers.abort)
        stack.callback(ours.abort)
        key = peers.export(place.region, Rights.ALL)
        for argument in call.arguments:
            extremes = call.extremes(argument)
            for value in [*extremes.allowed, *extremes.refused]:
                arguments = {**good(place, call), argument: value}
                if "key" in arguments:
                    arguments["key"] = key
                refused, result = None, None
                try:
                    result = AIO_ROWS[call.name](ours)(**arguments)
                    if isinstance(result, Awaitable):
                        result = await asyncio.wait_for(result, 0.05)
                except EXPECTED as error:
                    refused = error
                let_go(result)
                must = any(value is it for it in extremes.refused)
                check(call, argument, value, refused, must)
        assert await asyncio.wait_for(ours.fetch_add(key, 8), 20) >= 0


def test_limit__ends_what_waits() -> None:
    assert threading.current_thread() is threading.main_thread()
    assert attempt(lambda: Worker().wait(), {}) is None
