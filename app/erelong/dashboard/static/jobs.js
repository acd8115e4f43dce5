/** The list of jobs: search, states, live rows, selection, and actions on many. */

import { get } from "./api.js";
import { complain, bulk } from "./dialog.js";
import { button, choice, fill, link, make, say } from "./dom.js";
import * as filter from "./filter.js";
import { reschedule } from "./job.js";
import { live, onStats, stream } from "./live.js";
import { masked } from "./json.js";
import { can } from "./session.js";
import { Table } from "./table.js";
import { count, number, shortId, state, timeOf, when, now } from "./text.js";

const TABS = [
  ["scheduled", "Waiting"], ["due", "Due"], ["running", "Running"], ["succeeded", "Succeeded"], ["failed", "Failed"], ["cancelled", "Cancelled"], ["expired", "Expired"], ["", "All"],
];
const FINAL = ["succeeded", "failed", "cancelled", "expired"];
const ORDERS = { created: "newest first", due_at: "due first", finished_at: "latest end first", started_at: "longest running first" };
const PAGE = 100;

export const COLUMNS = [
  { head: "Job", name: "id", cell: (job) => link(`#/jobs/${job.id}`, shortId(job.id), { title: job.id }) },
  { head: "Kind", cell: ({ kind }) => kind },
  { head: "Queue", cell: ({ queue }) => queue },
  { head: "When", name: "when", cell: whenOf },
  { head: "State", cell: state },
  { head: "Attempt", isNumber: true, cell: ({ attempt, retry }) => `${attempt}/${retry.max_attempts}` },
  { head: "About", name: "about", cell: about },
];

export function show({ main, query, signal, title }) {
  const screen = new Jobs(query, signal, title);
  fill(main, screen.node);
  screen.begin();
  return { keys: screen.keys, ready: screen.table.ready };
}

class Jobs {
  #cursor = null;
  #news = 0;
  #loaded = 0;

