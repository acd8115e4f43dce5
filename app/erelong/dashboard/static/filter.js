/** The search of jobs: words such as `queue:mail error:timeout due:<1h`, and the parameters that they are. */

import { DAY, HOUR, MINUTE, fromNow } from "./text.js";

const REPEATABLE = ["queue", "kind", "state", "error"];
const NAMES = [...REPEATABLE, "key", "schedule", "cause"];
const TIME_FIELDS = { due: "due", created: "created", ended: "finished" };
const UNIT_SECONDS = { "": 1, s: 1, m: MINUTE, min: MINUTE, h: HOUR, d: DAY, w: 7 * DAY };
const NO_FILTERS = ["order", "view", "limit", "cursor", "count", "reverse"];

/** Read a search. @returns {{id: string | null, params: URLSearchParams, faults: string[]}} */
export function read(text) {
  const found = { id: null, params: new URLSearchParams(), faults: [] };
  for (const word of text.match(/(?:[^\s"]|"[^"]*")+/g) || []) {
    const [, name, value] = /^([\w.@-]+):(.*)$/s.exec(word) || [null, "", word];
    readPair(name, value.replaceAll('"', ""), found);
  }
  return found;
}

/** Write parameters of the list as a search. */
export function write(params) {
  const words = [];
  for (const [name, value] of params) {
    const [, time, side] = /^(due|created|finished)_(after|before)$/.exec(name) || [];
    if (time) {
      const sign = (side === "before") === value.startsWith("-") ? ">" : "<";
      words.push(`${time.replace("finish", "end")}:${sign}${time === "due" ? value : value.replace(/^-/, "")}`);
    }
    else if (name === "attempt_min") words.push(`attempt:>${value - 1}`);
    else if (isName(name)) words.push(`${name}:${/\s/.test(value) ? `"${value}"` : value}`);
  }
  return words.join(" ");
}

/** Return parameters of the list with instants in place of durations from now, such as `due_before=1h`. */
export const instants = (params) => new URLSearchParams([...params].map(([name, value]) => {
  const distance = /_(after|before)$/.test(name) ? seconds(value.replace("-", "")) : null;
  return [name, distance === null ? value : fromNow(value.startsWith("-") ? -distance : distance)];
}));

/** Return the filter of an operation on the jobs of a list. */
export function operationFilter(params) {
  const filter = {};
  for (const [name, value] of params) {
    if (NO_FILTERS.includes(name)) continue;
    if (name.startsWith("label.")) filter.labels = { ...filter.labels, [name.slice(6)]: value };
    else if (name === "attempt_min") filter[name] = Number(value);
    else if ([...REPEATABLE, "schedule"].includes(name)) filter[name] = [...(filter[name] || []), value];
    else filter[name] = value;
  }
  return Object.keys(filter).length ? filter : { all: true };
}

/** Return the seconds of `90s`, `2h` or `1d`, or null. */
export function seconds(text) {
  const [, size, unit = ""] = /^(\d+(?:\.\d+)?)\s*(s|min|m|h|d|w)?$/.exec(text.trim()) || [];
  return size === undefined ? null : size * UNIT_SECONDS[unit];
}

/** Return a time that somebody typed, a delay or an instant, as a field of a request. */
export const timeField = (text) => ({ [/^\d{4}-/.test(text.trim()) ? "execute_at" : "delay"]: text.trim() });

const isName = (name) => NAMES.includes(name) || name.startsWith("label.");

function readPair(name, value, found) {
  if (name === "" || name === "id") {
    if (/^[0-9a-f]{26}$/.test(value)) found.id = value;
    else found.params.append("key", value);
  } else if (TIME_FIELDS[name]) readTime(name, value, found);
  else if (name === "attempt") {
    const [, sign, least] = /^(>?)(\d+)$/.exec(value) || [];
    if (least) found.params.set("attempt_min", Number(least) + sign.length);
    else found.faults.push("attempt: takes a number.");
  } else if (REPEATABLE.includes(name)) value.split(",").forEach((one) => found.params.append(name, one));
  else if (isName(name)) found.params.set(name, value);
  else {
    const known = [...NAMES, ...Object.keys(TIME_FIELDS)].join(", ");
    found.faults.push(`There is no filter ${name}: only ${known}, attempt and label.<name>.`);
  }
}

/** Read `due:<1h`, due within an hour, `ended:<1h`, ended within the last hour, or either with an instant. */
function readTime(name, value, found) {
  const [, sign, text = ""] = /^([<>])(.+)$/.exec(value) || [];
  const distance = text.replace(/^-|\s/g, "");
  const isInstant = seconds(distance) === null;
  const isAgo = !isInstant && (name !== "due" || text.startsWith("-"));
  if (isInstant && !Date.parse(text)) {
    return found.faults.push(`${name}: takes < or > and a duration or a time, such as ${name}:<1h.`);
  }
  const at = isInstant ? new Date(text).toISOString() : isAgo ? `-${distance}` : distance;
  return found.params.set(`${TIME_FIELDS[name]}_${(sign === "<") === isAgo ? "after" : "before"}`, at);
}
