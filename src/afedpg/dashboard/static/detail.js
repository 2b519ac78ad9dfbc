// One run in detail: its facts, its numbers, its agents, what was refused, and the film of its policy.

import { bytes, count, NONE, number, seconds } from "./scales.js";
import { Table } from "./tables.js";

const brief = (value) => (value === null ? NONE : number(+value.toPrecision(3)));
const byId = (id) => document.getElementById(id);

export class Detail {
  constructor() {
    this.next = 0; // the tile that is filled next
    this.films = "";
    this.agents = new Table(byId("agents"), [
      { name: "Agent", wide: true, text: (a) => a.name || `agent ${a.agent}`, value: (a) => -a.agent },
      { name: "State", wide: true, text: (a) => a.state, value: (a) => a.state, mark: (cell, a) => (cell.dataset.state = a.state) },
      { name: "Gradients", text: (a) => count(a.gradients), value: (a) => a.gradients },
      {
        name: "Share", text: (a) => `${(100 * a.share).toFixed(1)}%`, value: (a) => a.share,
        mark: (cell, a) => {
          cell.classList.add("share");
          cell.style.setProperty("--share", `${(100 * a.share) / (this.most || 1)}%`);
        },
      },
      { name: "Time per gradient", text: (a) => seconds(a.seconds_per_gradient), value: (a) => a.seconds_per_gradient },
      { name: "Mean delay", text: (a) => number(a.delay), value: (a) => a.delay },
      { name: "Longest", text: (a) => count(a.gradients ? a.delay_high : null), value: (a) => a.delay_high },
      { name: "Return, whole run", text: (a) => number(a.return), value: (a) => a.return },
      { name: "Up", text: (a) => bytes(a.bytes_up), value: (a) => a.bytes_up },
      { name: "Down", text: (a) => bytes(a.bytes_down), value: (a) => a.bytes_down },
      { name: "Refused", text: (a) => count(a.rejected), value: (a) => a.rejected },
      { name: "Unused", text: (a) => count(a.unused), value: (a) => a.unused },
      { name: "Suspicion", text: (a) => brief(a.suspicion), value: (a) => a.suspicion },
      { name: "Last seen", text: (a) => (a.last_seen === null ? NONE : `${seconds(a.last_seen)} ${this.over ? "before the end" : "ago"}`), value: (a) => a.last_seen },
    ], "The agents of the run");
    this.sites = new Table(byId("sites"), [
      { name: "Site", wide: true, text: ([site]) => site, value: ([site]) => site },
      { name: "θ acts", wide: true, text: ([, kind]) => kind, value: ([, kind]) => kind },
      { name: "Return", text: ([, , mean]) => number(mean), value: ([, , mean]) => mean },
      { name: "95% interval", text: ([, , , low, high]) => (low === null || high === null ? NONE : `${number(low)} to ${number(high)}`) },
    ], "θ's newest evaluation at every site");
    this.reasons = new Table(byId("reasons"), [
      { name: "Reason", wide: true, text: ([reason]) => reason, value: ([reason]) => reason },
      { name: "Reports", text: ([, times]) => count(times), value: ([, times]) => times },
    ], "Why reports were refused; # stands for a number");
    this.newest = new Table(byId("rejected"), [
      { name: "Time", text: ([at]) => seconds(at), value: ([at]) => at },
      { name: "Iteration", text: ([, iteration]) => count(iteration), value: ([, iteration]) => iteration },
      { name: "Agent", text: ([, , agent]) => `${agent}`, value: ([, , agent]) => agent },
      { name: "Reason", wide: true, text: ([, , , reason]) => reason, value: ([, , , reason]) => reason },
    ], "The newest refused reports");
  }

  show({ run, data }) {
    byId("run-name").textContent = run.name;
    byId("run-facts").textContent = `${run.task}, ${run.method}, ${run.agents} ${run.agents === 1 ? "agent" : "agents"}, seed ${run.seed}, ${run.engine} engine, ${data.state}`;
    byId("trouble").hidden = !data.error;
    byId("trouble").textContent = data.error;
    this.#tiles(run, data);
    this.#agents(run, data);
    this.#sites(data.sites);
    this.#refused(data.rejected);
    this.#film(run, data.videos);
  }

