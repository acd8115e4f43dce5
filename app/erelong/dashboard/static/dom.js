/** Elements made of text alone, changed in place; times, states, fields, and the parts that screens are made of. */

import { every, live, reasonOf } from "./service.js";
import { asOf, duration, isSet, now, relative, shortId, timeOf, zoneName } from "./text.js";

/** Seconds without an update after which data counts as old. */
export const OLD = 10;

const SVG = "http://www.w3.org/2000/svg";
const PROPERTIES = ["value", "checked", "indeterminate", "selected"];
const HANDLERS = ["onclick", "onchange", "oninput", "onsubmit"];
const CIRCLE = "M8 2.2a5.8 5.8 0 1 0 0 11.6a5.8 5.8 0 0 0 0-11.6";
const ICONS = {
  scheduled: `${CIRCLE}M8 4.8v3.4l2.2 1.4`,
  running: "M5 3.2v9.6l7.6-4.8z",
  succeeded: "M3 8.6l3.4 3.4l6.6-7.6",
  failed: "M4 4l8 8M12 4l-8 8",
  cancelled: `${CIRCLE}M3.9 12.1l8.2-8.2`,
  expired: "M4.5 2.5h7M4.5 13.5h7M5.2 2.5c0 3.6 5.6 7.4 5.6 11M10.8 2.5c0 3.6-5.6 7.4-5.6 11",
  paused: "M5.5 3.5v9M10.5 3.5v9",
  warning: "M8 2.4l6.2 11.2h-12.4zM8 6.4v3.4M8 11.6v.2",
};
/** What keeps jobs from starting, in words. */
export const WAITING = {
  time: "not due yet", retry: "waits for retry", pause: "queue paused", worker: "no worker polls",
  rate: "rate limit", label: "label limit", slot: "queue full", disk: "store fails", workers: "all workers busy",
  ahead: "others first",
};
let ids = 0;

export const byId = (id) => document.getElementById(id);

/** Make an element: `h("p.soft", { title: "…" }, "text", child)`. Empty attributes and children are left out. */
export const h = (spec, ...parts) => build(spec, parts, (tag) => document.createElement(tag));

/** Make an SVG element. */
export const svg = (spec, ...parts) => build(spec, parts, (tag) => document.createElementNS(SVG, tag));

/**
 * Replace what is in an element. Children of the same tag and `data-key` stay and are changed in place, so focus,
 * typed text and opened details survive.
 */
export function fill(parent, ...children) {
  const wanted = flat(children).map((child) => (child instanceof Node ? child : new Text(child)));
  const taken = new Set(wanted);
  const keyed = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  let place = parent.firstChild;
  for (const next of wanted) {
    const key = next.dataset?.key;
    const old = key === undefined ? place : keyed.get(key);
    const isAlike = old && !taken.has(old) && old.nodeName === next.nodeName && old.dataset?.key === key;
    const node = isAlike && next.parentNode !== parent ? patch(old, next) : next;
    taken.add(node);
    if (node === place) place = place.nextSibling;
    else parent.insertBefore(node, place);
  }
  while (place) {
    const gone = place;
    place = place.nextSibling;
    gone.remove();
  }
  return parent;
}

/** Return a small picture of a state; its word stands next to it. */
export const icon = (name) =>
  svg(`svg.icon.${name}`, { viewBox: "0 0 16 16", "aria-hidden": "true" }, svg("path", { d: ICONS[name] }));

export const button = (text, onclick, attributes, spec = "button") =>
  h(spec, { type: "button", onclick, ...attributes }, text);

/** Make a button that looks like a link. */
export const action = (text, onclick, attributes) => button(text, onclick, attributes, "button.link");

/** Make a row of buttons of which one is chosen. */
export const choices = (label, names, chosen, choose) => h("div.choices", { role: "group", "aria-label": label },
  names.map((name) => action(name, () => choose(name), { "aria-pressed": String(name === chosen) })));

export const link = (href, text, attributes, spec = "a") => h(spec, { href, ...attributes }, text);

