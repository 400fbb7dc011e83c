"""Tests messages: content, buffers of every kind, errors, threads, signals."""

import ctypes
import json
import mmap
import os
import subprocess
import sys
import tempfile
import threading
from array import array
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zerolane
from conftest import Pair, interrupt, is_exported, make_pair, pattern, serving


@pytest.mark.parametrize("length", [0, 1, 1473, 100_000, 5_000_000])
def test_send__arrives_as_it_was(pair: Pair, executor: ThreadPoolExecutor, length: int) -> None:
    ours, peers = pair
    data = pattern(length).tobytes()
    place = bytearray(length)
    receiving = executor.submit(peers.recv_into, place)
    ours.send(data)
    assert receiving.result() == length
    assert place == data


def test_buffers__of_every_kind(pair: Pair, executor: ThreadPoolExecutor) -> None:
    ours, peers = pair
    numbers = np.arange(3000, dtype=np.float64).reshape(50, 60)
    with tempfile.TemporaryFile() as file:
        file.truncate(24000)
        mapped = mmap.mmap(file.fileno(), 24000)
        anonymous = mmap.mmap(-1, 24000)
        places: list[Any] = [
            np.zeros((50, 60)),
            np.zeros((60, 50), order="F"),
            memoryview(bytearray(24000)),
            array("d", bytes(24000)),
            mapped,
            np.frombuffer(anonymous, dtype=np.uint8),
        ]
        for place in places:
            receiving = executor.submit(peers.recv_into, place)
            ours.send(numbers)
            assert receiving.result() == 24000
            del receiving
            # In the order of memory, which tobytes() would rearrange.
            memory = place.ravel(order="K").data if isinstance(place, np.ndarray) else place
            assert memoryview(memory).tobytes() == numbers.tobytes()
        del places, place, memory
        assert os.pread(file.fileno(), 24000, 0) == numbers.tobytes()


def test_buffers__that_will_not_do(pair: Pair) -> None:
    ours, _ = pair
    with pytest.raises(BufferError, match="contiguous"):
        ours.send(np.zeros((10, 10))[:, ::2])
    with pytest.raises(BufferError, match="read-only"):
        ours.post_recv(b"immutable")
    frozen = np.zeros(4)
    frozen.flags.writeable = False
    with pytest.raises(BufferError, match="read-only"):
        ours.recv_into(frozen)
    with pytest.raises(TypeError):
        ours.send("a text")  # type: ignore[arg-type]
    assert ours.in_flight == 0


def test_posted__many_in_flight_complete_in_order(pair: Pair, executor: ThreadPoolExecutor) -> None:
    ours, peers = pair
    sent = pattern(8 << 20).reshape(8, 1 << 20)
    places = [bytearray(1 << 20) for _ in sent]
    receives = [peers.post_recv(place) for place in places]

    def receive() -> list[zerolane.Completion]:
        completions = [peers.wait(timeout=30) for _ in receives]
        return [completion for completion in completions if completion is not None]

    receiving = executor.submit(receive)
    sends = [ours.post_send(row) for row in sent]
    done = [ours.wait(timeout=30) for _ in sends]
    assert [it.id for it in done if it is not None] == sends
    completions = receiving.result()
    assert [it.id for it in completions] == receives
    for row, place, completion in zip(sent, places, completions, strict=True):
        assert completion.result() == completion.length == 1 << 20
        assert completion.error is None
        assert completion.buffer is place
        assert place == row.tobytes()
    account = peers.account()
    assert account.bytes_placed + account.bytes_moved == 8 << 20
    counters = json.loads(account.json)
    assert (counters["lane"], counters["bytes_placed"]) == (account.lane, account.bytes_placed)
    assert counters["protocol"]["timeouts"] >= 0 and "\n" not in account.json


