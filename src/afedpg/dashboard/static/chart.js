// Curves, bands, dots and bars over two axes. Drag to look closer, double-click or Escape to go back, arrows to read.

import { Board } from "./canvas.js";
import { addData } from "./data.js";
import { identity, linearTicks, logTicks, scale, short, timeAxis } from "./scales.js";

const TABLE_ROWS = 60;
const REACH = 12; // pixels beyond its ends at which a series still speaks

export class Chart {
  /** options: height. What is drawn comes with `show`. */
  constructor(figure, options = {}) {
    this.board = new Board(figure, options.height ?? 220, (...all) => this.#paint(...all));
    this.model = { series: [], x: {}, y: {} };
    this.zoom = null; // [low, high] of x
    this.cursor = null; // an x under the pointer
    this.drag = null;
    this.#listen();
    addData(this.board, () => this.#rows(), () => this.all(), () => this.#names());
  }

  /**
   * model.series: {name, color, kind: line|band|dots|bars|steps, x, y, low?, high?, dash?, alpha?, quiet?}; a quiet one is
   * left out of readouts. Bars and steps have a
   * width. model.x, model.y: {label, time?, log?, format?, read?, name?, unit?, zero?, whole?, room?, least?}.
   */
  show(model, summary) {
    if (model.x.label !== this.model.x.label) this.zoom = null;
    this.model = model;
    this.board.describe(summary);
    this.board.redraw();
  }

  #range(axis) {
    let low = Infinity, high = -Infinity;
    const spec = this.model[axis];
    const within = this.zoom && axis === "y" ? this.zoom : null;
    for (const series of this.model.series) {
      const [lows, highs] = axis === "x" ? [series.x, series.x] : [series.low ?? series.y, series.high ?? series.y];
      for (let i = 0; i < series.x.length; i++) {
        if (within && (series.x[i] < within[0] || series.x[i] > within[1])) continue;
        const a = lows[i] ?? series.y?.[i], b = highs[i] ?? series.y?.[i];
        if (a !== null && a !== undefined && !(spec.log && a <= 0) && a < low) low = a;
        if (b !== null && b !== undefined && !(spec.log && b <= 0) && b > high) high = b;
      }
      if (axis === "x" && series.width) high = Math.max(high, (series.x.at(-1) ?? 0) + series.width);
    }
    if (low > high) return spec.log ? [1, 10] : [0, 1];
    if (axis === "x") return this.zoom ?? [low - (spec.room ?? 0), (high > low ? high : low + 1) + (spec.room ?? 0)];
    if (spec.zero) low = Math.min(0, low);
    high = Math.max(high, spec.least ?? high);
    if (high - low <= 1e-9 * Math.max(Math.abs(low), Math.abs(high))) low = high; // they differ by rounding
    if (spec.log) return low === high ? [low / 2, high * 2] : [low / 1.15, high * 1.15];
    const room = (high - low || Math.abs(high) || 1) * 0.06;
    return [spec.zero && low === 0 ? 0 : low - room, high + room];
  }

  #axes(context, width, height) {
    const { x, y } = this.model;
    const [y0, y1] = this.#range("y"), [x0, x1] = this.#range("x");
    const rows = Math.max(2, Math.round(height / 48));
    const yTicks = (y.log ? logTicks(y0, y1, rows) : linearTicks(y0, y1, rows)).filter((t) => !y.whole || Number.isInteger(t));
    const yText = yTicks.map(y.format ?? short);
    const left = Math.ceil(Math.max(16, ...yText.map((text) => context.measureText(text).width))) + 10;
    const columns = Math.max(2, Math.round((width - left) / 100));
    const time = x.time ? timeAxis(x0, x1, columns) : null;
    const xTicks = (time?.ticks ?? linearTicks(x0, x1, columns)).filter((t) => !x.whole || Number.isInteger(t));
    const xText = xTicks.map(time?.format ?? x.format ?? short);
    const area = { left, right: width - 12, top: 10, bottom: height - 36 };
    return {
      area, x0, x1, y0, y1, xTicks, xText, yTicks, yText,
      xLabel: time ? `${x.label}, ${time.unit}` : x.label,
      toX: scale(x0, x1, area.left, area.right),
      toY: scale(y0, y1, area.bottom, area.top, y.log),
    };
  }

  #paint(context, width, height, colors) {
    const axes = (this.axes = this.#axes(context, width, height));
    const { area, toX, toY } = axes;
    context.lineWidth = 1;
    context.strokeStyle = colors.grid;
    context.fillStyle = colors.soft;
    context.textBaseline = "middle";
    context.textAlign = "right";
    axes.yTicks.forEach((tick, i) => {
      const y = Math.round(toY(tick)) + 0.5;
      context.beginPath();
      context.moveTo(area.left, y);
      context.lineTo(area.right, y);
      context.stroke();
      context.fillText(axes.yText[i], area.left - 8, y);
    });
    context.textAlign = "center";
    axes.xTicks.forEach((tick, i) => {
      const half = context.measureText(axes.xText[i]).width / 2;
      context.fillText(axes.xText[i], Math.min(toX(tick), width - half - 1), area.bottom + 13);
    });
    context.textAlign = "right";
    context.fillText(axes.xLabel ?? "", area.right, area.bottom + 28);
    context.save();
    context.beginPath();
    context.rect(area.left - 1, area.top - 6, area.right - area.left + 8, area.bottom - area.top + 7);
    context.clip();
    for (const series of this.model.series) this.#series(context, series, axes, colors);
    context.restore();
    context.strokeStyle = colors.line;
    context.beginPath();
    context.moveTo(area.left, area.bottom + 0.5);
    context.lineTo(area.right, area.bottom + 0.5);
    context.stroke();
    if (this.drag) this.#paintDrag(context, area, colors);
    else if (this.cursor !== null) this.#paintCursor(context, axes, colors);
  }

