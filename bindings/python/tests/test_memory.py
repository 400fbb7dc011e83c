"""Tests remote memory: put, get, fetch-op, rights, revocation, messages, completion queues."""

import mmap
import os
import select
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zerolane
from conftest import Pair, serving
from zerolane import FetchOp, Key, Rights


def test_put_get__any_place_and_length(pair: Pair) -> None:
    ours, peers = pair
    memory = np.zeros(3_000_000, dtype=np.uint8)
    expected = memory.copy()
    random = np.random.default_rng(1)
    region = zerolane.ExportedRegion(memory)
    key = peers.export(region, Rights.READ | Rights.WRITE)
    assert key.length == memory.nbytes
    with serving(peers):
        for offset, length in [(0, 0), (1, 1), (7, 8), (4095, 2), (123, 1473), (999, 2_500_000)]:
            data = random.integers(0, 256, length, dtype=np.uint8)
            expected[offset : offset + length] = data
            ours.put(key, offset, data)
            back = np.zeros_like(data)
            ours.get(key, offset, back)
            assert (back == data).all()
        assert (memory == expected).all()


def test_key__travels_as_bytes(pair: Pair) -> None:
    ours, peers = pair
    memory = bytearray(64)
    key = peers.export(zerolane.ExportedRegion(memory), Rights.WRITE)
    again = zerolane.Key.from_bytes(bytes(key))
    assert again == key and hash(again) == hash(key) and again.length == 64
    with serving(peers):
        ours.put(again, 3, b"hello")
    assert memory[3:8] == b"hello"
    with pytest.raises(ValueError, match="key"):
        zerolane.Key.from_bytes(b"\xff" * 24)
    with pytest.raises((ValueError, TypeError)):
        zerolane.Key.from_bytes(b"short")


def test_key__of_a_number_is_made_by_the_peer(pair: Pair) -> None:
    ours, peers = pair
    memory = bytearray(64)
    region = zerolane.ExportedRegion(memory)
    with pytest.raises(ValueError, match="24"):
        peers.export_numbered(2**24, region, Rights.WRITE)
    exported = peers.export_numbered(7, region, Rights.WRITE)
    assert exported.to_int() == 7 << 40 and exported.length == 64
    with pytest.raises(ValueError, match="already"):
        peers.export_numbered(7, region, Rights.READ)
    key = zerolane.Key.numbered(7, 3)
    assert key.to_int() == (7 << 40) + 3
    assert zerolane.Key.from_int(key.to_int()) == key
    with pytest.raises(ValueError, match="offset"):
        zerolane.Key.numbered(7, 2**40).to_int()
    with serving(peers):
        ours.put(key, 0, b"hello")
        with pytest.raises(zerolane.Denied):
            ours.get(key, 0, bytearray(1))
        with pytest.raises(zerolane.OutOfBounds):
            ours.put(key, 61, b"x")
        with pytest.raises(zerolane.UnknownRegion):
            ours.put(zerolane.Key.numbered(8), 0, b"x")
    assert memory[3:8] == b"hello"
    assert peers.revoke(key) and not peers.revoke(exported)


def test_refused__and_the_connection_goes_on(pair: Pair) -> None:
    ours, peers = pair
    memory = bytearray(64)
    region = zerolane.ExportedRegion(memory)
    peers.export_named("readable", region, Rights.READ)
    all_key = peers.export(region, Rights.ALL)
    with serving(peers):
        with pytest.raises(zerolane.UnknownRegion):
            ours.open_region("no such name", Rights.READ)
        with pytest.raises(zerolane.Denied):
            ours.open_region("readable", Rights.WRITE)
        key = ours.open_region("readable", Rights.READ)
        with pytest.raises(zerolane.Denied):
            ours.put(key, 0, b"x")
        for offset in (64, 2**64 - 1):
            with pytest.raises(zerolane.OutOfBounds):
                ours.get(key, offset, bytearray(1))
        with pytest.raises(OverflowError):
            ours.get(key, -1, bytearray(1))
        with pytest.raises(ValueError, match="multiple of 8"):
            ours.fetch_add(all_key, 4)
        for name, why in [
            ("a name of more than thirty-two bytes", "1 to 32 bytes, not 36"),
            ("", "1 to 32 bytes, not 0"),
            ("readable\0", "no NUL, as byte 8"),
        ]:
            with pytest.raises(ValueError, match=why):
                ours.open_region(name, Rights.READ)
            with pytest.raises(ValueError, match=why):
                ours.export_named(name, region, Rights.READ)
        with pytest.raises(ValueError, match="rights"):
            ours.open_region("readable", 8)
        ours.put(all_key, 0, b"still here")
    assert memory[:10] == b"still here"