  constructor(query, signal, title) {
    Object.assign(this, { query, signal, title });
    this.params = paramsOf(query);
    this.table = new Table({ caption: "Jobs", columns: COLUMNS, keyOf: ({ id }) => id, open: ({ id }) => (location.hash = `#/jobs/${id}`), selected: (chosen) => this.#showSelection(chosen) });
    this.news = button("", () => this.load(), { sort: "link", class: "link news", hidden: true });
    this.stamp = make("span", { class: "stamp" });
    this.fault = make("p", { class: "fault", role: "alert", hidden: true });
    this.selection = make("div", { class: "selection", hidden: true });
    this.foot = make("p", { class: "foot" });
    this.tabs = make("nav", { class: "tabs", "aria-label": "States" });
    this.node = [make("h1", { class: "hidden", tabindex: "-1" }, "Jobs"), this.tabs, this.#bar(), this.fault, this.selection, this.news, this.table.node, this.foot];
    this.keys = { ...this.table.keys, r: () => this.#act("retry"), c: () => this.#act("cancel"), u: () => this.#act("run"), e: () => this.table.current && reschedule(this.table.current).then((job) => job && this.table.update(job)) };
  }

  begin() {
    this.title(`${this.#stateName()} jobs`);
    onStats((stats) => this.#showTabs(stats), this.signal);
    if (!live.stats) this.#showTabs(null);
    this.load();
    const asked = {};
    for (const name of this.params.keys()) if (["queue", "kind", "key", "schedule"].includes(name) || name.startsWith("label.")) asked[name] = this.params.getAll(name);
    stream(asked, (event) => this.#hear(event), () => this.#refresh(), this.signal);
  }

  /** Read the first page, or the one after the cursor. */
  async load(cursor = null) {
    say(this.stamp, "Loading…");
    try {
      const found = await list([...this.params, ["limit", PAGE], ["count", "true"], ...(cursor ? [["cursor", cursor]] : [])], this.signal);
      const before = cursor ? this.table.rows : [];
      this.table.show([...before, ...found.jobs], this.#empty(found));
      this.#cursor = found.next;
      this.#loaded = before.length + found.jobs.length;
      this.fault.hidden = true;
      this.#news = 0;
      this.#showNews();
      say(this.stamp, `as of ${timeOf(now())}`);
      this.#showFoot(found);
    } catch (problem) {
      if (this.signal.aborted) return;
      say(this.stamp, "");
      fill(this.fault, `${problem.title}: ${problem.detail || problem.message}`).hidden = false;
    }
  }

  /** Read the page again, only to change its rows in place. */
  async #refresh() {
    try {
      const found = await list([...this.params, ["limit", PAGE]], this.signal);
      for (const job of found.jobs) if (!this.table.update(job)) this.#news += 1;
      this.#showNews();
    } catch {
      return;
    }
  }

  #bar() {
    const search = make("input", { type: "search", value: filter.write(without(this.query, "state")), placeholder: "id or key, or queue:mail kind:http label.tenant:t1 error:timeout due:<1h", "aria-label": "Search jobs", spellcheck: "false", autocomplete: "off" });
    const submit = (event) => {
      event.preventDefault();
      const { id, params, faults } = filter.read(search.value);
      if (faults.length) return (fill(this.fault, faults.join("; ")).hidden = false);
      if (id) return (location.hash = `#/jobs/${id}`);
      for (const name of ["state", "order"]) if (this.query.get(name) && !params.has(name)) params.set(name, this.query.get(name));
      location.hash = `#/jobs?${params}`;
    };
    const form = make("form", { class: "search", role: "search", onsubmit: submit }, search, make("button", { type: "submit" }, "Search"));
    const orders = this.#orders();
    return make("div", { class: "bar" }, form, this.#views(search), orders.length > 1 ? make("label", { class: "order" }, "order ", choice(orders.map((name) => [name, ORDERS[name]]), this.params.get("order") || "created", (order) => this.#go({ order }))) : "", this.stamp);
  }

  /** Searches that were saved in this browser. */
  #views(search) {
    const saved = JSON.parse(localStorage.getItem("erelong.views") || "{}");
    const keep = () => {
      if (!search.value.trim()) return;
      saved[search.value.trim()] = `#/jobs?${this.query}`;
      localStorage.setItem("erelong.views", JSON.stringify(saved));
      fill(shown, options());
    };
    const options = () => [["", "Saved searches"], ...Object.keys(saved).map((name) => [saved[name], name]), ["+", "Save this search"], ["-", "Forget all"]].map(([value, text]) => make("option", { value }, text));
    const shown = make("select", { "aria-label": "Saved searches", onchange: () => {
      if (shown.value === "+") keep();
      else if (shown.value === "-") localStorage.removeItem("erelong.views");
      else if (shown.value) location.hash = shown.value;
      shown.value = "";
    } }, options());
    return shown;
  }

  #orders() {
    const states = this.params.getAll("state");
    if (states.length === 1 && states[0] === "scheduled") return ["created", "due_at"];
    if (states.length === 1 && states[0] === "running") return ["created", "started_at"];
    return states.length && states.every((one) => FINAL.includes(one)) ? ["created", "finished_at"] : ["created"];
  }

  #stateName = () => (TABS.find(([word]) => word === (this.query.get("state") || "")) || ["", "All"])[1];

  #go(change) {
    const query = new URLSearchParams(this.query);
    for (const [name, value] of Object.entries(change)) {
      if (value) query.set(name, value);
      else query.delete(name);
    }
    location.hash = `#/jobs?${query}`;
  }

  #showTabs(stats) {
    const current = this.query.get("state") || "";
    if (!this.tabs.childElementCount) {
      fill(this.tabs, TABS.map(([word, text]) => {
        const query = new URLSearchParams(this.query);
        query.delete("order");
        if (word) query.set("state", word);
        else query.delete("state");
        return link(`#/jobs?${query}`, [text, make("small", {})], { "aria-current": word === current ? "page" : null });
      }));
    }
    if (stats) TABS.forEach(([word], index) => word && say(this.tabs.children[index].lastChild, ` ${number(stats.jobs[word])}`));
  }

  #showFoot({ next, count: counted, scanned }) {
    const of = counted ? ` of ${counted.exact ? "" : "about "}${number(counted.n)}` : "";
    fill(this.foot, this.#loaded ? `${number(this.#loaded)}${of}` : "", scanned ? ` · searched ${number(scanned)} jobs` : "", next ? [" · ", button("Show more", () => this.load(this.#cursor), { sort: "link" })] : "");
  }

  #empty({ next, scanned }) {
    const isFiltered = [...this.query.keys()].some((name) => name !== "order" && name !== "state");
    if (next) return `No matching jobs among ${number(scanned)} searched so far; there may be more.`;
    if (isFiltered) return make("span", {}, "No matching jobs. ", link("#/jobs", "Clear filters"));
    if (this.query.get("state")) return `No ${this.#stateName().toLowerCase()} jobs.`;
    return make("span", {}, "No jobs yet. ", can("submit") ? link("#/submit", "Submit one") : "", " or run: ",
      make("code", {}, `curl ${location.origin}${location.pathname}v1/jobs -H 'Content-Type: application/json' -d '{"kind": "echo", "params": {"hello": "world"}, "delay": "1h"}'`));
  }

  /** Change the row of an event; new jobs wait behind a button. */
  #hear({ type, job }) {
    if (!job || live.isPaused) return;
    const known = this.table.find(job.id);
    if (known && (known.version || 0) <= (job.version || 0)) this.table.update({ ...known, ...job }, type === "job.deleted" || !this.#matches(job));
    else if (!known && type === "job.submitted" && this.#matches(job)) {
      this.#news += 1;
      this.#showNews();
    }
  }

  #matches(job) {
    const states = this.params.getAll("state");
    return !states.length || states.includes(job.state);
  }

