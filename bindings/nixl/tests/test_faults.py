"""What goes wrong: peers that die, memory that is gone, metadata and descriptors that are wrong."""

import os
import signal
import time

import pytest

import node
from agents import Failed, Process
from conftest import Pair

MIB = 1 << 20


def failure(call):
    """The name of the exception that the call raises in its process."""
    with pytest.raises(Failed) as raised:
        call()
    return raised.value.args[0]


def test_peer__that_is_killed_ends_the_transfer_as_disconnected(pair, frozen):
    it = pair(4 * MIB, {"idle_timeout_ms": "2000"})
    assert it.first.transfer("WRITE", *it.whole(), "second") == "DONE"
    frozen(it.second)
    it.first.prepare("one", "READ", *it.whole(), "second")
    assert it.first.post("one") == "PROC"
    os.kill(it.second.pid, signal.SIGKILL)
    assert failure(lambda: it.first.wait("one")) == "nixlRemoteDisconnectError"
    assert it.first.release("one") < 1


def test_peer__that_restarts_is_reached_again_by_its_new_metadata(pair, processes, request):
    it = pair(MIB, {"idle_timeout_ms": "2000"})
    assert it.first.transfer("WRITE", *it.whole(), "second") == "DONE"
    os.kill(it.second.pid, signal.SIGKILL)
    space = request.getfixturevalue("namespaces")[1] if "two" in request.node.callspec.id else None
    again = processes("second", None, space)
    there, address = again.allocate(MIB)
    again.register(there)
    it.first.forget("second")
    it.first.load(again.metadata())
    assert it.first.transfer("WRITE", [(it.here_address, MIB)], [(address, MIB)], "second", b"back") == "DONE"
    assert again.equals(there, 1)
    assert again.notifications(1) == [("first", b"back")]


def test_peer__that_stops_for_a_while_loses_nothing(pair, frozen):
    it = pair(4 * MIB)
    it.first.prepare("one", "WRITE", *it.whole(), "second", b"arrived")
    frozen(it.second)
    it.first.post("one")
    assert it.first.wait("one", patience=1)[0] == "PROC"
    os.kill(it.second.pid, signal.SIGCONT)
    assert it.first.wait("one")[0] == "DONE"
    assert it.second.notifications(1) == [("first", b"arrived")]
    assert it.second.equals(it.there, 1)


def test_link__that_is_lost_for_ten_seconds_loses_nothing(processes, namespaces):
    from pyroute2 import NetNS

    it = Pair(
        *(processes(name, None, space) for name, space in zip(("first", "second"), namespaces, strict=True)), 8 * MIB
    )
    it.first.prepare("one", "WRITE", *it.whole(), "second", b"arrived")
    with NetNS(namespaces[1]) as space:
        index = space.link_lookup(ifname="veth")[0]
        space.link("set", index=index, state="down")
        try:
            it.first.post("one")
            assert it.first.wait("one", patience=10, pause=0.01)[0] == "PROC"
        finally:
            space.link("set", index=index, state="up")
    assert it.first.wait("one", pause=0.01)[0] == "DONE"
    assert it.second.notifications(1) == [("first", b"arrived")]
    assert it.second.equals(it.there, 1)


def test_release__of_a_transfer_in_progress_neither_blocks_nor_writes_later(pair, frozen):
    it = pair(8 * MIB)
    it.second.fill(it.there, 2)
    assert it.first.transfer("WRITE", [(it.here_address, 8)], [(it.there_address, 8)], "second") == "DONE"
    frozen(it.second)
    it.first.prepare("one", "READ", *it.whole(), "second", b"never sent")
    assert it.first.post("one") == "PROC"
    assert it.first.release("one") < 1
    it.first.deregister(it.here_registered)
    before = it.first.content(it.here)
    os.kill(it.second.pid, signal.SIGCONT)
    time.sleep(0.5)
    assert it.first.content(it.here) == before
    assert it.second.notifications(1, patience=0.2) == []


def test_deregister__ends_a_transfer_of_the_peer(pair):
    it = pair()
    it.first.prepare("one", "WRITE", *it.whole(), "second")
    it.second.deregister(it.there_registered)
    it.second.fill(it.there, 2)
    assert failure(lambda: (it.first.post("one"), it.first.wait("one"))) == "nixlNotFoundError"
    assert it.second.equals(it.there, 2)
    # The connection goes on.
    again, address = it.second.allocate(4096)
    it.second.register(again)
    it.first.load(it.second.metadata())
    assert it.first.transfer("WRITE", [(it.here_address, 4096)], [(address, 4096)], "second") == "DONE"


def test_deregister__of_own_memory_refuses_the_transfer(pair):
    it = pair()
    it.first.prepare("one", "WRITE", *it.whole(), "second")
    it.first.deregister(it.here_registered)
    assert failure(lambda: it.first.post("one")) == "nixlInvalidParamError"
    assert "deregistered" in it.first.said()


