/** Forms made of a JSON Schema, JSON as people type it, and JSON as they read it. */

import { action, area, button, choice, field, fill, h, input } from "./dom.js";
import { isSecret, isSet, number } from "./text.js";

const HIDDEN = "••••";
const DEPTH = 2;
const MANY_ENTRIES = 200;
const LONG = 2_000;
const SCALARS = ["string", "number", "integer", "boolean"];
const HINTS = { uri: "https://", "date-time": "2026-12-01T09:00:00Z", date: "2026-12-01" };

/** A value that is not set: left out of its object. */
export const UNSET = Symbol("not set");

/**
 * Make a form for an object schema: its `node`, and `read()`, which raises an Error with a `pointer` for text that is
 * no value.
 */
export function form(schema, value = {}, pointer = "/params", root = schema, depth = 0) {
  const parts = Object.entries(schema.properties || {}).map(([name, part]) => {
    const known = resolve(part, root);
    const isNeeded = Boolean(schema.required?.includes(name));
    const place = `${pointer}/${name.replaceAll("~", "~0").replaceAll("/", "~1")}`;
    const given = value?.[name] === undefined ? UNSET : value[name];
    const control = controlOf(known, given, { pointer: place, root, depth, isNeeded });
    const more = { about: explanationOf(known), pointer: place, isNeeded };
    const node = control.isGroup ? control.node : field(name, control.node, more);
    return { name, node, read: control.read };
  });
  if (schema.additionalProperties !== false) parts.push(extras(value, pointer, parts));
  const legend = depth > 0 && h("legend", pointer.split("/").pop());
  return {
    node: h(depth ? "fieldset.form" : "div.form", legend, parts.map(({ node }) => node)),
    isGroup: true,
    read() {
      const found = {};
      for (const { name, read } of parts) {
        const one = read();
        if (one !== UNSET) Object.assign(found, name === undefined ? one : { [name]: one });
      }
      return !depth || Object.keys(found).length || schema.required?.length ? found : UNSET;
    },
  };
}

/** Return whether a schema has fields to show. */
export const hasFields = (schema) => Object.keys(schema?.properties || {}).length > 0;

/** Make a field of JSON, which says in which line it is wrong. */
export function jsonField(value, pointer, rows = 4) {
  const node = area(value === UNSET ? "" : pretty(value), { rows, placeholder: "JSON" });
  return { node, read: () => (node.value.trim() ? readJson(node.value, pointer) : UNSET) };
}

/** Parse JSON that somebody has typed. The error says where it is wrong. */
export function readJson(text, pointer) {
  try {
    return JSON.parse(text);
  } catch ({ message }) {
    const [, position] = /position (\d+)/.exec(message) || [];
    const line = position && !/line/.test(message) ? ` (line ${text.slice(0, position).split("\n").length})` : "";
    throw wrong(`not JSON: ${message}${line}`, pointer);
  }
}

/**
 * Return the number that somebody has typed, with or without commas, and undefined for none; raise an Error with a
 * pointer for other text.
 */
export function numberOf(text = "", pointer, { isNeeded = false, what = "a number" } = {}) {
  const plain = text.trim().replaceAll(/,(?=\d{3})/g, "");
  if (!plain && !isNeeded) return undefined;
  if (!plain) throw wrong(`needs ${what}`, pointer);
  if (!Number.isFinite(Number(plain))) throw wrong(`“${text}” is not ${what}`, pointer);
  return Number(plain);
}

/** Return a duration that somebody may have typed, in seconds if it has no unit. */
export const durationOf = (text) => (/^[\d.]+$/.test(text) ? `${text}s` : text);

/** Return an element that shows any JSON value: folded where it is long, with secrets hidden until asked for. */
export const json = (value, label) =>
  h("div.json", { tabindex: "0", role: "group", "aria-label": label }, showValue(value));

/** Return JSON as indented text. */
export const pretty = (value) => JSON.stringify(value, null, 2);

