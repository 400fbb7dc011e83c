"""Tests casts of a buffer to many hosts: content, failing hosts, invalid arguments, signals."""

import _thread
import mmap
import socket
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zerolane
from conftest import interrupt, pattern

# What no test waits for in vain.
PATIENCE = 60
# A machine may hold up any of them for seconds, and that is not to be taken for its death.
SILENCE = 30
# How long a source waits for hosts that are not there.
GATHER = 5


@contextmanager
def waiting(
    places: Sequence[Any], patience: Sequence[float] = (), **how: Any
) -> Iterator[tuple[list[tuple[str, int]], list[Future[int]]]]:
    """A host in a thread for each place: where they wait, for how long, and what they receive."""
    patience = patience or [PATIENCE] * len(places)
    how.setdefault("silence", SILENCE)
    with ExitStack() as stack:
        executor = stack.enter_context(ThreadPoolExecutor(len(places)))
        hosts = [
            stack.enter_context(zerolane.CastReceiver("127.0.0.1:0", place, **how))
            for place in places
        ]
        received = [
            executor.submit(host.receive, wait) for host, wait in zip(hosts, patience, strict=True)
        ]
        yield [host.local_addr for host in hosts], received


def named(address: tuple[str, int]) -> str:
    return f"{address[0]}:{address[1]}"


