"""The examples run."""

import pathlib
import subprocess
import sys

EXAMPLES = pathlib.Path(__file__).parents[1] / "examples"


def test_reduce() -> None:
    ran = subprocess.run(
        [sys.executable, EXAMPLES / "reduce.py", "8", "100000"],
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert ran.returncode == 0, ran.stderr
    assert "8 rows of 100000 numbers put and added up: 2800000, all right" in ran.stdout
