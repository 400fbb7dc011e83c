"""Serves remote calls of many clients in one thread and one event loop.

A call is a message with its name in the control and its arguments in the payload. The clients are
another process with one event loop; each has its own connection.

    python rpc.py [clients] [calls]
"""

import asyncio
import resource
import subprocess
import sys
import time

import numpy as np

import zerolane
from zerolane import aio

LONGEST = 4096
"""Bytes of the arguments and results of a call."""


async def serve(connection: aio.Connection) -> int:
    """Answers the calls of one client until it closes; returns their number."""
    calls = 0
    place = bytearray(LONGEST)
    try:
        while True:
            name, payload = await connection.recv_message(place)
            numbers = np.frombuffer(payload or b"", dtype=np.float64)
            match name:
                case b"sum":
                    result = numbers.sum()
                case b"mean":
                    result = numbers.mean()
                case _:
                    await connection.send_message(b"error: no such call")
                    continue
            await connection.send_message(b"result", np.array([result]))
            calls += 1
    except zerolane.Closed:
        return calls


async def server(clients: int, calls: int) -> None:
    """Serves all clients of another process, then prints the number of calls."""
    with aio.Endpoint("127.0.0.1:0") as endpoint:
        host, port = endpoint.local_addr
        arguments = [sys.executable, __file__, "--clients", f"{host}:{port}"]
        process = subprocess.Popen([*arguments, str(clients), str(calls)])
        async with asyncio.TaskGroup() as group:
            tasks = []
            for _ in range(clients):
                tasks.append(group.create_task(serve(await endpoint.accept())))
    if process.wait(timeout=30) != 0:
        raise RuntimeError("the clients failed")
    answered = sum(it.result() for it in tasks)
    assert answered == clients * calls, answered
    print(f"{answered} calls of {clients} clients answered in one thread")


async def client(address: str, number: int, calls: int) -> None:
    """Connects, calls and checks the results."""
    async with await aio.connect(address) as connection:
        result = np.zeros(1)
        for call in range(calls):
            numbers = np.arange(1 + (number + call) % 100, dtype=np.float64)
            await connection.send_message(b"sum", numbers)
            name, _ = await connection.recv_message(result)
            assert name == b"result" and result[0] == numbers.sum(), (name, result)


async def all_clients(address: str, clients: int, calls: int) -> None:
    """Runs all clients at once; they connect a hundred at a time."""
    start = time.perf_counter()
    connecting = asyncio.Semaphore(100)

    async def one(number: int) -> None:
        async with connecting:
            await client(address, number, calls)

    await asyncio.gather(*(one(number) for number in range(clients)))
    print(f"{clients * calls / (time.perf_counter() - start):.0f} calls a second")


def main() -> None:
    """Runs the server or the clients, by the arguments."""
    # Each connection has its own socket.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    if sys.argv[1:2] == ["--clients"]:
        asyncio.run(all_clients(sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
        return
    clients, calls = (int(it) for it in (sys.argv[1:] or ["1000", "10"]))
    asyncio.run(server(clients, calls))


if __name__ == "__main__":
    main()