def unused() -> tuple[str, int]:
    """An address where nothing waits as long as the test runs, in all likelihood."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        host, port = taken.getsockname()
        return host, port


@pytest.mark.parametrize("arity", [1, 2])
def test_cast__to_all_and_the_buffers_are_free(arity: int) -> None:
    weights = pattern(6_000_001).tobytes()
    longer = bytearray(b"\1" * 7_000_000)
    anonymous = mmap.mmap(-1, 6_000_001)
    array = np.zeros((3, 1_000_001), dtype=np.float64)
    places: list[Any] = [bytearray(len(weights)), longer, anonymous, array]
    with waiting(places) as (hosts, received):
        outcome = zerolane.cast(weights, hosts, arity=arity, silence=SILENCE)
        assert [it.result() for it in received] == [len(weights)] * len(places)
    for place in places:
        assert memoryview(place).cast("B")[: len(weights)] == weights
    assert longer[len(weights) :] == b"\1" * (7_000_000 - len(weights))
    assert [it.name for it in outcome.hosts] == [named(it) for it in hosts]
    assert all(it.reason is None for it in outcome.hosts)
    assert outcome.bytes == len(weights) and outcome.sent >= len(weights)
    assert 0 <= max(it.after for it in outcome.hosts) == outcome.took
    places[0].clear()
    longer.clear()
    anonymous.close()


def test_cast__of_a_mapped_file(tmp_path: Path) -> None:
    content = pattern(2_000_003)
    file = tmp_path / "weights"
    file.write_bytes(content.tobytes())
    mapped = np.memmap(file, dtype=np.uint8, mode="r")
    place = np.zeros_like(content)
    with waiting([place]) as (hosts, received):
        # A host by its text.
        zerolane.cast(mapped, [named(hosts[0])], silence=SILENCE)
        assert received[0].result() == len(content)
    assert (place == content).all()


def test_cast__a_host_that_fails_is_named_and_the_others_have_it() -> None:
    weights = bytearray(pattern(3_000_000).tobytes())
    short = bytearray(2_999_999)
    places = [bytearray(3_000_000), short, bytearray(3_000_000)]
    gone = unused()
    with waiting(places, [PATIENCE, 4 * GATHER, PATIENCE]) as (hosts, received):
        unknown = ("no-such-host.invalid", 9)
        with pytest.raises(zerolane.CastFailed) as caught:
            zerolane.cast(
                weights, [*hosts, gone, unknown], gather=GATHER, silence=SILENCE, linger=0
            )
        assert received[0].result() == received[2].result() == 3_000_000
        # It refused the offer, and waits for one that fits.
        with pytest.raises(TimeoutError):
            received[1].result()
    assert places[0] == places[2] == weights and short == bytes(2_999_999)
    outcome = caught.value.outcome
    assert outcome is not None
    reasons = [it.reason for it in outcome.hosts]
    assert reasons[0] is None and reasons[2] is None
    assert reasons[1] is not None and "only 2999999" in reasons[1]
    assert reasons[3] and reasons[4]
    text = str(caught.value)
    assert text.startswith("3 of 5 hosts do not have it: ")
    for host, reason in zip([hosts[1], gone, unknown], [reasons[1], *reasons[3:]], strict=True):
        assert f"{named(host)}: {reason}" in text
    weights.clear()
    short.clear()


def test_cast__that_the_program_spoils_fails_as_a_whole() -> None:
    weights = bytearray(pattern(8_000_000).tobytes())
    place = bytearray(len(weights))
    with ThreadPoolExecutor(1) as executor, waiting([place]) as (hosts, received):
        casting = executor.submit(
            zerolane.cast, weights, hosts, silence=SILENCE, max_rate=2_000_000
        )
        # It was digested once a part has come.
        while not any(place[:4096]) and not casting.done():
            time.sleep(0.01)
        weights[7_999_000:7_999_005] = b"other"
        with pytest.raises(zerolane.CastFailed, match="source changed") as caught:
            casting.result()
        with pytest.raises(zerolane.CastFailed, match="source changed"):
            received[0].result()
    assert caught.value.outcome is None
    weights.clear()
    place.clear()


def test_cast__only_where_keys_are_trusted(tmp_path: Path) -> None:
    key = zerolane.Options(identity=tmp_path / "source").key
    other = zerolane.Options(identity=tmp_path / "other").key
    assert key is not None and other is not None
    weights = pattern(100_000)
    place = np.zeros_like(weights)
    with waiting([place], trust=[key], identity=tmp_path / "host") as (hosts, received):
        with pytest.raises(zerolane.CastFailed, match="does not admit this key"):
            zerolane.cast(weights, hosts, identity=tmp_path / "other", silence=SILENCE)
        with pytest.raises(zerolane.CastFailed) as caught:
            zerolane.cast(
                weights, hosts, identity=tmp_path / "source", trust=[other], silence=SILENCE
            )
        host = zerolane.Options(identity=tmp_path / "host").key
        assert host is not None and host in str(caught.value)
        assert not place.any()
        zerolane.cast(weights, hosts, identity=tmp_path / "source", trust=[host], silence=SILENCE)
        assert received[0].result() == len(weights)
    assert (place == weights).all()


def test_cast__what_will_not_do() -> None:
    host = unused()
    with pytest.raises(TypeError):
        zerolane.cast("text", [host])  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        zerolane.cast([b"one", b"two"], [host])  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        zerolane.cast(b"content", named(host))
    with pytest.raises(TypeError):
        zerolane.cast(b"content", [9184])  # type: ignore[list-item]
    for wrong, match in [
        ({"arity": 0}, "arity"),
        ({"arity": 65}, "arity"),
        ({"gather": -1.0}, "not a time"),
        ({"silence": 0.0}, "silence"),
        ({"max_rate": 0}, "max_rate"),
        ({"slow": "push"}, "push"),
        ({"name": "n" * 201}, "201 bytes"),
    ]:
        with pytest.raises(ValueError, match=match):
            zerolane.cast(b"content", [host], **wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no hosts"):
        zerolane.cast(b"content", [])
    with pytest.raises(ValueError, match="empty"):
        zerolane.cast(b"", [host])
    unaligned = memoryview(bytearray(100))[1:]
    with pytest.raises(ValueError, match="multiple of 8"):
        zerolane.cast(unaligned, [host])
    with pytest.raises(ValueError, match="multiple of 8"):
        zerolane.CastReceiver("127.0.0.1:0", unaligned)
    with pytest.raises(BufferError, match="contiguous"):
        zerolane.cast(np.zeros((10, 10))[:, ::2], [host])
    with pytest.raises(BufferError, match="read-only"):
        zerolane.CastReceiver("127.0.0.1:0", b"content")
    with pytest.raises(TypeError):
        zerolane.CastReceiver("127.0.0.1:0", 8)  # type: ignore[arg-type]
    place = bytearray(8)
    with zerolane.CastReceiver("127.0.0.1:0", place) as taken, pytest.raises(OSError):
        zerolane.CastReceiver(taken.local_addr, bytearray(8))
    place.clear()


def test_receive__once_and_not_for_longer_than_its_timeout() -> None:
    place = bytearray(100)
    host = zerolane.CastReceiver("127.0.0.1:0", place)
    with pytest.raises(BufferError):
        place.clear()
    with pytest.raises(TimeoutError):
        host.receive(timeout=0.2)
    place.clear()
    with pytest.raises(ValueError, match="already"):
        host.receive()


@pytest.mark.parametrize("end", ["source", "host"])
def test_signals__end_a_cast_and_the_buffer_is_free(end: str) -> None:
    buffer = bytearray(1_000_000)
    host = zerolane.CastReceiver("127.0.0.1:0", buffer)
    if end == "source":
        host.close()
    with pytest.raises(KeyboardInterrupt), interrupt():
        if end == "source":
            zerolane.cast(buffer, [host.local_addr], gather=PATIENCE)
        else:
            host.receive()
    buffer.clear()


def test_signals__end_a_cast_that_sends(executor: ThreadPoolExecutor) -> None:
    weights = bytearray(pattern(8_000_000).tobytes())
    place = bytearray(len(weights))
    with waiting([place]) as (hosts, received):

        def interrupt_midway() -> None:
            while not any(place[:4096]) and not received[0].done():
                time.sleep(0.01)
            _thread.interrupt_main()

        interrupting = executor.submit(interrupt_midway)
        with pytest.raises(KeyboardInterrupt):
            zerolane.cast(weights, hosts, silence=SILENCE, max_rate=500_000)
        interrupting.result()
        with pytest.raises(zerolane.CastFailed, match="stopped"):
            received[0].result()
    weights.clear()
    place.clear()