  #showNews() {
    this.news.hidden = !this.#news;
    say(this.news, `Show ${number(this.#news)} new`);
  }

  #showSelection(chosen) {
    const size = chosen.size;
    this.selection.hidden = !size;
    if (!size) return;
    const tell = (action) => () => this.#actOn(action, { jobs: [...chosen] }, `${count(size, "selected job")}`);
    const without = filter.unsupported(this.params);
    fill(this.selection, make("b", {}, `${number(size)} selected`), this.#buttons(tell), button("Clear", () => this.table.clear(), { sort: "link" }),
      this.#cursor && !without.length ? make("span", { class: "all" }, "or all that match: ", this.#buttons((action) => () => this.#actOn(action, { ...filter.operationFilter(this.params), created_before: new Date(now() + 1).toISOString() }, "All jobs that match the search"), "link")) : "");
  }

  #buttons(tell, sort = "plain") {
    const isFinal = this.params.getAll("state").every((one) => FINAL.includes(one)) && this.params.has("state");
    return [
      can("submit") && !isFinal ? button("Run now", tell("run"), { sort }) : "",
      can("submit") && (isFinal || !this.params.has("state")) ? button("Retry", tell("retry"), { sort }) : "",
      can("cancel") && !isFinal ? button("Cancel", tell("cancel"), { sort }) : "",
      can("cancel") ? button("Delete", tell("delete"), { sort }) : "",
    ];
  }

  #act(action) {
    const ids = this.table.chosen.size ? [...this.table.chosen] : this.table.current ? [this.table.current.id] : [];
    if (ids.length && can(action === "cancel" ? "cancel" : "submit")) this.#actOn(action, { jobs: ids }, count(ids.length, "selected job"));
  }

  async #actOn(action, jobs, what) {
    try {
      if (await bulk({ action, filter: jobs, what })) {
        this.table.clear();
        this.#refresh();
      }
    } catch (problem) {
      complain(problem);
    }
  }
}

function without(query, name) {
  const left = new URLSearchParams(query);
  left.delete(name);
  return left;
}

/** Return the parameters of the list for the query of the screen. */
export function paramsOf(query) {
  const params = new URLSearchParams(query);
  if (params.get("state") === "due") {
    params.set("state", "scheduled");
    params.set("due_before", new Date(now()).toISOString());
    params.set("order", "due_at");
  }
  return params;
}

/** Read a page of jobs, with the beginning of their params. */
const list = (pairs, signal) => get("jobs", new URLSearchParams([...pairs, ["view", "line"]]), signal);

function whenOf(job) {
  if (job.state === "scheduled") return when(job.due_at, Date.parse(job.due_at) < now() ? "overdue" : "both");
  return job.state === "running" ? when(job.started_at, "both") : when(job.finished_at);
}

function about(job) {
  const labels = Object.entries(job.labels || {}).map(([name, value]) => make("span", { class: "label" }, `${name}=${value}`));
  return [job.key ? make("span", { class: "label key" }, job.key) : "", labels, preview(job)];
}

/** Return the beginning of the params of a job, without secrets, or its error. */
function preview(job) {
  if (job.error && FINAL.includes(job.state)) return make("span", { class: "preview" }, job.error.message);
  if (job.params_preview === undefined && job.params === undefined) return "";
  const text = job.params_preview ?? JSON.stringify(masked(job.params));
  return make("span", { class: "preview mono" }, text.replace(/("[^"]*(?:token|secret|passw|authorization|api[-_]?key|cookie)[^"]*"\s*:\s*)("[^"]*"?|[^,}]+)/gi, "$1••••"));
}

