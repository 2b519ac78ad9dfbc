"""The page in a real browser, over real runs. Its screenshots are kept in build/screenshots."""

from __future__ import annotations

import json
import math
import re
import signal
from pathlib import Path

import pytest
from asking import small_run
from federations import wait_until
from looking import PATIENCE, drawn, folder_of, number, picture, tile

SCREENSHOTS = Path(__file__).parents[2] / "build" / "screenshots"
HOSTILE = "<img src=x onerror=alert(1)>&lt;b&gt;"
PHONE = {"width": 390, "height": 844}


def keep(page, name):
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SCREENSHOTS / f"{name}.png")


def test_the_curve_grows_while_a_run_goes_on(tmp_path, serve, open_page, start_command):
    train = start_command(
        "train", "quadratic", "--agents", 8, "--iterations", 10**6, "--out", tmp_path / "runs" / "live"
    )  # fmt: skip
    wait_until((tmp_path / "runs" / "live" / "run.db").exists)
    page = open_page(serve(tmp_path / "runs"))
    page.wait_for_selector("#pulse[data-state=live]")
    seen, pictures, timelines = [], set(), set()

    def grown():
        page.wait_for_timeout(100)
        now = number(tile(page, "Gradients"))
        if now and now not in seen:
            seen.append(now)
        pictures.add(picture(page, "return"))  # at every look: they are drawn a little later
        timelines.add(picture(page, "timeline"))
        return min(len(seen), len(pictures), len(timelines)) >= 5

    page.wait_for_selector("#content:not([hidden])")
    wait_until(grown, what="the gradients on the page grow by themselves, curve and timeline are drawn anew")
    assert seen == sorted(seen)
    assert re.search(r"after [\d,]+ gradients", page.locator("#return canvas").get_attribute("aria-label"))
    assert page.locator("#agents tbody tr").count() == 8
    assert set(page.locator("#agents tbody td:nth-child(2)").all_inner_texts()) == {"working"}
    keep(page, "live")
    train.send_signal(signal.SIGINT)
    page.wait_for_selector("#run-facts:has-text('interrupted')")
    page.wait_for_selector("#pulse[data-state=idle]")


def test_runs_are_filtered_overlaid_and_averaged(tmp_path, serve, open_page):
    for seed in range(3):
        for method in ("afedpg", "fedpg"):
            small_run(tmp_path / "sweep" / method / f"seed{seed}", seed=seed, method=method, iterations=40)
    page = open_page(serve(tmp_path))
    page.wait_for_selector("#content:not([hidden])")
    assert page.locator("#run-list li").count() == 6
    page.get_by_label("Filter").fill("afedpg seed")
    assert page.locator("#run-list .name").all_inner_texts() == [f"sweep/afedpg/seed{seed}" for seed in range(3)]
    page.get_by_role("button", name="Show these").click()
    page.wait_for_selector("#run-count:has-text('3 of 6 shown')")
    page.wait_for_selector("#legend li:nth-child(3)")
    apart = picture(page, "return")
    page.get_by_label("mean of seeds").check()
    page.wait_for_selector("#legend li:only-child")
    assert page.locator("#legend li").inner_text() == "quadratic, afedpg, 3 agents: 3 seeds"
    wait_until(
        lambda: page.wait_for_timeout(50) or picture(page, "return") != apart, what="a band instead of three curves"
    )
    page.get_by_label("Filter").fill("")
    page.get_by_role("checkbox", name="sweep/fedpg/seed0").check()
    page.wait_for_selector("#legend li:nth-child(2)")
    page.get_by_label("In detail").select_option("sweep/fedpg/seed0")
    page.wait_for_selector("h1:has-text('sweep/fedpg/seed0')")
    for axis in ("samples", "samples per agent", "time", "iterations"):
        before = picture(page, "return")
        page.locator(".segments label", has=page.get_by_text(axis, exact=True)).click()
        wait_until(lambda before=before: page.wait_for_timeout(50) or picture(page, "return") != before, what=axis)
    again = open_page(page.url)  # the address keeps what is shown
    again.wait_for_selector("#run-count:has-text('4 of 6 shown')")
    again.wait_for_selector("h1:has-text('sweep/fedpg/seed0')")
    keep(again, "seeds")


