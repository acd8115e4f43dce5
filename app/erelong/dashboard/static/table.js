/** A table whose rows stay where they are and change in place, with a current row and selection. */

import { fill, make } from "./dom.js";

/** @typedef {{head: string, cell: (row: any) => any, isNumber?: boolean, name?: string}} Column */

export class Table {
  #rows = new Map(); // key → {tr, box, cells, row, text}
  #current = null;
  #body = make("tbody", {});
  #all = null;
  #isReady; // called when the first rows are shown

  /**
   * @param {{caption: string, columns: Column[], keyOf: (row: any) => string, open?: (row: any) => void, selected?: (keys: Set<string>) => void}} options
   * `selected` is called when the selection changes; without it there is none.
   */
  constructor({ caption, columns, keyOf, open = null, selected = null }) {
    this.ready = new Promise((resolve) => (this.#isReady = resolve));
    Object.assign(this, { columns, keyOf, open, selected, chosen: new Set() });
    const choose = () => this.#choose([...this.#rows.keys()], this.#all.checked);
    if (selected) this.#all = make("input", { type: "checkbox", "aria-label": "Select all on this page", onchange: choose });
    const heads = columns.map((column) => make("th", { scope: "col", class: classOf(column) }, column.head));
    this.node = make("div", { class: "scroll" }, make("table", { class: "rows" }, make("caption", { class: "hidden" }, caption),
      make("thead", {}, make("tr", {}, this.#all && make("th", { scope: "col", class: "check" }, this.#all), heads)), this.#body));
    this.keys = {
      j: () => this.#step(1),
      k: () => this.#step(-1),
      Enter: () => open && this.current && open(this.current),
      x: () => selected && this.current && this.#choose([this.#current], !this.chosen.has(this.#current)),
      a: () => selected && this.#choose([...this.#rows.keys()], this.chosen.size < this.#rows.size),
    };
  }

  /** The row that the keyboard is at, or null. */
  get current() {
    return this.#rows.get(this.#current)?.row ?? null;
  }

  get rows() {
    return [...this.#rows.values()].map(({ row }) => row);
  }

  /** Show these rows. Those that stay are changed in place. */
  show(list, empty = "Nothing to show.") {
    const before = this.#rows;
    this.#rows = new Map();
    const shown = list.map((row) => this.#place(row, before.get(this.keyOf(row))));
    for (const key of this.chosen) if (!this.#rows.has(key)) this.chosen.delete(key);
    const width = this.columns.length + (this.#all ? 1 : 0);
    settle(this.#body, shown.length ? shown : [make("tr", { class: "empty" }, make("td", { colspan: width }, empty))]);
    if (this.#all) this.#choose([], false);
    this.#isReady();
  }

  /** Change a row in place, if it is shown; return whether it is. */
  update(row, isGone = false) {
    const known = this.#rows.get(this.keyOf(row));
    if (!known) return false;
    const text = JSON.stringify(row);
    if (text !== known.text) this.columns.forEach((column, index) => fill(known.cells[index], column.cell(row)));
    Object.assign(known, { row, text });
    known.tr.classList.toggle("gone", isGone);
    return true;
  }

  find(key) {
    return this.#rows.get(key)?.row ?? null;
  }

  clear() {
    this.#choose([...this.chosen], false);
  }

  #place(row, known) {
    const key = this.keyOf(row);
    this.#rows.set(key, known || this.#make(key));
    this.update(row);
    return this.#rows.get(key).tr;
  }

  #make(key) {
    const choose = () => this.#choose([key], box.checked);
    const box = this.selected ? make("input", { type: "checkbox", "aria-label": `Select ${key}`, onchange: choose }) : null;
    const cells = this.columns.map((column, index) => make(index ? "td" : "th", { scope: index ? null : "row", class: classOf(column), "data-head": column.head }));
    const tr = make("tr", { tabindex: "-1", onfocus: () => this.#point(key), onclick: (event) => this.#click(event, key) }, box && make("td", { class: "check" }, box), cells);
    return { tr, box, cells, row: null, text: "" };
  }

  #click(event, key) {
    if (!event.target.closest("a, button, input, select, label") && this.open && !getSelection().toString()) this.open(this.#rows.get(key).row);
  }

  #choose(keys, isChosen) {
    for (const key of keys) {
      if (isChosen) this.chosen.add(key);
      else this.chosen.delete(key);
      const { tr, box } = this.#rows.get(key);
      box.checked = isChosen;
      tr.classList.toggle("chosen", isChosen);
    }
    this.#all.checked = this.chosen.size > 0 && this.chosen.size === this.#rows.size;
    this.#all.indeterminate = this.chosen.size > 0 && this.chosen.size < this.#rows.size;
    this.selected(this.chosen);
  }

  #point(key) {
    this.#rows.get(this.#current)?.tr.classList.remove("current");
    this.#current = key;
    this.#rows.get(key)?.tr.classList.add("current");
  }

  #step(by) {
    const keys = [...this.#rows.keys()];
    if (!keys.length) return;
    const at = keys.indexOf(this.#current);
    const next = at < 0 ? (by > 0 ? 0 : keys.length - 1) : Math.max(0, Math.min(keys.length - 1, at + by));
    this.#rows.get(keys[next]).tr.focus();
  }
}

const classOf = ({ isNumber, name }) => [isNumber && "right", name].filter(Boolean).join(" ");

/** Make these the children of an element, without touching those that are in place. */
function settle(parent, children) {
  children.forEach((child, index) => {
    if (parent.children[index] !== child) parent.insertBefore(child, parent.children[index] || null);
  });
  while (parent.children.length > children.length) parent.lastElementChild.remove();
}
