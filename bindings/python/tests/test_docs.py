"""Tests that the programs of docs/guide/python.md run, each block after the earlier ones."""

import pathlib
import re

DOCUMENT = pathlib.Path(__file__).parents[3] / "docs" / "guide" / "python.md"


def test_document__its_programs_run() -> None:
    text = DOCUMENT.read_text()
    blocks = list(re.finditer(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE))
    assert len(blocks) >= 2
    names = {"__name__": "__main__"}
    for block in blocks:
        # Empty lines before it, so that errors name the document's line.
        padding = "\n" * text[: block.start(1)].count("\n")
        exec(compile(padding + block.group(1), DOCUMENT, "exec"), names)
