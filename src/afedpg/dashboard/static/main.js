// The page: which runs are shown, and what of them where.

import { drawAll, recolor } from "./canvas.js";
import { Pictures } from "./pictures.js";
import { RunList } from "./runs.js";
import { Store } from "./store.js";

const THEMES = ["system", "light", "dark"];
const byId = (id) => document.getElementById(id);

const store = new Store(changed);
store.start(); // first: while the server answers, the page is built
const list = new RunList(store, chosen);
const pictures = new Pictures(store, list);

function changed(what, ids) {
  if (what === "list") {
    list.show();
    pictures.show();
  } else if (what === "data") {
    list.mark();
    pictures.show(ids);
    requestAnimationFrame(measure); // after the pictures' own frames
  } else pulse();
}

/** How long updates take, for `afedpg bench`; not all of them for ever, on a page that is left open for days. */
function measure() {
  if (performance.getEntriesByName("update").length >= 100) performance.clearMeasures("update");
  performance.measure("update", { start: store.asked });
}

function chosen() {
  remember();
  pictures.show();
  store.soon();
}

function pulse() {
  const line = byId("pulse");
  const running = store.runs.filter((run) => run.state === "running").length;
  const text = store.failures
    ? `no answer from the server (${store.reason}); trying again`
    : running
      ? `live, ${running} ${running === 1 ? "run goes" : "runs go"} on`
      : "up to date, no run goes on";
  if (line.textContent !== text) line.textContent = text; // read aloud only when it changes
  line.dataset.state = store.failures ? "lost" : running ? "live" : "idle";
}

function remember() {
  const parts = new URLSearchParams();
  if (list.touched) parts.set("runs", store.shown.join(","));
  for (const [name, value] of Object.entries(pictures.settings())) parts.set(name, value);
  if (byId("sort").selectedIndex) parts.set("sort", byId("sort").value);
  history.replaceState(null, "", `#${parts}`);
}

function recall() {
  const parts = new URLSearchParams(location.hash.slice(1));
  if (parts.has("runs")) list.choose(parts.get("runs").split(",").filter(Boolean));
  pictures.restore(parts);
  const order = [...byId("sort").options].find((option) => option.value === parts.get("sort"));
  if (order) order.selected = true;
}

function wear(theme) {
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  byId("theme").textContent = `Theme: ${theme}`;
  byId("theme").dataset.value = theme;
  recolor();
}

byId("theme").addEventListener("click", () => {
  const theme = THEMES[(THEMES.indexOf(byId("theme").dataset.value) + 1) % THEMES.length];
  localStorage.setItem("theme", theme);
  wear(theme);
  pictures.show();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  recolor();
  pictures.show();
});
addEventListener("beforeprint", () => {
  document.documentElement.dataset.theme = "light"; // paper is
  recolor();
  pictures.show([]);
  drawAll();
});
addEventListener("afterprint", () => {
  wear(byId("theme").dataset.value);
  pictures.show([]);
});
if (matchMedia("(max-width: 860px)").matches) byId("runs").open = false;

pictures.onSettings = list.onSort = remember;
wear(THEMES.includes(localStorage.getItem("theme")) ? localStorage.getItem("theme") : "system");
recall();
