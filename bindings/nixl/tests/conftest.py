"""Gives the tests agents, alone or in pairs, on this host or in two network namespaces."""

import contextlib
import importlib.util
import os
import signal
import sys
import time
from pathlib import Path

import pytest

import zerolane_nixl

HERE = Path(__file__).parent

paths = [str(HERE), os.environ.get("PYTHONPATH")]
if importlib.util.find_spec("torch") is None:
    sys.path.append(str(HERE / "without_torch"))
    paths.insert(0, str(HERE / "without_torch"))
# For the fork server.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))

import node  # noqa: E402
from agents import Process, forkserver, two_namespaces  # noqa: E402

forkserver.set_forkserver_preload(["__main__", "node"])


@pytest.fixture(scope="session", autouse=True)
def plugins(tmp_path_factory):
    """Puts the plug-in beside those of the wheel, without a trace in the user's home."""
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))
    return zerolane_nixl.activate()


@pytest.fixture(scope="session")
def namespaces():
    """Two network namespaces that a veth joins, with an address each."""
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    with two_namespaces() as names:
        yield names


@pytest.fixture
def processes(tmp_path):
    """Starts agents; ends all of them after the test."""
    with contextlib.ExitStack() as stack:

        def start(name, parameters=None, namespace=None, **environment):
            process = Process(node.Node, namespace, tmp_path / f"{name}.log", NIXL_LOG_LEVEL="WARN", **environment)
            stack.callback(process.close)
            process.pid = process.start(name, parameters)
            return process

        yield start


class Pair:
    """Two agents that know each other, with a region each."""

    def __init__(self, first, second, length):
        self.first, self.second, self.length = first, second, length
        self.here, self.here_address = first.allocate(length, seed=1)
        self.there, self.there_address = second.allocate(length)
        self.here_registered = first.register(self.here)
        self.there_registered = second.register(self.there)
        self.introduce()

    def introduce(self):
        self.first.load(self.second.metadata())
        self.second.load(self.first.metadata())

    def blocks(self, size, step=None, count=None):
        """Blocks of both regions, of which the second are in another order."""
        step = step or size
        starts = list(range(0, self.length - size + 1, step))[:count]
        return (
            [(self.here_address + it, size) for it in starts],
            [(self.there_address + it, size) for it in reversed(starts)],
        )

    def whole(self):
        return [(self.here_address, self.length)], [(self.there_address, self.length)]


@pytest.fixture(params=["one host", "two hosts"])
def pair(request, processes):
    """A function that makes a pair on one host (shared memory), or in two namespaces (UDP)."""

    def make(length=1 << 20, parameters=None, **environment):
        spaces = [None, None]
        if request.param == "two hosts":
            spaces = request.getfixturevalue("namespaces")
        first, second = (
            processes(name, parameters, space, **environment)
            for name, space in zip(("first", "second"), spaces, strict=True)
        )
        return Pair(first, second, length)

    return make


@pytest.fixture
def frozen():
    """Stops a process, which goes on after the test at the latest."""
    stopped = []

    def running(pid):
        tasks = Path(f"/proc/{pid}/task").iterdir()
        return [it.name for it in tasks if (it / "stat").read_text().rpartition(")")[2].split()[0] != "T"]

    def freeze(process):
        os.kill(process.pid, signal.SIGSTOP)
        stopped.append(process.pid)
        # One thread takes the signal and stops the others, which go on until it runs.
        deadline = time.monotonic() + 60
        while running(process.pid):
            assert time.monotonic() < deadline, running(process.pid)
            time.sleep(0.001)

    yield freeze
    for pid in stopped:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