def test_exported__bytearray_cannot_be_resized_while_posted(pair: Pair) -> None:
    ours, _ = pair
    place = bytearray(1000)
    id = ours.post_recv(place)
    with pytest.raises(BufferError):
        place.append(1)
    with pytest.raises(BufferError):
        place.clear()
    assert ours.cancel(id)
    completion = ours.wait(timeout=10)
    assert completion is not None and completion.id == id
    assert isinstance(completion.error, zerolane.Cancelled)
    with pytest.raises(zerolane.Cancelled, match="cancelled"):
        completion.result()
    place.append(1)
    assert not ours.cancel(id)


@pytest.mark.parametrize("how", ["close", "abort", "drop"])
def test_exported__until_the_connection_ends(how: str) -> None:
    ours, peers = make_pair()
    place = bytearray(1000)
    ours.post_recv(place)
    with pytest.raises(BufferError):
        place.clear()
    if how == "drop":
        with pytest.warns(ResourceWarning, match="unclosed Connection"):
            del ours
    elif how == "abort":
        ours.abort()
    else:
        with ThreadPoolExecutor(1) as executor:
            closing = executor.submit(ours.close)
            with pytest.raises(zerolane.Closed):
                peers.wait(timeout=10)
            closing.result()
    place.clear()
    peers.abort()


def test_memory__lives_although_the_last_name_is_gone(
    pair: Pair, executor: ThreadPoolExecutor
) -> None:
    ours, peers = pair
    data = pattern(1 << 20)
    ours.post_send(data.copy())
    place = np.zeros_like(data)
    receiving = executor.submit(peers.recv_into, place)
    completion = ours.wait(timeout=10)
    assert completion is not None
    receiving.result()
    assert (place == data).all()
    assert isinstance(completion.buffer, np.ndarray)


def test_too_large__fails_both_and_nothing_else(pair: Pair, executor: ThreadPoolExecutor) -> None:
    ours, peers = pair
    small = bytearray(10)
    receiving = executor.submit(peers.recv_into, small)
    with pytest.raises(zerolane.MessageTooLarge, match="100"):
        ours.send(bytes(100))
    with pytest.raises(zerolane.RequestFailed):
        receiving.result()
    receiving = executor.submit(peers.recv_into, small)
    ours.send(b"fits")
    assert receiving.result() == 4
    assert small[:4] == b"fits"


def test_announced__tells_the_length(pair: Pair, executor: ThreadPoolExecutor) -> None:
    ours, peers = pair
    assert peers.announced(timeout=0.01) is None
    sending = executor.submit(ours.send, b"x" * 12345)
    length = peers.announced(timeout=10)
    assert length == 12345
    assert peers.recv_into(bytearray(length)) == 12345
    sending.result()


def test_close__ends_both_with_exceptions() -> None:
    ours, peers = make_pair()
    with ThreadPoolExecutor(1) as executor:
        closing = executor.submit(ours.close)
        with pytest.raises(zerolane.Closed) as caught:
            peers.recv_into(bytearray(1))
        closing.result()
    assert isinstance(caught.value, ConnectionError)
    ours.close()
    with pytest.raises(zerolane.ConnectionEnded):
        ours.send(b"too late")
    assert ours.in_flight == 0
    peers.abort()


def test_with__closes_and_aborts() -> None:
    ours, peers = make_pair()
    with ThreadPoolExecutor(1) as executor, peers:
        receiving = executor.submit(peers.recv_into, bytearray(5))
        with ours:
            ours.send(b"hello")
        assert receiving.result() == 5
    with pytest.raises(zerolane.Closed):
        ours.poll()
    ours, peers = make_pair()
    with pytest.raises(KeyError), ours:
        raise KeyError
    with pytest.raises(zerolane.Closed):
        peers.wait(timeout=10)
    peers.abort()


