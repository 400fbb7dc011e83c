"""Tests the lanes of connections."""

import asyncio
import inspect
import ipaddress
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import pytest

import zerolane
import zerolane.aio
from conftest import make_pair, serving


@pytest.mark.parametrize("lane", [None, "best", "shared_memory"])
def test_lane__shared_memory_unless_something_else_is_asked_for(
    lane: Literal["best", "shared_memory"] | None, executor: ThreadPoolExecutor
) -> None:
    # A listener that does not run for a second is met by UDP, but not each time.
    for _ in range(10):
        ours, peers = make_pair(zerolane.Options(lane=lane))
        if ours.account().lane == "shared_memory":
            break
    for end in (ours, peers):
        account = end.account()
        assert (account.lane, account.no_shared_memory) == ("shared_memory", None)
        assert end.peer_key is not None
    content = bytes(range(256)) * 4096
    sending = executor.submit(ours.send, content)
    buffer = bytearray(len(content))
    assert peers.recv_into(buffer) == len(content)
    sending.result()
    assert buffer == content
    ours.abort()
    peers.abort()


def test_lane__udp_where_it_is_asked_for() -> None:
    ours, peers = make_pair(zerolane.Options(lane="udp"))
    account = ours.account()
    assert (account.lane, account.no_shared_memory) == ("udp", None)
    ours.abort()
    peers.abort()


def test_lane__best_is_udp_where_the_listener_does_not_offer_more_and_says_why() -> None:
    best = zerolane.Options(lane="best")
    udp = zerolane.Options(lane="udp")
    with ThreadPoolExecutor(1) as executor, zerolane.Endpoint("127.0.0.1:0", udp) as endpoint:
        connecting = executor.submit(zerolane.connect, endpoint.local_addr, best)
        peers = endpoint.accept(timeout=10)
        ours = connecting.result()
        account = ours.account()
        assert account.lane == "udp"
        assert account.no_shared_memory is not None and "listener" in account.no_shared_memory
        only = zerolane.Options(lane="shared_memory")
        with pytest.raises(OSError, match="no shared memory with the peer"):
            zerolane.connect(endpoint.local_addr, only)
        ours.abort()
        peers.abort()


# IFA_F_TENTATIVE, IFA_F_DADFAILED
NOT_YET = 0x48


def own_addresses() -> Iterator[tuple[str, str, int]]:
    """This host's IPv6 addresses that may be used, with the name and number of their interface."""
    addresses = Path("/proc/net/if_inet6")
    for line in addresses.read_text().splitlines() if addresses.exists() else []:
        digits, number, _, _, flags, name = line.split()
        if not int(flags, 16) & NOT_YET:
            yield str(ipaddress.IPv6Address(bytes.fromhex(digits))), name, int(number, 16)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_address__of_ipv6_has_its_interface(
    asynchronous: bool, executor: ThreadPoolExecutor
) -> None:
    # The loopback address needs none, and is there; of the others the link-local ones do.
    own = [it for it in own_addresses() if it[0] == "::1" or it[0].startswith("fe80:")]
    if not own:
        pytest.skip("no IPv6")

    async def connected(address: Any, accepting: Future[zerolane.Connection]) -> str:
        connection = await zerolane.aio.connect(address)
        peer = connection.peer_addr[0]
        # The backlog forgets a client that leaves before.
        (await asyncio.wrap_future(accepting)).abort()
        connection.abort()
        return peer

    for host, name, number in own:
        with zerolane.Endpoint((host, 0, 0, number)) as endpoint:
            at, port = endpoint.local_addr
            link_local = host.startswith("fe80:")
            assert at == (f"{host}%{number}" if link_local else host)
            forms: list[Any] = [
                f"[{host}%{name}]:{port}",
                f"[{host}%{number}]:{port}",
                (f"{host}%{name}", port),
                (f"{host}%{number}", port),
                (host, port, 0, number),
                socket.getaddrinfo(f"{host}%{number}", port, type=socket.SOCK_DGRAM)[0][4],
                endpoint.local_addr,
            ]
            for address in forms:
                accepting = executor.submit(endpoint.accept, timeout=10)
                if asynchronous:
                    peer = asyncio.run(connected(address, accepting))
                else:
                    connection = zerolane.connect(address)
                    peer = connection.peer_addr[0]
                    accepting.result().abort()
                    connection.abort()
                assert peer.split("%")[0] == host
                assert not link_local or peer == f"{host}%{number}"