  #tiles(run, data) {
    const { curve } = data;
    this.next = 0;
    const [kind, value] = Object.entries(run.theta)[0] ?? ["", null];
    const working = data.agents.state.filter((state) => state === "working").length;
    this.#tile("Return", brief(run.return), `training, last 5%${value === null ? "" : `; θ ${kind} ${brief(value)}`}`);
    this.#tile("Gradients", count(data.gradients), `of ${count(data.total)}`, data.total ? data.gradients / data.total : 0);
    this.#tile("Iterations", count(curve.iteration.at(-1) ?? 0), `${count(data.totals.steps)} samples`);
    this.#tile(run.engine === "virtual" ? "Virtual time" : "Time", seconds(data.seconds), this.#pace(data));
    this.#tile("Mean delay", number(data.delays.mean), `newest ${number(curve.delay.at(-1) ?? null)}`);
    this.#tile("Concurrency", number(data.concurrency.concurrency.at(-1) ?? null), data.state === "running" ? `${working} working now` : "agents at once");
    this.#tile("Traffic", bytes(data.totals.bytes_up + data.totals.bytes_down), `${bytes(data.totals.bytes_up)} up`);
    this.#tile("Refused", count(data.rejected.count), data.rejected.count ? "reports" : "no report");
    this.#tile("Unused", count(data.unused), data.unused ? "dropped by the aggregator" : "every one used");
  }

  #pace(data) {
    if (data.state !== "running") return data.state;
    const [first, last] = [data.paces[0], data.paces.at(-1)];
    const rate = last && last[0] > first[0] ? (1000 * (last[1] - first[1])) / (last[0] - first[0]) : data.rate;
    if (!rate) return "running";
    return `${number(+rate.toPrecision(3))}/s, ${seconds((data.total - data.gradients) / rate)} left`;
  }

  /** The next tile, made when it is first filled. */
  #tile(name, value, note, share = null) {
    let box = byId("tiles").children[this.next];
    if (!box) {
      box = document.createElement("div");
      box.append(...["dt", "dd", "dd"].map((kind) => document.createElement(kind)));
      box.children[1].className = "big";
      box.children[2].className = "small";
      if (share !== null) box.append(document.createElement("progress"));
      byId("tiles").append(box);
    }
    this.next++;
    [name, value, note].forEach((text, place) => (box.children[place].textContent = text));
    if (share !== null) Object.assign(box.children[3], { value: share, ariaLabel: `${name} ${note}` });
  }

  #agents(run, data) {
    const { agents } = data;
    this.over = data.state !== "running";
    this.most = Math.max(0, ...agents.share);
    const columns = Object.keys(agents).filter((name) => name !== "everyone");
    this.agents.show(agents.agent.map((_, i) => Object.fromEntries(columns.map((name) => [name, agents[name][i]]))));
    const hidden = agents.everyone - agents.agent.length;
    const clock = run.engine === "virtual" ? "Times are virtual." : "";
    byId("agents-note").textContent = `${hidden > 0 ? `The first ${agents.agent.length} of ${count(agents.everyone)} agents. ` : ""}${clock}`;
  }

  #sites(sites) {
    byId("sites-card").hidden = !sites.length;
    this.sites.show(sites);
    const lines = [...Map.groupBy(sites.filter(([, , mean]) => mean !== null), ([, kind]) => kind)].map(([kind, some]) => {
      const mean = some.reduce((sum, [, , value]) => sum + value, 0) / some.length;
      const [site, , worst] = some.reduce((low, one) => (one[2] < low[2] ? one : low));
      return `${kind}: mean ${brief(mean)}, worst ${brief(worst)} on ${site}`;
    });
    byId("sites-note").textContent = `θ's newest evaluation. ${lines.join("; ")}.`;
  }

  #refused(rejected) {
    byId("rejected-none").hidden = rejected.count > 0;
    byId("rejected-some").hidden = rejected.count === 0;
    this.reasons.show(rejected.reasons);
    this.newest.show(rejected.newest);
  }

  #film(run, videos) {
    byId("film").hidden = !videos.length;
    const films = `${run.id} ${videos.join("/")}`;
    if (films === this.films) return; // a film that plays goes on
    this.films = films;
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    byId("videos").replaceChildren(...videos.map((name) => {
      const source = `/api/runs/${run.id}/videos/${encodeURIComponent(name)}`;
      const moving = !name.endsWith(".gif");
      const film = document.createElement(moving ? "video" : "img");
      if (moving) Object.assign(film, { controls: true, loop: true, muted: true, playsInline: true, preload: "metadata", autoplay: !still });
      film[moving ? "ariaLabel" : "alt"] = `The policy acting, ${name}`;
      film.src = source;
      const figure = document.createElement("figure"), caption = document.createElement("figcaption");
      caption.textContent = name;
      figure.append(film, caption);
      return figure;
    }));
  }
}