def test_threads__others_get_in_while_one_waits(pair: Pair, executor: ThreadPoolExecutor) -> None:
    ours, peers = pair
    waiting = executor.submit(ours.wait)
    for number in range(50):
        place = bytearray(4)
        receiving = executor.submit(peers.recv_into, place)
        ours.send(number.to_bytes(4))
        assert receiving.result() == 4
        assert int.from_bytes(place) == number
    assert not waiting.done(), "the ends of blocking sends are their own"
    posted = ours.post_send(b"posted")
    assert peers.recv_into(bytearray(6)) == 6
    completion = waiting.result()
    assert completion is not None and completion.id == posted
    waiting = executor.submit(ours.wait)
    ours.wake()
    assert waiting.result() is None


def test_wait_for__takes_that_completion_and_leaves_the_others(
    pair: Pair, executor: ThreadPoolExecutor
) -> None:
    ours, peers = pair
    places = [bytearray(8) for _ in range(4)]
    ids = [ours.post_recv(place, context=n) for n, place in enumerate(places)]
    assert ours.wait_for(ids[0], timeout=0) is None, "nothing was sent"
    ours.wake()
    assert ours.wait_for(ids[0]) is None
    with serving(peers):
        sent = [peers.post_send(n.to_bytes(8)) for n in range(3)]
        for n in (2, 0):
            completion = ours.wait_for(ids[n], timeout=20)
            assert completion is not None
            assert (completion.id, completion.context, completion.result()) == (ids[n], n, 8)
            assert int.from_bytes(places[n]) == n
        receiving = executor.submit(ours.wait_for, ids[3])
        peers.post_send((3).to_bytes(8))
        completion = receiving.result()
        assert completion is not None and int.from_bytes(places[3]) == 3
        completion = ours.wait(timeout=20)
        assert completion is not None and completion.id == ids[1]
        for gone in [*ids, *sent, 0, 2**64 - 1]:
            with pytest.raises(ValueError, match="no request"):
                ours.wait_for(gone)
    late = ours.post_recv(bytearray(8))
    peers.abort()
    completion = ours.wait_for(late, timeout=20)
    assert completion is not None and isinstance(completion.error, zerolane.Closed)


def test_wait_for__finds_what_another_call_received(pair: Pair) -> None:
    ours, peers = pair
    posted = ours.post_recv(bytearray(8))
    with serving(peers):
        peers.post_send(bytes(8))
        peers.post_send(bytes(5))
        # This one takes the completion of the first.
        assert ours.recv_into(bytearray(5)) == 5
        completion = ours.wait_for(posted, timeout=0)
        assert completion is not None and completion.result() == 8


def test_wait__other_threads_run_meanwhile(pair: Pair) -> None:
    ours, _ = pair
    counted = 0
    stop = threading.Event()

    def count() -> None:
        nonlocal counted
        while not stop.is_set():
            counted += 1

    thread = threading.Thread(target=count)
    thread.start()
    # With the interpreter held, it would count to a handful before and after. The machine may
    # hold it up, but not each time.
    for _ in range(10):
        before = counted
        assert ours.wait(timeout=0.3) is None
        meanwhile = counted - before
        if meanwhile > 1000:
            break
    stop.set()
    thread.join()
    assert meanwhile > 1000


def test_interrupt__frees_the_buffer_and_the_connection_goes_on(
    pair: Pair, executor: ThreadPoolExecutor
) -> None:
    ours, peers = pair
    place = bytearray(100)
    with pytest.raises(KeyboardInterrupt), interrupt():
        ours.recv_into(place)
    place.clear()
    place = bytearray(4)
    sending = executor.submit(peers.send, b"next")
    assert ours.recv_into(place) == 4
    sending.result()
    assert place == b"next"


INTERRUPTED = {
    "close": """
ours, peers = make_pair(patient)
place = bytearray(1 << 20)
ours.post_send(place)
interrupted(ours.close)
assert not is_exported(place)
try:
    while True:
        peers.wait(timeout=20)
except zerolane.ConnectionEnded:
    pass
""",
    "connect": """
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
    silent.bind(("127.0.0.1", 0))
    interrupted(lambda: zerolane.connect(silent.getsockname(), patient))
""",
    "stop": """
ours, peers = make_pair(patient)
worker = zerolane.Worker().spawn()
handle = worker.adopt(ours).wait(20)
sending = handle.send(bytes(1 << 20))
interrupted(worker.stop)
""",
}

