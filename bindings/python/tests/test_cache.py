"""Tests the cache in other hosts' memory: what is there, and that a host's end is a miss."""

import os
import random
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from hashlib import blake2b
from typing import Any

import numpy as np
import pytest

import zerolane
from conftest import address_of, freeze, lending, pattern
from zerolane import cache
from zerolane.cache import Cache, CacheServer

KIB, MIB = 1 << 10, 1 << 20
QUICK = zerolane.Options(connect_timeout=2.0, idle_timeout=1.0, keep_alive=True)
LONG = 60
"""Seconds that a busy machine may take."""


def key_of(name: Any) -> bytes:
    return blake2b(repr(name).encode(), digest_size=cache.KEY_BYTES).digest()


@pytest.fixture
def lent() -> Iterator[CacheServer]:
    with lending(64 * MIB) as server:
        yield server


@contextmanager
def using(*servers: Any, **options: Any) -> Iterator[Cache]:
    hosts = [it if isinstance(it, str) else address_of(it) for it in servers]
    it = Cache(hosts, **{"options": QUICK, **options})
    try:
        yield it
    finally:
        it.close()


def test_put_get_exists_delete(lent: CacheServer) -> None:
    with using(lent) as ours, using(lent) as theirs:
        sizes = [1, 100, 64 * KIB, MIB + 1, 5 * MIB, 0]
        objects = [(key_of(size), pattern(size)) for size in sizes]
        keys = [key for key, _ in objects]
        assert ours.exists(keys) == [False] * 6
        assert ours.put(objects) == [True] * 6
        assert theirs.exists(keys) == [True] * 6
        places = [(key, np.zeros_like(content)) for key, content in objects]
        assert theirs.get(places) == [True] * 6
        assert all((a == b).all() for (_, a), (_, b) in zip(places, objects, strict=True))
        # One that is there stays.
        assert ours.put([(keys[1], bytes(100))]) == [True]
        assert theirs.get([(keys[1], places[1][1])]) == [True]
        assert (places[1][1] == objects[1][1]).all()
        assert theirs.get([(keys[1], bytearray(99)), (key_of("none"), bytearray(9))]) == [False] * 2
        assert theirs.delete([keys[0], key_of("none"), keys[4]]) == [True, False, True]
        assert ours.exists(keys) == [False, True, True, True, False, True]
        assert ours.put([(keys[0], b"x")]) == [True]
        with pytest.raises(ValueError, match="16 bytes"):
            ours.exists([b"short"])


def test_put__evicts_what_was_used_least_recently() -> None:
    with lending(8 * MIB) as server, using(server) as ours:
        keys = [key_of(it) for it in range(20)]
        for key in keys[:8]:
            assert ours.put([(key, pattern(MIB))]) == [True]
        assert ours.get([(keys[0], bytearray(MIB))]) == [True]
        assert ours.exists([keys[1]]) == [True]
        assert ours.pin([keys[2]]) == [True]
        for key in keys[8:13]:
            assert ours.put([(key, pattern(MIB))]) == [True]
        there = [True, True, True, *[False] * 5, *[True] * 5]
        assert ours.exists(keys[:13]) == there
        # Room for a longer one comes from neighbours.
        assert ours.put([(keys[13], pattern(3 * MIB))]) == [True]
        assert ours.put([(keys[14], pattern(8 * MIB + 1))]) == [False]
        assert ours.exists([keys[2], keys[13]]) == [True, True]
        place = np.zeros(MIB, dtype=np.uint8)
        assert ours.get([(keys[2], place)]) == [True] and (place == pattern(MIB)).all()
        # A deleted one stays for those who read it.
        assert ours.delete([keys[2]]) == [True] and ours.exists([keys[2]]) == [False]
        ours.unpin([keys[2], keys[2]])
        assert ours.capacities() == {address_of(server): 8 * MIB}


def test_room__is_never_given_twice_and_all_comes_back() -> None:
    rng = random.Random(5)
    store = cache._Store(1 << 20)
    clients = [cache._Client() for _ in range(3)]
    for step in range(20_000):
        client, key = rng.choice(clients), key_of(rng.randrange(60))
        match rng.randrange(7):
            case 0 | 1:
                store.reserve(client, key, rng.choice([0, 1, 4096, 5000, 70_000, 1 << 21]))
            case 2:
                for generation, it in list(client.reserved.items())[:1]:
                    assert store.commit(client, it.key, generation, 7)
            case 3:
                store.pin(client, key)
            case 4:
                for generation in list(client.pinned)[:1]:
                    assert store.unpin(client, generation)
            case 5:
                store.delete(key)
            case 6 if step % 50 == 0:
                store.leave(client)
        held = {id(it): it for it in store._objects.values()}
        held |= {id(it): it for client in clients for it, _ in client.pinned.values()}
        taken = sorted((it.place.offset, it.room) for it in held.values())
        ends = [start + length for start, length in taken]
        assert all(end <= start for end, (start, _) in zip(ends, taken[1:], strict=False))
        assert sum(length for _, length in taken) + sum(store._room._lengths.values()) == 1 << 20
    for client in clients:
        store.leave(client)
        assert client.held == 0
    for key in list(store._objects):
        assert store.delete(key)
    assert store._room._lengths == {0: 1 << 20} and not store._idle


def test_get__an_object_whose_bytes_changed_is_missing() -> None:
    memory = bytearray(MIB)
    with lending(memory) as server, using(server) as ours:
        content = pattern(100_000)
        assert ours.put([(key_of(1), content), (key_of(2), content)]) == [True, True]
        at = memory.find(content.tobytes())
        memory[at + 77] ^= 1
        place = bytearray(100_000)
        found = ours.get([(key_of(1), place), (key_of(2), bytearray(100_000))])
        assert sorted(found) == [False, True]
        # It is forgotten.
        assert sorted(ours.exists([key_of(1), key_of(2)])) == [False, True]


