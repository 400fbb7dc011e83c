"""Transfers over an emulated network that loses packets (zerolane lab)."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def program():
    """The command zerolane: of the environment, of this checkout, or installed."""
    built = Path(os.environ.get("CARGO_TARGET_DIR", HERE / "../../../target"))
    places = [
        os.environ.get("ZEROLANE"),
        built / "release/zerolane",
        built / "debug/zerolane",
        shutil.which("zerolane"),
    ]
    return next((str(it) for it in places if it and Path(it).is_file()), None)


@pytest.mark.parametrize("loss", ["0.1%", "1%"])
def test_transfer__over_a_lossy_network_brings_all(tmp_path, loss):
    zerolane = program()
    if os.geteuid() != 0 or not zerolane:
        pytest.skip("an emulated network needs root and the program zerolane")
    script = tmp_path / "script"
    lines = [f"'{sys.executable}' '{HERE / 'lossy.py'}' {role} ZEROLANE '{tmp_path}'" for role in ("first", "second")]
    script.write_text("\n".join(lines) + "\n")
    said = subprocess.run(
        [zerolane, "lab", "--rtt", "1ms", "--loss", loss, "--rate", "200mbit", "--script", script],
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert said.returncode == 0 and "all is there" in said.stdout, said.stdout + said.stderr