INTERRUPTING = """
import socket
import zerolane
from conftest import interrupt, is_exported, make_pair
patient = zerolane.Options(idle_timeout=3600, connect_timeout=3600)
def interrupted(call):
    try:
        with interrupt():
            call()
    except KeyboardInterrupt:
        return
    raise AssertionError("it was not interrupted")
"""


@pytest.mark.parametrize("call", INTERRUPTED)
def test_interrupt__ends_what_waits_for_a_silent_peer(call: str) -> None:
    # In a process that can be ended: what is not interrupted takes an hour.
    waiting = [sys.executable, "-c", INTERRUPTING + INTERRUPTED[call]]
    assert subprocess.run(waiting, cwd=Path(__file__).parent, timeout=60).returncode == 0


def test_close__tells_whether_the_peer_has_all() -> None:
    ours, peers = make_pair()
    peers.post_recv(bytearray(4))
    ours.post_send(b"sent")
    with serving(peers):
        ours.close()
    peers.abort()
    ours, peers = make_pair(zerolane.Options(idle_timeout=0.3))
    place = bytearray(1 << 20)
    ours.post_send(place)
    with pytest.raises(zerolane.ConnectionEnded):
        ours.close()
    assert not is_exported(place)
    peers.abort()


def test_endpoint__bad_addresses_and_timeouts() -> None:
    with zerolane.Endpoint(("127.0.0.1", 0)) as endpoint:
        host, port = endpoint.local_addr
        assert host == "127.0.0.1" and port > 0
        with pytest.raises(TimeoutError):
            endpoint.accept(timeout=0.01)
        with pytest.raises(ValueError, match="not a time"):
            endpoint.accept(timeout=-1)
    with pytest.raises(ValueError, match="closed"):
        endpoint.accept(timeout=1)
    options = zerolane.Options(connect_timeout=0.2)
    with pytest.raises(zerolane.ConnectionEnded) as caught:
        zerolane.connect((host, port), options)
    assert isinstance(caught.value, ConnectionError)
    for address, match in [
        ("no port here", "has no port: an address is HOST:PORT"),
        ("::1", r"an address is \[::1\]:PORT"),
        ("127.0.0.1:65536", '"65536" in "127.0.0.1:65536" is not a port'),
        (("127.0.0.1", 65536), "65536 is not a port"),
        (("127.0.0.1", -1), "-1 is not a port"),
    ]:
        for make in (zerolane.Endpoint, zerolane.connect):
            with pytest.raises(ValueError, match=match):
                make(address)  # type: ignore[arg-type]
    with pytest.raises(OSError, match=r'host "no-such-host\.invalid"'):
        zerolane.connect("no-such-host.invalid:1")
    with pytest.raises(TypeError, match="host:port"):
        zerolane.Endpoint(7)  # type: ignore[arg-type]
    for time in (float("nan"), -1.0, 0.0):
        with pytest.raises(ValueError, match=r"idle.timeout"):
            zerolane.Options(idle_timeout=time)
    with pytest.raises(ValueError, match="connect timeout"):
        zerolane.Options(connect_timeout=0)


@pytest.mark.parametrize("setting", ["receive_buffer", "max_in_flight"])
def test_options__say_what_a_number_may_be(setting: str) -> None:
    for size in (0, 4095, (1 << 30) + 1):
        why = f"{setting.replace('_', ' ')} is {size}: use 4096 to"
        with pytest.raises(ValueError, match=why):
            zerolane.Options(**{setting: size})  # type: ignore[arg-type]
    for size in (4096, 1 << 30):
        zerolane.Options(**{setting: size})  # type: ignore[arg-type]


