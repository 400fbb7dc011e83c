"""Stores key-value blocks of an inference server: one process fills the store, another reads it.

The store exports its memory from a worker's thread and is then a passive target. The prefill
process claims blocks with an atomic counter and writes those of a request with one scattered put,
whose immediate is the number of the request. The store passes the number on. The decode process
reads the blocks with one scattered get.

    python kv_cache.py [requests] [blocks of each] [bytes of a block]
"""

import subprocess
import sys
from collections.abc import Iterator

import zerolane
from zerolane import FetchOp, Rights

WORDS = 64
"""Bytes at the start for the counter of claimed blocks."""
NUMBER = 8
"""Bytes of a number in the table of blocks."""


class Layout:
    """The layout of the memory: a counter, a table of each request's blocks, the blocks."""

    def __init__(self, requests: int, blocks: int, size: int) -> None:
        self.requests, self.blocks, self.size = requests, blocks, size
        self.arguments = [str(requests), str(blocks), str(size)]
        self.start = WORDS + requests * blocks * NUMBER

    @property
    def length(self) -> int:
        """Length of the memory in bytes."""
        return self.start + self.requests * self.blocks * self.size

    def row(self, request: int) -> int:
        """The offset of a request's row in the table."""
        return WORDS + request * self.blocks * NUMBER

    def block(self, number: int) -> int:
        """The offset of a block. Blocks are claimed in order and lie scattered."""
        total = self.requests * self.blocks
        # Separates odd and even blocks.
        place = number // 2 if number % 2 == 0 else (total + 1) // 2 + number // 2
        return self.start + place * self.size

    def content(self, request: int) -> Iterator[bytes]:
        """The content that prefill computes for a request, and decode expects."""
        for block in range(self.blocks):
            yield bytes([request % 251, block % 251]) * (self.size // 2)


def next_completion(connection: zerolane.Connection, id: int) -> zerolane.Completion:
    """The completion of the only request in flight."""
    completion = connection.wait(timeout=30)
    if completion is None or completion.id != id:
        raise RuntimeError(f"not the request's end: {completion}")
    completion.result()
    return completion


def store(layout: Layout) -> None:
    """Owns the memory, and passes on the numbers of finished requests."""
    memory = bytearray(layout.length)
    with zerolane.Worker().spawn() as worker, zerolane.ExportedRegion(memory) as region:
        endpoint = worker.listen("127.0.0.1:0").wait(30)
        endpoint.export("cache", region, Rights.ALL).wait(30)
        host, port = endpoint.local_addr
        connections, processes = [], []
        for role in ("--prefill", "--decode"):
            arguments = [sys.executable, __file__, role, f"{host}:{port}", *layout.arguments]
            processes.append(subprocess.Popen(arguments))
            connections.append(endpoint.accept().wait(30))
        prefill, decode = connections
        for _ in range(layout.requests):
            request = prefill.immediate().wait(30).value
            decode.send_message(request.to_bytes(4)).wait(30)
        prefill.send_message(b"done").wait(30)
        if any(process.wait(timeout=30) != 0 for process in processes):
            raise RuntimeError("a process failed")
        print(f"{region.load(0)} blocks of {layout.size} bytes went through the store, all right")


def prefill(address: str, layout: Layout) -> None:
    """Fills the store, request by request."""
    with zerolane.connect(address) as connection:
        cache = connection.open_region("cache", Rights.ALL)
        for request in range(layout.requests):
            first = connection.fetch_op(cache, 0, FetchOp.add(layout.blocks))
            numbers = range(first, first + layout.blocks)
            row = b"".join(number.to_bytes(NUMBER) for number in numbers)
            pieces: list[tuple[int, bytes]] = [(layout.row(request), row)]
            for number, block in zip(numbers, layout.content(request), strict=True):
                pieces.append((layout.block(number), block))
            # The immediate arrives when all pieces are in place.
            id = connection.post_put_vectored(cache, pieces, immediate=request)
            next_completion(connection, id)
        # Closing drops numbers that the store has not taken: wait until it has all.
        connection.recv_message()


def decode(address: str, layout: Layout) -> None:
    """Reads the requests that the store reports."""
    with zerolane.connect(address) as connection:
        cache = connection.open_region("cache", Rights.READ)
        for _ in range(layout.requests):
            control, _ = connection.recv_message()
            request = int.from_bytes(control)
            row = connection.get(cache, layout.row(request), bytearray(layout.blocks * NUMBER))
            numbers = [int.from_bytes(row[at : at + NUMBER]) for at in range(0, len(row), NUMBER)]
            # With numpy these would be rows of an array.
            places = [bytearray(layout.size) for _ in numbers]
            pieces = [
                (layout.block(number), place) for number, place in zip(numbers, places, strict=True)
            ]
            next_completion(connection, connection.post_get_vectored(cache, pieces))
            assert places == list(layout.content(request)), f"request {request}"


def main() -> None:
    """Runs the store, prefill or decode, by the arguments."""
    if sys.argv[1:2] in (["--prefill"], ["--decode"]):
        role = prefill if sys.argv[1] == "--prefill" else decode
        role(sys.argv[2], Layout(*(int(it) for it in sys.argv[3:])))
        return
    store(Layout(*(int(it) for it in (sys.argv[1:] or ["32", "64", "65536"]))))


if __name__ == "__main__":
    main()