export const jobLink = (id, attributes) => link(at("jobs", id), shortId(id), attributes);

/** Make a link that looks like a button. */
export const linkButton = (href, text) => link(href, text, {}, "a.button");

/** Make a button that opens a menu. @param {string} label for screen readers */
export const menu = (label, ...items) =>
  h("details.menu", h("summary.button", { "aria-label": label, title: label }, "⋯"), h("div", items));

/** Return the address of a screen: `at("jobs", id)`, `at("jobs", { state: "due" })`. */
export function at(...parts) {
  const pairs = isPlain(parts.at(-1)) ? Object.entries(parts.pop()).filter(([, value]) => isShown(value)) : [];
  const query = new URLSearchParams(pairs);
  return `#/${parts.map(encodeURIComponent).join("/")}${query.size ? `?${query}` : ""}`;
}

export const go = (...parts) => (location.hash = at(...parts));

/** Return a list of terms and what they are; those without a value are left out. */
export const facts = (pairs) =>
  h("dl.facts", pairs.map(([name, value]) => isShown(value) && h("div", h("dt", name), h("dd", value))));

/** Return the labels of a job. */
export const labelsOf = (labels) => Object.entries(labels || {}).map((pair) => h("span.label", pair.join("=")));

/** Return the head of a table. */
export const headRow = (names) => h("thead", h("tr", names.map((name) => h("th", { scope: "col" }, name))));

/** Return a field with its label, its explanation and a place for what is wrong with it. */
export function field(label, control, { about, pointer, isNeeded } = {}) {
  const id = (control.id ||= `f${(ids += 1)}`);
  control.setAttribute("aria-describedby", `${id}-fault`);
  return h("div.field", { "data-pointer": pointer },
    h("label", { for: id }, label, isNeeded && h("span.needed", { title: "required" }, " *")),
    h("div", control, about && h("p.about", about), h("p.fault", { id: `${id}-fault` })));
}

/**
 * Make fields: [name, label, value, explanation, more]; `more` has attributes, `options` of a choice or `rows` of text.
 * @returns {{nodes: HTMLElement[], controls: Object<string, any>, read: () => Object<string, string>}} `read` leaves
 *   out what is empty
 */
export function fields(entries, shared) {
  const controls = {};
  const nodes = entries.map(([name, label, value, about, { options, rows, isNeeded, ...more } = {}]) => {
    const attributes = { ...shared, ...more };
    const control = options ? choice(options, value, null, attributes)
      : rows ? area(value, { rows, ...attributes }) : input(value, attributes);
    controls[name] = control;
    return field(label, control, { about, pointer: `/${name}`, isNeeded });
  });
  const read = () => Object.fromEntries(
    Object.entries(controls).map(([name, { value }]) => [name, value.trim()]).filter(([, value]) => value));
  return { nodes, controls, read };
}

export const input = (value, attributes) =>
  h("input", { value: value ?? "", autocomplete: "off", spellcheck: "false", ...attributes });

export const area = (value, attributes) => h("textarea.mono", { value, spellcheck: "false", ...attributes });

/** Make a choice of one of several values. @param {(string | [string, string])[]} options values with their texts */
export const choice = (options, value, choose, attributes) =>
  h("select", { ...attributes, onchange: choose && (({ target }) => choose(target.value)) }, optionsOf(options, value));

export const optionsOf = (options, chosen) => options.map((option) => {
  const [value, text = value] = [option].flat();
  return h("option", { value, selected: value === chosen }, text);
});

/** Return an element that shows an instant and stays true. @param {keyof typeof TIMES} how */
export function when(instant, how = "both") {
  if (!instant) return h("span.soft", "–");
  const element = h("time", { datetime: instant, "data-how": how });
  tell(element);
  return element;
}

/** Bring all times up to date, and turn parts grey whose data is too old. */
export function tick() {
  document.querySelectorAll("time").forEach(tell);
  for (const node of document.querySelectorAll("[data-until]")) {
    node.classList.toggle("old", !live.isPaused && Date.now() > Number(node.dataset.until));
  }
}