def test_runs_that_start_later_appear_by_themselves(tmp_path, serve, open_page):
    page = open_page(serve(tmp_path))
    page.get_by_text("No runs here yet").wait_for()
    small_run(tmp_path / "later")
    page.wait_for_selector("h1:has-text('later')")
    wait_until(lambda: page.wait_for_timeout(50) or number(tile(page, "Gradients")) == 60, what="all of its gradients")


def test_a_hostile_name_is_text(tmp_path, serve, open_page):
    small_run(tmp_path / HOSTILE)
    page = open_page(serve(tmp_path))
    page.wait_for_selector("#content:not([hidden])")
    assert page.locator("h1").inner_text() == HOSTILE
    assert page.locator("#run-list .name").inner_text() == HOSTILE
    drawn(page, "return")
    page.locator("#return canvas").hover()
    page.wait_for_selector("#return .readout:not([hidden])")
    assert HOSTILE in page.locator("#return .readout").inner_text()
    assert page.locator("img:not([src^='/assets/'])").count() == 0


def test_the_keyboard_is_enough(tmp_path, serve, open_page):
    small_run(tmp_path / "one")
    page = open_page(serve(tmp_path))
    page.wait_for_selector("#content:not([hidden])")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the pictures"
    page.locator("#return canvas").focus()
    drawn(page, "return")
    page.keyboard.press("ArrowLeft")
    said = page.locator("#return [role=status]").inner_text()
    assert re.search(r"59 iterations\s+one", said)
    page.keyboard.press("Home")
    assert "1 iterations" in page.locator("#return [role=status]").inner_text()
    page.keyboard.press("Escape")
    assert page.locator("#return .readout").is_hidden()
    page.locator("#timeline canvas").focus()
    drawn(page, "timeline")
    page.keyboard.press("End")
    assert re.search(r"global step\s*60", page.locator("#timeline [role=status]").inner_text())
    page.locator("#return details summary").focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("#return details tbody tr:nth-child(30)")
    nameless = "[...document.querySelectorAll('canvas')].filter((c) => !c.ariaLabel && !c.getAttribute('aria-label'))"
    assert page.evaluate(f"{nameless}.length") == 0
    sort = page.locator("#agents th button", has_text="Gradients")
    sort.focus()
    page.keyboard.press("Enter")
    counts = [number(text) for text in page.locator("#agents tbody td:nth-child(3)").all_inner_texts()]
    assert counts == sorted(counts, reverse=True)
    assert page.locator("#agents th[aria-sort=descending]").count() == 1


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_needs_no_sideways_scrolling_in_either_theme(tmp_path, serve, open_page, scheme):
    small_run(tmp_path / "a-run-with-a-rather-long-name-that-has-no-room-on-a-phone-at-all", agents=20)
    page = open_page(serve(tmp_path), PHONE, scheme)
    page.wait_for_selector("#content:not([hidden])")
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", background))) < 200) == (scheme == "dark")
    page.get_by_role("button", name="Theme").click()  # light, whatever the system says
    assert page.evaluate("document.documentElement.dataset.theme") == "light"
    keep(page, f"phone-{scheme}")


def test_the_film_of_the_policy_is_shown(tmp_path, serve, open_page):
    from PIL import Image

    small_run(tmp_path / "one")
    frames = [Image.new("RGB", (64, 48), color) for color in ("navy", "orange")]
    frames[0].save(tmp_path / "one" / "policy.gif", save_all=True, append_images=frames[1:])
    page = open_page(serve(tmp_path))
    film = page.locator("#videos img")
    film.scroll_into_view_if_needed()
    wait_until(lambda: film.evaluate("(image) => image.naturalWidth") == 64, what="the film is loaded")


def test_with_a_token_the_whole_page_works_and_without_it_nothing(tmp_path, serve, open_page, chromium):
    small_run(tmp_path / "one")
    url = serve(tmp_path, "--host", "0.0.0.0")
    port, token = re.fullmatch(r"http://[^:/]+:(\d+)/\?token=([\w-]{32})", url).groups()
    page = open_page(f"http://127.0.0.1:{port}/?token={token}")
    page.wait_for_selector("h1:has-text('one')")
    assert "token" not in page.url
    stranger = chromium.new_context().new_page()
    assert stranger.goto(f"http://127.0.0.1:{port}/").status == 403
    stranger.context.close()


