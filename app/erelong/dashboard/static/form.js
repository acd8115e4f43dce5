/** Forms made of a JSON Schema: a field for each property, and JSON where no field fits. */

import { button, choice, field, make } from "./dom.js";
import { pretty } from "./json.js";

const DEPTH = 2;

/** A value that is not set: left out of its object. */
export const UNSET = Symbol("not set");

/**
 * @typedef {{node: HTMLElement, read: () => any}} Control `read` raises an Error with a `pointer` for text that is no value
 * @param {any} schema an object schema; `$ref` only into itself
 * @param {any} value what the fields show at first
 * @returns {Control}
 */
export function form(schema, value = {}, pointer = "/params", root = schema, depth = 0) {
  const needed = new Set(schema.required || []);
  const parts = Object.entries(schema.properties || {}).map(([name, part]) => {
    const known = resolve(part, root);
    const at = `${pointer}/${escape(name)}`;
    const control = controlOf(known, value?.[name] === undefined ? UNSET : value[name], at, root, depth, needed.has(name));
    return { name, ...control, shown: control.isGroup ? control.node : field(name, control.node, { about: about(known), pointer: at, isNeeded: needed.has(name) }) };
  });
  const extra = isOpen(schema) ? extras(schema, value, pointer, parts.map(({ name }) => name)) : null;
  return {
    node: make(depth ? "fieldset" : "div", { class: "form" }, depth ? make("legend", {}, pointer.split("/").pop()) : "", parts.map(({ shown }) => shown), extra && extra.node),
    isGroup: true,
    read() {
      const found = {};
      for (const { name, read } of parts) {
        const one = read();
        if (one !== UNSET) found[name] = one;
      }
      if (!depth || Object.keys(found).length || needed.size) return extra ? { ...found, ...extra.read() } : found;
      return UNSET;
    },
  };
}

/** Return whether a schema has fields to show. */
export const hasFields = (schema) => Boolean(schema && schema.properties && Object.keys(schema.properties).length);

/** A field of JSON, which says in which line it is wrong. @returns {Control} */
export function jsonField(value, pointer, { rows = 4, label = null } = {}) {
  const node = make("textarea", { class: "mono", rows, spellcheck: "false", value: value === UNSET ? "" : pretty(value), "aria-label": label, placeholder: "JSON" });
  return {
    node,
    read() {
      if (!node.value.trim()) return UNSET;
      try {
        return JSON.parse(node.value);
      } catch (error) {
        throw Object.assign(new Error(`not JSON: ${error.message}${lineOf(node.value, error.message)}`), { pointer });
      }
    },
  };
}

function controlOf(schema, value, pointer, root, depth, isNeeded) {
  const { schema: plain, isNullable } = withoutNull(schema, root);
  const asked = { value, pointer, isNeeded: isNeeded && !isNullable };
  if (plain.enum || "const" in plain) return ofEnum(plain.enum || [plain.const], plain.default, asked);
  if (plain.type === "boolean") return ofEnum([true, false], plain.default, asked);
  if (plain.type === "string") return ofText(plain, asked);
  if (plain.type === "number" || plain.type === "integer") return ofNumber(plain, asked);
  if (plain.type === "array" && isScalar(resolve(plain.items || {}, root))) return ofRows(plain, asked, root, depth);
  if (plain.type === "object" && hasFields(plain) && depth < DEPTH) return form(plain, value === UNSET ? {} : value, pointer, root, depth + 1);
  if (plain.type === "object" && plain.additionalProperties?.type === "string") return ofPairs(asked);
  return jsonField(value, pointer);
}

function ofEnum(values, standard, { value, isNeeded }) {
  const texts = values.map((one) => JSON.stringify(one));
  const unset = isNeeded ? [] : [["", standard === undefined ? "not set" : `${standard} (default)`]];
  const node = choice([...unset, ...values.map((one, index) => [texts[index], String(one)])], value === UNSET ? (isNeeded ? texts[0] : "") : JSON.stringify(value));
  return { node, read: () => (node.value === "" ? UNSET : JSON.parse(node.value)) };
}

function ofText({ format, maxLength, default: standard }, { value, isNeeded }) {
  const isLong = typeof value === "string" && (value.length > 80 || value.includes("\n"));
  const node = make(isLong ? "textarea" : "input", {
    value: value === UNSET || value === null ? "" : value, maxlength: maxLength, spellcheck: "false", autocomplete: "off",
    placeholder: standard ? `${standard} (default)` : { uri: "https://", "date-time": "2026-12-01T09:00:00Z", date: "2026-12-01" }[format],
  });
  return { node, read: () => (node.value === "" && !isNeeded ? UNSET : node.value) };
}