@pytest.mark.parametrize("bits", [64, 32])
def test_fetch_op__every_kind_on_both_sizes(pair: Pair, bits: Any) -> None:
    ours, peers = pair
    region = zerolane.ExportedRegion(bytearray(32))
    key = peers.export(region, Rights.ATOMIC)
    offset = 12 if bits == 32 else 8
    steps = [
        (FetchOp.add(-1, bits=bits), 0),
        (FetchOp.increment(bits=bits), 2**bits - 1),
        (FetchOp.decrement(bits=bits), 0),
        (FetchOp.and_(0b1101, bits=bits), 2**bits - 1),
        (FetchOp.or_(0b10, bits=bits), 0b1101),
        (FetchOp.xor(0b110, bits=bits), 0b1111),
        (FetchOp.min(8, bits=bits), 9),
        (FetchOp.max(2**bits - 1, bits=bits), 8),
        (FetchOp.swap(4, bits=bits), 2**bits - 1),
        (FetchOp.compare_and_swap(5, 6, bits=bits), 4),
        (FetchOp.compare_and_swap(4, 7, bits=bits), 4),
        (FetchOp.clear(bits=bits), 7),
    ]
    with serving(peers):
        for op, before in steps:
            assert ours.fetch_op(key, offset, op) == before, op
            region.store(0, 0)
            if before < 2 ** (bits - 1):
                region.fetch_op(0, FetchOp.swap(before, bits=bits))
                region.fetch_op(0, op)
                now = region.fetch_op(offset, FetchOp.or_(0, bits=bits))
                assert region.fetch_op(0, FetchOp.or_(0, bits=bits)) == now, op
        assert region.load(16) == 0
        with pytest.raises(IndexError):
            region.fetch_op(32, FetchOp.clear(bits=bits))
    with pytest.raises(OverflowError, match=f"{bits} bits"):
        FetchOp.add(2**bits, bits=bits)
    with pytest.raises(ValueError, match="64 or 32"):
        FetchOp.clear(bits=16)  # type: ignore[arg-type]


def test_revoke__frees_the_buffer_at_once(pair: Pair) -> None:
    ours, peers = pair
    memory = bytearray(64)
    region = zerolane.ExportedRegion(memory)
    key = peers.export(region, Rights.ALL)
    with pytest.raises(BufferError):
        memory.append(1)
    with serving(peers):
        ours.put(key, 0, b"before")
        region.revoke()
        assert region.revoked
        memory.append(1)
        memory[:6] = b"theirs"
        with pytest.raises(zerolane.Revoked):
            ours.put(key, 0, b"after!")
        assert memory[:6] == b"theirs"
        with pytest.raises(zerolane.Revoked):
            region.load(0)
        with pytest.raises(zerolane.Revoked):
            peers.export(region, Rights.READ)
        region.revoke()


LENT = """
import re
from pathlib import Path
import zerolane
from conftest import make_pair, serving
from zerolane import Rights

LENGTH = 64 << 20


def peak():
    said = re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())
    return int(said[1]) * 1024


def mappings():
    "How often this process has the lent memory mapped: both ends are here."
    lines = Path("/proc/self/maps").read_text().splitlines()
    ends = [it.split()[0].split("-") for it in lines if "/memfd:zerolane" in it]
    return sum(int(end, 16) - int(start, 16) == LENGTH for start, end in ends)


ours, peers = make_pair(zerolane.Options(lane="shared_memory"))
region = zerolane.ExportedRegion.memfd(LENGTH)
key = peers.export(region, Rights.ALL)
with serving(peers):
    # Until the peer's memory is mapped, which takes a turn of both ends.
    for _ in range(10_000):
        ours.get(key, 0, bytearray(8))
        if ours.account().direct_operations:
            break
    assert mappings() == 2
    before = peak()
    region.revoke()
    assert peak() - before < LENGTH // 2, peak() - before
    assert region.revoked and mappings() < 2
    try:
        ours.get(key, 0, bytearray(8))
    except zerolane.Revoked:
        pass
    else:
        raise AssertionError("it is there")
ours.abort()
peers.abort()
assert mappings() == 0
"""


