/** The search of jobs: words such as `queue:mail error:timeout due:<1h`, and the parameters of the list that they are. */

import { now } from "./text.js";

const REPEATABLE = new Set(["queue", "kind", "state", "error"]);
const NAMES = new Set([...REPEATABLE, "key", "schedule", "cause"]);
const TIMES = { due: "due", created: "created", ended: "finished" };
const UNITS = { s: 1, m: 60, min: 60, h: 3600, d: 86400, w: 604800 };
const ID = /^[0-9a-f]{26}$/;

/**
 * Read a search.
 * @param {string} text
 * @returns {{id: string | null, params: URLSearchParams, faults: string[]}}
 */
export function read(text) {
  const found = { id: null, params: new URLSearchParams(), faults: [] };
  for (const word of text.match(/(?:[^\s"]|"[^"]*")+/g) || []) {
    const [, name, value] = /^([\w.@-]+):(.*)$/s.exec(word) || [];
    if (name === undefined) readPlain(word, found);
    else readPair(name, value.replaceAll('"', ""), found);
  }
  return found;
}

/** Write parameters of the list as a search. @param {URLSearchParams} params */
export function write(params) {
  const words = [];
  for (const [name, value] of params) {
    const time = /^(due|created|finished)_(after|before)$/.exec(name);
    const quoted = /\s/.test(value) ? `"${value}"` : value;
    if (time) words.push(`${time[1] === "finished" ? "ended" : time[1]}:${time[2] === "after" ? ">" : "<"}${value}`);
    else if (name === "attempt_min") words.push(`attempt:>${Number(value) - 1}`);
    else if (NAMES.has(name) || name.startsWith("label.")) words.push(`${name}:${quoted}`);
  }
  return words.join(" ");
}

/** Return the filter of an operation that matches the jobs of a list. @param {URLSearchParams} params */
export function operationFilter(params) {
  const filter = {};
  for (const [name, value] of params) {
    if (["order", "view", "limit", "cursor", "count", "reverse"].includes(name)) continue;
    if (name.startsWith("label.")) filter.labels = { ...filter.labels, [name.slice(6)]: value };
    else if (["state", "queue", "kind", "schedule"].includes(name)) filter[name] = [...(filter[name] || []), value];
    else filter[name] = value;
  }
  return Object.keys(filter).length ? filter : { all: true };
}

/** Return the parameters that no operation can filter by. */
export const unsupported = (params) => [...new Set([...params.keys()].filter((name) => ["error", "attempt_min", "occurrence"].includes(name)))];

/** Return the seconds of `90s`, `2h` or `1d`, or null. */
export function seconds(text) {
  const [, size, unit] = /^(\d+(?:\.\d+)?)\s*(s|min|m|h|d|w)?$/.exec(text.trim()) || [];
  return size === undefined ? null : Number(size) * UNITS[unit || "s"];
}

function readPlain(word, found) {
  const text = word.replaceAll('"', "");
  if (ID.test(text)) found.id = text;
  else if (text) found.params.append("key", text);
}

function readPair(name, value, found) {
  if (TIMES[name]) return readTime(name, value, found);
  if (name === "attempt" && /^>?\d+$/.test(value)) {
    found.params.set("attempt_min", value.startsWith(">") ? Number(value.slice(1)) + 1 : value);
  } else if (name === "id") found.id = value;
  else if (NAMES.has(name) || name.startsWith("label.")) {
    if (REPEATABLE.has(name)) for (const one of value.split(",")) found.params.append(name, one);
    else found.params.set(name, value);
  } else found.faults.push(`no filter ${name}:; known: queue kind key state schedule error cause label.<name> due created ended attempt`);
}

function readTime(name, value, found) {
  const [, sign, text] = /^([<>])(.+)$/.exec(value) || [];
  const ahead = text === undefined ? null : seconds(text.replace(/^-/, ""));
  const isAhead = name === "due" && !text?.startsWith("-");
  const at = ahead === null ? Date.parse(text) : now() + (isAhead ? 1 : -1) * ahead * 1000;
  if (text === undefined || Number.isNaN(at)) found.faults.push(`${name}: takes < or > and a duration or an instant, such as ${name}:<1h`);
  else {
    const isBefore = (sign === "<") === (isAhead || ahead === null);
    found.params.set(`${TIMES[name]}_${isBefore ? "before" : "after"}`, new Date(at).toISOString());
  }
}
