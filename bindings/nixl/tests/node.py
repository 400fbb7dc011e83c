"""Does with an agent what the tests ask for, in a process of its own."""

import os
import resource
import time

import numpy as np
from nixl_cu12._api import nixl_agent, nixl_agent_config

PATIENCE = 60


def pattern(length, seed):
    """So many bytes without repetition."""
    return np.random.default_rng(seed).integers(0, 256, length, dtype=np.uint8)


class Node:
    """What the tests ask of an agent."""

    def __init__(self):
        self.arrays = []
        self.registered = []
        self.handles = {}
        self.lists = {}
        self.notifs = []

    def start(self, name, parameters=None, backends=("ZEROLANE",)):
        self.agent = nixl_agent(name, nixl_agent_config(backends=[]))
        for backend in backends:
            self.agent.create_backend(backend, parameters or {})
        return os.getpid()

    def allocate(self, length, seed=None, offset=0):
        """Makes memory, with a pattern or zeros; returns its number and address."""
        array = np.zeros(length + offset, dtype=np.uint8)[offset:]
        if seed is not None:
            array[:] = pattern(length, seed)
        self.arrays.append(array)
        return len(self.arrays) - 1, array.ctypes.data

    def register(self, *numbers):
        extents = [(self.arrays[it].ctypes.data, self.arrays[it].size, 0, "") for it in numbers]
        self.registered.append(self.agent.register_memory(extents, "DRAM", ["ZEROLANE"]))
        return len(self.registered) - 1

    def register_blocks(self, number, size):
        """Registers each block of memory alone; returns how often this thread waited for another."""
        array = self.arrays[number]
        extents = [(array.ctypes.data + it, size, 0, "") for it in range(0, array.size, size)]
        before = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
        self.registered.append(self.agent.register_memory(extents, "DRAM", ["ZEROLANE"]))
        return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw - before

    def register_at(self, address, length, segment="DRAM"):
        self.registered.append(self.agent.register_memory([(address, length, 0, "")], segment, ["ZEROLANE"]))
        return len(self.registered) - 1

    def deregister(self, number):
        self.agent.deregister_memory(self.registered[number])

    def metadata(self):
        return self.agent.get_agent_metadata()

    def load(self, metadata):
        return self.agent.add_remote_agent(metadata)

    def forget(self, name):
        self.agent.remove_remote_agent(name)

    def connect(self, name):
        self.agent.make_connection(name, ["ZEROLANE"])

    def prepare(self, key, operation, local, remote, peer, notification=b""):
        """Makes a transfer; the lists have (address, length)."""
        here = self.agent.get_xfer_descs([(a, n, 0) for a, n in local], "DRAM")
        there = self.agent.get_xfer_descs([(a, n, 0) for a, n in remote], "DRAM")
        self.handles[key] = self.agent.initialize_xfer(operation, here, there, peer, notification, ["ZEROLANE"])

    def prepare_list(self, key, peer, extents):
        """Makes a prepared list, of ours if there is no peer."""
        descs = self.agent.get_xfer_descs([(a, n, 0) for a, n in extents], "DRAM")
        name = peer or "NIXL_INIT_AGENT"
        self.lists[key] = self.agent.prep_xfer_dlist(name, descs, "DRAM", ["ZEROLANE"])

    def prepare_from_lists(self, key, operation, here, indices, there, their_indices, notification=b""):
        self.handles[key] = self.agent.make_prepped_xfer(
            operation, self.lists[here], indices, self.lists[there], their_indices, notification, ["ZEROLANE"]
        )

    def post(self, key, notification=b""):
        return self.agent.transfer(self.handles[key], notification)

    def state(self, key):
        return self.agent.check_xfer_state(self.handles[key])

    def wait(self, key, patience=PATIENCE, pause=0.001):
        """Polls until the transfer is over; returns its state and how long that took."""
        started = time.perf_counter()
        while True:
            state = self.agent.check_xfer_state(self.handles[key])
            took = time.perf_counter() - started
            if state != "PROC" or took > patience:
                return state, took
            if pause:
                time.sleep(pause)

    def transfer(self, *arguments, patience=PATIENCE):
        self.prepare("one", *arguments)
        state = self.post("one")
        if state == "PROC":
            state = self.wait("one", patience)[0]
        self.release("one")
        return state

    def release(self, key):
        started = time.perf_counter()
        self.agent.release_xfer_handle(self.handles.pop(key))
        return time.perf_counter() - started

    def notify(self, peer, text):
        self.agent.send_notif(peer, text)

    def notifications(self, count, patience=PATIENCE, pause=0.001):
        """Waits for so many notifications in all; returns those that came."""
        ends = time.monotonic() + patience
        while len(self.notifs) < count and time.monotonic() < ends:
            for sender, texts in self.agent.get_new_notifs().items():
                self.notifs.extend((sender, text) for text in texts)
            if pause:
                time.sleep(pause)
        came, self.notifs = self.notifs, []
        return came

    def fill(self, number, seed):
        array = self.arrays[number]
        array[:] = 0 if seed is None else pattern(array.size, seed)

    def content(self, number, start=0, length=None):
        array = self.arrays[number]
        return array[start : array.size if length is None else start + length].tobytes()

    def equals(self, number, seed):
        array = self.arrays[number]
        return bool((array == pattern(array.size, seed)).all())

    def sleep(self, seconds):
        time.sleep(seconds)

    def environment(self, name, value):
        os.environ[name] = value

    def version(self):
        from importlib.metadata import version

        return version("nixl-cu12")

    def stop(self):
        self.handles.clear()
        self.lists.clear()
        del self.agent

    def fork_and_use(self):
        """What a child of fork sees: a call that fails, and an end that does not hang."""

        def use():
            said = "nothing"
            try:
                self.agent.send_notif(self.agent.name, b"from a child")
            except Exception as error:
                said = type(error).__name__
            try:
                self.agent.register_memory([(self.arrays[0].ctypes.data, 8, 0, "")], "DRAM", ["ZEROLANE"])
                said += " registered"
            except Exception as error:
                said += " " + type(error).__name__
            del self.agent
            return said

        return self.in_child(use)

    def fork_and_make(self):
        """Transfers between two agents that a child of fork makes."""

        def make():
            one, two = Node(), Node()
            one.start("one of the child")
            two.start("two of the child")
            (here, a), (there, b) = one.allocate(100_000, seed=3), two.allocate(100_000)
            one.register(here)
            two.register(there)
            one.load(two.metadata())
            state = one.transfer("WRITE", [(a, 100_000)], [(b, 100_000)], "two of the child")
            return f"{state} {two.equals(there, 3)}"

        return self.in_child(make)

    def in_child(self, body):
        """What a child of fork says."""
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            said = "an exception"
            try:
                said = body()
            finally:
                os.write(write, said.encode())
                os._exit(0)
        os.close(write)
        said = os.read(read, 1000).decode()
        os.close(read)
        os.waitpid(child, 0)
        return said