def test_revoke__of_lent_memory_frees_it_without_a_copy() -> None:
    # In a process of its own: here, other tests have had more memory.
    lent = [sys.executable, "-c", LENT]
    subprocess.run(lent, cwd=Path(__file__).parent, check=True, timeout=120)


def test_revoke__on_one_connection(pair: Pair) -> None:
    ours, peers = pair
    with zerolane.ExportedRegion(bytearray(64)) as region:
        key = peers.export(region, Rights.ALL)
        other = peers.export(region, Rights.ALL)
        with serving(peers):
            assert peers.revoke(key)
            assert not peers.revoke(key)
            with pytest.raises(zerolane.RequestFailed):
                ours.put(key, 0, b"x")
            ours.put(other, 0, b"x")
    assert region.revoked


def test_revoke_region__all_of_it_on_one_connection(pair: Pair) -> None:
    ours, peers = pair
    region, kept = (zerolane.ExportedRegion(bytearray(64)) for _ in range(2))
    keys = [peers.export(region, Rights.ALL), peers.export_named("m", region, Rights.ALL)]
    other = peers.export(kept, Rights.ALL)
    with serving(peers):
        assert peers.revoke_region(region) and not peers.revoke_region(region)
        for key in keys:
            with pytest.raises(zerolane.RequestFailed):
                ours.put(key, 0, b"x")
        ours.put(other, 0, b"x")
    assert not region.revoked, "it is exported elsewhere, for all that is known here"
    region.revoke()
    with pytest.raises(zerolane.Revoked):
        peers.revoke_region(region)


def test_export__needs_writable_aligned_memory() -> None:
    with pytest.raises(BufferError, match="read-only"):
        zerolane.ExportedRegion(b"bytes")
    memory = np.zeros(64, dtype=np.uint8)
    with pytest.raises(ValueError, match="multiple of 8"):
        zerolane.ExportedRegion(memory[1:])
    region = zerolane.ExportedRegion(memory)
    for offset in (4, 64, 2**63):
        with pytest.raises(IndexError):
            region.load(offset)


def test_fetch_add__of_many_and_of_the_owner_loses_nothing(
    pair: Pair, executor: ThreadPoolExecutor
) -> None:
    ours, peers = pair
    memory = np.zeros(8, dtype=np.uint64)
    region = zerolane.ExportedRegion(memory)
    key = peers.export(region, Rights.ATOMIC)

    def add() -> list[int]:
        return [ours.fetch_add(key, 16) for _ in range(300)]

    with serving(peers):
        adding = [executor.submit(add), executor.submit(add)]
        own = [region.fetch_add(16) for _ in range(400)]
        seen = own + [value for it in adding for value in it.result()]
        assert sorted(seen) == list(range(1000)), "each value once"
        assert region.load(16) == 1000 == memory[2]
        assert ours.fetch_add(key, 16, -1000) == 1000
        assert ours.swap(key, 16, 2**64 - 1) == 0
        assert ours.compare_and_swap(key, 16, 5, 6) == 2**64 - 1
        assert ours.compare_and_swap(key, 16, 2**64 - 1, 6) == 2**64 - 1
        assert ours.fetch_clear(key, 16) == 6
        region.store(16, 9)
        assert ours.fetch_add(key, 16, 0) == 9
        with pytest.raises(OverflowError):
            ours.fetch_add(key, 16, 2**64)


