"""Tests that the examples run."""

import pathlib
import subprocess
import sys

EXAMPLES = pathlib.Path(__file__).parents[1] / "examples"


def run(example: str, *arguments: str) -> str:
    """What the example prints."""
    ran = subprocess.run(
        [sys.executable, EXAMPLES / example, *arguments],
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_put_rate__without_arguments_says_how() -> None:
    ran = subprocess.run(
        [sys.executable, EXAMPLES / "put_rate.py"], capture_output=True, text=True, timeout=100
    )
    assert ran.returncode == 1 and "Traceback" not in ran.stderr
    assert "cargo build --release -p zerolane --example put_rate" in ran.stderr


def test_reduce() -> None:
    printed = run("reduce.py", "8", "100000")
    assert "8 rows of 100000 numbers put and added up: 2800000, all right" in printed


def test_rpc() -> None:
    assert "320 calls of 80 clients answered in one thread" in run("rpc.py", "80", "4")


def test_kv_cache() -> None:
    printed = run("kv_cache.py", "6", "9", "5000")
    assert "54 blocks of 5000 bytes went through the store, all right" in printed