  #series(context, series, { toX, toY, area }, colors) {
    context.globalAlpha = series.alpha ?? 1;
    context.strokeStyle = context.fillStyle = series.color;
    context.setLineDash(series.dash ?? []);
    context.lineJoin = context.lineCap = "round";
    const shown = (value) => value !== null && value !== undefined && !(this.model.y.log && value <= 0);
    if (series.kind === "band") {
      context.globalAlpha = series.alpha ?? 0.16;
      const path = series.x.map((x, i) => [toX(x), series.low[i], series.high[i]]).filter((p) => shown(p[1]) && shown(p[2]));
      context.beginPath();
      for (const [x, low] of path) context.lineTo(x, toY(low));
      for (const [x, , high] of path.reverse()) context.lineTo(x, toY(high));
      context.fill();
    } else if (series.kind === "bars") {
      for (let i = 0; i < series.x.length; i++) {
        if (!series.y[i]) continue;
        const from = toX(series.x[i]), to = toX(series.x[i] + series.width), top = toY(series.y[i]);
        const round = Math.min(3, (to - from) / 3);
        context.beginPath();
        context.roundRect(from + 0.5, top, Math.max(1, to - from - 1), area.bottom - top, [round, round, 0, 0]);
        context.fill();
      }
    } else if (series.kind === "steps") {
      context.lineWidth = 2;
      context.beginPath();
      context.moveTo(toX(series.x[0] ?? 0), area.bottom);
      for (let i = 0; i < series.x.length; i++) {
        context.lineTo(toX(series.x[i]), toY(series.y[i]));
        context.lineTo(toX(series.x[i] + series.width), toY(series.y[i]));
      }
      context.lineTo(toX((series.x.at(-1) ?? 0) + series.width), area.bottom);
      context.stroke();
    } else if (series.kind === "dots") {
      const radius = series.radius ?? 4;
      for (let i = 0; i < series.x.length; i++) {
        if (!shown(series.y[i])) continue;
        const x = toX(series.x[i]), y = toY(series.y[i]);
        if (shown(series.low?.[i]) && shown(series.high?.[i])) {
          context.lineWidth = series.stem ?? 1.5;
          context.globalAlpha = 0.45;
          context.beginPath();
          context.moveTo(x, toY(series.low[i]));
          context.lineTo(x, toY(series.high[i]));
          context.stroke();
          context.globalAlpha = 1;
        }
        context.beginPath();
        context.arc(x, y, radius, 0, 2 * Math.PI);
        context.fill();
        context.lineWidth = 1.5;
        context.strokeStyle = colors.card;
        context.stroke();
        context.strokeStyle = series.color;
      }
    } else {
      context.lineWidth = series.thin ? 1 : 2;
      context.beginPath();
      for (let i = 0; i < series.x.length; i++) if (shown(series.y[i])) context.lineTo(toX(series.x[i]), toY(series.y[i]));
      context.stroke();
    }
    context.globalAlpha = 1;
    context.setLineDash([]);
  }

  #paintDrag(context, area, colors) {
    const [a, b] = this.drag;
    context.fillStyle = colors.fresh;
    context.globalAlpha = 0.15;
    context.fillRect(Math.min(a, b), area.top, Math.abs(b - a), area.bottom - area.top);
    context.globalAlpha = 1;
  }

  #paintCursor(context, { area, toX, toY }, colors) {
    const found = this.#at(this.cursor);
    if (!found.length) return;
    const x = toX(found[0].x);
    context.strokeStyle = colors.soft;
    context.setLineDash([2, 3]);
    context.beginPath();
    context.moveTo(x, area.top);
    context.lineTo(x, area.bottom);
    context.stroke();
    context.setLineDash([]);
    for (const { series, x, y } of found) {
      if (series.width) continue;
      context.fillStyle = series.color;
      context.beginPath();
      context.arc(toX(x), toY(y), 3.5, 0, 2 * Math.PI);
      context.fill();
    }
  }

  /** Of every series that speaks, the point nearest to x; the nearest of all first. */
  #at(x) {
    const found = [];
    for (const series of this.model.series) {
      if (series.quiet || series.kind === "band" || !series.x.length) continue;
      if (!this.#covers(series, x)) continue;
      const i = series.width ? Math.floor((x - series.x[0]) / series.width) : nearest(series.x, x);
      const y = series.y[i];
      if (y === null || y === undefined || (this.model.y.log && y <= 0)) continue;
      found.push({ series, x: series.width ? series.x[i] + series.width / 2 : series.x[i], y, i });
    }
    return found.sort((a, b) => Math.abs(a.x - x) - Math.abs(b.x - x));
  }

  /** A series says nothing of where it is not: a run that ended has no return later on. */
  #covers({ x: places, width = 0 }, x) {
    const { area, x0, x1 } = this.axes;
    const first = places[0], last = places.at(-1) + width;
    if (width) return x >= first && x < last;
    const half = (last - first) / Math.max(1, places.length - 1) / 2; // of the way from point to point
    const reach = Math.max(half, (REACH * (x1 - x0)) / (area.right - area.left));
    return x >= first - reach && x <= last + reach;
  }

  #tell(x) {
    this.cursor = x;
    this.board.redraw();
    if (x === null || !this.axes) return this.board.say(0, 0, null);
    const found = this.#at(x);
    if (!found.length) return this.board.say(0, 0, null);
    const { x: spec, y } = this.model;
    const format = spec.name ?? ((value) => `${(spec.read ?? spec.format ?? short)(value)} ${spec.unit ?? ""}`.trim());
    const rows = found.map(({ series, y: value, i }) => [series.color, series.name, (series.read ?? y.read ?? y.format ?? short)(value, i, series)]);
    const first = found[0];
    this.board.say(this.axes.toX(first.x), this.axes.toY(first.y), format(first.series.width ? first.series.x[first.i] : first.x, first), rows);
  }

  #listen() {
    const canvas = this.board.canvas;
    const place = (event) => event.clientX - canvas.getBoundingClientRect().left;
    const value = (pixel) => {
      const { area, x0, x1 } = this.axes;
      return x0 + ((pixel - area.left) / (area.right - area.left)) * (x1 - x0);
    };
    canvas.addEventListener("pointermove", (event) => {
      if (!this.axes) return;
      if (this.drag) {
        this.drag[1] = place(event);
        this.board.redraw();
      } else this.#tell(value(place(event)));
    });
    canvas.addEventListener("pointerleave", () => this.#tell(null));
    canvas.addEventListener("blur", () => this.#tell(null));
    canvas.addEventListener("pointerdown", (event) => {
      if (event.pointerType !== "mouse" || event.button !== 0 || !this.axes) return; // a finger scrolls the page
      this.drag = [place(event), place(event)];
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointerup", () => {
      if (!this.drag) return;
      const [a, b] = this.drag.map(value).sort((a, b) => a - b);
      if (Math.abs(this.drag[1] - this.drag[0]) > 8) this.zoom = [a, b];
      this.drag = null;
      this.board.redraw();
    });
    const back = () => {
      this.zoom = null;
      this.board.redraw();
    };
    canvas.addEventListener("dblclick", back);
    canvas.addEventListener("keydown", (event) => this.#key(event, back));
  }

  #key(event, back) {
    const lead = this.model.series.find((series) => !series.quiet && series.kind !== "band" && series.x.length);
    if (!lead) return;
    const at = this.cursor === null ? lead.x.length - 1 : nearest(lead.x, this.cursor);
    const jump = event.shiftKey ? Math.max(1, Math.round(lead.x.length / 20)) : 1;
    const moves = { ArrowLeft: at - jump, ArrowRight: at + jump, Home: 0, End: lead.x.length - 1 };
    if (event.key === "Escape") {
      this.#tell(null);
      back();
    } else if (event.key in moves) {
      event.preventDefault();
      this.#tell(lead.x[Math.min(lead.x.length - 1, Math.max(0, moves[event.key]))]);
    }
  }

  /** Every point that is drawn. */
  all() {
    const { series, x, y } = this.model;
    const points = (entry) => entry.x.map((at, i) => [entry.name, entry.kind, at, entry.y?.[i], entry.low?.[i], entry.high?.[i]]);
    return [["series", "kind", x.label ?? "x", y.label ?? "y", "low", "high"], ...series.flatMap(points)];
  }

  #names() {
    return [...new Map(this.model.series.filter((entry) => !entry.quiet).map(({ name, color }) => [name, color]))];
  }

  #rows() {
    const { series, x, y } = this.model;
    const told = series.filter((entry) => !entry.quiet && entry.kind !== "band");
    const rows = [["series", x.label ?? "", y.label ?? ""]];
    for (const entry of told) {
      const every = Math.max(1, Math.ceil(entry.x.length / TABLE_ROWS));
      for (let i = entry.x.length - 1; i >= 0; i -= every) {
        const value = entry.y[i];
        if (value !== null && value !== undefined) rows.push([entry.name, identity(entry.x[i]), identity(value)]);
      }
    }
    return rows;
  }
}

/** The place of the entry nearest to x; `sorted` ascends. */
function nearest(sorted, x) {
  let low = 0, high = sorted.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (sorted[middle] < x) low = middle;
    else high = middle;
  }
  return Math.abs(sorted[low] - x) <= Math.abs(sorted[high] - x) ? low : high;
}