def test_posted__pieces_fence_and_immediate(pair: Pair, executor: ThreadPoolExecutor) -> None:
    ours, peers = pair
    memory = np.zeros(1 << 16, dtype=np.uint8)
    key = peers.export(zerolane.ExportedRegion(memory), Rights.ALL)
    told = executor.submit(peers.wait, 30)
    pieces: list[tuple[int, Any]] = [
        (8, b"a" * 8),
        (1000, np.full(50_000, 7, dtype=np.uint8)),
        (64, b"last"),
    ]
    put = ours.post_put_vectored(key, pieces, immediate=77)
    fetch = ours.post_fetch_op(key, 8, FetchOp.add(1), fence=True)
    places = [bytearray(4), bytearray(3)]
    completions: dict[int, zerolane.Completion] = {}
    immediate = None
    while len(completions) < 2:
        completion = ours.wait(timeout=0.05)
        if completion is not None:
            completions[completion.id] = completion
        if immediate is None and told.done():
            immediate = told.result()
            told = executor.submit(peers.wait, 30)
    if immediate is None:
        immediate = told.result()
        told = executor.submit(peers.wait, 30)
    assert completions[put].kind == "put" and completions[put].result() == 50_012
    assert completions[fetch].value == int.from_bytes(b"a" * 8, "little")
    assert immediate is not None
    assert (immediate.kind, immediate.value, immediate.id) == ("immediate", 77, 0)
    # Those of the last piece.
    assert (immediate.region, immediate.length) == (key, 4)
    assert (memory[1000:51_000] == 7).all() and bytes(memory[64:68]) == b"last"
    get = ours.post_get_vectored(key, [(64, places[0]), (1000, places[1])])
    with pytest.raises(BufferError):
        places[0].clear()
    completion = ours.wait(timeout=30)
    assert completion is not None and completion.id == get
    assert places == [b"last", b"\7\7\7"]
    places[0].clear()
    peers.wake()
    told.result()


def test_messages__control_and_payload(pair: Pair, executor: ThreadPoolExecutor) -> None:
    ours, peers = pair
    receiving = executor.submit(peers.recv_message)
    ours.send_message(b"only control")
    assert receiving.result() == (b"only control", None)
    payload = np.arange(100_000)
    place = np.zeros_like(payload)
    receiving = executor.submit(peers.recv_message, place)
    ours.send_message(b"x" * 128, payload)
    control, memory = receiving.result()
    assert control == b"x" * 128 and memory is not None
    assert memory.nbytes == payload.nbytes and np.shares_memory(memory, place)
    assert (place == payload).all()
    with pytest.raises(ValueError, match="128"):
        ours.send_message(b"x" * 129)
    receive = peers.post_message_recv()
    waiting = executor.submit(peers.wait, 30)
    ours.send_message(b"posted")
    completion = waiting.result()
    assert completion is not None and completion.id == receive
    assert completion.control == b"posted" and completion.kind == "message_received"


def test_completion_queue__of_more_than_memory_is_an_error() -> None:
    for capacity in (2**40, 2**63 - 1):
        with pytest.raises(MemoryError, match=f"a queue of {capacity} completions"):
            zerolane.CompletionQueue(capacity)


def test_memfd__lengths_that_cannot_be() -> None:
    with pytest.raises(ValueError, match="at least 1 byte"):
        zerolane.ExportedRegion.memfd(0)
    # More than a file may have: were the system asked, it would take nothing for that.
    with pytest.raises(MemoryError, match="the system has"):
        zerolane.ExportedRegion.memfd(2**63 - 1)


def test_exported__a_mapped_file_that_shrank_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(1 << 20))
    with (
        path.open("r+b") as file,
        mmap.mmap(file.fileno(), 0) as mapped,
        zerolane.ExportedRegion(mapped) as region,
    ):
        region.write(1 << 19, b"there")
        file.truncate(4096)
        with pytest.raises(zerolane.MemoryFault):
            region.read(1 << 19, 5)
        with pytest.raises(zerolane.MemoryFault):
            region.write(1 << 19, b"gone")
        assert region.read(0, 5) == bytes(5)


def test_revoke__of_two_threads_is_over_for_both(executor: ThreadPoolExecutor) -> None:
    for _ in range(100):
        memory = bytearray(4096)
        region = zerolane.ExportedRegion(memory)
        for it in [executor.submit(region.revoke) for _ in range(2)]:
            it.result()
            memory.append(0)
        assert region.revoked