def test_lane__is_one_that_there_is() -> None:
    with pytest.raises(ValueError, match='lane="carrier pigeon"'):
        zerolane.Options(lane="carrier pigeon")  # type: ignore[arg-type]


def test_lane__ethernet_has_interfaces() -> None:
    with pytest.raises(ValueError, match="raw Ethernet"):
        zerolane.Endpoint("127.0.0.1:0", zerolane.Options(lane="ethernet"))
    with pytest.raises(ValueError, match="another lane was chosen"):
        zerolane.Endpoint("ether:no-such-one:0")
    ethernet = zerolane.Options(lane="ethernet")
    with pytest.raises(OSError, match="no interface no-such-one"):
        zerolane.Endpoint("ether:no-such-one:0", ethernet)
    with pytest.raises(OSError, match="no interface no-such-one"):
        zerolane.connect(("ether:no-such-one/02:00:00:00:00:01", 9), ethernet)
    with pytest.raises(OSError, match="lo is not Ethernet"):
        zerolane.connect("ether:lo/02:00:00:00:00:01:9", ethernet)


def test_device__says_why_not() -> None:
    with pytest.raises(OSError, match="no interface no-such-one"):
        zerolane.EthernetDevice("no-such-one")
    with pytest.raises(OSError, match=r"lo is not Ethernet|CAP_NET_RAW"):
        zerolane.EthernetDevice("lo", fall_back=True)
    with pytest.raises(OverflowError):
        zerolane.EthernetDevice("lo", busy_poll=65536)
    with pytest.raises(TypeError):
        zerolane.Options(device="lo")  # type: ignore[arg-type]
    ours, peers = make_pair(None)
    assert (ours.account().bypass, ours.account().no_bypass) == (False, None)
    ours.abort()
    peers.abort()


