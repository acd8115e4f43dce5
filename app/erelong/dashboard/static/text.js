/** Numbers, durations, instants and words as people read them, by the clock of the service. */

export const MINUTE = 60;
export const HOUR = 3600;
export const DAY = 86_400;

const SECRET = /token|secret|passw|authorization|api[-_]?key|cookie/i;
const PART = /"(?:[^"\\]|\\.?)*"?\s*:?|[[\]{},]|[^"[\]{},]+/g; // of JSON: a text or a name, a sign, a word
const UNITS = [[DAY, "d"], [HOUR, "h"], [MINUTE, "min"], [1, "s"]];
const SIZES = ["B", "KiB", "MiB", "GiB", "TiB"];
const CLOCK = { hour: "2-digit", minute: "2-digit", hourCycle: "h23" };
const FORMATS = {
  minutes: CLOCK,
  seconds: { ...CLOCK, second: "2-digit" },
  day: { weekday: "short", day: "numeric", month: "short" },
  date: { day: "numeric", month: "short", year: "numeric" },
  zone: { hour: "2-digit", timeZoneName: "short" },
};
const clock = { ahead: null, frozen: null, zone: localStorage.getItem("erelong.zone") || "local" };
const plain = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const formats = new Map();

/** Follow the clock of the service. @param {number} took milliseconds of the request: a slow one says little */
export function setClock(instant, took, isVirtual) {
  const at = Date.parse(instant);
  const ahead = at + took / 2 - Date.now();
  clock.frozen = isVirtual ? at : null;
  if (clock.ahead === null || (took < 1000 && Math.abs(ahead - clock.ahead) > 250)) clock.ahead = ahead;
}

export const now = () => clock.frozen ?? Date.now() + clock.ahead;

/** Return an instant some seconds from now as the service writes it. */
export const fromNow = (seconds) => new Date(now() + seconds * 1000).toISOString();

/** Return the beginning of the current step, such as the last midnight or noon of the zone that is shown. */
export function stepStart(seconds) {
  const [step, offset] = [seconds * 1000, isUtc() ? 0 : new Date(now()).getTimezoneOffset() * 60_000];
  return new Date(now() - ((now() - offset) % step)).toISOString();
}

/** Return by how many seconds the clock of the browser is ahead of the service. */
export const browserAhead = () => (clock.frozen === null ? -clock.ahead / 1000 : 0);

export const isUtc = () => clock.zone === "utc";

export function switchZone() {
  clock.zone = isUtc() ? "local" : "utc";
  localStorage.setItem("erelong.zone", clock.zone);
  formats.clear();
}

/** Return whether there is a value. */
export const isSet = (value) => value !== null && value !== undefined;

export const sumOf = (numbers) => numbers.reduce((sum, one) => sum + one, 0);

export const number = (value) => (isSet(value) ? plain.format(value) : "–");

/** Return a number of any size in few characters. */
export const short = (value) => (Math.abs(value) >= 10_000 ? compact.format(value) : number(value));

/** Return a number with its word: `1 job`, `2 jobs`. */
export const count = (value, word, words = `${word}s`) => `${number(value)} ${value === 1 ? word : words}`;

export function rate(value) {
  if (!isSet(value)) return "–";
  if (value > 0 && value < 0.05) return "<0.1/s";
  return `${number(value >= 100 ? Math.round(value) : value)}/s`;
}

/** Return seconds in up to two units: `4.1 ms`, `2 h 14 min`. */
export function duration(seconds) {
  if (!isSet(seconds)) return "–";
  const size = Math.abs(seconds);
  if (size < 0.9995) return `${number(size < 0.01 ? size * 1000 : Math.round(size * 1000))} ms`;
  if (size < 9.95) return `${number(size)} s`;
  let left = Math.round(size);
  const first = UNITS.findIndex(([unit]) => left >= unit);
  const parts = UNITS.slice(first, first + 2).map(([unit, word]) => {
    const whole = Math.floor(left / unit);
    left -= whole * unit;
    return whole && `${whole} ${word}`;
  });
  return parts.filter(Boolean).join(" ");
}

/** Return a lateness of the service, whose histogram ends at five minutes. */
export const lateness = (seconds) => (seconds === 300 ? "> 5 min" : duration(seconds));

/** Return a duration without its smaller unit where that says little. */
export const roughly = (seconds) => duration(seconds < 600 ? Math.round(seconds) : Math.round(seconds / 60) * 60);

export function bytes(value) {
  const power = Math.min(4, Math.floor(Math.log2(Math.max(value, 1)) / 10));
  const scaled = value / 1024 ** power;
  return `${scaled < 10 && power ? scaled.toFixed(1) : Math.round(scaled)} ${SIZES[power]}`;
}

/** Return the time of an instant, with its date unless that is today. @param {"auto" | "always" | "never"} day */
export function timeOf(instant, { seconds = true, day = "auto" } = {}) {
  const at = typeof instant === "number" ? instant : Date.parse(instant);
  const isToday = format("date", at) === format("date", now());
  if (day === "never" || (day === "auto" && isToday)) return format(seconds ? "seconds" : "minutes", at);
  return `${dateOf(at)}, ${format("minutes", at)}`;
}

/** Return the date of an instant; with its year if that is far away. */
export const dateOf = (at) => format(Math.abs(at - now()) < 300 * DAY * 1000 ? "day" : "date", at);

export const asOf = (instant = now()) => `as of ${timeOf(instant)}`;

/** Return the short name of the zone that times are shown in. */
export const zoneName = () => format("zone", now()).replace(/.* /, "");

/** Return an instant from now: `in 2 h 14 min`, `3 min ago`. */
export function relative(instant) {
  const seconds = (Date.parse(instant) - now()) / 1000;
  if (Math.abs(seconds) < 1) return "now";
  const text = roughly(Math.abs(seconds));
  return seconds > 0 ? `in ${text}` : `${text} ago`;
}

/** Return the word of a state: the service says `scheduled` of waiting jobs. */
export const stateWord = (word) => (word === "scheduled" ? "waiting" : word);

/** Return whether the value of a name should be hidden until somebody asks for it. */
export const isSecret = (name) => SECRET.test(name);

/** Hide the values of secrets in a piece of JSON, which may be cut off anywhere. */
export function withoutSecrets(text) {
  let [shown, depth, hidden] = ["", 0, null]; // the depth of a secret
  for (const [part] of text.matchAll(PART)) {
    if ("]}".includes(part)) depth -= 1;
    if (depth < hidden || (depth === hidden && part === ",")) hidden = null;
    if (hidden === null) shown += part;
    if ("[{".includes(part)) depth += 1;
    if (hidden === null && /^".*:$/s.test(part) && isSecret(part)) [shown, hidden] = [`${shown}••••`, depth];
  }
  return shown;
}

/** Return the last characters of an id, which differ between jobs. */
export const shortId = (id) => `…${id.slice(-8)}`;

function format(name, at) {
  if (!formats.has(name)) {
    formats.set(name, new Intl.DateTimeFormat("en-GB", { ...FORMATS[name], timeZone: isUtc() ? "UTC" : undefined }));
  }
  return formats.get(name).format(at);
}
