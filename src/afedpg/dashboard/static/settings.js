// The settings of the runs shown: those in which they differ, those of one run that are not the defaults, or all.

import { NONE } from "./scales.js";
import { Table } from "./tables.js";

const byId = (id) => document.getElementById(id);

export class Settings {
  constructor(store, list) {
    this.store = store;
    this.list = list;
    this.asked = ""; // the runs that are, or are being, shown
    this.found = null;
    byId("all-settings").addEventListener("change", () => this.#fill());
  }

  /** Settings of a run do not change, so they are asked for only when other runs are shown. */
  async show(ids) {
    const asked = ids.join();
    if (asked === this.asked) return;
    this.asked = asked;
    const found = await this.store.settings(ids).catch(() => null);
    if (this.asked !== asked) return; // meanwhile others were chosen
    if (!found) this.asked = ""; // no answer: asked again with the next update
    this.found = found;
    this.#fill();
  }

  #fill() {
    if (!this.found) return;
    const { runs, defaults } = this.found, ids = this.asked.split(",").filter((id) => id in runs);
    const all = byId("all-settings").checked;
    const rows = chosen(ids.map((id) => runs[id]), defaults, all);
    byId("settings-note").textContent = all ? "" : ids.length > 1 ? differing(rows.length, ids.length) : changed(rows.length);
    const names = ids.map((id) => this.list.of(id)?.name ?? id);
    const columns = [
      { name: "Setting", wide: true, text: (row) => row.name, value: (row) => row.name },
      ...names.map((name, i) => ({ name, wide: true, text: (row) => row.values[i] ?? NONE, value: (row) => row.values[i] ?? "" })),
      { name: "Default", wide: true, text: (row) => row.usual ?? NONE },
    ];
    byId("settings").replaceChildren();
    new Table(byId("settings"), columns, "The settings of the runs shown").show(rows);
  }
}

const differing = (count, runs) => (count ? `In these the ${runs} runs differ.` : `The ${runs} runs do not differ in any setting.`);
const changed = (count) => (count ? "In these the run differs from the defaults." : "All settings have their defaults.");

/** Rows {name, values, usual}: those in which runs differ, of one run those that are not the defaults, or all. */
export function chosen(runs, defaults, all) {
  const names = [...new Set([...Object.keys(defaults), ...runs.flatMap(Object.keys)])];
  const rows = names.map((name) => ({ name, values: runs.map((run) => run[name]), usual: defaults[name] }));
  const compared = ({ values, usual }) => (runs.length > 1 ? values : [...values, usual]);
  return rows.filter((row) => all || new Set(compared(row)).size > 1);
}
