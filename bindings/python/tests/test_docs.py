"""Tests that the programs of docs/guide/python.md run.

Each tutorial runs as two processes, the other programs after each other.
"""

import pathlib
import re
import socket
import subprocess
import sys
import time

DOCUMENT = pathlib.Path(__file__).parents[3] / "docs" / "guide" / "python.md"
PATIENCE = 60
"""Seconds that a failure may take to show."""


def blocks() -> list[str]:
    """The programs, each behind so many empty lines that errors name the document's line."""
    text = DOCUMENT.read_text()
    found = re.finditer(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return ["\n" * text[: block.start(1)].count("\n") + block.group(1) for block in found]


def at_home(block: str) -> str:
    """The program with addresses of this host."""
    return re.sub(
        r"(0\.0\.0\.0|192\.0\.2\.1):918(\d)", lambda it: f"127.0.0.1:{PORTS[it[2]]}", block
    )


def free_ports() -> dict[str, int]:
    """A free port for each of the document's."""
    sockets = {number: socket.socket(type=socket.SOCK_DGRAM) for number in "123"}
    for it in sockets.values():
        it.bind(("127.0.0.1", 0))
    ports = {number: it.getsockname()[1] for number, it in sockets.items()}
    for it in sockets.values():
        it.close()
    return ports


PORTS = free_ports()


def test_document__its_tutorials_run() -> None:
    servers = [block for block in blocks() if "0.0.0.0:918" in block]
    clients = [block for block in blocks() if "192.0.2.1:918" in block]
    assert len(servers) == len(clients) == 3
    for server, client in zip(servers, clients, strict=True):
        serving = subprocess.Popen(
            [sys.executable, "-c", at_home(server)], stdout=subprocess.PIPE, text=True
        )
        try:
            end = time.monotonic() + PATIENCE
            command = [sys.executable, "-c", at_home(client)]
            # The server may not listen, or export, yet.
            while (
                ran := subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
            ).returncode:
                assert time.monotonic() < end, ran.stderr
            if not ran.stdout:
                assert serving.communicate(timeout=PATIENCE)[0] == "8000000 bytes, sum 1000000\n"
        finally:
            serving.kill()
            serving.communicate()


def test_document__its_other_programs_run() -> None:
    others = [block for block in blocks() if ":918" not in block]
    assert len(others) >= 5
    names = {"__name__": "__main__"}
    for block in others:
        exec(compile(block, DOCUMENT, "exec"), names)
