// Who works when: a lane per agent, a bar per gradient, and the global steps with their numbers.

import { Board, colors } from "./canvas.js";
import { addData } from "./data.js";
import { count, identity, scale, seconds, timeAxis } from "./scales.js";

const TOP = 26, BOTTOM = 38, LABEL_GAP = 6;
const TABLE_ROWS = 201; // with its head

export class Timeline {
  constructor(figure) {
    this.data = null;
    this.named = (agent) => `agent ${agent}`;
    this.board = new Board(figure, 160, (...all) => this.#paint(...all));
    this.hover = -1;
    const { canvas } = this.board;
    canvas.addEventListener("pointermove", (event) => {
      const box = canvas.getBoundingClientRect();
      this.#tell(this.#find(event.clientX - box.left, event.clientY - box.top));
    });
    for (const kind of ["pointerleave", "blur"]) canvas.addEventListener(kind, () => this.#tell(-1));
    canvas.addEventListener("keydown", (event) => this.#key(event));
    addData(this.board, () => this.#rows().slice(0, TABLE_ROWS), () => this.#rows(), () => []);
  }

  show(data, named) {
    const lanes = data.lanes.length;
    if (this.hover >= 0) {
      const { agent, step } = this.data, told = this.hover;
      this.hover = data.agent.findIndex((who, i) => who === agent[told] && data.step[i] === step[told]);
      if (this.hover < 0) this.#tell(-1);
    }
    this.data = data;
    this.named = named;
    this.lane = lanes <= 8 ? 28 : lanes <= 16 ? 20 : lanes <= 32 ? 13 : lanes <= 64 ? 9 : 7;
    this.board.height = TOP + BOTTOM + Math.max(1, lanes) * this.lane;
    const longest = Math.max(0, ...data.delay);
    this.board.describe(
      `Timeline of ${lanes} agents: gradients ${count(data.first)} to ${count(data.last)}, ` +
        `from ${seconds(data.begin)} to ${seconds(data.until)}; longest delay ${longest}.`,
    );
    this.board.redraw();
  }

  #paint(context, width, height, theme) {
    if (!this.data) return;
    const { data, lane } = this;
    const names = data.lanes.map((agent) => this.named(agent));
    const left = Math.min(110, Math.ceil(Math.max(...names.map((name) => context.measureText(name).width), 20))) + 12;
    const right = width - 12, bottom = height - BOTTOM;
    const toX = scale(data.begin, data.until, left, right);
    const rows = new Map(data.lanes.map((agent, row) => [agent, TOP + row * lane]));
    this.layout = { toX, rows, left, right };
    if (this.hover >= 0) this.board.move(...this.#place(this.hover));

    context.textBaseline = "middle";
    context.textAlign = "right";
    context.fillStyle = theme.soft;
    const every = Math.ceil(14 / lane);
    names.forEach((name, row) => {
      if (row % every === 0) context.fillText(fit(context, name, left - 12), left - 10, TOP + (row + 0.5) * lane);
    });
    const time = timeAxis(data.begin, data.until, Math.max(2, Math.round((right - left) / 110)));
    context.textAlign = "center";
    context.strokeStyle = theme.grid;
    for (const tick of time.ticks) {
      context.fillText(time.format(tick), toX(tick), bottom + 14);
      line(context, Math.round(toX(tick)) + 0.5, TOP, bottom);
    }
    context.textAlign = "right";
    context.fillText(`${this.clock ?? "time"}, ${time.unit}`, right, bottom + 29);

    const thick = Math.max(3, lane - (lane > 12 ? 8 : 2));
    for (const [agent, since, done] of data.out) {
      this.#bar(context, rows.get(agent), toX(since), toX(done), thick, theme.out);
      if (done < data.until) this.#wait(context, rows.get(agent), toX(done), right, theme.out);
    }
    const late = Math.max(1, [...data.delay].sort((a, b) => a - b)[Math.floor(0.9 * data.delay.length)] ?? 1);
    for (let i = 0; i < data.agent.length; i++) {
      const color = heat(theme, Math.min(1, data.delay[i] / late));
      this.#bar(context, rows.get(data.agent[i]), toX(data.start[i]), toX(data.finish[i]), thick, color, i === this.hover);
      if (data.finish[i] < data.end[i]) this.#wait(context, rows.get(data.agent[i]), toX(data.finish[i]), toX(data.end[i]), theme.line);
    }
    this.#steps(context, toX, bottom, theme);
    context.fillStyle = theme.refused;
    for (const [agent, at] of data.rejected) {
      if (rows.has(agent)) cross(context, toX(at), rows.get(agent) + lane / 2, theme.refused);
    }
  }

  /** Nothing to do until the others are done. */
  #wait(context, top, from, to, color) {
    const y = Math.round(top + this.lane / 2);
    context.strokeStyle = color;
    context.setLineDash([2, 3]);
    context.lineWidth = 2;
    context.beginPath();
    context.moveTo(from + 2, y);
    context.lineTo(to - 2, y);
    context.stroke();
    context.setLineDash([]);
    context.lineWidth = 1;
  }

  #bar(context, top, from, to, thick, color, chosen = false) {
    if (top === undefined) return;
    const width = Math.max(1, to - from - 1);
    context.fillStyle = color;
    context.beginPath();
    context.roundRect(from + 0.5, top + (this.lane - thick) / 2, width, thick, Math.min(4, thick / 3, width / 2));
    context.fill();
    if (chosen) {
      context.strokeStyle = colors().ink;
      context.lineWidth = 1.5;
      context.stroke();
      context.lineWidth = 1;
    }
  }

  /** A line through all lanes and a number above, wherever there is room for one. */
  #steps(context, toX, bottom, colors) {
    const { data } = this;
    const steps = new Map();
    data.end.forEach((at, i) => steps.set(data.step[i], at));
    const roomy = steps.size * 7 < toX(data.until) - toX(data.begin);
    let free = -Infinity;
    context.textAlign = "center";
    for (const [step, at] of [...steps].sort((a, b) => a[0] - b[0])) {
      const x = toX(at), text = identity(step), half = context.measureText(text).width / 2;
      const labelled = x - half > free;
      if (roomy || labelled) {
        context.strokeStyle = labelled ? colors.soft : colors.line;
        context.globalAlpha = labelled ? 0.8 : 0.5;
        line(context, Math.round(x) + 0.5, labelled ? TOP - 7 : TOP, bottom);
        context.globalAlpha = 1;
      }
      if (!labelled) continue;
      context.fillStyle = colors.ink;
      context.fillText(text, x, TOP - 15);
      free = x + half + LABEL_GAP;
    }
  }

  #find(x, y) {
    if (!this.data || !this.layout) return -1;
    const { toX, rows } = this.layout;
    return this.data.agent.findIndex((agent, i) => {
      const top = rows.get(agent);
      return y >= top && y < top + this.lane && x >= toX(this.data.start[i]) && x <= toX(this.data.end[i]);
    });
  }

