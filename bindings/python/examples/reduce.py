"""Shares a numpy array between two processes: one puts rows into it, the other adds them up.

The worker claims rows with a counter in the owner's memory, as workers of a parameter server do.
The arrays are copied only to the network and from it.

    python reduce.py [rows] [columns]
"""

import subprocess
import sys

import numpy as np

import zerolane
from zerolane import Rights

COUNTER = 0
"""Offset of the counter in the shared memory, in bytes."""
TABLE = 64
"""Offset of the table."""


def own(rows: int, columns: int) -> float:
    """Exports memory to a worker, and adds up the rows that it reports."""
    memory = np.zeros(TABLE + rows * columns * 8, dtype=np.uint8)
    table = memory[TABLE:].view(np.float64).reshape(rows, columns)
    total = 0.0
    with zerolane.Endpoint("127.0.0.1:0") as endpoint:
        host, port = endpoint.local_addr
        arguments = [sys.executable, __file__, "--work", f"{host}:{port}", str(rows), str(columns)]
        worker = subprocess.Popen(arguments)
        with endpoint.accept(timeout=30) as connection, zerolane.ExportedRegion(memory) as shared:
            connection.export_named("shared", shared, Rights.WRITE | Rights.ATOMIC)
            for _ in range(rows):
                completion = connection.wait(timeout=30)
                if completion is None or completion.kind != "immediate":
                    raise RuntimeError(f"not a row: {completion}")
                total += float(table[completion.value].sum())
            print(f"{shared.load(COUNTER)} rows were claimed")
            serve(connection)
        if worker.wait(timeout=30) != 0:
            raise RuntimeError("the worker failed")
    return total


def serve(connection: zerolane.Connection) -> None:
    """Serves the worker until it has disconnected."""
    try:
        while connection.wait(timeout=30) is not None:
            pass
    except zerolane.Closed:
        pass


def work(address: str, rows: int, columns: int) -> None:
    """Claims and puts rows until none are left."""
    with zerolane.connect(address) as connection:
        shared = connection.open_region("shared", Rights.WRITE | Rights.ATOMIC)
        while (row := connection.fetch_add(shared, COUNTER)) < rows:
            values = np.full(columns, row, dtype=np.float64)
            connection.put(shared, TABLE + row * values.nbytes, values, immediate=row)


def main() -> None:
    """Runs the owner or the worker, by the arguments."""
    if sys.argv[1:2] == ["--work"]:
        work(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
        return
    rows, columns = (int(it) for it in (sys.argv[1:] or ["16", "1000000"]))
    total = own(rows, columns)
    assert total == columns * rows * (rows - 1) / 2, total
    print(f"{rows} rows of {columns} numbers put and added up: {total:.0f}, all right")


if __name__ == "__main__":
    main()
