"""One of two agents on an emulated network: python lossy.py ROLE BACKEND DIRECTORY, where they meet by files."""

import os
import sys
import time
from pathlib import Path

import numpy as np
from nixl_cu12._api import nixl_agent, nixl_agent_config

LENGTH = 8 << 20
BLOCK = 64 << 10
PATIENCE = 90


def wait_for(condition):
    ends = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > ends:
            sys.exit("nothing came")
        time.sleep(0.01)


def write(path, data):
    """Makes the file appear whole."""
    path.with_suffix(".part").write_bytes(data)
    path.with_suffix(".part").rename(path)


def main():
    role, backend, place = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    agent = nixl_agent(role, nixl_agent_config(backends=[]))
    agent.create_backend(backend, {})
    memory = np.zeros(LENGTH, dtype=np.uint8)
    if role == "first":
        memory[:] = np.random.default_rng(1).integers(0, 256, LENGTH, dtype=np.uint8)
    agent.register_memory([(memory.ctypes.data, LENGTH, 0, "")], "DRAM", [backend])
    other = "second" if role == "first" else "first"
    write(place / f"{role}.address", str(memory.ctypes.data).encode())
    write(place / f"{role}.metadata", agent.get_agent_metadata())
    wait_for((place / f"{other}.metadata").exists)
    agent.add_remote_agent((place / f"{other}.metadata").read_bytes())
    if role == "second":
        wait_for(lambda: any(b"read back" in it for it in agent.get_new_notifs().values()))
        return
    base, there = memory.ctypes.data, int((place / "second.address").read_text())
    copy = memory.copy()
    for operation, text in (("WRITE", b"written"), ("READ", b"read back")):
        if operation == "READ":
            memory[:] = 0
        lists = [[(start + at, BLOCK, 0) for at in range(0, LENGTH, 2 * BLOCK)] for start in (base, there)]
        descs = [agent.get_xfer_descs(it, "DRAM") for it in lists]
        transfer = agent.initialize_xfer(operation, *descs, other, text, [backend])
        started = time.perf_counter()
        agent.transfer(transfer)
        wait_for(lambda transfer=transfer: agent.check_xfer_state(transfer) == "DONE")
        print(f"{operation} {LENGTH // 2 / (time.perf_counter() - started) / 1e6:.1f} MB/s", flush=True)
    for at in range(0, LENGTH, 2 * BLOCK):
        if not (memory[at : at + BLOCK] == copy[at : at + BLOCK]).all():
            sys.exit("other bytes")
    print("all is there", flush=True)
    # The end of UCX crashes without a GPU.
    if backend != "ZEROLANE":
        os._exit(0)


main()
