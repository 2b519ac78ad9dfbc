"""What the tests of the page look at."""

from __future__ import annotations

from federations import wait_until

PATIENCE = 60_000  # milliseconds, on a busy machine
FRAMES = """async () => {
  for (let frame = 0; frame < 3; frame++) await new Promise(requestAnimationFrame);
}"""
BLANK = """(figure) => {
  const canvas = document.querySelector(`#${figure} canvas`);
  const empty = Object.assign(document.createElement("canvas"), { width: canvas.width, height: canvas.height });
  return canvas.toDataURL() === empty.toDataURL();
}"""


def tile(page, name):
    return page.locator("#tiles div", has=page.get_by_text(name, exact=True)).locator(".big").inner_text()


def number(text):
    return int(text.replace(",", ""))


def settle(page):
    """Until what the page knows is drawn: a picture learns in one frame that it is in sight, the next one draws it."""
    page.evaluate(FRAMES)


def picture(page, figure):
    """The pixels of a picture, once it is drawn."""
    settle(page)
    return page.evaluate(f"document.querySelector('#{figure} canvas').toDataURL()")


def drawn(page, figure):
    """Waits until something is: a frame after its data, and the timeline's data come after the others'."""
    wait_until(lambda: not page.evaluate(BLANK, figure), what=f"{figure} is drawn")
    settle(page)  # of runs that were chosen just now as well


def folder_of(page):
    """Where the page's modules lie."""
    return page.evaluate("document.querySelector('script').src.replace(/main.js$/, '')")