/** Return a copy in which the values of secrets are hidden. */
export const masked = (value) =>
  JSON.parse(JSON.stringify(value, (name, one) => (isSecret(name) && one ? HIDDEN : one)));

/** Put the values of secrets back that somebody has left hidden; raise an Error where no value is known. */
export function unmasked(value, original, pointer = "/params") {
  if (value === HIDDEN && !isSet(original)) throw wrong(`${HIDDEN} stands for no known value: write it out`, pointer);
  if (value === HIDDEN) return original;
  if (typeof value !== "object" || !value) return value;
  const isKnown = !Array.isArray(value) || areInPlace(value, original);
  const pairs = Object.entries(value).map(([name, one]) =>
    [name, unmasked(one, isKnown ? original?.[name] : undefined, pointer)]);
  return Array.isArray(value) ? pairs.map(([, one]) => one) : Object.fromEntries(pairs);
}

/** Return whether items are as many as before, and all but one look the same apart from secrets. */
const areInPlace = (items, before) => Array.isArray(before) && items.length === before.length &&
  items.filter((one, index) => pretty(masked(one)) !== pretty(masked(before[index]))).length < 2;

export const wrong = (message, pointer) => Object.assign(new Error(message), { pointer });

function controlOf(schema, value, place) {
  const [plain, isNullable] = withoutNull(schema, place.root);
  const { type, enum: values, items, additionalProperties: more } = plain;
  const isNeeded = place.isNeeded && !isNullable;
  if (values || "const" in plain) return ofEnum(values || [plain.const], plain.default, value, isNeeded);
  if (type === "boolean") return ofEnum([true, false], plain.default, value, isNeeded);
  if (type === "string") return ofText(plain, value, isNeeded);
  if (type === "number" || type === "integer") return ofNumber(plain, value, place.pointer, isNeeded);
  const item = type === "array" && resolve(items, place.root);
  if (item.enum || SCALARS.includes(item.type)) return ofItems(item, value, place);
  if (type === "object" && hasFields(plain) && place.depth < DEPTH) {
    return form(plain, value === UNSET ? {} : value, place.pointer, place.root, place.depth + 1);
  }
  return type === "object" && more?.type === "string" ? ofPairs(value, place.pointer) : jsonField(value, place.pointer);
}

function ofEnum(values, standard, value, isNeeded) {
  const options = values.map((one) => [JSON.stringify(one), String(one)]);
  if (!isNeeded) options.unshift(["", standard === undefined ? "not set" : `${standard} (default)`]);
  const node = choice(options, value === UNSET ? "" : JSON.stringify(value));
  return { node, read: () => (node.value ? JSON.parse(node.value) : UNSET) };
}

const textOf = (value) => (value === UNSET || value === null ? "" : String(value));

const hintOf = ({ default: standard, format }) => (isSet(standard) ? `${standard} (default)` : HINTS[format]);

function ofText(schema, value, isNeeded) {
  const text = textOf(value);
  const isLong = text.length > 80 || text.includes("\n");
  const node = (isLong ? area : input)(text, { maxlength: schema.maxLength, placeholder: hintOf(schema) });
  return { node, read: () => (node.value || isNeeded ? node.value : UNSET) };
}

function ofNumber(schema, value, pointer, isNeeded) {
  const node = input(textOf(value), { inputmode: "decimal", placeholder: hintOf(schema) });
  const what = schema.type === "integer" ? "a whole number" : "a number";
  return { node, read: () => numberOf(node.value, pointer, { isNeeded, what }) ?? UNSET };
}

/** Make a list of rows that can be added and removed; `make` returns the controls of one, `read` the value of all. */
function ofRows(value, first, make, read) {
  const rows = [];
  const list = h("div.items");
  const add = (one) => {
    const row = make(one, rows.length);
    const remove = () => {
      rows.splice(rows.indexOf(row), 1);
      item.remove();
      list.dispatchEvent(new Event("input", { bubbles: true }));
    };
    const item = h("div.item", row.nodes, button("×", remove, { "aria-label": "Remove" }));
    rows.push(row);
    list.append(item);
  };
  first.forEach(add);
  const isGiven = isSet(value) && value !== UNSET;
  const node = h("div", list, button("Add", () => add(UNSET)));
  return { node, read: () => (rows.length || isGiven ? read(rows) : UNSET) };
}

