"""Metadata that a hostile agent changes, in a program with sanitizers."""

import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
TRIES = 20_000


def test_metadata__changed_at_random_is_refused_or_read_alike(tmp_path):
    program = tmp_path / "mutate"
    sources = [HERE / "mutate.cpp", HERE / "../src/metadata.cpp"]
    flags = [
        "-std=c++20",
        "-O1",
        "-g",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-fsanitize=address,undefined",
        "-fno-sanitize-recover=all",
    ]
    built = subprocess.run(
        ["c++", *flags, "-I", HERE / "../src", *sources, "-o", program], capture_output=True, text=True
    )
    if "cannot find" in built.stderr:
        pytest.skip("the compiler has no sanitizers")
    assert built.returncode == 0, built.stderr
    said = subprocess.run([program, str(TRIES)], capture_output=True, text=True, timeout=300)
    assert said.returncode == 0, said.stdout + said.stderr
