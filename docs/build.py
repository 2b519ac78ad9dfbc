"""`make docs`: these pages as a site that needs no network. A warning is an error.

Pages link to the repository as they lie in it (`../src/afedpg/server/rules.py`), so that the links work wherever the
repository is browsed. Three steps, of which only the second knows the generator:

prepare   a folder of the pages, of the files that they link to (under repository/), and of the commands' --help
generate  Zensical makes a site of that folder, as mkdocs.yml says
finish    equations become MathML, and what Zensical does not check is checked: files, pictures, the navigation
"""

from __future__ import annotations

import argparse
import base64
import html
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote

import yaml
from latex2mathml.converter import convert

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)#\s]+)")  # the target of [text](target#anchor), unless it has a scheme
EQUATION = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)
NOT_RUN = re.compile(r"^<!-- not run: (.*?) -->$", re.MULTILINE)
REFERENCE = re.compile(r'<(?:a|img|link|script)\b[^>]*?\b(?:href|src)=(?:"([^"]*)"|([^\s">]+))')
LANGUAGES = {".py": "python", ".toml": "toml", ".proto": "protobuf", ".cff": "yaml", "Makefile": "make"}
IN_NAV = ("benchmarks/README.md", "results/README.md", "CONTRIBUTING.md", "CHANGELOG.md")
SCRIPTS = ("build.py", "pictures.py", "execute.py")  # lie among the pages and are none


