// A canvas in a figure: sharp at any pixel density, drawn only while it is in sight, with a readout beside the pointer.

let palette = null;

/** The page's colours, as the style sheet has them in the present theme. */
export function colors() {
  if (palette === null) {
    const style = getComputedStyle(document.documentElement);
    const get = (name) => style.getPropertyValue(name).trim();
    palette = {
      ink: get("--ink"), soft: get("--soft"), line: get("--line"), grid: get("--grid"), card: get("--card"),
      fresh: get("--fresh"), middle: get("--middle"), stale: get("--stale"), refused: get("--refused"), out: get("--out"),
      series: [0, 1, 2, 3, 4, 5, 6, 7].map((slot) => get(`--series-${slot}`)),
    };
  }
  return palette;
}

const boards = new Set();

export function recolor() {
  palette = null;
  for (const board of boards) board.redraw();
}

/** Paper shows at once what the screen shows piece by piece. */
export function drawAll() {
  for (const board of boards) board.draw();
}

const inSight = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    const board = [...boards].find((board) => board.canvas === entry.target);
    board.visible = entry.isIntersecting;
    if (board.visible && board.stale) board.redraw();
  }
}, { rootMargin: "200px" });

export class Board {
  constructor(figure, height, paint) {
    this.figure = figure;
    this.height = height;
    this.paint = paint;
    this.visible = false; // until the browser has looked
    this.stale = false;
    this.canvas = document.createElement("canvas");
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute("role", "img");
    this.readout = document.createElement("div");
    this.readout.className = "readout";
    this.readout.setAttribute("role", "status");
    this.readout.hidden = true;
    const frame = document.createElement("div");
    frame.className = "frame";
    frame.append(this.canvas, this.readout);
    figure.append(frame);
    boards.add(this);
    inSight.observe(this.canvas);
    new ResizeObserver(() => this.redraw()).observe(frame);
  }

  get width() {
    return this.canvas.parentElement.clientWidth;
  }

  describe(text) {
    this.canvas.setAttribute("aria-label", text);
  }

  redraw() {
    if (!this.visible) {
      this.stale = true;
      return;
    }
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.draw();
    });
  }

  /** Now, whether it is in sight or not. */
  draw() {
    this.stale = false;
    const width = this.width, height = this.height, density = window.devicePixelRatio || 1;
    if (!width) return;
    const pixels = [Math.round(width * density), Math.round(height * density)];
    if (this.canvas.width !== pixels[0] || this.canvas.height !== pixels[1]) {
      [this.canvas.width, this.canvas.height] = pixels;
      this.canvas.style.width = `${width}px`;
      this.canvas.style.height = `${height}px`;
    }
    const context = this.canvas.getContext("2d");
    context.setTransform(density, 0, 0, density, 0, 0);
    context.clearRect(0, 0, width, height);
    context.font = "12px system-ui, sans-serif";
    this.paint(context, width, height, colors());
  }

  /** Rows of [colour or null, text, value] beside (x, y); null hides it. */
  say(x, y, title, rows) {
    if (title === null) {
      this.readout.hidden = true;
      return;
    }
    const head = document.createElement("p");
    head.textContent = title;
    const list = document.createElement("ul");
    for (const [color, text, value] of rows) {
      const item = document.createElement("li");
      const mark = document.createElement("i");
      if (color) mark.style.background = color;
      const name = document.createElement("span");
      name.textContent = text;
      const number = document.createElement("b");
      number.textContent = value;
      item.append(mark, name, number);
      list.append(item);
    }
    this.readout.replaceChildren(head, list);
    this.readout.hidden = false;
    this.move(x, y);
  }

  /** The readout, to what it is about. */
  move(x, y) {
    const size = this.readout.getBoundingClientRect();
    const left = x + 14 + size.width > this.width ? x - size.width - 14 : x + 14;
    this.readout.style.left = `${Math.max(0, left)}px`;
    this.readout.style.top = `${Math.max(0, Math.min(y - size.height / 2, this.height - size.height))}px`;
  }
}
