"""Compares the rate of puts from Python and Rust, in turns, to the same memory.

cargo build --release -p zerolane --example put_rate
python put_rate.py ../../../target/release/examples/put_rate [bytes] [puts] [pairs]
"""

import statistics
import subprocess
import sys
import time

import numpy as np

import zerolane
from zerolane import Rights

WARM_UP = 3
"""The same as in Rust."""


def python_rate(address: str, size: int, puts: int) -> float:
    """Gb/s of puts from a numpy array."""
    data = np.full(size, 7, dtype=np.uint8)
    with zerolane.connect(address) as connection:
        target = connection.open_region("target", Rights.WRITE)
        for _ in range(WARM_UP):
            connection.put(target, 0, data)
        start = time.perf_counter()
        for _ in range(puts):
            connection.put(target, 0, data)
        return size * puts * 8 / (time.perf_counter() - start) / 1e9


def rust_rate(program: str, address: str, size: int, puts: int) -> float:
    """Gb/s of the same puts in Rust."""
    arguments = [program, "put", address, str(size), str(puts)]
    return float(subprocess.check_output(arguments, timeout=100))


def main() -> None:
    """Measures pairs, and prints their ratio."""
    if len(sys.argv) < 2:
        sys.exit(f"which program puts in Rust?\n\n{__doc__}")
    program = sys.argv[1]
    size, puts, pairs = (int(it) for it in (*sys.argv[2:], str(64 << 20), "20", "5")[:3])
    owner = subprocess.Popen([program, "own", str(size)], stdout=subprocess.PIPE, text=True)
    try:
        assert owner.stdout is not None
        address = owner.stdout.readline().strip()
        ratios = []
        for pair in range(pairs):
            if pair % 2:
                rust = rust_rate(program, address, size, puts)
                python = python_rate(address, size, puts)
            else:
                python = python_rate(address, size, puts)
                rust = rust_rate(program, address, size, puts)
            ratios.append(python / rust)
            print(f"Python {python:.2f} Gb/s, Rust {rust:.2f} Gb/s: {python / rust:.3f}")
        print(f"{size} bytes a put: median ratio {statistics.median(ratios):.3f}")
    finally:
        owner.kill()
        owner.wait()


if __name__ == "__main__":
    main()
