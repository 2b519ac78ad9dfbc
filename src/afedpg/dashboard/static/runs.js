// The list of runs: filter, choose, and the colour each is drawn in.

import { colors } from "./canvas.js";
import { count, number } from "./scales.js";

const MOST_SHOWN = 40; // at once
const FIRST_SHOWN = 4; // runs that are shown before anybody has chosen
const PREFERRED = { afedpg: 0, fedpg: 1, "afedpg-vanilla": 2, a3c: 3, pg: 4 }; // the figures' own colours
export const DASHES = [[], [7, 4], [2, 4]];
/** How the list is sorted; the first is how the server sends it. */
const ORDERS = {
  name: null,
  newest: (a, b) => b.changed - a.changed,
  return: (a, b) => (b.return ?? -Infinity) - (a.return ?? -Infinity),
  theta: (a, b) => (thetaOf(b) ?? -Infinity) - (thetaOf(a) ?? -Infinity),
  progress: (a, b) => b.gradients / (b.total || 1) - a.gradients / (a.total || 1),
  state: (a, b) => (a.state < b.state ? 1 : a.state > b.state ? -1 : 0), // running first
};
const thetaOf = (run) => Object.values(run.theta)[0];
const byId = (id) => document.getElementById(id);

export class RunList {
  constructor(store, chosen) {
    this.store = store;
    this.chosen = chosen;
    this.touched = false; // until then, runs that start are shown by themselves
    this.together = false; // the seeds of a group are drawn as one, in one colour
    this.slots = new Map(); // run or group -> its place in the palette
    this.items = new Map(); // run id -> elements
    byId("filter").addEventListener("input", () => this.show());
    byId("sort").addEventListener("change", () => {
      this.show();
      this.onSort();
    });
    this.onSort = () => {};
    byId("show-none").addEventListener("click", () => this.#set([]));
    byId("show-filtered").addEventListener("click", () => this.#set(this.#filtered().map((run) => run.id)));
  }

  of(id) {
    return this.store.runs.find((run) => run.id === id);
  }

  choose(ids) {
    this.touched = true;
    this.store.shown = ids.slice(0, MOST_SHOWN);
  }

  #set(ids) {
    this.choose(ids);
    this.show();
    this.chosen();
  }

  color(id) {
    return colors().series[this.#slot(id) % colors().series.length];
  }

  dash(id) {
    return DASHES[Math.floor(this.#slot(id) / colors().series.length) % DASHES.length];
  }

  #key(id) {
    return this.together ? (this.of(id)?.group ?? id) : id;
  }

  #slot(id) {
    return this.slots.get(this.#key(id)) ?? 0;
  }

  #filtered() {
    return sorted(matching(this.store.runs, byId("filter").value), byId("sort").value);
  }

  show() {
    const { store } = this;
    if (!this.touched) store.shown = suggested(store.shown, store.runs);
    else if (store.runs.length) store.shown = store.shown.filter((id) => this.of(id));
    const filtered = this.#filtered();
    byId("run-count").textContent = `${store.shown.length} of ${store.runs.length} shown${store.shown.length === MOST_SHOWN ? ", the most at once" : ""}`;
    byId("no-runs").hidden = store.runs.length > 0 || Boolean(store.trouble);
    byId("search-trouble").hidden = !store.trouble;
    byId("search-trouble").textContent = store.trouble;
    const there = new Set(store.runs.map((run) => run.id));
    for (const id of this.items.keys()) if (!there.has(id)) this.items.delete(id);
    const place = byId("run-list");
    const items = filtered.map((run) => this.#item(run));
    if (items.length !== place.children.length || items.some((item, i) => item !== place.children[i])) place.replaceChildren(...items);
    this.mark();
  }

  #assign() {
    const keys = new Set(this.store.shown.map((id) => this.#key(id)));
    for (const key of this.slots.keys()) if (!keys.has(key)) this.slots.delete(key);
    for (const id of this.store.shown) {
      if (this.slots.has(this.#key(id))) continue;
      const taken = new Set(this.slots.values());
      const wanted = PREFERRED[this.of(id)?.method];
      let slot = wanted !== undefined && !taken.has(wanted) ? wanted : 0;
      while (taken.has(slot)) slot++;
      this.slots.set(this.#key(id), slot);
    }
  }

  #item(run) {
    let parts = this.items.get(run.id);
    if (!parts) {
      parts = this.#build(run);
      this.items.set(run.id, parts);
    }
    parts.name.textContent = run.name;
    parts.facts.textContent = `${run.task}, ${run.method}, ${run.agents} ${run.agents === 1 ? "agent" : "agents"}, seed ${run.seed}`;
    parts.state.textContent = run.state;
    parts.state.dataset.state = run.state;
    const [kind, value] = Object.entries(run.theta)[0] ?? ["", null];
    parts.value.textContent = [run.return === null ? "" : `return ${number(run.return)}`, value === null ? "" : `θ ${number(value)}`].filter(Boolean).join(", ");
    parts.value.title = `In training, the mean over the episodes of the last 5% of the gradients${kind && `; θ itself, ${kind}`}`;
    parts.progress.max = run.total;
    parts.progress.value = run.gradients;
    parts.progress.setAttribute("aria-label", `${count(run.gradients)} of ${count(run.total)} gradients`);
    return parts.item;
  }

  #build(run) {
    const make = (kind, className) => Object.assign(document.createElement(kind), { className });
    const item = make("li", "run"), label = make("label", ""), box = make("input", "");
    const name = make("span", "name"), facts = make("span", "facts"), state = make("span", "state");
    const value = make("span", "value"), progress = make("progress", ""), line = make("span", "line");
    box.type = "checkbox";
    box.dataset.run = run.id;
    box.addEventListener("change", () => {
      const rest = this.store.shown.filter((id) => id !== run.id);
      this.#set(box.checked ? [...rest, run.id] : rest);
    });
    line.append(state, value);
    label.append(box, name, facts, line, progress);
    item.append(label);
    return { item, box, name, facts, state, value, progress };
  }

  /** Colours and ticks, as the choice is. */
  mark() {
    this.#assign();
    for (const [id, { item, box }] of this.items) {
      const shown = this.store.shown.includes(id);
      box.checked = shown;
      item.dataset.shown = shown;
      item.style.setProperty("--mine", shown ? this.color(id) : "transparent");
    }
  }
}

/** A stable sort: what is equal stays by name. */
export function sorted(runs, by) {
  return ORDERS[by] ? [...runs].sort(ORDERS[by]) : runs;
}

/**
 * The runs of which every word of `text` holds. A word that is a value of some run, as its method or its seed, stands for
 * that value: `fedpg` is not afedpg, `seed1` not seed10. One that is none is looked for among the words of the names, and
 * only one that is nowhere whole, as half a word is while it is typed, within them.
 */
export function matching(runs, text) {
  const words = text.toLowerCase().replace(/\bseed\s+(?=\d)/g, "seed").replace(/\b(\d+)\s+agents?\b/g, "$1agents").split(/\s+/).filter(Boolean);
  const values = ({ name, task, method, engine, state, seed, agents }) =>
    [task, method, engine, state, `seed${seed}`, `${agents}agents`, name, ...name.split("/")].map((value) => value.toLowerCase());
  const ways = [
    (run, word) => values(run).includes(word),
    (run, word) => run.name.toLowerCase().split(/[^\p{L}\p{N}]+/u).includes(word),
    (run, word) => values(run).some((value) => value.includes(word)),
  ];
  const holds = words.map((word) => [word, ways.find((way) => runs.some((run) => way(run, word))) ?? ways.at(-1)]);
  return runs.filter((run) => holds.every(([word, way]) => way(run, word)));
}

/** Whoever has not chosen sees what goes on now, or else what was written last; where there is no room, what is over goes. */
export function suggested(shown, runs) {
  const known = new Map(runs.map((run) => [run.id, run]));
  const newest = [...runs].sort((a, b) => b.changed - a.changed);
  const running = newest.filter((run) => run.state === "running").slice(0, FIRST_SHOWN);
  const kept = shown.filter((id) => known.has(id));
  const wanted = running.length || kept.length ? running : newest.slice(0, 1);
  const all = [...new Set([...kept, ...wanted.map((run) => run.id)])];
  const over = all.filter((id) => known.get(id).state !== "running").slice(0, Math.max(0, all.length - MOST_SHOWN));
  return all.filter((id) => !over.includes(id)).slice(-MOST_SHOWN);
}