function ofNumber({ type, default: standard }, { value, pointer, isNeeded }) {
  const node = make("input", { value: value === UNSET || value === null ? "" : String(value), inputmode: "decimal", autocomplete: "off", placeholder: standard === undefined || standard === null ? "" : `${standard} (default)` });
  const read = () => {
    const text = node.value.trim();
    if (text === "" && !isNeeded) return UNSET;
    if (text === "" || Number.isNaN(Number(text))) throw Object.assign(new Error(`${text ? `"${text}" is not` : "is"} ${text ? "" : "not "}a number${type === "integer" ? ", which must be whole" : ""}`), { pointer });
    return Number(text);
  };
  return { node, read };
}

function ofRows(schema, { value, pointer }, root, depth) {
  const rows = [];
  const list = make("div", { class: "items" });
  const item = resolve(schema.items || {}, root);
  const add = (one) => {
    const control = controlOf(item, one, `${pointer}/${rows.length}`, root, depth, true);
    const row = { control, node: make("div", { class: "item" }, control.node, button("×", () => (rows.splice(rows.indexOf(row), 1), row.node.remove()), { "aria-label": "Remove" })) };
    control.node.setAttribute("aria-label", `item ${rows.length + 1}`);
    rows.push(row);
    list.append(row.node);
  };
  if (value !== UNSET && value !== null) value.forEach(add);
  return {
    node: make("div", {}, list, button("Add", () => add(UNSET))),
    read: () => (rows.length || Array.isArray(value) ? rows.map(({ control }) => control.read()) : UNSET),
  };
}

function ofPairs({ value }) {
  const rows = [];
  const list = make("div", { class: "items" });
  const add = (name, text) => {
    const inputs = [make("input", { value: name, placeholder: "name", "aria-label": "name", spellcheck: "false" }), make("input", { value: text, placeholder: "value", "aria-label": "value", spellcheck: "false" })];
    const row = { inputs, node: make("div", { class: "item" }, inputs, button("×", () => (rows.splice(rows.indexOf(row), 1), row.node.remove()), { "aria-label": "Remove" })) };
    rows.push(row);
    list.append(row.node);
  };
  if (value !== UNSET && value !== null) Object.entries(value).forEach(([name, text]) => add(name, text));
  return {
    node: make("div", {}, list, button("Add", () => add("", ""))),
    read() {
      const found = rows.map(({ inputs }) => inputs.map((input) => input.value)).filter(([name]) => name);
      return found.length || value !== UNSET ? Object.fromEntries(found) : UNSET;
    },
  };
}

/** A JSON field for what no property names. */
function extras(schema, value, pointer, names) {
  const left = Object.fromEntries(Object.entries(value || {}).filter(([name]) => !names.includes(name)));
  const control = jsonField(Object.keys(left).length ? left : UNSET, pointer, { rows: names.length ? 2 : 6 });
  return {
    node: field(names.length ? "Other params" : "Params", control.node, { pointer, about: "A JSON object." }),
    read: () => {
      const found = control.read();
      return found === UNSET ? {} : found;
    },
  };
}

const isOpen = ({ additionalProperties: more }) => more !== false;

const isScalar = ({ type, enum: values }) => Boolean(values) || ["string", "number", "integer", "boolean"].includes(type);

const escape = (name) => name.replaceAll("~", "~0").replaceAll("/", "~1");

function resolve(schema, root) {
  if (!schema || !schema.$ref) return schema || {};
  const found = schema.$ref.slice(2).split("/").reduce((at, name) => at?.[decodeURIComponent(name)], root);
  return resolve({ ...found, ...Object.fromEntries(Object.entries(schema).filter(([name]) => name !== "$ref")) }, root);
}

/** Return a schema without its null, which is "not set" here. */
function withoutNull(schema, root) {
  if (Array.isArray(schema.type)) {
    const types = schema.type.filter((type) => type !== "null");
    return { schema: types.length === 1 ? { ...schema, type: types[0] } : {}, isNullable: schema.type.includes("null") };
  }
  const choices = schema.anyOf || schema.oneOf;
  if (!choices) return { schema, isNullable: false };
  const left = choices.map((one) => resolve(one, root)).filter(({ type }) => type !== "null");
  return { schema: left.length === 1 ? { ...schema, anyOf: undefined, ...left[0] } : {}, isNullable: left.length < choices.length };
}

function about({ description, minimum, maximum }) {
  const bounds = [minimum !== undefined && `at least ${minimum}`, maximum !== undefined && `at most ${maximum}`].filter(Boolean).join(", ");
  return [description, bounds].filter(Boolean).join(" ");
}

function lineOf(text, message) {
  const [, position] = /position (\d+)/.exec(message) || [];
  return position && !/line/.test(message) ? ` (line ${text.slice(0, Number(position)).split("\n").length})` : "";
}

