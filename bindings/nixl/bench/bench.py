"""Compares NIXL's back ends: two agents, in two network namespaces or on one host, by turns.

    python bench.py [--backends UCX,ZEROLANE] [--one-host] [--turns 5] [--seconds 0.5] [--json FILE]

Needs root and pyroute2 for the namespaces, and a Python with a wheel of NIXL, numpy and zerolane_nixl. In the
namespaces UCX uses TCP, as between hosts, and TCP uses cubic: bbr would hold it back.
"""

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from agents import Process, two_namespaces

SIZES = [("8 B", 8, 1), ("4 KiB", 4096, 1), ("64 KiB", 65536, 1), ("1 MiB", 1 << 20, 1), ("64 MiB", 64 << 20, 1)]
LISTS = [("1,024 x 16 KiB", 16384, 1024), ("256 x 64 KiB", 65536, 256)]
REGION = 128 << 20
BLOCKS = 10_000
PATIENCE = 60


class Node:
    """An agent: its other end tells it what to do."""

    def start(self, name, backend):
        import numpy as np
        from nixl_cu12._api import nixl_agent, nixl_agent_config

        if backend == "ZEROLANE":
            import zerolane_nixl

            zerolane_nixl.activate()
        self.backend = backend
        self.agent = nixl_agent(name, nixl_agent_config(backends=[]))
        self.agent.create_backend(backend, {})
        self.memory = np.ones(REGION, dtype=np.uint8)
        self.agent.register_memory([(self.memory.ctypes.data, REGION, 0, "")], "DRAM", [backend])
        return self.memory.ctypes.data

    def use_cubic(self):
        # Of the process's namespace alone.
        try:
            Path("/proc/sys/net/ipv4/tcp_congestion_control").write_text("cubic")
        except PermissionError:
            allow = "sysctl -w net.ipv4.tcp_allowed_congestion_control='reno cubic bbr'"
            raise RuntimeError(f"TCP may not use cubic in namespaces here: {allow}") from None

    def metadata(self):
        return self.agent.get_agent_metadata()

    def load(self, metadata):
        self.agent.add_remote_agent(metadata)

    def make(self, operation, peer, address, size, count):
        """A transfer of blocks with gaps, so that no two are joined."""
        step = REGION // count // 2 if count > 1 else 0
        base = self.memory.ctypes.data
        here = self.agent.get_xfer_descs([(base + it * step, size, 0) for it in range(count)], "DRAM")
        there = self.agent.get_xfer_descs([(address + it * step, size, 0) for it in range(count)], "DRAM")
        return self.agent.initialize_xfer(operation, here, there, peer, b"", [self.backend])

    def run(self, handle):
        state = self.agent.transfer(handle)
        ends = time.monotonic() + PATIENCE
        while state == "PROC" and time.monotonic() < ends:
            state = self.agent.check_xfer_state(handle)
        if state != "DONE":
            raise RuntimeError(f"the transfer ended in state {state}")

    def measure(self, operation, peer, address, size, count, seconds):
        """The median time of a transfer that is posted again and again."""
        handle = self.make(operation, peer, address, size, count)
        self.run(handle)
        times, ends = [], time.perf_counter() + seconds
        while len(times) < 3 or time.perf_counter() < ends:
            started = time.perf_counter()
            self.run(handle)
            times.append(time.perf_counter() - started)
        self.agent.release_xfer_handle(handle)
        return statistics.median(times)

    def first(self, peer, address):
        """The time of the first transfer, with all that it waits for."""
        started = time.perf_counter()
        handle = self.make("WRITE", peer, address, 8, 1)
        self.run(handle)
        took = time.perf_counter() - started
        self.agent.release_xfer_handle(handle)
        return took

    def register(self, turns):
        """The median time to register that many blocks of 4 KiB, each alone."""
        base, times = self.memory.ctypes.data, []
        blocks = [(base + it * 8192, 4096, 0, "") for it in range(BLOCKS)]
        for _ in range(turns):
            started = time.perf_counter()
            registered = self.agent.register_memory(blocks, "DRAM", [self.backend])
            times.append(time.perf_counter() - started)
            self.agent.deregister_memory(registered)
        return statistics.median(times)

    def answer(self, peer, count):
        """Answers notifications."""
        while count > 0:
            for texts in self.agent.get_new_notifs().values():
                for text in texts:
                    count -= 1
                    self.agent.send_notif(peer, text)

    def ask(self, peer, count):
        """Half the median time of a notification and its answer."""
        times = []
        for _ in range(count):
            started = time.perf_counter()
            self.agent.send_notif(peer, b"a request is complete")
            while not self.agent.get_new_notifs():
                pass
            times.append((time.perf_counter() - started) / 2)
        return statistics.median(times)


def turn(backend, namespaces, seconds):
    """All figures of one back end, in seconds."""
    figures = {}
    # Processes of one kernel would find each other's memory in spite of the namespaces.
    processes = [Process(Node, it, **({"UCX_TLS": "tcp,self"} if it else {})) for it in namespaces]
    try:
        initiator, target = processes
        for process in processes if all(namespaces) else []:
            process.use_cubic()
        initiator.start("initiator", backend)
        address = target.start("target", backend)
        initiator.load(target.metadata())
        target.load(initiator.metadata())
        figures["first"] = initiator.first("target", address)
        for operation in ("WRITE", "READ"):
            for name, size, count in SIZES + LISTS:
                figures[f"{operation} {name}"] = initiator.measure(operation, "target", address, size, count, seconds)
        target.begin("answer", "initiator", 1001)
        initiator.ask("target", 1)
        figures["notification"] = initiator.ask("target", 1000)
        target.end()
        figures[f"registration of {BLOCKS:,} blocks"] = initiator.register(3)
    finally:
        for process in processes:
            process.close()
    return figures


def table(results):
    """Times, rates, and how many times as fast the last back end is."""
    backends = list(results)
    lines = ["| | " + " | ".join(backends) + " | ratio |", "|---|" + "---|" * (len(backends) + 1)]
    bytes_of = {name: size * count for name, size, count in SIZES + LISTS}
    for row in results[backends[0]][0]:
        medians = [statistics.median(one[row] for one in results[it]) for it in backends]
        length = bytes_of.get(row.partition(" ")[2], 0)
        cells = [
            f"{it * 1e6:,.1f} us" + (f", {length * 8 / it / 1e9:.2f} Gb/s" if length > 8 else "") for it in medians
        ]
        lines.append(f"| {row} | " + " | ".join(cells) + f" | {medians[0] / medians[-1]:.2f} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backends", default="UCX,ZEROLANE")
    parser.add_argument("--one-host", action="store_true", help="without network namespaces")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.5, help="for each figure")
    parser.add_argument("--json", help="also write all figures to this file, in seconds")
    options = parser.parse_args()
    backends = options.backends.split(",")
    results = {it: [] for it in backends}

    def run(namespaces):
        for number in range(options.turns):
            for backend in backends:
                results[backend].append(turn(backend, namespaces, options.seconds))
                print(f"turn {number + 1} of {options.turns}: {backend}", file=sys.stderr)

    if options.one_host:
        run([None, None])
    else:
        with two_namespaces() as namespaces:
            run(namespaces)
    if options.json:
        Path(options.json).write_text(json.dumps(results, indent=1))
    print(table(results))


if __name__ == "__main__":
    main()
