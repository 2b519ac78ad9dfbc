"""The notebooks run, and the pages show what this very code says."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from blocks import ROOT

sys.path.insert(0, str(ROOT / "docs" / "notebooks"))
from execute import NOTEBOOKS, executed


def kinds(notebook: Any) -> list[list[tuple[str, ...]]]:
    """What each cell gives: text, or data of these types."""
    return [
        [(output.output_type, *sorted(output.get("data", {}))) for output in cell.get("outputs", ())]
        for cell in notebook.cells
    ]


def words(notebook: Any) -> list[list[str]]:
    """What each cell prints, without its numbers: another processor may round otherwise."""
    texts = ["".join(output.get("text", "") for output in cell.get("outputs", ())) for cell in notebook.cells]
    return [re.sub(r"\d[\d.]*", "#", text).split() for text in texts]


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_says_what_is_stored(path: Path) -> None:
    stored = nbformat.read(path, as_version=4)
    again = executed(path)  # raises where a cell fails
    assert kinds(again) == kinds(stored), "`python docs/notebooks/execute.py` stores it"
    shown = [kind for cell in kinds(stored) for kind in cell]
    assert any(kind[0] == "stream" for kind in shown)
    assert any("image/png" in kind for kind in shown)
    assert words(again) == words(stored)


def test_there_are_notebooks() -> None:
    assert {path.stem for path in NOTEBOOKS} == {"first-run", "compare-two-methods"}
