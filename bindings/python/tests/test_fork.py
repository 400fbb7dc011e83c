"""Tests that a child of fork cannot use its parent's objects, and does not disturb the parent."""

import subprocess
import sys
from pathlib import Path

CHILD = """
import asyncio, os, signal, sys, threading, warnings
import zerolane
from conftest import make_pair
from zerolane import Rights, aio

warnings.simplefilter("ignore", DeprecationWarning)


def forked(call, *arguments, **keywords):
    try:
        returned = call(*arguments, **keywords)
    except zerolane.Closed as error:
        assert "belongs to the parent process" in str(error), error
    else:
        raise AssertionError(f"{call} returned {returned!r}")


def in_a_child(body):
    pid = os.fork()
    if pid == 0:
        try:
            # One that hangs is ended.
            signal.alarm(60)
            body()
            os._exit(0)
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
            import traceback
            traceback.print_exc()
            os._exit(1)
    _, status = os.waitpid(pid, 0)
    assert status == 0, status


ours, peers = make_pair(%(options)s)
busy, others = make_pair()
endpoint = zerolane.Endpoint("127.0.0.1:0")
waits = zerolane.Endpoint("127.0.0.1:0")
worker = zerolane.Worker()
number = worker.listen("127.0.0.1:0")
thread = zerolane.Worker().spawn()
listening = thread.listen("127.0.0.1:0").wait(20)
handle = thread.connect(listening.local_addr).wait(20)
accepted = listening.accept().wait(20)
receiving = accepted.recv(bytearray(8))
queue = zerolane.CompletionQueue(8)
over = zerolane.PendingSet()
over.signal(7)
background = zerolane.background()
region = zerolane.ExportedRegion.memfd(64)
key = peers.export(region, Rights.ALL)
# Threads that are in a call, whose locks no thread of the child lets go.
threads = [
    threading.Thread(target=busy.wait),
    threading.Thread(target=lambda: receiving.wait()),
    threading.Thread(target=lambda: waits.accept()),
]
for it in threads:
    it.start()


def child():
    place = bytearray(8)
    for call in [
        lambda: ours.send(b"by the child"),
        lambda: ours.recv_into(place),
        lambda: ours.post_send(b"by the child"),
        lambda: ours.put(key, 0, b"by the child"),
        lambda: ours.fetch_add(key, 0),
        lambda: ours.export(region, Rights.ALL),
        ours.poll,
        ours.wait,
        ours.announced,
        ours.close,
        lambda: busy.send(b"by the child"),
        busy.close,
        endpoint.accept,
        waits.accept,
        worker.progress,
        worker.wait,
        worker.arm,
        worker.stop,
        worker.spawn,
        lambda: worker.listen("127.0.0.1:0"),
        lambda: worker.connect("127.0.0.1:1"),
        lambda: worker.listen_on(endpoint),
        queue.poll,
        queue.poll_batch,
        queue.wait,
        over.poll_batch,
        over.wait,
        lambda: over.add(receiving, 1),
        lambda: background.listen("127.0.0.1:0").wait(),
        region.revoke,
        lambda: region.read(0, 5),
        lambda: region.load(0),
        lambda: region.revoked,
        receiving.wait,
        lambda: handle.send(b"by the child").wait(),
        lambda: accepted.recv(place).wait(),
        thread.stop,
    ]:
        forked(call)
    assert receiving.done()
    receiving.cancel()
    receiving.detach()
    # What lets go says nothing.
    for it in (ours, busy, worker):
        it.abort()
    for it in (endpoint, waits):
        it.close()
    with region:
        forked(region.write, 0, b"child")
    own, other = make_pair()
    forked(own.export, region, Rights.ALL)
    own.abort()
    other.abort()

    async def main():
        with aio.Endpoint("127.0.0.1:0") as listens:
            one = await aio.connect(listens.local_addr)
            two = await listens.accept()
            place = bytearray(5)
            await asyncio.gather(one.send(b"hello"), two.recv_into(place))
            assert place == b"hello"
            one.abort()
            two.abort()

    asyncio.run(main())
    # The child's own.
    there = zerolane.background().listen("127.0.0.1:0").wait(20)
    zerolane.background().connect(there.local_addr).wait(20)
    over.signal(8)


in_a_child(child)
assert over.poll_batch() == [7]
there = background.listen("127.0.0.1:0").wait(20)
background.connect(there.local_addr).wait(20)
# A server that forks before it accepts.
for _ in range(3):
    in_a_child(lambda: forked(endpoint.accept, timeout=20))
assert region.read(0, 5) == bytes(5)
assert handle.send(b"parent").wait(20).length == 6 and receiving.wait(20).memory == b"parent"
busy.wake()
# It stays: the backlog drops a client that leaves before it is accepted.
client = zerolane.connect(waits.local_addr)
for it in threads:
    it.join()
client.abort()
for one, two in ((ours, peers), (peers, ours)) * 3:
    place = bytearray(6)
    sending = threading.Thread(target=one.send, args=[b"parent"])
    sending.start()
    assert two.recv_into(place) == 6 and place == b"parent"
    two.wait(0.001)
    sending.join()
client = zerolane.connect(endpoint.local_addr)
endpoint.accept(timeout=20).abort()
client.abort()
assert worker.close_endpoint(number)
thread.stop()
region.revoke()
for it in (ours, peers, busy, others, worker):
    it.abort()
"""


def child_of(options: str) -> None:
    """Runs it in a process that can be ended: threads that wait for each other cannot."""
    program = [sys.executable, "-c", CHILD % {"options": options}]
    ran = subprocess.run(
        program, cwd=Path(__file__).parent, capture_output=True, text=True, timeout=200
    )
    assert ran.returncode == 0, ran.stderr


def test_fork__in_shared_memory() -> None:
    child_of("None")


def test_fork__by_udp() -> None:
    child_of('zerolane.Options(lane="udp")')
