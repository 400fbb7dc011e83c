"""Runs agents in processes of their own, on this host or in two network namespaces."""

import contextlib
import ctypes
import faulthandler
import multiprocessing
import os
import subprocess
from pathlib import Path

from pyroute2 import NetNS, netns

PATIENCE = 120

# Each agent is a fork of one process that has imported what agents need, which takes longer than most tests.
forkserver = multiprocessing.get_context("forkserver")


class Failed(Exception):
    """A call in the other process failed: the name of the exception there, and its text."""


class Process:
    """An agent in another process: a call of this object is a call of an `agent` there."""

    def __init__(self, agent, namespace=None, log=None, **environment):
        self.log = log and Path(log)
        self.calls, calls = forkserver.Pipe()
        environment = {**os.environ, **environment}
        self.process = forkserver.Process(target=answer, args=(agent, calls, namespace, self.log, environment))
        self.process.start()
        calls.close()

    def begin(self, name, *arguments, **options):
        self.calls.send((name, arguments, options))

    def end(self):
        try:
            is_good, answer = self.calls.recv()
        except (EOFError, ConnectionResetError):
            self.process.join(PATIENCE)
            raise Failed("ended", f"the process ended with {self.process.exitcode}") from None
        if not is_good:
            raise Failed(*answer)
        return answer

    def __getattr__(self, name):
        def call(*arguments, **options):
            self.begin(name, *arguments, **options)
            return self.end()

        return call

    def said(self):
        """What the process wrote to standard error so far."""
        return self.log.read_text()

    def close(self):
        self.calls.close()
        self.process.join(20)
        self.process.kill()
        self.process.join()


def answer(agent, calls, namespace, log, environment):
    """Answers calls until the pipe closes."""
    os.environ.clear()
    os.environ.update(environment)
    if log:
        with open(log, "w") as said:
            os.dup2(said.fileno(), 1)
            os.dup2(said.fileno(), 2)
    faulthandler.enable()
    if namespace:
        enter(namespace)
    agent = agent()
    while True:
        try:
            name, arguments, options = calls.recv()
        except EOFError:
            return
        try:
            said = (True, getattr(agent, name)(*arguments, **options))
        except Exception as error:
            said = (False, (type(error).__name__, str(error)))
        calls.send(said)


def enter(namespace):
    """Moves this process into a network namespace, and shows its interfaces in /sys, where UCX looks for them."""
    netns.setns(namespace)
    # os.unshare is there from Python 3.12 on.
    if ctypes.CDLL(None).unshare(0x20000):  # CLONE_NEWNS
        raise OSError("no mount namespace may be made here")
    for words in (["--make-rslave", "/"], ["-t", "sysfs", namespace, "/sys"]):
        subprocess.run(["mount", *words], check=True)


@contextlib.contextmanager
def two_namespaces():
    """The names of two network namespaces that a veth joins, with an address each."""
    names = [f"nixl{os.getpid()}{it}" for it in "ab"]
    with contextlib.ExitStack() as stack:
        opened = []
        for name in names:
            netns.create(name)
            stack.callback(netns.remove, name)
            opened.append(stack.enter_context(NetNS(name)))
        opened[0].link("add", ifname="veth", kind="veth", peer={"ifname": "veth", "net_ns_fd": names[1]})
        for number, space in enumerate(opened, 1):
            index = space.link_lookup(ifname="veth")[0]
            space.addr("add", index=index, address=f"198.18.0.{number}", prefixlen=24)
            for device in ("lo", "veth"):
                space.link("set", index=space.link_lookup(ifname=device)[0], state="up")
        yield names
