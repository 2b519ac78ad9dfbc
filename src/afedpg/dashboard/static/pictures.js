// Every picture, table and number of the page, from what the store knows.

import { colors } from "./canvas.js";
import { Chart } from "./chart.js";
import { along, joined, meanOf, onePerSeed, REACHES, smooth } from "./curves.js";
import { Detail } from "./detail.js";
import { Settings } from "./settings.js";
import { DASHES } from "./runs.js";
import { bytes, count, number, seconds, short } from "./scales.js";
import { Timeline } from "./timeline.js";

const byId = (id) => document.getElementById(id);
const AXES = {
  samples: { label: "samples", unit: "samples" },
  "per-agent": { label: "samples per agent", unit: "samples per agent" },
  iteration: { label: "iterations", unit: "iterations" },
  seconds: { label: "time", time: true, read: seconds },
};
const SMALL = ["delays", "delay-agents", "return-agents", "concurrency", "bytes", "lengths", "norm"];

export class Pictures {
  constructor(store, list) {
    this.store = store;
    this.list = list;
    this.onSettings = () => {};
    this.return = new Chart(byId("return"), { height: 340 });
    this.timeline = new Timeline(byId("timeline"));
    this.small = Object.fromEntries(SMALL.map((id) => [id, new Chart(byId(id))]));
    this.detail = new Detail();
    this.table = new Settings(store, list);
    this.focus = null;
    const again = () => {
      this.onSettings();
      this.show();
    };
    for (const radio of document.getElementsByName("axis")) radio.addEventListener("change", again);
    for (const id of ["smoothing", "seeds"]) byId(id).addEventListener("input", again);
    byId("focus").addEventListener("change", () => {
      this.focus = byId("focus").value;
      byId("live").checked = true;
      again();
    });
    byId("live").addEventListener("change", () => this.#window());
    byId("window").addEventListener("change", () => this.#window());
    byId("position").addEventListener("input", () => {
      byId("live").checked = false;
      this.#window();
    });
  }

  get axis() {
    return document.querySelector("input[name=axis]:checked").value;
  }

  settings() {
    return { x: this.axis, smoothing: byId("smoothing").value, seeds: byId("seeds").checked ? 1 : 0, ...(this.focus ? { focus: this.focus } : {}) };
  }

  restore(parts) {
    const radio = [...document.getElementsByName("axis")].find((radio) => radio.value === parts.get("x"));
    if (radio) radio.checked = true;
    if (parts.has("smoothing")) byId("smoothing").value = parts.get("smoothing");
    byId("seeds").checked = parts.get("seeds") === "1";
    this.focus = parts.get("focus");
  }

  /** `ids`: the runs that changed; all, unless given. */
  show(ids = this.store.shown) {
    const ready = this.store.shown.filter((id) => this.store.data.has(id) && this.list.of(id));
    byId("content").hidden = !ready.length;
    byId("nothing").hidden = ready.length > 0 || this.store.shown.length > 0;
    if (!ready.length) return;
    if (!ready.includes(this.focus)) this.focus = ready[0];
    this.#chooser(ready);
    const several = [...Map.groupBy(ready.map((id) => this.list.of(id)), (run) => run.group).values()];
    byId("seeds").disabled = !several.some((runs) => new Set(runs.map((run) => run.seed)).size > 1);
    this.list.together = byId("seeds").checked && !byId("seeds").disabled;
    this.list.mark();
    const shown = ready.map((id) => ({ run: this.list.of(id), data: this.store.data.get(id), color: this.list.color(id), dash: this.list.dash(id) }));
    const main = shown.find(({ run }) => run.id === this.focus);
    this.#name(shown, main);
    this.#legend(shown);
    this.#showReturn(shown);
    this.#showSmall(shown, main);
    if (ids.includes(this.focus)) this.#window();
    this.detail.show(main);
    this.table.show(ready);
  }

  /** Whose name the files of each picture bear. */
  #name(shown, main) {
    for (const { board } of [this.return, ...Object.values(this.small)]) board.run = shown.length === 1 ? main.run.name : "";
    for (const { board } of [this.timeline, this.small["delay-agents"], this.small["return-agents"]]) board.run = main.run.name;
  }

  #chooser(ready) {
    const select = byId("focus");
    byId("focus-label").hidden = ready.length < 2;
    const same = select.options.length === ready.length && ready.every((id, i) => select.options[i].value === id);
    if (!same) {
      select.replaceChildren(...ready.map((id) => Object.assign(document.createElement("option"), { value: id, textContent: this.list.of(id).name })));
    }
    select.value = this.focus;
  }