def test_timeout__that_no_clock_counts_to_is_none(executor: ThreadPoolExecutor) -> None:
    for long in (1e300, float("inf"), 1e19):
        options = zerolane.Options(idle_timeout=long, connect_timeout=long)
        with zerolane.Endpoint("127.0.0.1:0", options) as endpoint:
            connecting = executor.submit(zerolane.connect, endpoint.local_addr, options)
            peers = endpoint.accept(timeout=long)
            ours = connecting.result()
        ours.set_timeout(long)
        receiving = executor.submit(peers.wait, long)
        peers.post_recv(bytearray(5))
        ours.send(b"hello")
        completion = receiving.result()
        assert completion is not None and completion.memory is not None
        assert completion.memory.tobytes() == b"hello"
        ours.abort()
        peers.abort()
        queue = zerolane.CompletionQueue(4)
        assert queue.wait(timeout=0) is None


def test_buffers__of_one_element_and_of_ctypes(pair: Pair, executor: ThreadPoolExecutor) -> None:
    ours, peers = pair
    words = ctypes.c_int32 * 4
    number = np.array(0.0)
    kinds: list[tuple[Any, Any, Callable[[Any], Any]]] = [
        (words(), words(1, 2, 3, 4), lambda it: list(it) == [1, 2, 3, 4]),
        (number, np.array(7.5), lambda it: it == 7.5),
        (ctypes.c_uint64(), ctypes.c_uint64(2**40), lambda it: it.value == 2**40),
        (
            np.zeros((), dtype="i4,f8"),
            np.array((3, 0.5), dtype="i4,f8"),
            lambda it: it["f1"] == 0.5,
        ),
    ]
    for place, sent, got in kinds:
        receiving = executor.submit(peers.recv_into, place)
        ours.send(sent)
        assert receiving.result() == memoryview(sent).nbytes and got(place)
        peers.post_recv(place)
        waiting = executor.submit(peers.wait, 20)
        ours.send(sent)
        completion = waiting.result()
        assert completion is not None and completion.memory is not None
        assert completion.memory.nbytes == memoryview(sent).nbytes
    with zerolane.ExportedRegion((ctypes.c_uint64 * 2)()) as region:
        assert region.length == 16


def test_buffers__of_python_objects_are_refused(pair: Pair) -> None:
    ours, peers = pair
    key = peers.export(zerolane.ExportedRegion(bytearray(64)), zerolane.Rights.ALL)
    named = np.zeros(8, dtype=[("O", "i8"), ("TO{", "f8")])
    ours.post_send(named)
    ours.post_send(np.zeros(4, dtype=[("a", "c8"), ("b", "c16")]))
    arrays: list[Any] = [
        np.array([None, "a"], dtype=object),
        np.zeros(4, dtype=[("a", "i8"), ("b", object)]),
        np.zeros(4, dtype=[("a", [("b", "f4"), ("c", object)])]),
        np.array(None, dtype=object),
        (ctypes.py_object * 2)(),
        (ctypes.c_char_p * 2)(),
        (ctypes.c_wchar_p * 2)(),
        (ctypes.POINTER(ctypes.c_int) * 2)(),
        (ctypes.CFUNCTYPE(None) * 2)(),
    ]
    calls: list[Callable[[Any], object]] = [
        ours.send,
        lambda it: ours.send([b"before", it]),
        ours.post_send,
        ours.recv_into,
        ours.post_recv,
        lambda it: ours.send_message(b"m", it),
        lambda it: ours.recv_message(it),
        lambda it: ours.put(key, 0, it),
        lambda it: ours.get(key, 0, it),
        lambda it: ours.post_put(key, 0, it),
        lambda it: ours.post_get(key, 0, it),
        lambda it: ours.post_put_vectored(key, [(0, it)]),
        lambda it: ours.post_get_vectored(key, [(0, it)]),
        zerolane.ExportedRegion,
        lambda it: zerolane.CastReceiver("127.0.0.1:0", it),
        lambda it: zerolane.cast(it, ["127.0.0.1:1"]),
    ]
    for objects in [*arrays, memoryview(arrays[0])]:
        for take in calls:
            with pytest.raises(TypeError, match="Python objects"):
                take(objects)
    assert ours.in_flight == 2


