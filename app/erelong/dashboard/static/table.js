/** Tables whose rows stay where they are and change in place, with a current row and a selection. */

import { action, fill, h, panel } from "./dom.js";

const FIRST_ROWS = 100;
const MOST_ROWS = 1_000;

/**
 * Show a screen that is one table. `read` is given a limit and the table; it returns the rows, what the table says
 * without any, whether there are more, and what the rows are based on.
 * @returns what a screen returns, and `again`, which reads at once
 */
export function tableScreen(main, { name, tools, seconds = 5, read, ...options }) {
  let limit = FIRST_ROWS;
  const part = panel(name, { level: "h1", tools });
  const table = new Table({ caption: name, ...options });
  const again = part.poll(seconds, async () => {
    const { rows, none, isMore, note } = await read(limit, table);
    const more = () => {
      limit = MOST_ROWS;
      again();
    };
    table.show(rows, none);
    part.show([table.node, isMore && limit < MOST_ROWS && h("p.foot", action("Show more", more))], note);
  });
  fill(main, part.node);
  return { keys: table.keys, ready: part.ready, again, table };
}

export class Table {
  #rows = new Map(); // key → {row, tr}
  #current = null; // a key
  #body = h("tbody");
  #all = h("input", { type: "checkbox", "aria-label": "Select all on this page" });

  /**
   * @param {{caption: string, columns: [string, (row: any) => any, string?][], key: string, open: (row: any) => void,
   *   selected?: () => void}} options a column has a head, a cell and a class; rows differ in the field `key`;
   *   `selected` is called when the selection changes; without it there is none
   */
  constructor({ caption, columns, key, open, selected }) {
    Object.assign(this, { columns, key, open, selected, chosen: new Set() });
    this.#all.onchange = () => this.#choose([...this.#rows.keys()], this.#all.checked);
    const heads = columns.map(([head, , name]) => h(`th.${name || ""}`, { scope: "col" }, head));
    this.node = h("div.scroll", h("table.rows", h("caption.hidden", caption),
      h("thead", h("tr", selected && h("th.check", { scope: "col" }, this.#all), heads)), this.#body));
    this.keys = {
      j: () => this.#step(1),
      k: () => this.#step(-1),
      Enter: () => this.current && open(this.current),
      ...(selected && {
        x: () => this.current && this.#choose([this.#current], !this.chosen.has(this.#current)),
        a: () => this.#choose([...this.#rows.keys()], this.chosen.size < this.#rows.size),
      }),
    };
  }

  /** The row that the keyboard is at, or undefined. */
  get current() {
    return this.find(this.#current);
  }

  get rows() {
    return [...this.#rows.values()].map(({ row }) => row);
  }

  find = (key) => this.#rows.get(key)?.row;

  /** Show these rows. Those that stay are changed in place. */
  show(list, none) {
    const before = this.#rows;
    const keys = list.map((row) => row[this.key]);
    this.#rows = new Map(keys.map((key) => [key, before.get(key) || { tr: this.#make(key) }]));
    for (const key of this.chosen) if (!this.#rows.has(key)) this.chosen.delete(key);
    list.forEach((row) => this.update(row));
    const shown = [...this.#rows.values()].map(({ tr }) => tr);
    fill(this.#body, shown.length ? shown : h("tr.empty", h("td", { colspan: this.columns.length + 1 }, none)));
    this.#mark();
  }

  /** Change a row in place. */
  update(row, isGone = false) {
    const key = row[this.key];
    const known = this.#rows.get(key);
    const onchange = ({ target }) => this.#choose([key], target.checked);
    const attributes = { type: "checkbox", "aria-label": `Select ${key}`, checked: this.chosen.has(key), onchange };
    known.row = row;
    known.tr.classList.toggle("gone", isGone);
    const cells = this.columns.map(([head, cell, name], index) =>
      h(`${index ? "td" : "th"}.${name || ""}`, { scope: index ? null : "row", "data-head": head }, cell(row)));
    fill(known.tr, this.selected && h("td.check", h("input", attributes)), cells);
  }

  clear() {
    this.#choose([...this.chosen], false);
  }

  #make(key) {
    const onclick = ({ target }) => {
      const isText = !target.closest("a, button, input, summary") && getSelection().isCollapsed;
      if (isText) this.open(this.find(key));
    };
    return h("tr", { tabindex: "-1", onfocus: () => this.#point(key), onclick });
  }

  #choose(keys, isChosen) {
    for (const key of keys) this.chosen[isChosen ? "add" : "delete"](key);
    this.#mark();
  }

  #mark() {
    if (!this.selected) return;
    for (const [key, { tr }] of this.#rows) {
      tr.classList.toggle("chosen", this.chosen.has(key));
      tr.querySelector("input").checked = this.chosen.has(key);
    }
    this.#all.checked = this.chosen.size > 0 && this.chosen.size === this.#rows.size;
    this.#all.indeterminate = this.chosen.size > 0 && !this.#all.checked;
    this.selected();
  }

  #point(key) {
    this.#rows.get(this.#current)?.tr.classList.remove("current");
    this.#current = key;
    this.#rows.get(key)?.tr.classList.add("current");
  }

  #step(by) {
    const keys = [...this.#rows.keys()];
    const index = keys.indexOf(this.#current);
    const next = index < 0 ? (by > 0 ? 0 : keys.length - 1) : Math.max(0, Math.min(keys.length - 1, index + by));
    this.#rows.get(keys[next])?.tr.focus();
  }
}
