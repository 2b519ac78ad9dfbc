"""The modules that a page shows for MiniGrid and Atari games, where their packages are installed."""

from __future__ import annotations

from pathlib import Path

import pytest
from blocks import ROOT, Block, Folder, blocks_of

PAGE = ROOT / "docs" / "own-environment.md"
NEEDED = {"maze": ("minigrid",), "atari": ("ale_py", "cv2")}


@pytest.mark.parametrize("module", NEEDED)
def test_a_module_that_wraps_a_packages_environments_trains(module: str, tmp_path: Path) -> None:
    blocks = blocks_of(PAGE)
    (shown,) = (block for block in blocks if block.text.startswith(f"# {module}.py"))
    for package in NEEDED[module]:
        pytest.importorskip(package, reason=f"{package} is not installed")
    folder = Folder(tmp_path / "clone")
    (folder.path / f"{module}.py").write_text(shown.text)
    (task,) = {word for block in blocks for word in block.text.split() if word.startswith(f"{module}:")}
    small = "--agents 1 --iterations 2 --steps 32 --evaluate-episodes 1 --max-episode-steps 40"
    folder.run(Block(shown.page, shown.line, "bash", f"afedpg train {task} --method afedppo {small}"))