def test_hosts__each_has_its_keys_and_one_that_is_killed_misses() -> None:
    with ExitStack() as stack:
        processes = []
        for _ in range(3):
            command = [sys.executable, "-m", "zerolane.cache", "--listen", "127.0.0.1:0"]
            process = subprocess.Popen(
                [*command, "--memory", "16MiB"], stdout=subprocess.PIPE, text=True
            )
            stack.callback(process.communicate)
            stack.callback(process.kill)
            assert process.stdout is not None
            processes.append((process, process.stdout.readline().split()[4].rstrip(".")))
        ours = stack.enter_context(using(*(address for _, address in processes), timeout=2.0))
        keys = [key_of(it) for it in range(60)]
        assert all(ours.put([(key, key * 1000) for key in keys]))
        places = [(key, bytearray(16_000)) for key in keys]
        assert all(ours.get(places))
        assert all(place == key * 1000 for key, place in places)
        # One frozen, one dead: both miss, whatever the calls wait for.
        freeze(processes[0][0])
        processes[1][0].kill()
        alive = {key for key in keys if ours._ring.get_node(key.hex()) == processes[2][1]}
        assert 5 < len(alive) < 55
        for _ in range(3):
            places = [(key, bytearray(16_000)) for key in keys]
            found = dict(zip(keys, ours.get(places), strict=True))
            assert {key for key, it in found.items() if it} == alive
            assert all(place == key * 1000 for key, place in places if found[key])
        assert ours.put([(key_of("new" + str(it)), b"x") for it in range(30)]).count(True) > 0
        assert sum(it is None for it in ours.capacities().values()) == 2
        # The frozen one is there again.
        processes[0][0].send_signal(signal.SIGCONT)
        ends = time.monotonic() + LONG
        while sum(it is None for it in ours.capacities().values()) != 1:
            assert time.monotonic() < ends
            time.sleep(0.1)
        found = dict(zip(keys, ours.get(places), strict=True))
        assert all(place == key * 1000 for key, place in places if found[key])


def test_host__that_comes_back_is_empty_and_used_again() -> None:
    with lending(MIB) as server:
        address = address_of(server)
        stack = ExitStack()
        ours = stack.enter_context(using(server, timeout=2.0))
        assert ours.put([(key_of(1), b"content")]) == [True]
    with stack:
        assert ours.get([(key_of(1), bytearray(7))]) == [False]
        with lending(MIB, address):
            ends = time.monotonic() + LONG
            while ours.put([(key_of(2), b"content")]) != [True]:
                assert time.monotonic() < ends
                time.sleep(0.1)
            assert ours.exists([key_of(1), key_of(2)]) == [False, True]


def test_client__that_goes_gives_back_what_it_held(lent: CacheServer) -> None:
    with using(lent) as ours:
        assert ours.put([(key_of(1), b"content")]) == [True]
        child = os.fork()
        if child == 0:
            code = 1
            try:
                theirs = Cache([address_of(lent)], options=QUICK)
                host = next(iter(theirs._hosts.values()))
                held = host.ask(cache._Op.RESERVE, [(key_of(it), MIB) for it in range(2, 30)])
                code = 0 if theirs.pin([key_of(1)]) == [True] and all(it[2] for it in held) else 2
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        ends = time.monotonic() + LONG
        while any(it.held for it in lent._clients.values()):
            assert time.monotonic() < ends
            time.sleep(0.05)
        assert ours.put([(key_of(it), bytes(MIB)) for it in range(2, 30)]) == [True] * 28


@pytest.mark.parametrize(
    "control, payload",
    [
        (b"", b""),
        (b"x" * 128, b""),
        (struct.pack("<4sBBH", b"ZLca", 2, 0, 1), bytes(8)),
        (struct.pack("<4sBBH", b"ZLca", 1, 8, 1), bytes(8)),
        (struct.pack("<4sBBH", b"ZLca", 1, 2, 1), bytes(15)),
        (struct.pack("<4sBBH", b"ZLca", 1, 2, 65535), bytes(20_000)),
    ],
)
def test_server__ends_the_connection_of_a_client_that_makes_no_sense(
    lent: CacheServer, control: bytes, payload: bytes
) -> None:
    with zerolane.connect(address_of(lent)) as bad:
        bad.post_message_recv(bytearray(100))
        bad.post_message(control, payload)
        with pytest.raises(zerolane.ConnectionEnded):
            while (done := bad.wait(LONG)) is not None:
                done.result()
    with using(lent) as ours:
        assert ours.put([(key_of(1), b"content")]) == [True]


def test_server__serves_requests_that_are_random(lent: CacheServer) -> None:
    rng = random.Random(7)
    with using(lent) as ours:
        assert ours.put([(key_of(1), b"content")]) == [True]
        host = next(iter(ours._hosts.values()))
        for _ in range(300):
            op = rng.choice(list(cache._Op))
            form = cache._FORMS[op][0]
            count = rng.randrange(5)
            words = [rng.choice([0, 1, 2**32 - 1, rng.getrandbits(64)]) for _ in range(5 * count)]
            noise = struct.pack(f"<{5 * count}Q", *words)[: form.size * count]
            with_op = [] if op is cache._Op.DELETE else list(form.iter_unpack(noise))
            assert len(host.ask(op, with_op)) == len(with_op)
        place = bytearray(7)
        assert ours.get([(key_of(1), place)]) == [True] and place == b"content"