def test_a_server_that_ends_is_missed(tmp_path, chromium, start_command):
    small_run(tmp_path / "one")
    process = start_command("dashboard", tmp_path, "--port", "0", "--json")
    page = chromium.new_context().new_page()
    page.goto(json.loads(process.stdout.readline())["url"])
    page.wait_for_selector("h1:has-text('one')", timeout=PATIENCE)
    process.send_signal(signal.SIGINT)
    page.wait_for_selector("#pulse[data-state=lost]", timeout=PATIENCE)
    assert page.locator("h1").inner_text() == "one", "what was known stays on the page"
    page.context.close()
    assert process.wait(60) == 0


def test_the_pages_own_arithmetic(tmp_path, serve, open_page):
    page = open_page(serve(tmp_path))
    script = """async (folder) => {
      const [curves, scales] = await Promise.all(["curves.js", "scales.js"].map((name) => import(folder + name)));
      const x = [0, 10, 20], flat = (value) => ({ x, y: [value, value, value] });
      const ramp = { x: [5, 15], y: [0, 10] }, holes = { x, y: [0, null, 20] };
      return {
        band: curves.meanOf([flat(1), flat(2), flat(6)]), common: curves.meanOf([ramp, holes]),
        joined: curves.joined([1, 1, 2, 3, 3], [2, 4, null, null, 6]),
        smooth: curves.smooth([0, 1, 1, 2], [4, null, 4, 4], 3), steady: curves.smooth([0, 1], [1, 2], 0),
        fading: curves.smooth([0, 2], [0, 1], 2), dense: curves.smooth([0, 0, 2, 2], [0, 0, 1, 1], 2),
        ticks: scales.linearTicks(0, 9.5, 5), decades: scales.logTicks(0.002, 3000, 4),
        hours: scales.timeAxis(0, 4 * 3600, 4), late: scales.timeAxis(1357, 1361, 4).ticks,
        said: [scales.number(1234.5), scales.number(-0.00012), scales.count(1e6), scales.bytes(8123456)],
        times: [0.0123, 7200].map(scales.seconds), close: scales.linearTicks(500, 500 + 2e-13, 5).length,
      };
    }"""
    found = page.evaluate(script, folder_of(page))
    half = 4.303 * 7**0.5 / 3**0.5  # t(2) * deviation / sqrt(n), of 1, 2 and 6
    assert {round(value, 9) for value in found["band"]["y"]} == {3.0}
    assert found["band"]["high"][7] - 3 == pytest.approx(half)
    assert 3 - found["band"]["low"][7] == pytest.approx(half)
    assert (found["common"]["x"][0], found["common"]["x"][-1]) == (5, 15)
    assert found["common"]["y"][0] == pytest.approx(2.5)  # of 0 and 5
    assert found["joined"] == {"x": [1, 2, 3], "y": [3, None, 6]}
    assert found["smooth"] == pytest.approx([4, 4, 4, 4])
    assert found["steady"] == [1, 2]
    assert found["fading"][-1] == found["dense"][-1] == pytest.approx(1 / (1 + math.exp(-1)))
    assert found["ticks"] == [0, 2, 4, 6, 8]
    assert found["decades"] == [0.01, 1, 100]
    assert (found["hours"]["unit"], found["hours"]["ticks"]) == ("h", [0, 3600, 7200, 10800, 14400])
    assert found["late"] == [1357, 1358, 1359, 1360, 1361]
    assert found["said"] == ["1,235", "-1.20e-4", "1,000,000", "8.12MB"]
    assert found["times"] == ["12.3 ms", "2 h"]
    assert found["close"] < 30, "there is no next number"


def test_a_return_that_does_not_change_is_drawn(tmp_path, serve, open_page):
    """Smoothing leaves 500 here and 500.0000000000001 there."""
    script = """async (folder) => {
      const { Chart } = await import(folder + "chart.js");
      const figure = document.body.appendChild(document.createElement("figure"));
      const chart = new Chart(figure);
      const series = [{ name: "a", color: "navy", kind: "line", x: [1, 2], y: [500, 500 + 1e-13] }];
      chart.show({ series, x: {}, y: {} }, "");
      while (!chart.axes) await new Promise((go) => setTimeout(go, 20));
      return [chart.axes.y0, chart.axes.yText, chart.axes.y1];
    }"""
    page = open_page(serve(tmp_path))
    low, ticks, high = page.evaluate(script, folder_of(page))
    assert (low, high) == (pytest.approx(470), pytest.approx(530))
    assert "500" in ticks
    assert len(ticks) == len(set(ticks)) < 10