def test_documented__every_public_thing() -> None:
    for name in zerolane.__all__:
        thing = getattr(zerolane, name)
        assert thing.__doc__, name
        for member, value in vars(thing).items() if isinstance(thing, type) else []:
            if not member.startswith("_") and callable(value):
                assert value.__doc__, f"{name}.{member}"


@pytest.mark.parametrize("call", ["post_send", "post_recv"])
def test_post__refused_leaves_the_buffer_free(pair: Pair, call: str) -> None:
    ours, _ = pair
    posted = []
    while True:
        buffer = bytearray(b"content")
        try:
            getattr(ours, call)(buffer)
        except zerolane.QueueFull:
            break
        posted.append(buffer)
    assert buffer == b"content"
    # Not exported any more, as the posted ones are.
    buffer.clear()
    with pytest.raises(BufferError):
        posted[0].clear()


def test_delivery__wakes_as_the_sender_asks(pair: Pair, executor: ThreadPoolExecutor) -> None:
    ours, peers = pair
    peers.honour_delivery(True)
    places = [bytearray(10_000) for _ in range(3)]
    ids = [peers.post_recv(place) for place in places]

    def send() -> None:
        ours.send(pattern(10_000), delivery="silent")
        ours.send(pattern(10_000), delivery="polled")
        ours.send(pattern(10_000))

    sending = executor.submit(send)
    received: list[zerolane.Completion] = []
    wake_ups = 0
    while len(received) < 3:
        completion = peers.wait(timeout=20)
        assert completion is not None
        wake_ups += 1
        while completion is not None:
            received.append(completion)
            completion = peers.wait(timeout=0)
    sending.result()
    assert wake_ups == 1
    assert [it.id for it in received] == ids
    assert [it.delivery for it in received] == ["silent", "polled", "interrupt"]
    assert all(place == pattern(10_000).tobytes() for place in places)


def test_delivery__a_call_that_waits_for_its_own_returns(
    pair: Pair, executor: ThreadPoolExecutor
) -> None:
    ours, peers = pair
    for delivery in ("silent", "polled", "interrupt"):
        place = bytearray(10_000)
        receiving = executor.submit(peers.recv_into, place)
        ours.send(pattern(10_000), delivery=delivery)
        assert receiving.result(timeout=20) == 10_000
        assert place == pattern(10_000).tobytes()


def test_delivery__silent_wakes_a_receiver_that_did_not_choose_otherwise(
    pair: Pair, executor: ThreadPoolExecutor
) -> None:
    ours, peers = pair
    id = peers.post_recv(bytearray(10_000))
    sending = executor.submit(ours.send, pattern(10_000), delivery="silent")
    completion = peers.wait(timeout=20)
    assert completion is not None and completion.id == id
    sending.result()


def test_delivery__silent_is_deferred_until_asked_for(
    pair: Pair, executor: ThreadPoolExecutor
) -> None:
    ours, peers = pair
    peers.honour_delivery(True)
    place = bytearray(10_000)
    id = peers.post_recv(place)
    sending = executor.submit(ours.send, pattern(10_000), delivery="silent")
    while peers.in_flight > 0:
        assert peers.wait(timeout=0.001) is None
    assert peers.poll() is None
    assert peers.notify(id)
    completion = peers.wait(timeout=20)
    assert completion is not None and completion.id == id
    assert not peers.notify(id)
    sending.result()
    with pytest.raises(ValueError, match="silent, polled or interrupt"):
        ours.post_send(b"x", delivery="loud")  # type: ignore[arg-type]