def test_descriptors__outside_of_registered_memory_are_refused(pair):
    it = pair()
    inside = [(it.here_address, 4096)]
    for local, remote in (
        ([(it.here_address - 4096, 4096)], [(it.there_address, 4096)]),
        ([(it.here_address + MIB - 8, 4096)], [(it.there_address, 4096)]),
        (inside, [(it.there_address + MIB, 4096)]),
        (inside, [(it.there_address + MIB - 4095, 4096)]),
        (inside, [(it.there_address + 1, (1 << 64) - 1)]),
        (inside, [(it.there_address, 4095)]),
        (inside, [(it.there_address, 2048), (it.there_address + 2048, 2048)]),
    ):
        with pytest.raises(Failed):
            it.first.prepare("one", "WRITE", local, remote, "second")
    assert not any(it.second.content(it.there))


def test_unknown_agent__is_refused(pair):
    it = pair()
    for call in (
        lambda: it.first.prepare("one", "WRITE", *it.whole(), "stranger"),
        lambda: it.first.notify("stranger", b"hello"),
        lambda: it.first.connect("stranger"),
    ):
        assert failure(call) == "nixlNotFoundError"


def test_forgotten_agent__is_refused_until_loaded_again(pair):
    it = pair()
    it.first.prepare("one", "WRITE", *it.whole(), "second")
    it.first.forget("second")
    assert failure(lambda: it.first.post("one")) == "nixlNotFoundError"
    it.first.release("one")
    assert failure(lambda: it.first.notify("second", b"hello")) == "nixlNotFoundError"
    it.first.load(it.second.metadata())
    assert it.first.transfer("WRITE", *it.whole(), "second", b"again") == "DONE"
    assert it.second.notifications(1) == [("first", b"again")]


def test_forgetting__in_the_middle_ends_the_transfer(pair, frozen):
    it = pair(8 * MIB)
    assert it.first.transfer("WRITE", [(it.here_address, 8)], [(it.there_address, 8)], "second") == "DONE"
    frozen(it.second)
    it.first.prepare("one", "READ", *it.whole(), "second")
    assert it.first.post("one") == "PROC"
    it.first.forget("second")
    with pytest.raises(Failed):
        it.first.wait("one")
    assert it.first.release("one") < 1
    os.kill(it.second.pid, signal.SIGCONT)
    it.first.load(it.second.metadata())
    assert it.first.transfer("WRITE", *it.whole(), "second") == "DONE"


def test_metadata__that_is_cut_or_changed_is_refused(processes):
    first, second = processes("first"), processes("second")
    here, _ = second.allocate(4096)
    second.register(here)
    metadata = second.metadata()
    assert b"ZEROLANE 1\n" in metadata
    for wrong in (
        metadata.replace(b"ZEROLANE 1\n", b"ZEROLANE 2\n"),
        metadata.replace(b"\nend\n", b"\nEnd\n"),
        metadata.replace(b"\ntoken ", b"\ntokeN "),
        metadata.replace(b"ZL\x01", b"ZL\x02"),
        metadata.replace(b"\nat ", b"\nAt "),
    ):
        assert wrong != metadata
        with pytest.raises(Failed):
            first.load(wrong)
    for length in range(0, len(metadata), 7):
        with pytest.raises(Failed):
            first.load(metadata[:length])
    assert "of another version" in first.said()
    assert first.load(metadata) in ("second", b"second")


def test_metadata__with_another_token_or_key_gives_no_access(processes):
    second = processes("second")
    there, there_address = second.allocate(4096, seed=2)
    second.register(there)
    metadata = second.metadata()
    at = metadata.index(b"\ntoken ") + len(b"\ntoken ")
    token = metadata[at : at + 32]
    key = metadata[metadata.index(b"\nkey ") + 5 :].split(b"\n")[0]
    other = processes("other").metadata()
    other_key = other[other.index(b"\nkey ") + 5 :].split(b"\n")[0]
    assert len(key) == len(other_key)
    for number, wrong in enumerate((metadata.replace(token, token[::-1]), metadata.replace(key, other_key))):
        first = processes(f"first{number}", {"idle_timeout_ms": "2000"})
        here, here_address = first.allocate(4096, seed=1)
        first.register(here)
        first.load(wrong)
        arguments = ("WRITE", [(here_address, 4096)], [(there_address, 4096)], "second")
        assert (
            failure(lambda first=first, arguments=arguments: first.transfer(*arguments)) == "nixlRemoteDisconnectError"
        )
    assert second.equals(there, 2)


