"""Progress on a real pseudo-terminal, and without one."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as some
from terminals import Terminal

from afedpg.cli import main
from afedpg.terminal import text as terminal
from afedpg.terminal.text import ASCII_BLOCKS, BLOCKS, Look, Progress, Rate, clock, first_line, second_line, sparkline

LONG = ("train", "quadratic", "--agents", "3", "--iterations", "1000000", "--out", "run")


@pytest.fixture
def start(tmp_path, monkeypatch) -> Iterator[Callable[..., Terminal]]:
    monkeypatch.chdir(tmp_path)
    started: list[Terminal] = []

    def begin(*arguments: str, columns: int = 100, **variables: str) -> Terminal:
        started.append(Terminal([sys.executable, "-m", "afedpg", *arguments], columns, **variables))
        return started[-1]

    yield begin
    for one in started:
        one.close()


def test_a_run_on_a_terminal(start):
    late = ("--timing", "straggler", "--spread", "20", "--max-delay", "5")  # what the last agent sends is refused
    shown = start("train", "quadratic", "--agents", "3", "--iterations", "500", *late, "--out", "run")
    assert shown.end() == 0
    [(first, second)] = re.findall(r"^(quadratic afedpg x3 .*)\n(return .*)$", shown.text, re.M)
    assert re.fullmatch(r"quadratic afedpg x3 seed 0  ━+  1500/1500  100%  in \d:\d\d", first)
    assert re.fullmatch(rf"return -?[\d.e-]+ [{BLOCKS}]+  [\d,]+ rejected  delay 1.0  [\d,]+ steps/s", second)
    assert "quadratic, afedpg, 3 agents, 10 parameters, 1500 gradients; about" in shown.text
    assert "run folder: run" in shown.text
    assert shown.text.count("steps/s") == 1  # drawn again in its place


def test_ctrl_c_leaves_a_clean_terminal_and_resume_says_what_it_will_cost(start):
    shown = start(*LONG)
    shown.watch(lambda text: "left" in text and "steps/s" in text)
    shown.type(b"\x03")
    assert shown.end() == 130
    hint = r"steps/s\nafedpg: interrupted after gradient \d+ of 3000000; go on with: afedpg resume run$"
    assert re.search(hint, shown.text)
    assert not shown.screen.cursor.hidden
    assert (shown.screen.cursor.x, shown.screen.cursor.attrs) == (0, shown.screen.default_char)
    again = start("resume", "run")
    again.watch(lambda text: "left" in text)
    assert re.search(r"3 agents, 10 parameters, \d+ of 3000000 gradients done; about .* of memory", again.text)
    again.type(b"\x03")
    assert again.end() == 130


def test_a_killed_command_leaves_a_visible_cursor(start):
    shown = start(*LONG)
    shown.watch(lambda text: "steps/s" in text)
    os.kill(shown.pid, 9)
    assert shown.end() == -9
    assert not shown.screen.cursor.hidden


@pytest.mark.parametrize("columns", [12, 40])
def test_a_narrow_terminal_gets_what_fits(start, columns):
    shown = start(*LONG, columns=columns)
    shown.watch(lambda text: re.search(r"\d%", text) is not None and ("return" in text or columns == 12))
    assert shown.text.count("%") == 1  # a line that wrapped would stay behind, again and again
    shown.type(b"\x03")
    assert shown.end() == 130


def colours(said: bytes) -> list[bytes]:
    codes = re.findall(rb"\x1b\[([\d;]*)m", said)
    return [code for code in codes if re.search(rb"(^|;)(3[0-8]|4[0-8]|9\d)(;|$)", code)]


def test_colours_are_an_offer(start):
    short = ("train", "quadratic", "--iterations", "20", "--out")
    coloured, plain = start(*short, "one"), start(*short, "two", NO_COLOR="1")
    dumb = start(*short, "three", TERM="dumb")
    assert [one.end() for one in (coloured, plain, dumb)] == [0, 0, 0]
    assert colours(coloured.said)
    assert not colours(plain.said)
    assert "160/160" in plain.text
    assert b"\x1b" not in dumb.said


def test_without_a_terminal_there_are_plain_lines(tmp_path, monkeypatch, capfd):
    """FORCE_COLOR is for tools that colour; a log file still gets lines it can keep."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr(terminal, "PLAIN_SECONDS", 0.05)
    monkeypatch.chdir(tmp_path)
    assert main(["train", "quadratic", "--iterations", "500", "--out", "run"]) == 0
    said = capfd.readouterr()
    cost, *lines = said.err.splitlines()
    assert cost.startswith("quadratic, afedpg, 8 agents")
    assert "\x1b" not in said.err + said.out
    assert lines
    pattern = r"\d+/4000  \d+%  return \S+  delay \S+  [\d,]+ steps/s  ([\dd: ]+ left|in \d:\d\d)"
    assert all(re.fullmatch(pattern, line) for line in lines), lines


