"""Tests identities, trusted peers, and connections without protection."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import zerolane
from conftest import Pair, make_pair


def key_of(file: Path) -> str:
    """The key that lives in `file` from now on."""
    key = zerolane.Options(identity=file).key
    assert key is not None
    return key


def refuse(
    here: zerolane.Options | None,
    there: zerolane.Options | None,
    error: type[Exception],
    match: str | None = None,
) -> None:
    """A client with `there` gets `error` from an endpoint with `here`, and is not accepted."""
    with ThreadPoolExecutor(1) as executor, zerolane.Endpoint("127.0.0.1:0", here) as endpoint:
        connecting = executor.submit(zerolane.connect, endpoint.local_addr, there)
        while not connecting.done():
            with pytest.raises(TimeoutError):
                endpoint.accept(timeout=0.1)
        # What the client sent last is received, too.
        with pytest.raises(TimeoutError):
            endpoint.accept(timeout=0.1)
        with pytest.raises(error, match=match):
            connecting.result()


def test_default__is_protected_by_keys_for_the_occasion(pair: Pair) -> None:
    ours, peers = pair
    keys = {ours.peer_key, peers.peer_key}
    assert len(keys) == 2
    assert all(key is not None and key.startswith("zl:") for key in keys)
    assert zerolane.Options().key is None


def test_plain__only_if_both_say_so() -> None:
    plain = zerolane.Options(plain=True)
    ours, peers = make_pair(plain)
    assert (ours.peer_key, peers.peer_key) == (None, None)
    ours.abort()
    peers.abort()
    for here, there in [(None, plain), (plain, None)]:
        refuse(here, there, zerolane.Rejected)


def test_authenticated__only_if_both_say_so() -> None:
    authenticated = zerolane.Options(authenticated=True)
    ours, peers = make_pair(authenticated)
    assert ours.peer_key is not None and ours.peer_key != peers.peer_key
    ours.abort()
    peers.abort()
    for here, there in [(None, authenticated), (authenticated, None)]:
        refuse(here, there, zerolane.Rejected, match="authenticate")


def test_identity__is_kept_and_shown_to_the_peer(tmp_path: Path) -> None:
    file = tmp_path / "identity"
    key = key_of(file)
    options = zerolane.Options(identity=str(file))
    assert options.key == key
    with (
        ThreadPoolExecutor(1) as executor,
        zerolane.Endpoint("127.0.0.1:0", options) as endpoint,
    ):
        assert endpoint.public_key == key
        trusting = zerolane.Options(trust=[key])
        connecting = executor.submit(zerolane.connect, endpoint.local_addr, trusting)
        accepted = endpoint.accept(timeout=10)
        connected = connecting.result()
        assert connected.peer_key == key
        connected.abort()
        accepted.abort()


def test_trust__no_other_peer_is_spoken_to(tmp_path: Path) -> None:
    friend = key_of(tmp_path / "friend")
    trusting = zerolane.Options(trust=[friend])
    refuse(None, trusting, zerolane.Untrusted)
    refuse(trusting, None, zerolane.Rejected)


def test_options__that_will_not_do(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="zl:"):
        zerolane.Options(trust=["me"])
    with pytest.raises(ValueError, match="plain"):
        zerolane.Options(plain=True, trust=[key_of(tmp_path / "identity")])
    with pytest.raises(ValueError, match="exclude each other"):
        zerolane.Options(plain=True, authenticated=True)
    exposed = tmp_path / "exposed"
    key_of(exposed)
    exposed.chmod(0o644)
    with pytest.raises(OSError, match="0600"):
        zerolane.Options(identity=exposed)
