"""What the tests of the page look at."""

from __future__ import annotations

from federations import wait_until

PATIENCE = 20_000  # milliseconds, on a busy machine
BLANK = """(figure) => {
  const canvas = document.querySelector(`#${figure} canvas`);
  const empty = Object.assign(document.createElement("canvas"), { width: canvas.width, height: canvas.height });
  return canvas.toDataURL() === empty.toDataURL();
}"""


def tile(page, name):
    return page.locator("#tiles div", has=page.get_by_text(name, exact=True)).locator(".big").inner_text()


def number(text):
    return int(text.replace(",", ""))


def picture(page, figure):
    """The pixels of a picture, once it is drawn."""
    return page.evaluate(f"document.querySelector('#{figure} canvas').toDataURL()")


def drawn(page, figure):
    """Waits until something is: a frame after its data, and the timeline's data come after the others'."""
    wait_until(lambda: not page.evaluate(BLANK, figure), what=f"{figure} is drawn")


def folder_of(page):
    """Where the page's modules lie."""
    return page.evaluate("document.querySelector('script').src.replace(/main.js$/, '')")