const ofItems = (schema, value, place) => ofRows(value, Array.isArray(value) ? value : [], (one, index) => {
  const { node, read } = controlOf(schema, one, { ...place, pointer: `${place.pointer}/${index}`, isNeeded: true });
  node.setAttribute("aria-label", `item ${index + 1}`);
  return { nodes: node, read };
}, (rows) => rows.map(({ read }) => read()));

/** Make rows of a name and a text. */
export const ofPairs = (value, pointer) => ofRows(value, Object.entries(value === UNSET ? {} : value || {}), (pair) => {
  const texts = pair === UNSET ? [] : pair;
  const cell = (name, index) => input(texts[index], { placeholder: name, "aria-label": name });
  return { nodes: ["name", "value"].map(cell) };
}, (rows) => Object.fromEntries(rows.map(({ nodes }) => nodes.map((node) => node.value)).filter(([name, text]) => {
  if (text && !name) throw wrong(`“${text}” needs a name`, pointer);
  return name;
})));

/** Make a field of JSON for what no property names. */
function extras(value, pointer, parts) {
  const left = Object.entries(value || {}).filter(([name]) => !parts.some((part) => part.name === name));
  const { node, read } = jsonField(left.length ? Object.fromEntries(left) : UNSET, pointer, parts.length ? 2 : 6);
  return { node: field(parts.length ? "Other params" : "Params", node, { pointer, about: "A JSON object." }), read };
}

function resolve(schema = {}, root) {
  if (!schema.$ref) return schema;
  const { $ref: ref, ...more } = schema;
  const found = ref.slice(2).split("/").reduce((part, name) => part?.[decodeURIComponent(name)], root);
  return resolve({ ...found, ...more }, root);
}

/** Return a schema without its null, which is "not set" here, and whether it had one. */
function withoutNull(schema, root) {
  const choices = Array.isArray(schema.type) ? schema.type.map((type) => ({ type })) : schema.anyOf || schema.oneOf;
  if (!choices) return [schema, false];
  const left = choices.map((one) => resolve(one, root)).filter(({ type }) => type !== "null");
  return [left.length === 1 ? { ...schema, ...left[0] } : {}, left.length < choices.length];
}

function explanationOf({ description, minimum: least, maximum: most }) {
  const parts = [description, isSet(least) && `At least ${least}.`, isSet(most) && `At most ${most}.`];
  return parts.filter(Boolean).join(" ");
}

function showValue(value, name = "") {
  if (isSecret(name) && value) {
    const place = h("span", HIDDEN, " ", action("show", () => fill(place, showValue(value))));
    return place;
  }
  if (Array.isArray(value)) return group("[]", value.map((one) => [null, one]));
  if (typeof value === "object" && value) return group("{}", Object.entries(value));
  const text = JSON.stringify(value);
  const place = h(`span.${value === null ? "null" : typeof value}`, text.slice(0, LONG));
  const more = () => action(`… show all ${number(text.length)} characters`, () => fill(place, text));
  if (text.length > LONG) place.append(more());
  return place;
}

function group([start, end], entries) {
  if (!entries.length) return start + end;
  const rows = h("div.nested");
  const row = ([name, value]) =>
    h("div", name !== null && [h("span.name", name), ": "], showValue(value, name || ""), ",");
  const add = (from) => {
    const to = Math.min(from + MANY_ENTRIES, entries.length);
    rows.append(...entries.slice(from, to).map(row));
    if (to === entries.length) return rows.lastChild.lastChild.remove(); // the last comma
    const more = action(`Show ${number(entries.length - to)} more`, () => {
      more.remove();
      add(to);
    });
    rows.append(more);
  };
  add(0);
  return [start, rows, end];
}
