/** Elements, made of text alone and updated in place. */

const SVG = "http://www.w3.org/2000/svg";
const PROPERTIES = new Set(["value", "checked", "disabled", "hidden", "open", "indeterminate", "selected"]);
const ICONS = {
  scheduled: "M8 2.2a5.8 5.8 0 1 0 0 11.6a5.8 5.8 0 0 0 0-11.6M8 4.8v3.4l2.2 1.4",
  running: "M5 3.2v9.6l7.6-4.8z",
  succeeded: "M3 8.6l3.4 3.4l6.6-7.6",
  failed: "M4 4l8 8M12 4l-8 8",
  cancelled: "M8 2.2a5.8 5.8 0 1 0 0 11.6a5.8 5.8 0 0 0 0-11.6M3.9 12.1l8.2-8.2",
  expired: "M4.5 2.5h7M4.5 13.5h7M5.2 2.5c0 3.6 5.6 7.4 5.6 11M10.8 2.5c0 3.6-5.6 7.4-5.6 11",
  paused: "M5.5 3.5v9M10.5 3.5v9",
  warning: "M8 2.4l6.2 11.2h-12.4zM8 6.4v3.4M8 11.6v.2",
  more: "M3 8h.1M8 8h.1M13 8h.1",
  plus: "M8 3v10M3 8h10",
  dot: "M8 5.2a2.8 2.8 0 1 0 0 5.6a2.8 2.8 0 0 0 0-5.6",
};

/** Make an HTML element. @param {string} tag @param {Object<string, any>} attributes `onclick` and the like are listeners */
export const make = (tag, attributes = {}, ...children) => furnish(document.createElement(tag), attributes, children);

/** Make an SVG element. */
export const draw = (tag, attributes = {}, ...children) => furnish(document.createElementNS(SVG, tag), attributes, children);

/** Replace what is in an element. */
export function fill(element, ...children) {
  element.replaceChildren(...children.flat(Infinity).filter(isShown));
  return element;
}

/** Set the text of an element, only if it differs. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Return a small picture of a word of `ICONS`; the word itself stands next to it. */
export function icon(name) {
  return draw("svg", { class: `icon ${name}`, viewBox: "0 0 16 16", "aria-hidden": "true" }, draw("path", { d: ICONS[name] }));
}

/** Make a button. @param {"plain" | "main" | "bad" | "link"} sort */
export const button = (text, onclick, { sort = "plain", ...more } = {}) =>
  make("button", { type: "button", class: sort, onclick, ...more }, text);

export const link = (href, text, attributes = {}) => make("a", { href, ...attributes }, text);

/** Show the items of a list as elements that stay while their key does. */
export function keyed(parent, items, keyOf, update) {
  const known = parent.known || (parent.known = new Map());
  const next = new Map();
  for (const item of items) {
    const key = keyOf(item);
    const element = known.get(key);
    next.set(key, update(item, element) || element);
  }
  for (const [key, element] of known) if (next.get(key) !== element) element.remove();
  let before = parent.firstElementChild;
  for (const element of next.values()) {
    if (element === before) before = before.nextElementSibling;
    else parent.insertBefore(element, before);
  }
  parent.known = next;
}

/**
 * Make a part of a screen with a heading, which says when its data is of, and why it has none.
 * @returns {{node: HTMLElement, body: HTMLElement, fresh: (at: string) => void, fail: (problem: Error) => void}}
 */
export function panel(title, { tools = [], name = "", level = "h2", note = "" } = {}) {
  const stamp = make("span", { class: "stamp" }, note);
  const body = make("div", { class: "body" }, make("p", { class: "soft loading" }, "Loading…"));
  const fault = make("p", { class: "fault", hidden: true });
  const node = make("section", { class: `panel ${name}` },
    make("header", {}, make(level, {}, title), make("div", { class: "tools" }, tools), stamp), fault, body);
  return {
    node,
    body,
    fresh(at) {
      fault.hidden = true;
      node.classList.remove("old");
      if (at) say(stamp, at);
    },
    fail(problem) {
      node.classList.add("old");
      fill(fault, problem.title ? `${problem.title}: ` : "", problem.detail || problem.message).hidden = false;
      body.querySelector(".loading")?.remove();
    },
  };
}

/** Return a list of terms and what they are; those of null are left out. */
export function facts(pairs) {
  const shown = pairs.filter(([, value]) => isShown(value));
  return make("dl", { class: "facts" }, shown.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value))));
}

/** Return a field with its label, its explanation and a place for what is wrong with it. */
export function field(label, control, { about = "", pointer = null, isNeeded = false } = {}) {
  const id = control.id || (control.id = `f${(numbers += 1)}`);
  const fault = make("p", { class: "fault", id: `${id}-fault`, hidden: true });
  control.setAttribute("aria-describedby", fault.id);
  return make("div", { class: "field", "data-pointer": pointer },
    make("label", { for: id }, label, isNeeded ? make("span", { class: "needed", title: "required" }, " *") : ""),
    make("div", {}, control, about ? make("p", { class: "about" }, about) : "", fault));
}

/** Return a choice of one of several values. @param {Array<string | [string, string]>} options */
export function choice(options, value, onchange, attributes = {}) {
  const pairs = options.map((option) => (Array.isArray(option) ? option : [option, option]));
  const shown = pairs.map(([name, text]) => make("option", { value: name, selected: name === value }, text));
  return make("select", { ...attributes, onchange: (event) => onchange && onchange(event.target.value) }, shown);
}

let numbers = 0;

const isShown = (child) => child !== null && child !== undefined && child !== false && child !== "";

function furnish(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (PROPERTIES.has(name)) element[name] = value;
    else if (isShown(value)) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter(isShown));
  return element;
}
