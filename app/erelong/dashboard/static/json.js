/** JSON for reading: folded where it is long, with secrets hidden until asked for. */

import { button, fill, make } from "./dom.js";
import { isSecret } from "./text.js";

const MANY = 200;
const LONG = 2_000;

/** Return an element that shows any JSON value. */
export function json(value, label = "JSON") {
  return make("div", { class: "json", tabindex: "0", role: "group", "aria-label": label }, show(value, ""));
}

/** Return JSON as indented text. */
export const pretty = (value) => JSON.stringify(value, null, 2);

/** Return a copy with the values of secret names replaced. */
export function masked(value, name = "") {
  if (isSecret(name) && value !== null) return "••••";
  if (Array.isArray(value)) return value.map((one) => masked(one));
  if (value && typeof value === "object") return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, masked(one, key)]));
  return value;
}

function show(value, name) {
  if (isSecret(name) && value !== null && value !== "") return hide(value);
  if (Array.isArray(value)) return group("[", "]", value.map((one) => [null, one]));
  if (value && typeof value === "object") return group("{", "}", Object.entries(value));
  return leaf(value);
}

function hide(value) {
  const place = make("span", { class: "secret" }, "•••• ");
  place.append(button("show", () => fill(place, show(value, "")), { sort: "link" }));
  return place;
}

function group(start, end, entries) {
  if (!entries.length) return make("span", {}, start + end);
  const rows = make("div", { class: "nested" });
  const add = (from) => {
    rows.append(...entries.slice(from, from + MANY).map(([name, value], index) => make("div", {},
      name === null ? "" : [make("span", { class: "name" }, name), ": "], show(value, name || ""), from + index < entries.length - 1 ? "," : "")));
    if (entries.length <= from + MANY) return;
    const more = button(`Show ${entries.length - from - MANY} more`, () => {
      more.remove();
      add(from + MANY);
    }, { sort: "link" });
    rows.append(more);
  };
  add(0);
  return [start, rows, end];
}

function leaf(value) {
  const text = JSON.stringify(value);
  const place = make("span", { class: value === null ? "null" : typeof value }, text.slice(0, LONG));
  if (text.length > LONG) {
    const more = button(`… show all ${text.length.toLocaleString("en")} characters`, () => fill(place, text), { sort: "link" });
    place.append(more);
  }
  return place;
}
