"""`make docs`: the pages build without a warning and need nothing from elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from blocks import ROOT

import afedpg
from afedpg.config import METHODS

ELSEWHERE = re.compile(
    r'<(?:script|img|iframe)[^>]*\bsrc="(?:https?:)?//|<link[^>]*\bhref="(?:https?:)?//[^>]*stylesheet'
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    python_path = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": python_path}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    return folder


def test_nothing_comes_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 30
    assert not [page for page in pages if ELSEWHERE.search(page.read_text())]
    assert not [sheet for sheet in site.rglob("*.css") if re.search(r"url\((?:https?:)?//", sheet.read_text())]


def test_equations_are_drawn_by_the_browser_itself(site: Path) -> None:
    text = (site / "algorithms" / "afedpg.html").read_text()
    assert text.count('display="block"') >= 2
    assert "<mover><mi>&#x003B8;</mi>" in text  # theta with its tilde
    assert not [page for page in site.rglob("*.html") if 'class="arithmatex"' in page.read_text()]


def test_every_method_has_its_page(site: Path) -> None:
    shown = (site / "algorithms" / "index.html").read_text()
    for method in METHODS:
        assert re.search(rf'<a href="[^"]+\.html"><code>{method}</code></a>', shown), method


def test_files_of_the_repository_are_pages_too(site: Path) -> None:
    assert 'href="repository/src/afedpg/server/rules.py.html"' in (site / "concepts.html").read_text()
    assert "RECIPES" in (site / "repository" / "src" / "afedpg" / "server" / "rules.py.html").read_text()
    assert (site / "repository" / "results" / "full" / "timeline" / "timeline.png").is_file()


def test_the_reference_knows_every_command_and_the_public_api(site: Path) -> None:
    shown = (site / "cli.html").read_text()
    for command in ("train", "resume", "evaluate", "replay", "runs", "reproduce", "server", "agent", "certs", "bench"):
        assert f'id="afedpg-{command}"' in shown, command
    python = (site / "api" / "index.html").read_text()
    for name in afedpg.__all__:
        assert f'id="afedpg.{name}"' in python, name


def test_hooks_before_a_commit_are_those_of_make_check() -> None:
    (local,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert local["repo"] == "local"
    checks = re.search(r"^check:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert checks is not None
    tools = set(re.findall(r"\$\(BIN\)/(\S+)", checks[1]))
    assert {hook["entry"].split()[0].removeprefix(".venv/bin/") for hook in local["hooks"]} == tools
    assert {hook["language"] for hook in local["hooks"]} == {"system"}


def test_the_citation_is_the_readmes() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())["preferred-citation"]
    readme = " ".join((ROOT / "README.md").read_text().split())
    assert citation["title"] in readme
    authors = [f"{author['family-names']}, {author['given-names']}" for author in citation["authors"]]
    assert " and ".join(authors) in readme