/** Return the state of a job with its picture, and why it waits. */
export function state(job) {
  const { state: word, cancel_requested: stops, error } = job;
  const reason = job.waiting_for === "time" && job.attempt ? "retry" : job.waiting_for;
  const shown = word === "scheduled" && reason === "pause" ? "paused" : word;
  const isTold = word === "succeeded" || !error || error.type === word;
  const text = word === "scheduled" ? WAITING[reason] || reason || "about to start"
    : word === "running" ? [stops ? "stopping, running " : "running ", when(job.started_at, "since")]
      : isTold ? word : `${word}: ${error.type}`;
  return h(`span.state.${shown}`, icon(shown), text);
}

export const paused = (reason) => h("span.state.paused", { title: reason }, icon("paused"), "paused");

/** Make a part of a screen with a heading. It says of when its data is, or why it has none. */
export function panel(title, { tools, name, level = "h2" } = {}) {
  const stamp = h("span.stamp");
  const fault = h("p.fault");
  const body = h("div.body", h("p.loading", "Loading…"));
  const header = h("header", h(level, title), h("div.tools", tools), stamp);
  const node = h(`section.panel.${name || ""}`, header, fault, body);
  const { promise: ready, resolve } = Promise.withResolvers(); // when it shows something
  const fail = (problem) => {
    node.dataset.until = 0;
    fill(fault, reasonOf(problem));
    body.querySelector(".loading")?.remove();
  };
  const show = (content, note = asOf()) => {
    node.classList.remove("old");
    delete node.dataset.until;
    fill(fault);
    fill(stamp, note);
    fill(body, content);
    resolve();
  };
  /** Read now and every so many seconds; return a function that reads at once. */
  const poll = (seconds, read) => {
    const work = async () => {
      await read();
      node.dataset.until = Date.now() + (seconds + OLD) * 1000;
    };
    every(seconds, work, fail);
    return () => work().catch(fail);
  };
  return { node, body, ready, show, fail, poll };
}

/** Return whether a value or a child is there. */
export const isShown = (value) => isSet(value) && value !== false && value !== "";

const isPlain = (part) => part?.constructor === Object;

const flat = (children) => children.flat(Infinity).filter(isShown);

function build(spec, parts, create) {
  const [tag, ...classes] = spec.split(".").filter(Boolean);
  const element = create(tag);
  if (classes.length) element.setAttribute("class", classes.join(" "));
  for (const [name, value] of Object.entries(isPlain(parts[0]) ? parts.shift() : {})) {
    if (name.startsWith("on") || PROPERTIES.includes(name)) element[name] = value;
    else if (isShown(value)) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...flat(parts));
  return element;
}

/** Make an element like another one; what the user did to it stays. */
function patch(old, next) {
  if (old instanceof Text) {
    if (old.data !== next.data) old.data = next.data;
    return old;
  }
  for (const { name } of [...old.attributes]) {
    if (!next.hasAttribute(name) && name !== "open") old.removeAttribute(name);
  }
  for (const { name, value } of next.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  for (const name of HANDLERS) if (old[name] !== next[name]) old[name] = next[name];
  if (old.type === "checkbox") old.checked = next.checked;
  return fill(old, ...next.childNodes);
}

function tell(element) {
  const instant = element.dateTime;
  const text = TIMES[element.dataset.how](instant);
  const title = `${instant} · ${timeOf(instant, { day: "always" })} ${zoneName()}`;
  if (element.textContent !== text) element.textContent = text;
  if (element.title !== title) element.title = title;
}

const TIMES = {
  absolute: (instant) => timeOf(instant),
  relative,
  both: (instant) => {
    const isNear = Math.abs(Date.parse(instant) - now()) < 600e3;
    return `${relative(instant)} · ${timeOf(instant, { seconds: isNear })}`;
  },
  since: (instant) => duration(Math.max(0, Math.round((now() - Date.parse(instant)) / 1000))),
  overdue: (instant) => relative(instant).replace("ago", "overdue"),
};
