"""The code blocks of the documentation: found in its pages, and run as a reader would run them.

    ```bash                    run; must succeed
    ```console                 `$ command` and what it says: run, every line shown must be said; ... stands for anything
    ```python                  run
    ```LANGUAGE title="FILE"   written to FILE, for the blocks that follow
    <!-- not run: REASON -->   above a block: it is only parsed
Other languages are only parsed: the `afedpg` commands in them.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from federations import reserved_port

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
FENCE = re.compile(
    r"^(?:<!-- not run: (?P<reason>[^\n]*?) -->\n+)?"
    r"(?P<ticks>`{3,})(?P<language>\w*)(?: title=\"(?P<title>[^\"]*)\")?(?P<rest>[^\n]*)\n(?P<text>.*?)^(?P=ticks)$",
    re.MULTILINE | re.DOTALL,
)
SPAN = re.compile(r"(?<!`)`(afedpg [^`\n]*(?:\n[^`\n]+)?)`(?!`)")  # a command within a sentence
RUN = ("bash", "console", "python")
COMMAND = """#!{}
from afedpg.cli import entry

if __name__ == "__main__":
    entry()
"""  # as pip writes it
PATIENCE = 300.0  # seconds a block may take, on a busy machine


@dataclass(frozen=True)
class Block:
    page: str
    line: int
    language: str
    text: str
    title: str = ""  # the file it is written to
    reason: str = ""  # why it is not run

    @property
    def runs(self) -> bool:
        return self.language in RUN and not self.reason and not self.title

    @property
    def where(self) -> str:
        return f"{self.page}:{self.line}"


def blocks_of(page: Path) -> list[Block]:
    text, name = page.read_text(), str(page.relative_to(ROOT))
    found = []
    for match in FENCE.finditer(text):
        line = text.count("\n", 0, match.start("ticks")) + 1
        title, reason = match["title"] or "", match["reason"] or ""
        found.append(Block(name, line, match["language"], match["text"], title, reason))
    return found


def spans_of(page: Path) -> list[Block]:
    """Commands in sentences, outside of blocks."""
    prose = FENCE.sub(lambda match: "\n" * match[0].count("\n"), page.read_text())
    name = str(page.relative_to(ROOT))
    return [Block(name, prose.count("\n", 0, span.start()) + 1, "", span[1]) for span in SPAN.finditer(prose)]


def commands(text: str, name: str) -> Iterator[list[str]]:
    """The words after `name`, of every call of that program in a piece of shell, of an ini file or of a sentence."""
    lines = text.replace("\\\n", " ").splitlines()
    for line in (line for line in lines if name in line):
        lexer = shlex.shlex(line.removeprefix("$ "), posix=True, punctuation_chars="();<>|&")
        lexer.whitespace_split = True
        words: list[str] = []
        for word in [*lexer, ";"]:
            if word and set(word) <= set("();<>|&"):
                if words and re.fullmatch(rf"(ExecStart=)?([^=]*/)?{name}", words[0]):
                    yield words[1:]
                words = []
            elif words or not re.fullmatch(r"[A-Z_]+=.*", word):  # VARIABLE=value before a command
                words.append(word)


class Folder:
    """Where the blocks of a page run, one after the other, as in a clone whose environment is active."""

    def __init__(self, path: Path) -> None:
        self.path = path
        tools = path / ".venv" / "bin"
        tools.mkdir(parents=True)
        (tools / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
        (tools / "afedpg").write_text(COMMAND.format(sys.executable))
        for tool in ("python", "afedpg"):
            (tools / tool).chmod(0o755)
        (tools / "activate").write_text(f'export PATH="{tools}:$PATH"\n')
        (path / "examples").symlink_to(ROOT / "examples")
        self.port, self._port_keeper = reserved_port()
        python_path = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH")]))
        self.environment = {
            **os.environ, "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": python_path,
            "COLUMNS": "200",
        }  # fmt: skip

    def run(self, block: Block) -> str:
        """What it said. Raises an AssertionError that names the block."""
        said = ""
        text = block.text.replace("7443", str(self.port))  # the documented port may be taken here
        if block.title:
            (self.path / block.title).write_text(block.text)
        elif block.language == "console":
            for command, wanted in sessions(text):
                code, out = self._call(["bash", "-c", command], block)
                assert matches(out, wanted), f"{block.where}: `{command}` ended with {code}, said\n{out}\nnot\n{wanted}"
                said += out
        else:
            script = self.path / f".block-{block.line}.py"
            script.write_text(text)
            shell = ["bash", "-euo", "pipefail", "-c", text]
            code, said = self._call(shell if block.language == "bash" else [sys.executable, str(script)], block)
            assert code == 0, f"{block.where}: exit code {code}\n{said}"
        return said

    def _call(self, command: list[str], block: Block) -> tuple[int, str]:
        process = subprocess.Popen(
            command, cwd=self.path, env=self.environment, text=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        try:
            out, _ = process.communicate(timeout=PATIENCE)
            return process.returncode, out
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{block.where}: took more than {PATIENCE:.0f} s") from None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # whatever a block left behind
            process.wait()


def sessions(text: str) -> Iterator[tuple[str, str]]:
    """(command, what it says) of a console block."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        lines = part.splitlines(keepends=True)
        count = 1
        while lines[count - 1].endswith("\\\n"):
            count += 1
        yield "".join(lines[:count]).strip(), "".join(lines[count:])


def matches(out: str, said: str) -> bool:
    """Every line of `said` is a line of `out`, in that order; ... stands for anything within and between lines."""
    place = 0
    lines = [" ".join(line.split()) for line in out.splitlines()]
    for wanted in (" ".join(line.split()) for line in said.splitlines() if line.strip() not in ("", "...")):
        pattern = ".*".join(re.escape(piece) for piece in wanted.split("..."))
        while place < len(lines) and not re.fullmatch(pattern, lines[place]):
            place += 1
        if place == len(lines):
            return False
        place += 1
    return True
