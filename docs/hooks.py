"""What `make docs` does beyond Markdown: equations without scripts, the repository's files as pages, the command line.

Pages link to the repository as they lie in it (`../src/afedpg/server/rules.py`), so that the links work wherever the
repository is browsed. Here every file that is linked to becomes a page or a file of the site, under repository/.
"""

from __future__ import annotations

import html
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from latex2mathml.converter import convert
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files, InclusionLevel

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)#\s]+)")  # the target of [text](target#anchor), unless it has a scheme
EQUATION = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)
NOT_RUN = re.compile(r"^<!-- not run: (.*?) -->$", re.MULTILINE)
LANGUAGES = {".py": "python", ".toml": "toml", ".proto": "protobuf", ".cff": "yaml", "Makefile": "make"}
IN_NAV = ("benchmarks/README.md", "results/README.md", "CONTRIBUTING.md", "CHANGELOG.md")


def on_files(files: Files, config: Any) -> Files:
    waiting = [Path("docs") / file.src_uri for file in files.documentation_pages()]
    waiting += [Path(name) for name in IN_NAV]
    seen = set(waiting)
    for name in IN_NAV:
        files.append(_file(config, Path(name), InclusionLevel.INCLUDED))
    while waiting:
        page = waiting.pop()
        if page.suffix == ".md":
            new = {target for _, target in _links(page) if target.parts[0] != "docs"} - seen
            for target in new:
                files.append(_file(config, target, InclusionLevel.NOT_IN_NAV))
            seen |= new
            waiting += new
    files.append(File.generated(config, "cli.md", content=_command_line()))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    source = _source(page.file.src_uri)
    markdown = NOT_RUN.sub(r'<p class="not-run">Not run by the tests: \1.</p>', markdown)
    if source is None or source.suffix != ".md":
        return markdown
    for link, target in sorted(set(_links(source)), key=lambda pair: -len(pair[0])):
        here = PurePosixPath(page.file.src_uri).parent
        there = os.path.relpath(_place(target), here)
        markdown = re.sub(rf"(?<=\]\(){re.escape(link)}(?=[)#])", there, markdown)
    return markdown


def on_page_content(content: str, page: Any, **_: Any) -> str:
    return EQUATION.sub(lambda match: _mathml(match, page.file.src_uri), content)


def _links(page: Path) -> Iterator[tuple[str, Path]]:
    """Links to files of this repository: as written, and from its root."""
    for link in LINK.findall((ROOT / page).read_text()):
        target = (ROOT / page).parent / link
        if target.is_dir() and (target / "README.md").is_file():
            target /= "README.md"
        if target.is_file():
            yield link, target.resolve().relative_to(ROOT)


def _place(target: Path) -> PurePosixPath:
    """Where a file of the repository is on the site; `_source` is the inverse."""
    if target.parts[0] == "docs":
        return PurePosixPath(*target.parts[1:])
    listing = ".md" if _language(target) else ""
    return PurePosixPath("repository", f"{target.as_posix()}{listing}")


def _source(place: str) -> Path | None:
    path = Path(place)
    if path.parts[0] != "repository":
        return Path("docs") / path if (ROOT / "docs" / path).is_file() else None
    inside = Path(*path.parts[1:])
    return inside if (ROOT / inside).is_file() else inside.with_suffix("")


def _file(config: Any, target: Path, inclusion: InclusionLevel) -> File:
    language = _language(target)
    if language:
        title = f"---\ntitle: {target.name}\nsearch: {{exclude: true}}\n---\n# `{target.as_posix()}`\n"
        content = f"{title}\n`````{language}\n{(ROOT / target).read_text()}`````\n"
        return File.generated(config, str(_place(target)), content=content, inclusion=inclusion)
    return File.generated(config, str(_place(target)), abs_src_path=str(ROOT / target), inclusion=inclusion)


def _language(target: Path) -> str | None:
    return LANGUAGES.get(target.suffix or target.name)


def _mathml(match: re.Match[str], page: str) -> str:
    """MathML is drawn by the browser itself: no script, no font, no network."""
    latex = html.unescape(match[3]).strip()
    drawn = convert(latex, display="inline" if match[2] == "(" else "block")
    if re.search(r"\\|>&<", html.unescape(drawn)):
        raise PluginError(f"{page}: latex2mathml does not know all of: {latex}")
    return drawn if match[2] == "(" else f'<div class="equation">{drawn}</div>'


def _command_line() -> str:
    """Every command's --help, as it is."""
    overview = _help()
    names = re.findall(r"^    ([a-z]+)\b", overview, re.MULTILINE)
    parts = ["# The command line\n", f"```text\n{overview}```\n"]
    parts += [f"## afedpg {name}\n\n```text\n{_help(name)}```\n" for name in names]
    return "\n".join(parts)


def _help(*command: str) -> str:
    environment = {**os.environ, "COLUMNS": "110"}
    arguments = [sys.executable, "-m", "afedpg", *command, "--help"]
    return subprocess.run(arguments, env=environment, capture_output=True, text=True, check=True).stdout
