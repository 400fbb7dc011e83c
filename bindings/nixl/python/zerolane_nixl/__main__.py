"""Prints what to export, and checks it by a transfer between two agents."""

import importlib
import os
import sys
import time

from . import Missing, _nixl, activate

SIZE = 1 << 20
PATIENCE = 20


def check() -> None:
    """Writes from one agent to another."""
    import numpy as np

    package = _nixl()[0]
    nixl = importlib.import_module(f"{package}._api")

    def agent(name):
        made = nixl.nixl_agent(name, nixl.nixl_agent_config(backends=[]))
        made.create_backend("ZEROLANE", {})
        return made

    sender, receiver = agent("zerolane-check-sender"), agent("zerolane-check-receiver")
    here, there = np.random.default_rng().integers(0, 256, SIZE, dtype=np.uint8), np.zeros(SIZE, dtype=np.uint8)
    for made, array in ((sender, here), (receiver, there)):
        made.register_memory([(array.ctypes.data, SIZE, 0, "")], "DRAM", ["ZEROLANE"])
    peer = sender.add_remote_agent(receiver.get_agent_metadata())
    lists = [sender.get_xfer_descs([(it.ctypes.data, SIZE, 0)], "DRAM") for it in (here, there)]
    transfer = sender.initialize_xfer("WRITE", *lists, peer, b"", ["ZEROLANE"])
    ends = time.monotonic() + PATIENCE
    state = sender.transfer(transfer)
    while state == "PROC" and time.monotonic() < ends:
        state = sender.check_xfer_state(transfer)
    sender.release_xfer_handle(transfer)
    if state != "DONE" or not (here == there).all():
        raise RuntimeError(f"the transfer ended in state {state}, or with other bytes")


def main() -> int:
    try:
        place = activate()
        version = _nixl()[2]
    except Missing as missing:
        print(missing, file=sys.stderr)
        return 1
    print(f"export NIXL_PLUGIN_DIR={place}", flush=True)
    # NIXL writes to standard output, which a shell may evaluate.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    try:
        check()
    except Exception as error:
        print(f"ZEROLANE does not work with NIXL {version}: {error}", file=sys.stderr)
        return 1
    print(f"NIXL {version} transfers by ZEROLANE: checked", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