  #tell(i) {
    if (i !== this.hover) this.board.redraw();
    this.hover = i;
    if (i < 0) return this.board.say(0, 0, null);
    const { data } = this;
    const rows = [
      [null, "global step", count(data.step[i])], [null, "delay", count(data.delay[i])],
      [null, "sent out", seconds(data.start[i])], [null, "applied", seconds(data.end[i])],
      [null, "worked", seconds(data.finish[i] - data.start[i])],
    ];
    if (data.finish[i] < data.end[i]) rows.push([null, "waited", seconds(data.end[i] - data.finish[i])]);
    this.board.say(...this.#place(i), this.named(data.agent[i]), rows);
  }

  #place(i) {
    if (!this.layout) return [0, 0]; // not drawn yet: the first frame puts it right
    return [this.layout.toX(this.data.end[i]), this.layout.rows.get(this.data.agent[i])];
  }

  #key(event) {
    if (!this.data?.agent.length) return;
    const last = this.data.agent.length - 1, at = this.hover < 0 ? last : this.hover;
    const moves = { ArrowLeft: Math.max(0, at - 1), ArrowRight: Math.min(last, at + 1), Home: 0, End: last, Escape: -1 };
    if (!(event.key in moves)) return;
    event.preventDefault();
    this.#tell(moves[event.key]);
  }

  #rows() {
    const { data } = this;
    const head = ["step", "agent", "delay", "sent out, s", "done, s", "applied, s"];
    if (!data) return [head];
    const all = data.agent.map((agent, i) => [data.step[i], this.named(agent), data.delay[i], data.start[i], data.finish[i], data.end[i]]);
    return [head, ...all.reverse()];
  }
}

function line(context, x, top, bottom) {
  context.beginPath();
  context.moveTo(x, top);
  context.lineTo(x, bottom);
  context.stroke();
}

function cross(context, x, y, color) {
  context.strokeStyle = color;
  context.lineWidth = 2;
  for (const side of [-1, 1]) {
    context.beginPath();
    context.moveTo(x - 3, y - 3 * side);
    context.lineTo(x + 3, y + 3 * side);
    context.stroke();
  }
  context.lineWidth = 1;
}

function fit(context, text, width) {
  while (text.length > 1 && context.measureText(text).width > width) text = `${text.slice(0, -2)}…`;
  return text;
}

/** From fresh over middle to stale, each written as #rrggbb. */
function heat({ fresh, middle, stale }, share) {
  const [from, to, rest] = share < 0.5 ? [fresh, middle, 2 * share] : [middle, stale, 2 * share - 1];
  const part = (color, place) => parseInt(color.slice(1 + 2 * place, 3 + 2 * place), 16);
  const value = (place) => Math.round(part(from, place) + (part(to, place) - part(from, place)) * rest);
  return `rgb(${value(0)} ${value(1)} ${value(2)})`;
}