# Puts over and over into a region of the parent, which stops it amid one of the puts and revokes
# the region. Then it prints the content of the last put that succeeded, and takes the next region.
PUTS = """
import itertools
import sys
import zerolane
from zerolane import Rights

connection = zerolane.connect(sys.argv[1], zerolane.Options(lane="shared_memory"))


def opened(name):
    while True:
        try:
            return connection.open_region(name, Rights.READ | Rights.WRITE)
        except zerolane.UnknownRegion:
            # It is not exported yet.
            pass


for number in itertools.count():
    key = opened(str(number))
    # Until it is mapped here, which takes a turn of both ends.
    before = connection.account().direct_operations
    while connection.account().direct_operations == before:
        connection.get(key, 0, bytearray(8))
    content = 0
    try:
        while True:
            following = content % 250 + 1
            connection.put(key, 0, bytes([following]) * key.length)
            content = following
    except zerolane.Revoked:
        print(content, flush=True)
"""


def put_ends_amid_a_revoke(
    accepted: zerolane.Connection, name: str, putting: subprocess.Popen[str]
) -> bool:
    """Whether a put succeeds that is stopped, and goes on once the region is seen to be revoked."""
    length = 256 << 10
    region = zerolane.ExportedRegion.memfd(length)
    accepted.export_named(name, region, Rights.READ | Rights.WRITE)

    def content() -> tuple[int, int]:
        return region.read(0, 1)[0], region.read(length - 1, 1)[0]

    first = last = 0
    while first == last:
        assert putting.poll() is None
        if content() == (0, 0):
            continue
        putting.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, putting.pid, os.WSTOPPED)
        first, last = content()
        if first == last:
            putting.send_signal(signal.SIGCONT)
    revoking = threading.Thread(target=region.revoke)
    revoking.start()
    while not region.revoked:
        pass
    putting.send_signal(signal.SIGCONT)
    revoking.join()
    assert putting.stdout is not None
    # The put's first bytes are there, and behind them those of the put before.
    return int(putting.stdout.readline()) == first


def test_revoke__is_seen_by_other_threads_while_it_waits_for_a_peer() -> None:
    options = zerolane.Options(lane="shared_memory", idle_timeout=60)
    with zerolane.Endpoint("127.0.0.1:0", options) as endpoint:
        host, port = endpoint.local_addr
        command = [sys.executable, "-c", PUTS, f"{host}:{port}"]
        putting = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            accepted = endpoint.accept(timeout=60)
            with serving(accepted):
                # The put must end before the wait for it: not at every attempt on a busy machine.
                # If this thread waited as well, it would let the put go on too late every time.
                attempts = (put_ends_amid_a_revoke(accepted, str(n), putting) for n in range(300))
                assert any(attempts)
            accepted.abort()
        finally:
            putting.kill()
            putting.communicate()


def test_export__of_one_more_than_there_can_be(pair: Pair) -> None:
    ours, _ = pair
    with zerolane.ExportedRegion(bytearray(8)) as region:
        for _ in range(65_536):
            ours.export(region, Rights.READ)
        with pytest.raises(zerolane.QueueFull, match="65536 regions are exported"):
            ours.export(region, Rights.READ)


def test_completion_queue__of_a_connection(pair: Pair, executor: ThreadPoolExecutor) -> None:
    ours, peers = pair
    queue = zerolane.CompletionQueue(4)
    peers.set_completion_queue(queue, tag=5)
    assert queue.poll() is None and queue.wait(timeout=0.01) is None
    places = [bytearray(3) for _ in range(6)]
    receives = [peers.post_recv(place) for place in places]
    with pytest.raises(RuntimeError, match="queue"):
        peers.send(b"blocking")
    for _ in places:
        ours.post_send(b"abc")
    with serving(peers), serving(ours):
        poller = select.poll()
        poller.register(queue.fileno(), select.POLLIN)
        assert poller.poll(10_000)
        done = [queue.wait(timeout=10) for _ in places]
    assert [it[0] for it in done if it is not None] == [5] * 6
    assert [it[1].id for it in done if it is not None] == receives
    assert places == [b"abc"] * 6