def test_a_log_is_printed_above_the_live_lines(start):
    serve = start("server", "quadratic", "--agents", "1", "--insecure", "--listen", "127.0.0.1:0", "--out", "run")
    serve.watch(lambda text: "listening on port" in text and "0/100" in text)
    assert serve.text.index("listening on port") < serve.text.index("0/100")
    serve.type(b"\x03")
    assert serve.end() == 130
    assert serve.text.count("0/100") == 1


# What is shown, without a terminal at all


def test_quiet_says_nothing(capfd):
    progress = Progress(lambda: Look("a", "1/2", 1, 2), quiet=True, plain_seconds=0)
    progress.start()
    progress.say("word")
    progress.moved(last=True)
    progress.stop()
    assert capfd.readouterr() == ("", "")


facts = some.lists(some.text("abc", min_size=1, max_size=30), min_size=1, max_size=5)


@given(facts, some.integers(1, 200), some.lists(some.floats(-1e9, 1e9), max_size=300))
def test_the_second_line_fits(facts, width, history):
    line = second_line(Look("", "", 0, 1, tuple(facts), history), width)
    assert len(line) <= width
    if len(facts[0]) <= width:
        assert line.startswith(facts[0])


@given(some.integers(1, 200))
def test_the_label_goes_before_the_bar(width):
    label, numbers = first_line(Look("name", "1/2", 1, 2), "0:10 left", width)
    assert len(numbers) <= max(width, len("50%"))
    assert numbers == "1/2  50%  0:10 left" or width < len("1/2  50%  0:10 left")
    assert bool(label) == (width >= len("name") + 2 + terminal.SHORTEST_BAR + 2 + len(numbers))


@given(some.lists(some.floats(-1e30, 1e30), min_size=1), some.integers(1, 50))
def test_a_sparkline_rises_with_its_values(values, width):
    line = sparkline(sorted(values), width)
    assert len(line) == min(width, len(values))
    assert list(line) == sorted(line)
    if len(values) <= width and max(values) > min(values):
        assert (line[0], line[-1]) == (BLOCKS[0], BLOCKS[-1])


def test_a_sparkline_bears_what_is_no_number():
    assert sparkline([1.0, float("nan"), 2.0], 9) == f"{BLOCKS[0]} {BLOCKS[-1]}"
    assert sparkline([float("inf")], 9) == " "
    assert sparkline([0.0, 1.0], 2, ASCII_BLOCKS) == ASCII_BLOCKS[0] + ASCII_BLOCKS[-1]


def test_clocks():
    shown = [clock(seconds) for seconds in (0, 59.6, 3599, 3600, 90000)]
    assert shown == ["0:00", "1:00", "59:59", "1:00:00", "1 d 1:00:00"]


def test_a_rate_forgets_the_start():
    rate = Rate(0.0)
    assert rate.add(10.0, 0) == 0  # compiling
    rates = [rate.add(10.0 + second, 100 * second) for second in range(1, 200)]
    assert rates[9] == 50
    assert rates[-1] == pytest.approx(100)
    assert rate.add(1000.0, 19900) > 0  # silent for long: the little that is known


def test_a_rate_at_rest_keeps_nothing():
    """A server may wait for its agents for days; what it does then counts from the newest minute."""
    rate = Rate(0.0)
    assert rate.add(1.0, 100.0) == 100
    for look in range(2, 10_001):
        assert 0 < rate.add(look, 100.0) <= 50
    assert len(rate._samples) < 70
    assert rate.add(10_001.0, 160.0) == pytest.approx(1.0, rel=0.05)


@pytest.mark.parametrize(("aggregator", "ends"), [("fedbuff:size=25", 25), ("fedbuff:size=8", 0), ("each", 0)])
def test_a_run_whose_last_step_is_filled_says_so(aggregator, ends, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "quadratic", "--agents", "4", "--iterations", "4", "--aggregator", aggregator]) == 0
    shown = capsys.readouterr()
    assert f"{ends or 16} gradients, " in shown.out
    line = f"a server step takes {ends} gradients; the one that is open at the end is filled: {ends} or more\n"
    assert (line in shown.err) == bool(ends)
    assert ("server step takes" in shown.err) == bool(ends)
