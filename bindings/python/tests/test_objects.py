"""Tests weak references, pickles, and warnings of what is left open."""

import asyncio
import copy
import gc
import inspect
import pickle
import subprocess
import sys
import warnings
import weakref
from collections.abc import Callable
from pathlib import Path

import zerolane
from conftest import Pair, make_pair
from zerolane import Options, Rights, Worker, _zerolane, aio


def test_weak_references__to_all_classes(pair: Pair) -> None:
    classes = [it for it in vars(_zerolane).values() if isinstance(it, type)]
    assert len(classes) >= 24
    for it in classes:
        assert it.__weakrefoffset__, f"{it.__name__} has none"
    ours, _ = pair
    assert weakref.ref(ours)() is ours
    key = ours.export(zerolane.ExportedRegion.memfd(64), Rights.READ)
    held = weakref.WeakValueDictionary({"key": key})
    assert held["key"] is key
    del key
    assert "key" not in held


def test_pickle__of_a_key(pair: Pair) -> None:
    ours, _ = pair
    key = ours.export(zerolane.ExportedRegion.memfd(64), Rights.READ)
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        again = pickle.loads(pickle.dumps(key, protocol))
        assert again == key and again.length == 64 and bytes(again) == bytes(key)
    assert copy.deepcopy({"key": key}) == {"key": key}


def test_pickle__of_options_has_each_keyword(tmp_path: Path) -> None:
    trusted = zerolane.Options(identity=tmp_path / "peer").key
    given = {
        "strict": True,
        "gso": False,
        "gro": False,
        "checksum": False,
        "receive_buffer": 1 << 20,
        "max_in_flight": 8192,
        "spin": 0.25,
        "connect_timeout": 1.5,
        "idle_timeout": 2.5,
        "plain": False,
        "authenticated": True,
        "identity": tmp_path / "own",
        "trust": [trusted],
        "lane": "udp",
        "paths": 2,
        "links": ["127.0.0.1=127.0.0.2"],
        "path_threads": True,
        "rendezvous": "meeting",
        "ethernet_paths": True,
        "udp_paths": True,
        "keep_alive": True,
        "backlog": 7,
        "private_data": b"who",
        "asks": True,
    }
    assert {*given, "device"} == {*inspect.signature(Options).parameters}
    # Some exclude each other, so that each is pickled on its own too.
    for some in [{}, *({name: value} for name, value in given.items() if name != "rendezvous")]:
        options = Options(**some)  # type: ignore[arg-type]
        for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
            again = pickle.loads(pickle.dumps(options, protocol))
            assert again.__getnewargs_ex__() == ((), some)
            assert again.key == options.key and repr(again) == repr(options)
    options = Options(identity=tmp_path / "own", trust=[str(trusted)])
    again = copy.copy(options)
    assert again.key == options.key
    # It is a copy of what was given.
    again.__getnewargs_ex__()[1].clear()
    assert again.__getnewargs_ex__()[1].keys() == {"identity", "trust"}


def left(make: Callable[[], object], match: str) -> None:
    """Drops what ``make`` returns, which warns once."""
    held = [make()]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        held.clear()
        gc.collect()
    texts = [str(it.message) for it in caught]
    assert len(texts) == 1 and match in texts[0], texts
    assert caught[0].category is ResourceWarning


def test_unclosed__warns() -> None:
    ours, peers = make_pair()
    host, port = ours.peer_addr
    held = [ours]
    del ours
    left(held.pop, f"unclosed Connection to {host}:{port}: ")
    peers.abort()
    left(lambda: zerolane.Endpoint("127.0.0.1:0"), "unclosed Endpoint at 127.0.0.1:")
    left(Worker, "unclosed Worker: ")
    left(lambda: Worker().spawn(), "unclosed WorkerThread: ")


def test_unclosed__does_not_warn_of_what_was_closed_or_given_away() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ours, peers = make_pair()
        others, last = make_pair()
        with Worker() as worker, Worker() as second:
            number = worker.adopt(ours)
            peers.abort()
            with second.spawn() as thread:
                handle = thread.adopt(others).wait(20)
                listening = thread.listen("127.0.0.1:0").wait(20)
                with last:
                    pass
            endpoint = zerolane.Endpoint("127.0.0.1:0")
            worker.listen_on(endpoint)
            assert worker.close(number) in (True, False)
        del ours, peers, others, last, worker, second, thread, handle, listening, endpoint
        gc.collect()


def test_unclosed__warns_at_the_end_of_the_interpreter() -> None:
    program = "import zerolane; endpoint = zerolane.Endpoint('127.0.0.1:0')"
    for how, said in (("always", True), ("ignore", False)):
        ran = subprocess.run(
            [sys.executable, "-W", how, "-c", program], capture_output=True, text=True, timeout=100
        )
        assert ran.returncode == 0, ran.stderr
        assert ("ResourceWarning: unclosed Endpoint at 127.0.0.1:" in ran.stderr) == said


def test_unclosed__does_not_warn_in_a_child_of_fork() -> None:
    program = """
import os, zerolane
objects = [zerolane.Endpoint("127.0.0.1:0"), zerolane.Worker(), zerolane.Worker().spawn()]
child = os.fork()
if child:
    assert os.waitpid(child, 0)[1] == 0
    objects[0].close()
    objects[1].abort()
    objects[2].abort()
else:
    objects.clear()
    os._exit(0)
"""
    ran = subprocess.run(
        [sys.executable, "-W", "always::ResourceWarning", "-c", program],
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert ran.returncode == 0 and "unclosed" not in ran.stderr, ran.stderr


def test_unclosed__of_asyncio_warns_when_the_loop_is_gone() -> None:
    async def leave() -> None:
        endpoint = aio.Endpoint("127.0.0.1:0")
        ours = await aio.connect(endpoint.local_addr)
        peers = await endpoint.accept()
        closed = await aio.connect(endpoint.local_addr)
        await closed.close()
        assert ours.peer_addr and peers.peer_addr

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        asyncio.run(leave())
        gc.collect()
    kinds = [str(it.message).split()[1] for it in caught if it.category is ResourceWarning]
    assert kinds.count("<zerolane.aio.Endpoint") == 1, caught
    assert kinds.count("<zerolane.aio.Connection") >= 2, caught
    assert not [it for it in kinds if "Worker" in it]


def test_unclosed__of_asyncio_does_not_warn_of_what_was_closed() -> None:
    async def close() -> None:
        with aio.Endpoint("127.0.0.1:0") as endpoint:
            async with await aio.connect(endpoint.local_addr):
                (await endpoint.accept()).abort()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asyncio.run(close())
        gc.collect()
