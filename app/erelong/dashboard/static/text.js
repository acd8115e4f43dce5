/** Numbers, durations, instants and words as people read them, by the clock of the service. */

import { icon, make } from "./dom.js";

const STATE_WORDS = { scheduled: "waiting" };
const BLOCKERS = {
  time: "not due yet", pause: "queue paused", worker: "no worker polls", rate: "rate limit", label: "label limit", slot: "queue full",
};
const SECRET = /token|secret|passw|authorization|api[-_]?key|cookie/i;
const UNITS = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
const clock = { offset: 0, frozen: null, zone: localStorage.getItem("erelong.zone") || "local" };

/** Follow the clock of the service. @param {string} instant @param {number} took milliseconds of the request */
export function setClock(instant, took, isVirtual) {
  const at = Date.parse(instant);
  clock.frozen = isVirtual ? at : null;
  const offset = at + took / 2 - Date.now();
  if (Math.abs(offset - clock.offset) > 250) clock.offset = offset;
}

export const now = () => (clock.frozen === null ? Date.now() + clock.offset : clock.frozen);

/** Return how many seconds the clock of the browser is ahead of the service. */
export const browserAhead = () => (clock.frozen === null ? -clock.offset / 1000 : 0);

export const isUtc = () => clock.zone === "utc";

export function switchZone() {
  clock.zone = isUtc() ? "local" : "utc";
  localStorage.setItem("erelong.zone", clock.zone);
  formats.clear();
  document.querySelectorAll("time[datetime]").forEach(tell);
}

export const number = (value) => (value === null || value === undefined ? "–" : plain.format(value));

/** Return a number that may be of any size in few characters. */
export function short(value) {
  if (value === null || value === undefined) return "–";
  return Math.abs(value) < 10_000 ? number(Math.round(value * 10) / 10) : compact.format(value);
}

/** Return a word for a number of things. */
export const count = (value, word, words = `${word}s`) => `${number(value)} ${value === 1 ? word : words}`;

export function rate(value) {
  if (value === null || value === undefined) return "–";
  if (value > 0 && value < 0.05) return "<0.1/s";
  return `${value >= 100 ? number(Math.round(value)) : number(Math.round(value * 10) / 10)}/s`;
}

/** Return seconds in up to two units: `4.1 ms`, `2 h 14 min`. */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  const size = Math.abs(seconds);
  if (size < 0.0005) return "0 ms";
  if (size < 0.9995) return `${size < 0.01 ? (size * 1000).toFixed(1) : Math.round(size * 1000)} ms`;
  if (size < 9.95) return `${Number(size.toFixed(1))} s`;
  let left = Math.round(size);
  const index = UNITS.findIndex(([unit]) => left >= unit);
  const parts = [];
  for (const [unit, word] of UNITS.slice(index, index + 2)) {
    const whole = Math.floor(left / unit);
    left -= whole * unit;
    if (whole) parts.push(`${whole} ${word}`);
  }
  return parts.join(" ");
}

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  const power = Math.min(4, Math.floor(Math.log2(Math.max(value, 1)) / 10));
  const scaled = value / 2 ** (10 * power);
  return `${scaled < 10 && power ? scaled.toFixed(1) : Math.round(scaled)} ${["B", "KiB", "MiB", "GiB", "TiB"][power]}`;
}

/** Return the time of day, with seconds, of an instant; with its date if that is another day. */
export function timeOf(instant, { seconds = true, day = "auto" } = {}) {
  const at = typeof instant === "number" ? instant : Date.parse(instant);
  const isToday = dateText(at) === dateText(now());
  const time = format(seconds ? "seconds" : "minutes", { hour: "2-digit", minute: "2-digit", hourCycle: "h23", ...(seconds ? { second: "2-digit" } : {}) });
  if (day === "never" || (day === "auto" && isToday)) return time.format(at);
  const isNear = Math.abs(at - now()) < 300 * 86400e3;
  return `${format(isNear ? "day" : "date", { day: "numeric", month: "short", ...(isNear ? { weekday: "short" } : { year: "numeric" }) }).format(at)}, ${format("minutes", { hour: "2-digit", minute: "2-digit", hourCycle: "h23" }).format(at)}`;
}

/** Return the short name of the zone that times are shown in. */
export function zoneName() {
  const parts = format("zone", { timeZoneName: "short", hour: "2-digit" }).formatToParts(now());
  return parts.find((part) => part.type === "timeZoneName").value;
}

/** Return an instant from now: `in 2 h 14 min`, `3 min ago`. */
export function relative(instant) {
  const seconds = (Date.parse(instant) - now()) / 1000;
  const size = Math.abs(seconds);
  if (size < 1) return "now";
  const text = duration(size < 10 ? Math.round(size) : size < 600 ? size : Math.round(size / 60) * 60);
  return seconds > 0 ? `in ${text}` : `${text} ago`;
}

/**
 * Return an element that shows an instant and stays true.
 * @param {"both" | "relative" | "absolute" | "since" | "overdue"} how
 */
export function when(instant, how = "both") {
  if (!instant) return make("span", { class: "soft" }, "–");
  const element = make("time", { datetime: instant, "data-how": how });
  tell(element);
  return element;
}

/** Bring all relative times up to date. */
export function tick() {
  document.querySelectorAll("time[data-how]:not([data-how=absolute])").forEach(tell);
}

/** Return a state with its picture. @param {any} job @returns {HTMLElement} */
export function state(job) {
  const isPaused = job.state === "scheduled" && job.waiting_for === "pause";
  return make("span", { class: `state ${isPaused ? "paused" : job.state}` }, icon(isPaused ? "paused" : job.state), stateText(job));
}

export const stateWord = (word) => STATE_WORDS[word] || word;

export const blocker = (word) => BLOCKERS[word] || word;

function stateText(job) {
  if (job.state === "scheduled") return job.waiting_for ? blocker(job.waiting_for) : "about to start";
  if (job.state === "running") return [job.cancel_requested ? "stopping, " : "", "running ", when(job.started_at, "since")];
  if (job.error && job.state !== "succeeded") return job.error.type === job.state ? job.state : `${job.state}: ${job.error.type}`;
  return job.state;
}

/** Return whether the value of a name should be hidden until somebody asks for it. */
export const isSecret = (name) => SECRET.test(name);

/** Return the last characters of an id, which differ between jobs. */
export const shortId = (id) => `…${id.slice(-8)}`;

const plain = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const formats = new Map();

function format(name, options) {
  if (!formats.has(name)) {
    formats.set(name, new Intl.DateTimeFormat("en-GB", { ...options, ...(isUtc() ? { timeZone: "UTC" } : {}) }));
  }
  return formats.get(name);
}

const dateText = (at) => format("calendar", { year: "numeric", month: "2-digit", day: "2-digit" }).format(at);

function tell(element) {
  const instant = element.dateTime;
  const text = texts[element.dataset.how](instant);
  if (element.textContent !== text) element.textContent = text;
  const title = `${instant} · ${timeOf(instant, { day: "always" })} ${zoneName()}`;
  if (element.title !== title) element.title = title;
}

const texts = {
  absolute: (instant) => timeOf(instant),
  relative,
  both: (instant) => `${relative(instant)} · ${timeOf(instant, { seconds: Math.abs(Date.parse(instant) - now()) < 600e3 })}`,
  since: (instant) => duration(Math.max(0, Math.round((now() - Date.parse(instant)) / 1000))),
  overdue: (instant) => {
    const late = (now() - Date.parse(instant)) / 1000;
    return late > 1 ? `${duration(late < 600 ? late : Math.round(late / 60) * 60)} overdue` : relative(instant);
  },
};
