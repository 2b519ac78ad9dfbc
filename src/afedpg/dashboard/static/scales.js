// Numbers for people, and where an axis has its ticks.

const plain = new Intl.NumberFormat("en-US", { maximumSignificantDigits: 4 });
const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const UNITS = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];
const CLOCK = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"], [1e-3, "ms"], [1e-6, "µs"]];

export const NONE = "–";

export function number(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return NONE;
  const size = Math.abs(value);
  if (size && (size < 1e-3 || size >= 1e7)) return value.toExponential(2).replace("e+", "e");
  return plain.format(value);
}

export const count = (value) => (value === null || value === undefined ? NONE : whole.format(value));

export function short(value) {
  const [size, unit] = UNITS.find(([size]) => Math.abs(value) >= size) ?? [1, ""];
  const scaled = value / size;
  if (scaled && Math.abs(scaled) < 1e-3) return scaled.toExponential(1);
  return `${+scaled.toPrecision(4)}${unit}`;
}

export const bytes = (value) => `${short(+value.toPrecision(3))}B`;

export function seconds(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return NONE;
  if (value === 0) return "0 s";
  const [size, unit] = CLOCK.find(([size]) => Math.abs(value) >= size) ?? CLOCK.at(-1);
  return `${+(value / size).toPrecision(3)} ${unit}`;
}

export const identity = (value) => `${+value.toPrecision(12)}`;

/** Where a linear axis has its ticks: multiples of 1, 2 or 5, about `wanted` of them. */
export function linearTicks(low, high, wanted, base = 10) {
  const rough = (high - low) / Math.max(1, wanted);
  if (!(rough > 0)) return [low];
  const power = base ** Math.floor(Math.log(rough) / Math.log(base));
  const steps = base === 60 ? [1, 2, 5, 10, 15, 30, 60] : [1, 2, 5, 10];
  const step = power * (steps.find((factor) => factor * power >= rough) ?? base);
  const first = Math.ceil(low / step - 1e-9), last = Math.floor(high / step + 1e-9);
  const ticks = [];
  for (let i = 0; i <= last - first; i++) ticks.push((first + i) * step); // counted: beyond 2^53, n + 1 is n
  return ticks;
}

/** Powers of ten, with 2 and 5 between them where there are few. */
export function logTicks(low, high, wanted) {
  const first = Math.floor(Math.log10(low)), last = Math.ceil(Math.log10(high));
  const every = Math.max(1, Math.ceil((last - first) / wanted));
  const factors = last - first <= 2 ? [1, 2, 5] : [1];
  const ticks = [];
  for (let power = Math.floor(first / every) * every; power <= last; power += every) {
    for (const factor of factors) {
      const tick = factor * 10 ** power;
      if (tick >= low * 0.999 && tick <= high * 1.001) ticks.push(tick);
    }
  }
  return ticks;
}

/** A function from values to pixels. */
export function scale(low, high, from, to, log = false) {
  if (log) {
    const a = Math.log10(low), b = Math.log10(high);
    return (value) => from + ((Math.log10(value) - a) / (b - a || 1)) * (to - from);
  }
  return (value) => from + ((value - low) / (high - low || 1)) * (to - from);
}

/** An axis in seconds has round minutes, hours or days rather than round tens; the unit is that of its span. */
export function timeAxis(low, high, wanted) {
  const span = Math.max(high - low, 1e-9);
  const [size, unit] = CLOCK.find(([size]) => span >= 2 * size) ?? CLOCK.at(-1);
  const sixties = (unit === "min" || unit === "s") && span / size > wanted;
  const ticks = linearTicks(low / size, high / size, wanted, sixties ? 60 : 10);
  return { ticks: ticks.map((tick) => tick * size), format: (value) => identity(+(value / size).toPrecision(9)), unit };
}
