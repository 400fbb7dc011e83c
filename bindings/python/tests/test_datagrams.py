"""Tests datagrams, which may be lost: so they are sent until one comes."""

from time import monotonic

import pytest

import zerolane
from conftest import Pair, pattern

PATIENCE = 40


@pytest.mark.parametrize("length", [1, 1200, 60 << 10])
def test_datagrams__arrive_whole(pair: Pair, length: int) -> None:
    ours, peers = pair
    assert ours.max_datagram() == 60 << 10
    data = pattern(length).tobytes()
    end = monotonic() + PATIENCE
    came = None
    while came is None:
        assert monotonic() < end
        ours.send_datagram(data)
        came = peers.recv_datagram(0.05)
    assert came == data


def test_datagrams__nothing_comes_in_time(pair: Pair) -> None:
    ours, _ = pair
    assert ours.recv_datagram(0.01) is None


@pytest.mark.parametrize("length", [0, (60 << 10) + 1])
def test_datagrams__of_other_lengths_are_refused(pair: Pair, length: int) -> None:
    ours, _ = pair
    with pytest.raises(ValueError, match="1 to 61440 bytes"):
        ours.send_datagram(bytes(length))


def test_datagrams__beyond_the_queue_are_refused(pair: Pair) -> None:
    ours, peers = pair
    peers.abort()
    with pytest.raises((zerolane.QueueFull, zerolane.ConnectionEnded)):
        for _ in range(100_000):
            ours.send_datagram(bytes(60 << 10))