  #legend(shown) {
    const entries = new Map(); // text -> colour
    for (const group of this.#groups(shown)) {
      const counted = onePerSeed(group), twice = group.filter((one) => !counted.includes(one)).map(({ run }) => run.name);
      const name = counted.length > 1 ? groupName(counted[0].run, counted.length) : counted[0].run.name;
      entries.set(twice.length ? `${name}; left out, a seed that is there already: ${twice.join(", ")}` : name, group[0].color);
    }
    byId("legend").hidden = shown.length < 2;
    byId("legend").replaceChildren(...[...entries].map(([text, color]) => {
      const item = Object.assign(document.createElement("li"), { textContent: text });
      item.style.setProperty("--mine", color);
      return item;
    }));
  }

  /** Runs that are drawn as one, or each by itself. */
  #groups(shown) {
    return this.list.together ? [...Map.groupBy(shown, ({ run }) => run.group).values()] : shown.map((one) => [one]);
  }

  #showReturn(shown) {
    const axis = this.axis, reach = this.#reach(shown.map(({ run, data }) => along(data, run, axis)));
    const clock = shown.every(({ run }) => run.engine === "virtual") ? "virtual time" : "time";
    const x = axis === "seconds" ? { ...AXES.seconds, label: clock } : AXES[axis];
    const series = [];
    for (const group of this.#groups(shown).map(onePerSeed)) {
      series.push(...(group.length > 1 ? this.#band(group, axis, reach) : this.#curve(group[0], axis, reach)));
    }
    const told = shown.map(({ run, data }) => `${run.name}: ${number(run.return)} after ${count(data.gradients)} gradients`);
    this.return.show({ series, x, y: { label: "return", read: number } }, `Return against ${x.label}. ${told.join("; ")}.`);
  }

  /** How far back smoothing reaches, on that axis. */
  #reach(axes) {
    return REACHES[+byId("smoothing").value] * Math.max(0, ...axes.map((x) => (x.at(-1) ?? 0) - (x[0] ?? 0)));
  }

  #curve({ run, data, color, dash }, axis, reach) {
    const { x, y: raw } = joined(along(data, run, axis), data.curve.mean_return);
    const series = reach ? [{ name: `${run.name}, as measured`, color, kind: "line", x, y: raw, thin: true, alpha: 0.28, quiet: true }] : [];
    series.push({ name: run.name, color, dash, kind: "line", x, y: smooth(x, raw, reach) });
    const evaluated = data.evaluations.filter(([, , , , , mean]) => mean !== null);
    if (!evaluated.length) return series;
    const at = { samples: (e) => e[2], "per-agent": (e) => e[2] / run.agents, iteration: (e) => e[0], seconds: (e) => e[3] }[axis];
    for (const [kind, some] of Map.groupBy(evaluated, (e) => e[4])) {
      series.push({
        name: `${run.name}, θ ${kind}`, color, kind: "dots", radius: kind === "deterministic" ? 3 : 4,
        x: some.map(at), y: some.map((e) => e[5]), low: some.map((e) => e[6]), high: some.map((e) => e[7]),
      });
    }
    return series;
  }

  #band(group, axis, reach) {
    const { run, color, dash } = group[0];
    const mean = meanOf(group.map(({ run, data }) => {
      const { x, y } = joined(along(data, run, axis), data.curve.mean_return);
      return { x, y: smooth(x, y, reach) };
    }));
    const name = groupName(run, group.length);
    const read = (value, i) => `${number(value)} ± ${number((mean.high[i] - mean.low[i]) / 2)}`;
    return [{ name, color, kind: "band", ...mean, quiet: true }, { name, color, dash, kind: "line", x: mean.x, y: mean.y, read }];
  }

  #showSmall(shown, main) {
    const { small } = this;
    const lines = (name, dash = null) =>
      shown.map(({ run, data, color, dash: own }) => ({ name: run.name, color, dash: dash ?? own, kind: "line", ...joined(data.curve.iteration, data.curve[name]) }));
    const last = ({ data }, name) => data.curve[name].at(-1) ?? null;
    const x = AXES.iteration;
    const reach = this.#reach(shown.map(({ data }) => data.curve.iteration));
    const norms = lines("gradient_norm").map((series) => ({ ...series, y: smooth(series.x, series.y, reach) }));
    small.norm.show({ series: norms, x, y: { label: "gradient norm", log: true, read: number } }, `Gradient norm, now ${number(last(main, "gradient_norm"))}.`);
    const both = (up, down, what) => [...lines(up).map((s) => ({ ...s, name: `${s.name}, ${what[0]}` })), ...lines(down, [4, 4]).map((s) => ({ ...s, name: `${s.name}, ${what[1]}` }))];
    small.lengths.show(
      { series: both("step_length", "lookahead_length", ["step", "lookahead"]), x, y: { label: "length", log: true, read: number } },
      `Step length now ${number(last(main, "step_length"))}, lookahead length ${number(last(main, "lookahead_length"))}.`,
    );
    small.bytes.show(
      { series: both("bytes_up", "bytes_down", ["up", "down"]), x, y: { label: "bytes", format: bytes, zero: true } },
      `${bytes(last(main, "bytes_up") ?? 0)} up and ${bytes(last(main, "bytes_down") ?? 0)} down.`,
    );
    const working = shown.map(({ run, data, color, dash }) => ({ name: run.name, color, dash, kind: "line", x: data.concurrency.iteration, y: data.concurrency.concurrency }));
    small.concurrency.show(
      { series: working, x, y: { label: "agents at work", zero: true } }, `${number(main.data.concurrency.concurrency.at(-1))} agents at work.`,
    );
    this.#delays(shown);
    this.#delayAgents(main);
    this.#returnAgents(main);
  }

  #delays(shown) {
    const series = shown.map(({ run, data, color, dash }) => {
      const [width] = data.delays.width, total = data.delays.rows || 1;
      const y = data.delays.count.map((value) => value / total);
      const read = (value, i) => `${number(100 * value)}%${width > 1 ? ` at ${data.delays.delay[i]} to ${data.delays.delay[i] + width - 1}` : ""}`;
      if (shown.length === 1) return { name: run.name, color, kind: "bars", width, x: data.delays.delay, y, read };
      return { name: run.name, color, dash, kind: "steps", width, x: data.delays.delay, y: y.map((share) => share / width) };
    });
    const percent = (value) => `${+(100 * value).toPrecision(3)}%`;
    const most = (data) => data.delays.delay.at(-1) + data.delays.width[0] - 1;
    this.small.delays.show(
      { series, x: { label: "delay", whole: true, name: (value) => `delay ${short(value)}` }, y: { label: "share", format: percent, zero: true } },
      `Delays: ${shown.map(({ run, data }) => `${run.name} up to ${most(data)}`).join("; ")}.`,
    );
  }

  #delayAgents({ run, data, color }) {
    const { agents } = data, known = agents.agent.map((_, i) => i).filter((i) => agents.gradients[i]);
    const pick = (name) => known.map((i) => agents[name][i]);
    const mean = pick("delay"), high = pick("delay_high");
    const series = [{
      name: "mean", color, kind: "dots", radius: known.length > 40 ? 2.5 : 4, stem: known.length > 40 ? 2 : 4,
      x: pick("agent"), y: mean, low: mean, high, read: (value, i) => `${number(value)}, longest ${count(high[i])}`,
    }];
    const x = { label: "agent", whole: true, room: 0.7, name: (value) => this.#agentName(data, value) };
    this.small["delay-agents"].show({ series, x, y: { label: "delay", zero: true, least: 1 } }, `Mean delay of ${known.length} agents of ${run.name}.`);
  }

  /** A curve per agent; of many agents, which could not be told apart, the mean over the run. */
  #returnAgents({ run, data, color }) {
    const { agents, agent_returns: found } = data, curves = found.agent.length > 0;
    const series = found.agent.map((agent, i) => ({
      name: this.#agentName(data, agent), color: colors().series[i % 8], dash: DASHES[Math.floor(i / 8) % DASHES.length], kind: "line",
      ...joined(found.iteration, found.returns[i]),
    }));
    const known = agents.agent.map((_, i) => i).filter((i) => agents.return[i] !== null);
    const dots = { name: "mean over the run", color, kind: "dots", radius: 2.5, x: known.map((i) => agents.agent[i]), y: known.map((i) => agents.return[i]) };
    const x = curves ? AXES.iteration : { label: "agent", whole: true, room: 0.7, name: (value) => this.#agentName(data, value) };
    this.small["return-agents"].show(
      { series: curves ? series : [dots], x, y: { label: "return", read: number } },
      `Return of ${curves ? series.length : known.length} agents of ${run.name}, ${curves ? "over the run" : "mean over the run"}.`,
    );
  }

  #agentName(data, agent) {
    const name = data.agents.name[data.agents.agent.indexOf(agent)];
    return name || `agent ${agent}`;
  }

  /** The timeline's window: the newest gradients, or those up to the slider. */
  async #window() {
    const id = this.focus, data = this.store.data.get(id), run = this.list.of(id);
    if (!data || !run) return;
    const live = byId("live").checked, slider = byId("position");
    slider.max = Math.max(1, data.gradients);
    if (live) slider.value = data.gradients;
    const wide = +byId("window").value || Math.min(400, Math.max(40, 5 * run.agents));
    if (this.asking) {
      this.wanted = true;
      return;
    }
    this.asking = true;
    try {
      const found = await this.store.timeline(id, live ? 0 : +slider.value, wide);
      if (found && this.focus === id) {
        this.timeline.clock = run.engine === "virtual" ? "virtual time" : "time";
        this.timeline.show(found, (agent) => this.#agentName(data, agent));
        slider.setAttribute("aria-valuetext", `gradients ${found.first} to ${found.last}`);
      }
    } finally {
      this.asking = false;
    }
    if (this.wanted) {
      this.wanted = false;
      this.#window();
    }
  }
}

function groupName(run, seeds) {
  return `${run.task}, ${run.method}, ${run.agents} agents: ${seeds} seeds`;
}
