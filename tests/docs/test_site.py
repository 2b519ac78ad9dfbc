"""`make docs`: the pages build without a warning and need nothing from elsewhere."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from collections.abc import Callable
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
    folder = tmp_path_factory.mktemp("docs") / "site"
    command = [sys.executable, "docs/build.py", "--site-dir", str(folder)]
    python_path = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": python_path}
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


def test_notebooks_are_pages_with_progress_and_pictures(site: Path) -> None:
    for name in ("first-run", "compare-two-methods"):
        shown = (site / "notebooks" / f"{name}.html").read_text()
        assert "virtual seconds" in shown
        pictures = re.findall(rf'src="({name}-\d+\.png)"', shown)
        assert pictures, name
        assert all((site / "notebooks" / picture).read_bytes()[:4] == b"\x89PNG" for picture in pictures)
        assert (site / "notebooks" / f"{name}.ipynb").is_file()


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


DEFECTS = {
    "[x](nosuch.md)": "page does not exist", "[x](#nosuch)": "nosuch", "[x](other.md#nosuch)": "nosuch",
    "![x](nosuch.png)": "index.html: there is no nosuch.png", "[x](nosuch.py)": "index.html: there is no nosuch.py",
    "$\\nosuch$": "latex2mathml does not know all of",
}  # fmt: skip


@pytest.fixture
def small_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """A repository of two pages, and `make docs` in it."""
    monkeypatch.syspath_prepend(ROOT / "docs")
    build = importlib.import_module("build")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("# Start\n\n[fine](other.md#below), $x_1$\n")
    (tmp_path / "docs" / "other.md").write_text("# Other\n\n## Below\n\n![fine](../picture.png)\n")
    (tmp_path / "picture.png").write_bytes(b"")
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text()) | {"nav": [{"Start": "index.md"}, "other.md"]}
    for unused in ("extra_css", "plugins"):
        del settings[unused]
    settings["theme"] = {"font": False}
    (tmp_path / "mkdocs.yml").write_text(yaml.safe_dump(settings))
    monkeypatch.setattr(build, "ROOT", tmp_path)
    monkeypatch.setattr(build, "IN_NAV", ())
    monkeypatch.setattr(build, "_command_line", lambda: "# Commands\n")
    monkeypatch.setattr(sys, "argv", ["build.py", "--site-dir", str(tmp_path / "site")])
    return build.main


def test_a_sound_site_is_built(small_site: Callable[[], None], tmp_path: Path) -> None:
    small_site()
    assert "<math" in (tmp_path / "site" / "index.html").read_text()
    assert (tmp_path / "site" / "repository" / "picture.png").is_file()


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_site_with_a_defect_is_not_built(defect: str, small_site: Callable[[], None], tmp_path: Path) -> None:
    with (tmp_path / "docs" / "index.md").open("a") as page:
        page.write(f"\n{defect}\n")
    with pytest.raises(SystemExit, match=DEFECTS[defect]):
        small_site()
    assert not (tmp_path / "site").exists()


def test_the_navigation_has_every_page_and_no_other(small_site: Callable[[], None], tmp_path: Path) -> None:
    (tmp_path / "docs" / "other.md").rename(tmp_path / "docs" / "another.md")
    (tmp_path / "docs" / "index.md").write_text("# Start\n")
    with pytest.raises(SystemExit) as refusal:
        small_site()
    assert str(refusal.value).splitlines() == [
        "mkdocs.yml: another.md is not in the navigation", "mkdocs.yml: there is no other.md",
    ]  # fmt: skip