def main() -> None:
    parser = argparse.ArgumentParser(description="build the documentation")
    parser.add_argument("--site-dir", type=Path, default=ROOT / "site")
    site = parser.parse_args().site_dir
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        prepare(work / "docs")
        _stop_at(omitted(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"], work / "docs"))
        generate(work)
        _stop_at(finish(work / "site"))
        shutil.rmtree(site, ignore_errors=True)
        shutil.move(work / "site", site)


def _stop_at(trouble: Iterable[str]) -> None:
    if found := "\n".join(trouble):
        sys.exit(found)


def prepare(pages: Path) -> None:
    shutil.copytree(ROOT / "docs", pages, ignore=shutil.ignore_patterns(*SCRIPTS, "__pycache__"))
    waiting = [*_pages(), *(Path(name) for name in IN_NAV)]
    seen = set(waiting)
    while waiting:
        source = waiting.pop()
        place = pages / _place(source)
        place.parent.mkdir(parents=True, exist_ok=True)
        if source.suffix == ".md":
            place.write_text(_page(source))
            new = {target for _, target in _links(source) if target.parts[0] != "docs"} - seen
            seen |= new
            waiting += new
        elif source.suffix == ".ipynb":
            place.write_text(_notebook(source, place))
        elif _language(source):
            place.write_text(_listing(source))
        else:
            shutil.copyfile(ROOT / source, place)
    (pages / "cli.md").write_text(_command_line())


def generate(work: Path) -> None:
    """work/site from work/docs, as mkdocs.yml says."""
    file = work / "mkdocs.yml"
    file.write_text((ROOT / "mkdocs.yml").read_text().replace("paths: [src]", f"paths: [{ROOT / 'src'}]"))
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--config-file", str(file)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        sys.exit(re.sub(r"\x1b\[[\d;]*m", "", done.stdout))


def finish(site: Path) -> Iterator[str]:
    """Draws the equations, and names what a page refers to that is not there."""
    for page in sorted(site.rglob("*.html")):
        name = page.relative_to(site).as_posix()
        drawn = EQUATION.sub(lambda match, name=name: _mathml(match, name), page.read_text())
        page.write_text(drawn)
        for found in REFERENCE.finditer(drawn if name != "404.html" else ""):  # which knows no place of its own
            target = html.unescape(found[1] or found[2] or "").partition("#")[0].partition("?")[0]
            if target and not re.match(r"[a-z]+:", target) and not (page.parent / unquote(target)).exists():
                yield f"{name}: there is no {target}"


def omitted(nav: Any, pages: Path) -> Iterator[str]:
    """The navigation names every page of docs/, and pages alone."""
    named = set(_entries(nav))
    there = {_place(path).as_posix() for path in _pages()}
    yield from (f"mkdocs.yml: {name} is not in the navigation" for name in sorted(there - named))
    yield from (f"mkdocs.yml: there is no {name}" for name in sorted(named) if not (pages / name).is_file())


def _pages() -> list[Path]:
    """From the root of the repository."""
    return [path.relative_to(ROOT) for kind in ("*.md", "*.ipynb") for path in sorted((ROOT / "docs").rglob(kind))]


def _entries(nav: Any) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    else:
        for entry in nav.values() if isinstance(nav, dict) else nav:
            yield from _entries(entry)


def _page(source: Path) -> str:
    text = NOT_RUN.sub(r'<p class="not-run">Not run by the tests: \1.</p>', (ROOT / source).read_text())
    return _led(text, source)


def _led(text: str, source: Path) -> str:
    """Its links lead to where the files are on the site."""
    for link, target in _longest_first(_links(source)):
        there = os.path.relpath(_place(target), _place(source).parent)
        text = re.sub(rf"(?<=\]\(){re.escape(link)}(?=[)#])", there, text)
    return text


def _longest_first(links: Iterable[tuple[str, Path]]) -> list[tuple[str, Path]]:
    return sorted(set(links), key=lambda pair: -len(pair[0]))


def _links(page: Path) -> Iterator[tuple[str, Path]]:
    """Links to files of this repository: as written, and from its root."""
    for link in LINK.findall((ROOT / page).read_text()):
        target = (ROOT / page).parent / link
        if target.is_dir() and (target / "README.md").is_file():
            target /= "README.md"
        if target.is_file():
            yield link, target.resolve().relative_to(ROOT)


def _place(target: Path) -> PurePosixPath:
    """Where a file of the repository is among the prepared pages."""
    if target.parts[0] == "docs":
        place = PurePosixPath(*target.parts[1:])
        return place.with_suffix(".md") if place.suffix == ".ipynb" else place
    listing = ".md" if _language(target) else ""
    return PurePosixPath("repository", f"{target.as_posix()}{listing}")


def _notebook(source: Path, place: Path) -> str:
    """A notebook as a page: its text, its code, and what the code said when it was stored; pictures beside the page."""
    parts = []
    for number, cell in enumerate(json.loads((ROOT / source).read_text())["cells"]):
        text = "".join(cell["source"])
        parts.append(_led(text, source) if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
        for output in cell.get("outputs", ()):
            if "text" in output:
                parts.append(f"```text\n{''.join(output['text'])}```")
            elif "image/png" in output.get("data", {}):
                picture = place.with_name(f"{place.stem}-{number}.png")
                picture.write_bytes(base64.b64decode("".join(output["data"]["image/png"])))
                parts.append(f"![What the code above draws]({picture.name})")
    parts.append(f"This page is a notebook: [{source.name}]({source.name}) downloads it.")
    return "\n\n".join(parts)


def _listing(source: Path) -> str:
    title = f"---\ntitle: {source.name}\nsearch: {{exclude: true}}\n---\n# `{source.as_posix()}`\n"
    return f"{title}\n`````{_language(source)}\n{(ROOT / source).read_text()}`````\n"


def _language(target: Path) -> str | None:
    return LANGUAGES.get(target.suffix or target.name)


def _mathml(match: re.Match[str], page: str) -> str:
    """MathML is drawn by the browser itself: no script, no font, no network."""
    latex = html.unescape(match[3]).strip()
    drawn = convert(latex, display="inline" if match[2] == "(" else "block")
    if re.search(r"\\|>&<", html.unescape(drawn)):
        sys.exit(f"{page}: latex2mathml does not know all of: {latex}")
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


if __name__ == "__main__":
    main()
