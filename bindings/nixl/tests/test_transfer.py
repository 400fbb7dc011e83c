"""Transfers between two processes, by NIXL of the installed wheel: content, order, notifications."""

import json
import re

import pytest

MIB = 1 << 20


@pytest.mark.parametrize("operation", ["WRITE", "READ"])
def test_transfer__moves_the_bytes_of_one_region(pair, operation):
    it = pair(4 * MIB + 13)
    if operation == "READ":
        it.second.fill(it.there, 2)
    assert it.first.transfer(operation, *it.whole(), "second") == "DONE"
    if operation == "WRITE":
        assert it.second.equals(it.there, 1)
    else:
        assert it.first.equals(it.here, 2)
    assert it.second.equals(it.there, 1 if operation == "WRITE" else 2)


@pytest.mark.parametrize("operation", ["WRITE", "READ"])
@pytest.mark.parametrize(("size", "step", "count"), [(8, 24, 300), (1000, 1000, 5000), (16384, 16384, 1024)])
def test_transfer__moves_many_blocks_in_another_order(pair, operation, size, step, count):
    length = step * count
    it = pair(length)
    it.second.fill(it.there, 2)
    before = {"first": it.first.content(it.here), "second": it.second.content(it.there)}
    here, there = it.blocks(size, step)
    assert it.first.transfer(operation, here, there, "second") == "DONE"
    source, target = ("first", "second") if operation == "WRITE" else ("second", "first")
    expected = bytearray(before[target])
    for (a, n), (b, _) in zip(here, there, strict=True):
        a, b = a - it.here_address, b - it.there_address
        start, end = (a, b) if operation == "WRITE" else (b, a)
        expected[end : end + n] = before[source][start : start + n]
    content = it.second.content(it.there) if operation == "WRITE" else it.first.content(it.here)
    assert content == bytes(expected)


def test_transfer__joins_what_is_adjacent_at_both_ends(pair):
    it = pair(MIB)
    here = [(it.here_address + start, 4096) for start in range(0, MIB, 4096)]
    there = [(it.there_address + start, 4096) for start in range(0, MIB, 4096)]
    assert it.first.transfer("WRITE", here[::-1], there[::-1], "second") == "DONE"
    assert it.second.equals(it.there, 1)


@pytest.mark.parametrize("operation", ["WRITE", "READ"])
def test_transfer__moves_blocks_of_many_regions(pair, operation):
    it = pair(64)
    mine, base = it.first.allocate(600 * 512, seed=5)
    theirs, address = it.second.allocate(600 * 512, seed=6)
    it.first.register_blocks(mine, 512)
    it.second.register_blocks(theirs, 512)
    it.first.forget("second")
    it.first.load(it.second.metadata())
    here = [(base + offset, 512) for offset in range(0, 600 * 512, 512)]
    there = [(address + offset, 512) for offset in range(0, 600 * 512, 512)]
    assert it.first.transfer(operation, here, there, "second") == "DONE"
    assert it.second.equals(theirs, 5 if operation == "WRITE" else 6)
    assert it.first.equals(mine, 5 if operation == "WRITE" else 6)


