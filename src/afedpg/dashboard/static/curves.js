// From what the server sends to what is drawn: axes, smoothing, and the mean of seeds with its band.

export const REACHES = [0, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.08]; // of the picture's width, from none to strong
const GRID = 240;
// Student's t, 97.5%, for 1 to 30 degrees of freedom; 1.96 beyond.
const T = [
  12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.16, 2.145, 2.131,
  2.12, 2.11, 2.101, 2.093, 2.086, 2.08, 2.074, 2.069, 2.064, 2.06, 2.056, 2.052, 2.048, 2.045, 2.042,
];

/** The x of a run's buckets. */
export function along(data, run, axis) {
  const { curve } = data;
  if (axis === "samples") return curve.steps;
  if (axis === "per-agent") return curve.steps.map((value) => value / run.agents);
  return curve[axis];
}

/** A round's gradients share one iteration and one time: their mean is one point. */
export function joined(x, y) {
  const result = { x: [], y: [] };
  for (let i = 0, end; i < x.length; i = end) {
    for (end = i + 1; end < x.length && x[end] === x[i]; end++);
    const known = y.slice(i, end).filter((value) => value !== null);
    result.x.push(x[i]);
    result.y.push(known.length ? known.reduce((sum, value) => sum + value, 0) / known.length : null);
  }
  return result;
}

/** A mean of what came before, whose weights fall by e over `reach` of x: the same stretch for runs of any density. */
export function smooth(x, values, reach) {
  if (!reach) return values;
  let sum = 0, weight = 0, last = x[0];
  return values.map((value, i) => {
    const fade = Math.exp(-(x[i] - last) / reach);
    last = x[i];
    sum *= fade;
    weight *= fade;
    if (value !== null) {
      sum += value;
      weight += 1;
    }
    return weight > 1e-12 ? sum / weight : null;
  });
}

/** Of runs that differ in their seed alone, one per seed, the first by name: the same run twice would narrow the band. */
export function onePerSeed(group) {
  const kept = new Map();
  for (const one of [...group].sort((a, b) => (a.run.name < b.run.name ? -1 : 1))) if (!kept.has(one.run.seed)) kept.set(one.run.seed, one);
  return [...kept.values()];
}

/** {x, y, low, high}: the mean of several curves and its 95% interval, where all of them are. */
export function meanOf(curves) {
  const known = curves.map(({ x, y }) => {
    const kept = x.map((value, i) => [value, y[i]]).filter(([, value]) => value !== null);
    return { x: kept.map(([value]) => value), y: kept.map(([, value]) => value) };
  });
  if (known.some(({ x }) => !x.length)) return { x: [], y: [], low: [], high: [] };
  const first = Math.max(...known.map(({ x }) => x[0])), last = Math.min(...known.map(({ x }) => x.at(-1)));
  const result = { x: [], y: [], low: [], high: [] };
  if (last < first) return result;
  const n = known.length, t = T[n - 2] ?? 1.96;
  const places = known.map(() => 0);
  for (let i = 0; i < GRID; i++) {
    const at = first + ((last - first) * i) / (GRID - 1);
    const values = known.map(({ x, y }, k) => {
      while (places[k] < x.length - 2 && x[places[k] + 1] < at) places[k]++;
      const j = places[k], span = x[j + 1] - x[j];
      return span > 0 ? y[j] + (y[j + 1] - y[j]) * Math.min(1, Math.max(0, (at - x[j]) / span)) : y[j];
    });
    const mean = values.reduce((sum, value) => sum + value, 0) / n;
    const deviation = Math.sqrt(values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / Math.max(1, n - 1));
    const half = (t * deviation) / Math.sqrt(n);
    result.x.push(at);
    result.y.push(mean);
    result.low.push(mean - half);
    result.high.push(mean + half);
  }
  return result;
}