def run_in_a_namespace(program: str) -> None:
    """Runs a Python program in a network namespace of its own, or skips the test."""
    may = subprocess.run(["unshare", "-n", "true"], capture_output=True)
    if may.returncode != 0:
        pytest.skip("network namespaces need root")
    done = subprocess.run(
        ["unshare", "-n", sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr


# Loopback and both ends of a veth, up.
VETH = """
from pyroute2 import IPRoute
with IPRoute() as links:
    links.link("add", ifname="zl0", address="02:00:00:00:00:01", kind="veth",
               peer={"ifname": "zl1", "address": "02:00:00:00:00:02"})
    for name in ("lo", "zl0", "zl1"):
        links.link("set", index=links.link_lookup(ifname=name)[0], state="up")
"""

# Between the two ends of a veth in a network namespace of its own.
AF_XDP = f"""{VETH}
import pickle, zerolane
from concurrent.futures import ThreadPoolExecutor
near, far = zerolane.EthernetDevice("zl0"), zerolane.EthernetDevice("zl1", max_connections=2)
try:
    pickle.dumps(zerolane.Options(lane="ethernet", device=near))
    raise SystemExit("a device was pickled")
except TypeError as error:
    assert "device belongs to this process" in str(error)
assert (far.refused, far.is_zero_copy) == (None, False)
second = zerolane.EthernetDevice("zl1", fall_back=True)
assert second.refused is not None and "XDP program already" in second.refused
try:
    zerolane.EthernetDevice("zl1")
except OSError as error:
    assert "XDP program already" in str(error), error
else:
    raise AssertionError("an interface has one")
content = bytes(range(256)) * 4097
def send(device):
    options = zerolane.Options(lane="ethernet", device=device)
    connection = zerolane.connect("ether:zl0/02:00:00:00:00:02:7411", options)
    account = connection.account()
    assert (account.lane, account.bypass, account.no_bypass) == ("ethernet", True, None)
    connection.send(content)
    connection.close()
def receive(device):
    options = zerolane.Options(lane="ethernet", device=device)
    at = "ether:zl1:7411"
    with ThreadPoolExecutor(1) as executor, zerolane.Endpoint(at, options) as endpoint:
        sending = executor.submit(send, near)
        connection = endpoint.accept(timeout=10)
        buffer = bytearray(len(content))
        assert connection.recv_into(buffer) == len(content)
        assert buffer == content
        account = connection.account()
        # An acknowledgment that was lost is sent again by calls of this thread alone.
        while not sending.done():
            try:
                connection.wait(timeout=0.01)
            except zerolane.ConnectionEnded:
                break
        sending.result()
        return account
account = receive(far)
assert (account.bypass, account.no_bypass) == (True, None)
account = receive(second)
assert not account.bypass and "XDP program" in account.no_bypass, account.no_bypass
"""


def test_device__carries_past_the_network_stack_or_says_why_not() -> None:
    run_in_a_namespace(AF_XDP)


def test_lane__ip118_where_this_process_may_and_words_where_not() -> None:
    options = zerolane.Options(lane="ip118")
    try:
        zerolane.Endpoint("127.0.0.1:0", options).close()
    except OSError as error:
        assert "IP protocol 118 needs CAP_NET_RAW" in str(error)
        return
    ours, peers = make_pair(options)
    for end in (ours, peers):
        assert end.account().lane == "ip118"
        end.abort()


def test_memfd__a_peer_on_this_host_works_on_it_without_this_program() -> None:
    ours, peers = make_pair(zerolane.Options(lane="shared_memory"))
    region = zerolane.ExportedRegion.memfd(1 << 20)
    region.store(8, 5)
    key = peers.export(region, zerolane.Rights.ALL)
    with serving(peers):
        # Until the peer's memory is mapped, which takes a turn of both ends.
        for _ in range(10_000):
            ours.get(key, 0, bytearray(8))
            if ours.account().direct_operations:
                break
    assert ours.account().direct_operations == 1
    # The peer makes no call from here on.
    content = bytes(range(256)) * 400
    ours.put(key, 4096, content)
    assert ours.fetch_add(key, 8, 7) == 5
    back = bytearray(len(content))
    ours.get(key, 4096, back)
    assert back == content
    assert ours.account().direct_operations == 4
    assert region.read(4096, len(content)) == content
    assert (region.load(8), region.length) == (12, 1 << 20)
    region.write(1, b"owner")
    ours.get(key, 0, back)
    assert back[1:6] == b"owner"
    for offset, length in [(1 << 20, 1), (2**64 - 1, 2)]:
        with pytest.raises(IndexError):
            region.read(offset, length)
    with pytest.raises(IndexError):
        region.write((1 << 20) - 1, b"xx")
    region.revoke()
    with pytest.raises(zerolane.Revoked):
        region.read(0, 1)
    ours.abort()
    peers.abort()


def test_rendezvous__both_ends_meet_by_a_name(executor: ThreadPoolExecutor) -> None:
    options = zerolane.Options(lane="shared_memory", rendezvous=f"python.{os.getpid()}")
    with zerolane.Endpoint("127.0.0.1:0", options) as endpoint:
        # An address that leads nowhere.
        connecting = executor.submit(zerolane.connect, "192.0.2.1:9", options)
        peers = endpoint.accept(timeout=10)
        ours = connecting.result()
        assert ours.account().lane == "shared_memory"
        ours.abort()
        peers.abort()


def carry(
    executor: ThreadPoolExecutor,
    ours: zerolane.Connection,
    peers: zerolane.Connection,
    until: Callable[[list[zerolane.Path], list[zerolane.Path]], bool],
) -> None:
    """Moves content from `ours` to `peers` until the paths of both are as wanted.

    On a busy host a link takes seconds to come up.
    """
    content = bytes(range(256)) * 4096
    end = time.monotonic() + 30
    while time.monotonic() < end:
        sending = executor.submit(ours.send, content)
        buffer = bytearray(len(content))
        assert peers.recv_into(buffer) == len(content)
        # An acknowledgment that was lost is sent again by calls of this thread alone.
        while not sending.done():
            peers.wait(timeout=0.01)
        sending.result()
        assert buffer == content
        if until(ours.paths(), peers.paths()):
            return
    raise AssertionError((ours.paths(), peers.paths()))


def both(ours: list[zerolane.Path], theirs: list[zerolane.Path]) -> bool:
    """Whether there are two, and each carried something: what was sent may be lost."""
    return (
        len(ours) == len(theirs) == 2
        and all(it.life == "usable" and it.bytes_sent > 1 << 20 for it in ours)
        and all(it.bytes_received > 1 << 20 for it in theirs)
    )


@pytest.mark.parametrize("threads", [False, True])
def test_paths__from_another_port_carry_what_the_first_does(
    threads: bool, executor: ThreadPoolExecutor
) -> None:
    listening = zerolane.Options(paths=2, path_threads=threads)
    with zerolane.Endpoint("127.0.0.1:0", listening) as endpoint:
        options = zerolane.Options(links=["127.0.0.1="], path_threads=threads)
        connecting = executor.submit(zerolane.connect, endpoint.local_addr, options)
        peers = endpoint.accept(timeout=10)
        ours = connecting.result()
        carry(executor, ours, peers, both)
        first, second = ours.paths()
        assert (first.index, first.life, second.index, second.life) == (0, "usable", 1, "usable")
        assert first.rtt and second.rtt
        ours.remove_path(1)
        carry(executor, ours, peers, lambda paths, _: [it.index for it in paths] == [0])
        assert ours.add_path("=")
        carry(executor, ours, peers, both)
        with pytest.raises(ValueError, match="the first path"):
            ours.remove_path(0)
        with pytest.raises(ValueError, match="LOCAL=PEER"):
            ours.add_path("192.0.2.1")
        ours.abort()
        peers.abort()
    ours, peers = make_pair(None)
    assert not ours.add_path("=")
    assert [it.index for it in ours.paths()] == [0]
    ours.abort()
    peers.abort()


# Loopback and a veth, and what moves content.
TWO_NETWORKS = (
    VETH
    + """
import time, zerolane
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
"""
    + inspect.getsource(carry)
    + inspect.getsource(both)
)

# The first path is loopback's, and the other goes from one end of a veth to the other.
MIXED = (
    TWO_NETWORKS
    + """
taking = zerolane.Options(paths=2, ethernet_paths=True)
options = zerolane.Options(links=["ether:zl0=ether:zl0/02:00:00:00:00:02"])
with ThreadPoolExecutor(1) as executor, zerolane.Endpoint("127.0.0.1:0", taking) as endpoint:
    connecting = executor.submit(zerolane.connect, endpoint.local_addr, options)
    peers = endpoint.accept(timeout=10)
    ours = connecting.result()
    carry(executor, ours, peers, both)
    assert ours.account().no_path is None
    ours.remove_path(1)
    carry(executor, ours, peers, lambda paths, _: len(paths) == 1 and paths[0].bytes_sent > 1 << 20)
    assert ours.add_path("=ether:zl0/02:00:00:00:00:02")
    carry(executor, ours, peers, both)
    ours.abort()
    peers.abort()
"""
)


def test_paths__over_raw_ethernet_carry_beside_udp() -> None:
    run_in_a_namespace(MIXED)


# The first path goes from one end of a veth to the other, and the other one is loopback's.
ETHERNET_FIRST = (
    TWO_NETWORKS
    + """
taking = zerolane.Options(lane="ethernet", paths=2, udp_paths=True)
options = zerolane.Options(lane="ethernet", links=["=127.0.0.1"])
with ThreadPoolExecutor(1) as executor, zerolane.Endpoint("ether:zl1:0", taking) as endpoint:
    to = ("ether:zl0/02:00:00:00:00:02", endpoint.local_addr[1])
    connecting = executor.submit(zerolane.connect, to, options)
    peers = endpoint.accept(timeout=10)
    ours = connecting.result()
    carry(executor, ours, peers, both)
    assert (ours.account().lane, ours.account().no_path) == ("ethernet", None)
    ours.abort()
    peers.abort()
"""
)


def test_paths__over_udp_carry_beside_raw_ethernet() -> None:
    run_in_a_namespace(ETHERNET_FIRST)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"links": ["=ether:no-such-one/02:00:00:00:00:01"]}, "no interface no-such-one"),
        ({"links": ["ether:lo="]}, "ether:IFACE/MAC"),
        ({"paths": 0}, "1 to 8"),
        ({"paths": 9}, "1 to 8"),
        ({"links": ["192.0.2.1"]}, "LOCAL=PEER"),
        ({"links": ["eth0=192.0.2.2"]}, "ip address"),
        ({"links": ["192.0.2.1=2001:db8::1"]}, "one family for both"),
        ({"links": ["="] * 8}, "at most 8 paths"),
        ({"rendezvous": "../a"}, "1 to 63 letters"),
    ],
)
def test_paths__what_cannot_be_says_what_to_do(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        zerolane.Options(**wrong)