def test_numbers__that_name_other_memory_write_nothing_outside(processes):
    """A hostile agent changes what the metadata say of memory: its bounds are the owner's."""
    second, first = processes("second"), processes("first")
    there, there_address = second.allocate(3 * 4096, seed=2)
    second.register_at(there_address + 4096, 4096)
    metadata = second.metadata()
    blob = metadata.index(b"ZL\x01")
    length = (4096).to_bytes(8, "little")
    assert metadata[blob + 11 : blob + 19] == length
    forged = bytearray(metadata)
    # NIXL's own descriptor has the length, too.
    start = metadata.index((there_address + 4096).to_bytes(8, "little"))
    while start >= 0:
        forged[start + 8 : start + 16] = (8192).to_bytes(8, "little")
        start = metadata.find((there_address + 4096).to_bytes(8, "little"), start + 1)
    here, here_address = first.allocate(8192, seed=1)
    first.register(here)
    first.load(bytes(forged))
    arguments = ("WRITE", [(here_address, 8192)], [(there_address + 4096, 8192)], "second")
    assert failure(lambda: first.transfer(*arguments)) == "nixlInvalidParamError"
    assert second.equals(there, 2)


def test_memory__of_a_gpu_is_refused_in_words(processes):
    one = processes("one")
    assert failure(lambda: one.register_at(4096, 4096, "VRAM")) == "nixlBackendError"
    assert "kv_buffer_device=cpu" in one.said()


def test_memory__that_begins_at_an_odd_address_serves_as_the_near_end_only(pair):
    it = pair()
    odd, address = it.first.allocate(4096, seed=7, offset=1)
    assert address % 8
    it.first.register(odd)
    assert it.first.transfer("WRITE", [(address, 4096)], [(it.there_address, 4096)], "second") == "DONE"
    assert it.second.content(it.there, 0, 4096) == it.first.content(odd)
    it.second.forget("first")
    it.second.load(it.first.metadata())
    arguments = ("WRITE", [(it.there_address, 4096)], [(address, 4096)], "first")
    assert failure(lambda: it.second.prepare("one", *arguments)) == "nixlInvalidParamError"
    assert "multiple of 8" in it.second.said()


def test_memory__in_more_pieces_than_a_connection_has_is_refused(processes):
    one = processes("one")
    number, _ = one.allocate(65_537 * 8)
    assert failure(lambda: one.register_blocks(number, 8)) == "nixlBackendError"
    assert "at most 65,536 pieces of memory" in one.said()
    assert one.register(number) == 0


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        ({"security": "none"}, "must be one of encrypted, authenticated, plain"),
        ({"paths": "9"}, "must be a number from 1 to 8"),
        ({"listen": "nowhere:0"}, "nowhere"),
        ({"advertise": "a.host.name"}, "not numeric"),
    ],
)
def test_options__that_are_wrong_are_refused_in_words(tmp_path, parameters, sentence):
    process = Process(node.Node, log=tmp_path / "log")
    try:
        assert failure(lambda: process.start("one", parameters)) == "nixlBackendError"
        assert sentence in process.said()
    finally:
        process.close()


@pytest.mark.parametrize("security", ["plain", "authenticated"])
def test_options__choose_the_security(pair, security):
    it = pair(MIB, {"security": security})
    assert it.first.transfer("WRITE", *it.whole(), "second", b"done") == "DONE"
    assert it.second.notifications(1) == [("first", b"done")]
    assert it.second.equals(it.there, 1)


def test_options__come_from_the_environment_too(processes):
    one = processes("one", ZEROLANE_NIXL_LISTEN="127.0.0.1:0")
    assert b"\nat 127.0.0.1:" in one.metadata()
    assert one.metadata().count(b"\nat ") == 1


def test_fork__leaves_the_agent_to_the_parent(pair):
    it = pair()
    assert it.first.fork_and_use() == "nixlBackendError nixlBackendError"
    assert "belongs to the parent of this process" in it.first.said()
    assert it.first.transfer("WRITE", *it.whole(), "second", b"parent") == "DONE"
    assert it.second.notifications(1) == [("first", b"parent")]


def test_fork__lets_the_child_make_an_agent_of_its_own(pair):
    it = pair()
    assert it.first.fork_and_make() == "DONE True"
    assert it.first.transfer("WRITE", *it.whole(), "second") == "DONE"


def test_text__that_never_asks_leaves_the_sender_alone(pair):
    """Notifications that nobody takes are kept; the transfer goes on."""
    it = pair()
    for _ in range(300):
        it.first.notify("second", b"x" * 30_000)
    assert it.first.transfer("WRITE", *it.whole(), "second") == "DONE"
    assert len(it.second.notifications(300)) == 300


def test_end__of_an_agent_with_a_transfer_in_progress_is_quick(pair, frozen):
    it = pair(8 * MIB)
    assert it.first.transfer("WRITE", [(it.here_address, 8)], [(it.there_address, 8)], "second") == "DONE"
    frozen(it.second)
    it.first.prepare("one", "READ", *it.whole(), "second")
    it.first.post("one")
    started = time.monotonic()
    it.first.stop()
    assert time.monotonic() - started < 10
