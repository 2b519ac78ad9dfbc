"""Runs the notebooks and stores what they say: `python docs/notebooks/execute.py`. A test runs them as well."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parent
NOTEBOOKS = tuple(sorted(FOLDER.glob("*.ipynb")))
PATIENCE = 300  # seconds a cell may take, on a busy machine


def executed(path: Path) -> Any:
    """The notebook after a run in an empty folder; a cell that fails raises."""
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        resources = {"metadata": {"path": folder}}
        settings = {"timeout": PATIENCE, "startup_timeout": PATIENCE, "record_timing": False, "coalesce_streams": True}
        NotebookClient(notebook, resources=resources, **settings).execute()
    return notebook


if __name__ == "__main__":
    for path in NOTEBOOKS:
        notebook = executed(path)
        notebook.metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
        nbformat.write(notebook, path)
