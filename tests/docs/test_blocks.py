"""Every code block of the documentation is run, or says why not and is parsed."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest
from blocks import PAGES, ROOT, Block, Folder, blocks_of, commands, matches, sessions, spans_of

from afedpg.cli import make_parser

BLOCKS = {page: blocks_of(page) for page in PAGES}
NOT_RUN = [block for blocks in BLOCKS.values() for block in blocks if block.reason]
TO_PARSE = [b for page in PAGES for b in BLOCKS[page] if "afedpg " in b.text and b.language != "python" and not b.runs]
SPANS = [span for page in PAGES for span in spans_of(page)]
PARSER = make_parser()
COMMANDS = next(action.choices for action in PARSER._actions if isinstance(action.choices, dict))
ELSEWHERE = {"forty.md"}  # test_forty.py runs its blocks and looks at what they bring about
RUN_HERE = [p for p in PAGES if p.name not in ELSEWHERE and any(b.runs for b in BLOCKS[p])]
INDENTED = {"results.md"}  # its commands take hours anyway


def ids(block: Block) -> str:
    return block.where


@pytest.mark.parametrize("page", RUN_HERE, ids=lambda p: p.stem)
def test_the_blocks_of_a_page_run_in_order(page: Path, tmp_path: Path) -> None:
    folder = Folder(tmp_path / "clone")
    for block in BLOCKS[page]:
        if block.runs or (block.title and not block.reason):
            folder.run(block)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_file_that_a_page_shows_is_used_by_it(page: Path) -> None:
    blocks = BLOCKS[page]
    for place, block in enumerate(blocks):
        if block.title:
            stem = Path(block.title).stem
            assert any(stem in later.text for later in blocks[place + 1 :] if later.runs), block.where


@pytest.mark.parametrize("block", TO_PARSE, ids=ids)
def test_every_command_is_one_the_program_takes(block: Block, capsys: pytest.CaptureFixture[str]) -> None:
    for words in commands(block.text, "afedpg"):
        try:
            PARSER.parse_args(words)
        except SystemExit as end:
            if end.code:
                pytest.fail(f"{block.where}: afedpg {' '.join(words)}\n{capsys.readouterr().err}")


@pytest.mark.parametrize("span", SPANS, ids=ids)
def test_commands_in_sentences_exist(span: Block) -> None:
    """They may leave out what does not matter there; what they name must exist."""
    (words,) = commands(span.text, "afedpg")
    assert words[0] in (*COMMANDS, "--help"), span.where
    for word in words[1:]:
        if word.startswith("-") and words[0] in COMMANDS:
            flag = word.partition("=")[0]
            assert flag in COMMANDS[words[0]]._option_string_actions, f"{span.where}: {flag}"


@pytest.mark.parametrize("block", NOT_RUN, ids=ids)
def test_what_is_not_run_has_its_reason_and_is_sound(block: Block) -> None:
    assert len(block.reason.split()) >= 2, f"{block.where}: say why it is not run"
    if block.language == "python":
        ast.parse(block.text)
    elif block.language in ("bash", "console"):
        text = "\n".join(c for c, _ in sessions(block.text)) if block.language == "console" else block.text
        done = subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True, check=False)
        assert done.returncode == 0, f"{block.where}: {done.stderr}"
    goals = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for words in commands(block.text, "make"):
        assert {word for word in words if "=" not in word} <= goals, f"{block.where}: make {' '.join(words)}"


def test_no_command_hides_where_no_test_looks() -> None:
    """Shell stands in fenced `bash` or `console` blocks: indented or under another name it would not be run."""
    assert not [b.where for blocks in BLOCKS.values() for b in blocks if b.language in ("sh", "shell", "zsh", "py", "")]
    hidden = [
        f"{page.relative_to(ROOT)}:{number}"
        for page in PAGES
        for number, line in enumerate(page.read_text().splitlines(), start=1)
        if re.match(r"    (afedpg|python|make|pip) ", line)
        and not inside_a_fence(page, number)
        and page.name not in INDENTED
    ]
    assert not hidden


def inside_a_fence(page: Path, line: int) -> bool:
    return any(block.line <= line <= block.line + block.text.count("\n") for block in BLOCKS[page])


def test_the_comparison_of_what_is_said_can_fail() -> None:
    assert matches("a 1\nb 2\nc 3\n", "a ...\n...\nc 3\n")
    assert not matches("a 1\nb 2\n", "b 2\na 1\n")
    assert not matches("a 12\n", "a 1\n")
    assert list(sessions("$ one\nsays\n$ two \\\n  more\n")) == [("one", "says\n"), ("two \\\n  more", "")]
    assert list(commands("a && x/afedpg b --c 'd e' | f # afedpg no\nA=1 afedpg g &", "afedpg")) == [
        ["b", "--c", "d e"],
        ["g"],
    ]
