"""Draws docs/images/three-agents.svg: the run of the page "What happens in a run", from what the run itself reports.

python docs/pictures.py         writes the picture again; a test compares it with the committed one
"""

from __future__ import annotations

from pathlib import Path

from afedpg import train
from afedpg.messages import Arrival

PICTURE = Path(__file__).parent / "images" / "three-agents.svg"
SPEEDS = (2.0, 3.5, 5.0)  # seconds per gradient
UNTIL = 7.0  # seconds shown
LEFT, TOP, LANE, BAR, SECOND = 78, 52, 62, 30, 92  # pixels
COLORS = ("#3b82c4", "#d9822b", "#3f9e63")
HEAD = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"
font-family="sans-serif" font-size="13">
<title>Three agents and one server</title>
<desc>Bars are agents at work, one lane per agent; dashed lines are the server's steps, one per finished bar.</desc>
<rect width="{width}" height="{height}" fill="#ffffff"/>
"""


def arrivals() -> list[tuple[Arrival, float]]:
    """The run of the page: every applied gradient, and the virtual second of its arrival."""
    found: list[tuple[Arrival, float]] = []
    train(
        "quadratic", agents=3, iterations=2, dimension=2, noise=0.0, timing="list", speeds=SPEEDS,
        schedule="constant", alpha=0.5, eta=0.1, on_arrival=lambda arrival, at, theta: found.append((arrival, at)),
    )  # fmt: skip
    return found


def draw(found: list[tuple[Arrival, float]]) -> str:
    bottom = TOP + len(SPEEDS) * LANE
    parts = [HEAD.format(width=LEFT + int(UNTIL * SECOND) + 30, height=bottom + 46)]
    seconds = range(int(UNTIL) + 1)
    parts += [text(LEFT + second * SECOND, bottom + 18, str(second), "#5a6773") for second in seconds]
    parts.append(text(LEFT + UNTIL * SECOND / 2, bottom + 38, "virtual seconds", "#5a6773"))
    for arrival, at in found:  # behind the bars, so that their words can be read
        x = LEFT + at * SECOND
        parts.append(f'<path d="M{x:g} {TOP - 22}V{bottom}" stroke="#17222d" stroke-dasharray="2 4"/>\n')
        parts.append(text(x, TOP - 28, f"θ{subscript(arrival.iteration + 1)}", "#17222d"))
    begin = {-1: 0.0} | {arrival.iteration: at for arrival, at in found}  # version v was sent out by step v - 1
    for agent in range(len(SPEEDS)):
        parts.append(text(LEFT - 12, lane(agent) + 20, f"agent {agent}", "#17222d", "end"))
        mine = [(arrival, at) for arrival, at in found if arrival.agent == agent]
        for arrival, at in mine:
            label = f"θ̃{subscript(arrival.version)}: delay {arrival.delay}"
            parts.append(bar(agent, begin[arrival.version - 1], at, label))
        if mine[-1][1] < UNTIL:  # its next gradient is not done yet
            parts.append(bar(agent, mine[-1][1], UNTIL, f"θ̃{subscript(mine[-1][0].iteration + 1)}", faint=True))
    for arrival, at in found:
        height = lane(arrival.agent) + BAR / 2
        parts.append(f'<circle cx="{LEFT + at * SECOND:g}" cy="{height:g}" r="4" fill="#17222d"/>\n')
    return "".join([*parts, "</svg>\n"])


def lane(agent: int) -> int:
    return TOP + agent * LANE + (LANE - BAR) // 2


def bar(agent: int, begin: float, end: float, label: str, faint: bool = False) -> str:
    x, width, fill = LEFT + begin * SECOND, (end - begin) * SECOND, COLORS[agent]
    box = f'<rect x="{x + 1:g}" y="{lane(agent)}" width="{width - 2:g}" height="{BAR}" rx="4" fill="{fill}"'
    opacity = ' fill-opacity="0.35"/>\n' if faint else "/>\n"
    return box + opacity + text(x + width / 2, lane(agent) + 20, label, "#17222d" if faint else "#ffffff")


def text(x: float, y: float, words: str, fill: str, anchor: str = "middle") -> str:
    return f'<text x="{x:g}" y="{y:g}" fill="{fill}" text-anchor="{anchor}">{words}</text>\n'


def subscript(number: int) -> str:
    return "".join(chr(ord("₀") + int(digit)) for digit in str(number))


if __name__ == "__main__":
    PICTURE.write_text(draw(arrivals()), encoding="utf-8")
