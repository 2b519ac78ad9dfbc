// What the page knows: the list of runs, and of every run that is shown what the server has sent, kept up to date.

const TICK = 1000; // milliseconds between updates
const LONGEST_PAUSE = 15000;

export class Store {
  constructor(changed) {
    this.runs = []; // lines of the list
    this.trouble = ""; // why the server cannot look for runs
    this.data = new Map(); // run id -> everything about it
    this.shown = []; // run ids, in the order they were chosen
    this.changed = changed; // called with the ids that changed, or null when the list did
    this.tag = "";
    this.failures = 0;
    this.updated = 0;
  }

  start() {
    this.#loop();
    document.addEventListener("visibilitychange", () => {
      if (!document.hidden) this.soon();
    });
  }

  /** Ask again now rather than at the next tick. */
  soon() {
    clearTimeout(this.timer);
    if (!this.asking) this.#loop();
    else this.again = true;
  }

  async #loop() {
    this.asking = true;
    this.again = false;
    let more = false;
    try {
      await this.#list();
      more = await this.#updates();
      this.failures = 0;
      this.updated = Date.now();
    } catch (error) {
      this.failures++; // the server ended or the line is cut: said on the page, and tried again
      this.reason = error.message;
    }
    this.asking = false;
    this.changed("pulse");
    if (document.hidden && !this.again) return; // nobody looks; `visibilitychange` goes on
    const pause = more || this.again ? 0 : Math.min(TICK * 2 ** Math.min(this.failures, 4), LONGEST_PAUSE);
    this.timer = setTimeout(() => this.#loop(), pause);
  }

  async #list() {
    const answer = await fetch("/api/runs", { headers: this.tag ? { "If-None-Match": this.tag } : {}, cache: "no-store" });
    if (answer.status === 304) return void (await answer.text()); // an answer left unread counts as aborted
    if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
    this.tag = answer.headers.get("ETag") ?? "";
    ({ runs: this.runs, trouble: this.trouble } = await answer.json());
    this.changed("list");
  }

  async #updates() {
    for (const id of this.data.keys()) if (!this.shown.includes(id)) this.data.delete(id);
    if (!this.shown.length) return false;
    const asked = this.shown.map((id) => `at=${id}~${this.data.get(id)?.cursor ?? ""}`).join("&");
    this.asked = performance.now();
    const answer = await fetch(`/api/updates?${asked}`, { cache: "no-store" });
    if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
    const changes = await answer.json();
    const ids = Object.keys(changes).filter((id) => this.#merge(id, changes[id]));
    if (ids.length) this.changed("data", ids);
    return ids.some((id) => changes[id].more);
  }

  #merge(id, change) {
    if (!("curve" in change)) return false; // nothing new, or the run is gone from the disk
    const known = this.data.get(id);
    if (known && change.from > 0) {
      for (const [name, column] of Object.entries(change.curve)) {
        known.curve[name].length = change.from; // the newest bucket was still growing
        for (const value of column) known.curve[name].push(value);
      }
      change.curve = known.curve;
    }
    this.data.set(id, { ...change, paces: pace(known, change) });
    return true;
  }

  /** {runs: id -> {name: value}, defaults: {name: value}} */
  async settings(ids) {
    const answer = await fetch(`/api/settings?${new URLSearchParams(ids.map((id) => ["of", id]))}`, { cache: "no-store" });
    return answer.ok ? answer.json() : null;
  }

  async timeline(id, last, count) {
    const query = new URLSearchParams({ count });
    if (last) query.set("last", last);
    const answer = await fetch(`/api/runs/${id}/timeline?${query}`, { cache: "no-store" });
    return answer.ok ? answer.json() : null;
  }
}

/** When how many gradients had been applied, by this machine's clock, over the last half minute. */
function pace(known, change) {
  const now = performance.now();
  const paces = (known?.paces ?? []).filter(([at]) => now - at < 30000);
  return change.more ? [] : [...paces, [now, change.gradients]];
}