def test_a_picture_is_drawn_when_it_comes_into_sight_and_not_before(tmp_path, serve, open_page):
    """Not even before the browser has looked for the first time, as on a slow machine."""
    script = """async (folder) => {
      const { Chart } = await import(folder + "chart.js");
      const figure = document.body.appendChild(document.createElement("figure"));
      figure.style.marginTop = "5000px";
      const chart = new Chart(figure);
      chart.show({ series: [{ name: "a", color: "navy", kind: "line", x: [1, 2], y: [1, 2] }], x: {}, y: {} }, "");
      for (let frame = 0; frame < 5; frame++) await new Promise(requestAnimationFrame);
      const early = Boolean(chart.axes);
      figure.scrollIntoView();
      while (!chart.axes) await new Promise((go) => setTimeout(go, 20));
      return early;
    }"""
    page = open_page(serve(tmp_path))
    assert page.evaluate(script, folder_of(page)) is False


def test_the_bar_that_is_read_out_stays_the_marked_one(tmp_path, serve, open_page):
    script = """async (folder) => {
      const { Timeline } = await import(folder + "timeline.js");
      const timeline = new Timeline(document.body.appendChild(document.createElement("figure")));
      const drawn = async () => {
        for (timeline.layout = null; !timeline.layout; ) await new Promise((go) => setTimeout(go, 20));
      };
      const window = async (...step) => {
        const agent = step.map(() => 0), start = step.map((n) => n - 1), end = step;
        const bars = { agent, step, start, finish: end, end, delay: agent, out: [], rejected: [] };
        timeline.show({ ...bars, lanes: [0], begin: start[0], until: end.at(-1), first: 1, last: 9 }, String);
        await drawn();
        return [timeline.data.step[timeline.hover] ?? null, timeline.board.readout.hidden];
      };
      const before = await window(1, 2, 3);
      timeline.board.canvas.dispatchEvent(new KeyboardEvent("keydown", { key: "End" }));
      await drawn();
      return [before, await window(2, 3, 4), await window(5, 6, 7)];
    }"""
    page = open_page(serve(tmp_path))
    assert page.evaluate(script, folder_of(page)) == [[None, True], [3, False], [None, True]]


def test_a_bar_is_read_out_before_the_first_frame_is_drawn(tmp_path, serve, open_page):
    """A slow machine may take a while for it, and keys do not wait."""
    script = """async (folder) => {
      const { Timeline } = await import(folder + "timeline.js");
      const timeline = new Timeline(document.body.appendChild(document.createElement("figure")));
      const bars = { agent: [0], step: [1], start: [0], finish: [1], end: [1], delay: [0], out: [], rejected: [] };
      timeline.show({ ...bars, lanes: [0], begin: 0, until: 1, first: 1, last: 1 }, String);
      timeline.board.canvas.dispatchEvent(new KeyboardEvent("keydown", { key: "End" }));
      const said = timeline.board.readout.textContent, early = !timeline.layout;
      while (!timeline.layout) await new Promise((go) => setTimeout(go, 20));
      return [early, said.includes("global step"), timeline.board.readout.style.left !== "14px"];
    }"""
    page = open_page(serve(tmp_path))
    assert page.evaluate(script, folder_of(page)) == [True, True, True]


def test_a_page_left_open_over_a_sweep_goes_on_showing_what_runs(tmp_path, serve, open_page):
    script = """async (folder) => {
      const { suggested } = await import(folder + "runs.js");
      const runs = [];
      let shown = [];
      for (let i = 0; i < 100; i++) {
        runs.forEach((run) => run.id !== "long" && (run.state = "finished"));
        runs.push({ id: i ? `run${i}` : "long", state: "running", changed: i });
        shown = suggested(shown, runs);
      }
      return shown;
    }"""
    page = open_page(serve(tmp_path))
    assert page.evaluate(script, folder_of(page)) == ["long", *(f"run{i}" for i in range(61, 100))]


def test_a_folder_that_cannot_be_searched_is_told(tmp_path, serve, open_page):
    page = open_page(serve(tmp_path))
    page.get_by_text("No runs here yet").wait_for()
    page.route("**/api/runs", lambda route: route.fulfill(json={"runs": [], "trouble": "cannot search <b>/closed</b>"}))
    page.get_by_role("alert").get_by_text("cannot search <b>/closed</b>").wait_for()
    assert page.get_by_text("No runs here yet").is_hidden()