POLLING = """
import zerolane
from conftest import is_exported, make_pair, serving
ours, peers = make_pair()
region = zerolane.ExportedRegion(bytearray(4096))
key = peers.export(region, zerolane.Rights.ALL)
queue = zerolane.CompletionQueue(4)
ours.set_completion_queue(queue)
with serving(ours), serving(peers):
    for _ in range(20):
        pieces = [bytearray(b"8 bytes."), bytearray(b"8 others")]
        ours.post_put_vectored(key, list(zip((0, 8), pieces)), signalled=False)
        while any(is_exported(piece) for piece in pieces):
            assert queue.poll() is None and queue.poll_batch() == []
ours.abort()
"""


def test_completion_queue__polled_while_the_connection_lets_go_of_memory() -> None:
    # In a process that can be ended: threads that wait for each other cannot.
    polling = [sys.executable, "-c", POLLING]
    assert subprocess.run(polling, cwd=Path(__file__).parent, timeout=60).returncode == 0


def test_inline__is_copied_and_pins_nothing(pair: Pair, executor: ThreadPoolExecutor) -> None:
    ours, peers = pair
    memory = bytearray(4096)
    with zerolane.ExportedRegion(memory) as region:
        peers.export_numbered(5, region, Rights.ALL)
        key = Key.numbered(5)
        told = executor.submit(peers.wait, 30)
        source = bytearray(b"x" * 256)
        owners = sys.getrefcount(source)
        ours.post_put(key, 8, source, immediate=9, inline=True, signalled=False)
        source[:] = b"y" * 256
        place = bytearray(256)
        ours.post_message(b"hi", source, inline=True, signalled=False)
        # Not even resizing it is refused, and nothing keeps it.
        source.clear()
        assert sys.getrefcount(source) == owners
        for _ in range(10_000):
            if told.done():
                break
            assert ours.wait(timeout=0.001) is None, "they are not signalled"
        immediate = told.result(timeout=30)
        assert immediate is not None
        assert (immediate.value, immediate.length) == (9, 256)
        assert immediate.region is not None and immediate.region.number == 5
        assert immediate.region != key, "the owner knows length and rights"
        receiving = executor.submit(peers.recv_message, place)
        while not receiving.done():
            assert ours.wait(timeout=0.001) is None
        control, payload = receiving.result()
        assert control == b"hi" and payload is not None and payload == b"y" * 256
        assert memory[8:264] == b"x" * 256
        for too_long in (bytes(257), np.zeros(1 << 20)):
            with pytest.raises(ValueError, match="at most 256"):
                ours.post_put(key, 8, too_long, inline=True)
            with pytest.raises(ValueError, match="at most 256"):
                ours.post_message(b"", too_long, inline=True)
        with pytest.raises(TypeError):
            ours.post_put(key, 8, [b"one", b"two"], inline=True)


def test_immediate__not_asked_for_has_its_sender_wait_and_nobody_else(
    pair: Pair, executor: ThreadPoolExecutor
) -> None:
    ours, peers = pair
    puts, kept = 3 * 1024, 1024
    with zerolane.ExportedRegion(bytearray(8)) as region:
        key = peers.export(region, Rights.ALL)
        for number in range(puts):
            ours.post_put(key, 0, b"x", immediate=number, signalled=False)
        # Blocking calls of the peer, which take what comes meanwhile.
        rounds = 50
        while rounds:
            received = executor.submit(peers.recv_into, bytearray(8))
            ours.send(b"told")
            assert received.result() == 4
            if ours.in_flight <= puts - kept:
                rounds -= 1
        assert ours.in_flight == puts - kept
        values: list[int] = []
        with serving(ours):
            while len(values) < puts:
                batch = peers.wait_batch(100, timeout=20)
                assert batch, "it is held up"
                values += [it.value for it in batch if it.kind == "immediate"]
        assert values == list(range(puts))


def test_wake__ends_no_request(pair: Pair, executor: ThreadPoolExecutor) -> None:
    ours, peers = pair
    with zerolane.ExportedRegion(bytearray(8)) as region:
        peers.export_named("m", region, Rights.ALL)
        serving = executor.submit(peers.wait, timeout=20)
        ours.wake()
        key = ours.open_region("m", Rights.ALL)
        ours.put(key, 0, b"x", immediate=1)
        completion = serving.result()
        assert completion is not None and completion.value == 1
        # The wake is not lost: it ends a wait.
        assert ours.wait() is None