def test_registration__of_10000_blocks_asks_nobody(pair):
    count, size = 10_000, 512
    it = pair(64, ZEROLANE_NIXL_LOG="info")
    assert it.first.transfer("WRITE", *it.whole(), "second") == "DONE"
    mine, base = it.first.allocate(count * size, seed=5)
    theirs, address = it.second.allocate(count * size)
    # A wait for the driver, for each block, would be as many.
    assert it.first.register_blocks(mine, size) < count / 10
    assert it.second.register_blocks(theirs, size) < count / 10
    it.first.forget("second")
    it.first.load(it.second.metadata())
    it.first.prepare_list("mine", "", [(base + at, size) for at in range(0, count * size, size)])
    it.first.prepare_list("theirs", "second", [(address + at, size) for at in range(0, count * size, size)])
    some = [0, 1, count // 2, count - 1]
    it.first.prepare_from_lists("some", "WRITE", "mine", some, "theirs", some[::-1])
    it.first.post("some")
    assert it.first.wait("some")[0] == "DONE"
    for here, there in zip(some, some[::-1], strict=True):
        assert it.second.content(theirs, there * size, size) == it.first.content(mine, here * size, size)
    it.first.stop()
    accounts = re.findall(r"account of a connection of agent first: (.*)", it.first.said())
    assert accounts
    for account in map(json.loads, accounts):
        # So many control operations that a question or word for each block is not among them.
        assert account["protocol"]["control_sent"] + account["protocol"]["control_received"] < count / 10


@pytest.mark.parametrize("length", [1, 100, 112, 113, 300, 400, 20_000, 3_000_000])
@pytest.mark.parametrize("operation", ["WRITE", "READ"])
def test_notification__of_any_length_comes_behind_the_data(pair, operation, length):
    it = pair()
    text = bytes(number % 251 for number in range(length))
    if operation == "READ":
        it.second.fill(it.there, 2)
    it.second.begin("notifications", 1)
    assert it.first.transfer(operation, *it.whole(), "second", text) == "DONE"
    assert it.second.end() == [("first", text)]
    assert it.second.equals(it.there, 1 if operation == "WRITE" else 2)


def test_notification__many_come_in_order(pair):
    it = pair()
    texts = [(f"number {number} " * (number % 60)).encode() for number in range(500)]
    it.second.begin("notifications", len(texts))
    for text in texts:
        it.first.notify("second", text)
    assert it.second.end() == [("first", text) for text in texts]


def test_notification__comes_to_an_agent_that_asks_seldom_and_both_ways(pair):
    it = pair()
    for _ in range(20):
        it.first.notify("second", b"to second")
        it.second.notify("first", b"to first")
    assert it.second.notifications(20, pause=0.05) == [("first", b"to second")] * 20
    assert it.first.notifications(20, pause=0.05) == [("second", b"to first")] * 20


def test_notification__is_sent_before_an_agent_ends(pair):
    it = pair()
    it.first.notify("second", b"the last word" * 10_000)
    it.first.stop()
    assert it.second.notifications(1) == [("first", b"the last word" * 10_000)]


@pytest.mark.parametrize("pause", [0.0, 0.002])
def test_repost__moves_what_the_memory_has_then(pair, pause):
    it = pair()
    here, there = it.blocks(4096, 8192)
    it.first.prepare("again", "WRITE", here, there, "second", b"first round")
    for seed in range(1, 6):
        it.first.fill(it.here, seed)
        text = f"round {seed}".encode()
        assert it.first.post("again", text) in ("PROC", "DONE")
        assert it.first.wait("again", pause=pause)[0] == "DONE"
        assert it.second.notifications(1) == [("first", text)]
        content = it.second.content(it.there)
        source = it.first.content(it.here)
        for (a, n), (b, _) in zip(here, there, strict=True):
            a, b = a - it.here_address, b - it.there_address
            assert content[b : b + n] == source[a : a + n]
    it.first.release("again")


def test_prepared_lists__give_transfers_by_index(pair):
    it = pair()
    here = [(it.here_address + start, 4096) for start in range(0, MIB, 4096)]
    there = [(it.there_address + start, 4096) for start in range(0, MIB, 4096)]
    it.first.prepare_list("mine", "", here)
    it.first.prepare_list("theirs", "second", there)
    indices = list(range(0, 256, 2))
    it.first.prepare_from_lists("one", "WRITE", "mine", indices, "theirs", indices[::-1], b"done")
    it.first.post("one")
    assert it.first.wait("one")[0] == "DONE"
    assert it.second.notifications(1) == [("first", b"done")]
    source, target = it.first.content(it.here), it.second.content(it.there)
    for a, b in zip(indices, indices[::-1], strict=True):
        assert target[b * 4096 : (b + 1) * 4096] == source[a * 4096 : (a + 1) * 4096]
    for odd in range(1, 256, 2):
        assert not any(target[odd * 4096 : (odd + 1) * 4096])


def test_transfer__of_an_agent_with_itself_is_a_copy(processes):
    one = processes("one")
    here, a = one.allocate(MIB, seed=1)
    there, b = one.allocate(MIB)
    one.register(here)
    one.register(there)
    assert one.transfer("WRITE", [(a, MIB)], [(b, MIB)], "one", b"copied") == "DONE"
    assert one.equals(there, 1)
    assert one.notifications(1) == [("one", b"copied")]
    one.fill(there, 2)
    assert one.transfer("READ", [(a, MIB)], [(b, MIB)], "one") == "DONE"
    assert one.equals(here, 2)
    one.notify("one", b"to myself")
    assert one.notifications(1) == [("one", b"to myself")]


def test_transfer__goes_on_while_its_program_computes(pair):
    it = pair(16 * MIB)
    it.first.prepare("one", "WRITE", *it.whole(), "second", b"arrived")
    it.first.post("one")
    it.first.begin("sleep", 3)
    assert it.second.notifications(1, pause=0.01) == [("first", b"arrived")]
    assert it.second.equals(it.there, 1)
    it.first.end()
    assert it.first.state("one") == "DONE"


def test_lane__is_shared_memory_on_one_host(pair, request):
    it = pair(ZEROLANE_NIXL_LOG="info")
    assert it.first.transfer("WRITE", *it.whole(), "second") == "DONE"
    it.first.stop()
    lane = "shared_memory" if "one host" in request.node.name else "udp"
    assert f'"lane":"{lane}"' in it.first.said()


def test_many_agents__each_write_to_each(processes):
    count = 5
    agents = [processes(f"agent{number}") for number in range(count)]
    memory = []
    for number, agent in enumerate(agents):
        memory.append((agent.allocate(65536, seed=number + 1), agent.allocate(65536 * count)))
        agent.register(memory[number][0][0])
        agent.register(memory[number][1][0])
    texts = [agent.metadata() for agent in agents]
    for number, agent in enumerate(agents):
        for other in range(count):
            if other != number:
                agent.load(texts[other])
    for number, agent in enumerate(agents):
        for other in range(count):
            if other != number:
                there = [(memory[other][1][1] + 65536 * number, 65536)]
                name = f"agent{other}"
                assert agent.transfer("WRITE", [(memory[number][0][1], 65536)], there, name, b"for you") == "DONE"
    for number, agent in enumerate(agents):
        senders = {sender for sender, _ in agent.notifications(count - 1)}
        assert senders == {f"agent{other}" for other in range(count) if other != number}
        for other in range(count):
            if other != number:
                source = agents[other].content(memory[other][0][0])
                assert agent.content(memory[number][1][0], 65536 * other, 65536) == source
