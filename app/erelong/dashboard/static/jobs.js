/** The list of jobs: search, states, live rows, selection, and actions on many. */

import { ask, bulk, complain, submitButton } from "./dialog.js";
import {
  action, at, button, choice, fill, go, h, input, jobLink, labelsOf, link, optionsOf, state, when,
} from "./dom.js";
import { instants, operationFilter, read, timeField, write } from "./filter.js";
import { LIVE, OVER, editJob } from "./job.js";
import { can, every, get, live, onStats, post, reasonOf, stream, urlOf } from "./service.js";
import { Table } from "./table.js";
import { asOf, count, fromNow, now, number, stateWord, withoutSecrets } from "./text.js";

const TABS = ["scheduled", "due", "running", "succeeded", "failed", "cancelled", "expired", ""];
const FINAL = ["succeeded", ...OVER];
const ACTS = {
  run: ["Run now", ["scheduled"]], patch: ["Reschedule", ["scheduled"]], retry: ["Retry", OVER],
  cancel: ["Cancel", LIVE], delete: ["Delete", ["scheduled", ...FINAL]],
}; // their words, and the states of the jobs that they are for
const JOB_ORDERS = {
  created: "newest first", due_at: "due first", finished_at: "latest end first", started_at: "longest running first",
  next: "starts first", last: "starts last",
};
const STREAMED = /^(queue|kind|key|schedule|label)/;
const UNCHECKED = /(^|&)(error|cause|attempt|created|finished)/; // filters that rows of events are not held against
const JOBS_PER_PAGE = 100;
const EXAMPLE = "id or key, or queue:mail kind:http due:<1h";
const VIEWS = "erelong.views";
const COLUMNS = [
  ["Job", (job) => jobLink(job.id, { title: job.id }), "id"],
  ["Kind", ({ kind }) => kind],
  ["Queue", ({ queue }) => queue],
  ["When", whenOf],
  ["State", state],
  ["Attempt", ({ attempt, retry }) => `${attempt}/${retry.max_attempts}`, "number"],
  ["About", aboutOf, "about"],
];

export function showJobs({ main, query, title }) {
  const list = new Jobs(query);
  title(`${list.name} jobs`);
  fill(main, list.nodes);
  list.begin();
  return list;
}

class Jobs {
  #news = new Set(); // ids of matching jobs that have no row
  #due = 0; // jobs that have become due since the list was read
  #readAt = "";
  #next = null; // a cursor
  #held = new Map(); // the last events of rows that stay as they are for a while
  #isBehind = false; // events may be missing
  #first = Promise.withResolvers();
  #stamp = h("span.stamp");
  #fault = h("p.fault", { role: "alert" });
  #selection = h("div.selection");
  #newer = h("div.news");
  #foot = h("p.foot");
  #tabs = h("nav.tabs", { "aria-label": "States" });

  constructor(query) {
    const params = listParams(query);
    const states = params.getAll("state");
    const words = query.getAll("state");
    const word = words.join(" or ");
    Object.assign(this, { query, params, states, words, word });
    this.ready = this.#first.promise;
    this.name = stateWord(word || "all");
    this.isFiltered = /(^|&)(?!order=|state=)./.test(query);
    const table = new Table({
      caption: "Jobs", columns: COLUMNS, key: "id", open: ({ id }) => go("jobs", id),
      selected: (can("submit") || can("cancel")) && (() => this.#showSelection()),
    });
    const bar = h("div.toolbar", this.#search(), this.#orders(), this.#stamp);
    this.nodes = [
      h("h1.hidden", "Jobs"), this.#tabs, bar, this.#fault, this.#selection, this.#newer, table.node, this.#foot];
    this.table = table;
    this.keys = {
      ...table.keys, r: () => this.#onRows("retry"), c: () => this.#onRows("cancel"), u: () => this.#onRows("run"),
      e: async () => table.current && can("submit") && editJob(await get(["jobs", table.current.id])),
    };
  }

  begin() {
    this.#showTabs();
    onStats((stats) => this.#showTabs(stats));
    this.#load();
    const asked = [...this.params].filter(([name]) => STREAMED.test(name));
    stream(new URLSearchParams(asked), (event) => this.#hear(event), () => (this.#isBehind = true));
    every(1, () => this.#catchUp());
    if (this.word === "due") every(5, () => this.#countDue());
  }

  /** Show the first page, or as many as have so many jobs; or add the page after the cursor. */
  async #load(cursor = "", least = 0) {
    fill(this.#stamp, "Loading…");
    try {
      const jobs = cursor ? this.table.rows : [];
      if (!cursor) [this.params, this.#readAt] = [listParams(this.query), fromNow(0)];
      let found = null;
      do {
        found = await this.#page(cursor);
        jobs.push(...found.jobs);
        cursor = found.next;
      } while (cursor && found.jobs.length && jobs.length < least);
      this.#next = cursor;
      this.#due = 0;
      this.#news.clear();
      this.#showNews();
      this.table.show(jobs, this.#none(found));
      this.#first.resolve();
      fill(this.#fault);
      fill(this.#stamp, asOf());
      const { exact, n } = found.count;
      fill(this.#foot, jobs.length > 0 && `${number(jobs.length)} of ${exact ? "" : "at least "}${number(n)} `,
        this.#next && action("Show more", () => this.#load(this.#next)));
    } catch (problem) {
      fill(this.#stamp);
      fill(this.#fault, reasonOf(problem));
    }
  }

  /** Change rows in place that were held, and those whose events were missed. */
  async #catchUp() {
    if (this.#isHeld()) return;
    for (const { type, job } of this.#held.values()) this.#place(job, type === "job.deleted");
    this.#held.clear();
    if (this.#isBehind) {
      this.#isBehind = false;
      const { jobs } = await this.#page("");
      const known = this.table.rows.map(({ id }) => id).slice(0, 1_000);
      const { ended, missing } = known.length ? await post("jobs/wait", { jobs: known }) : { ended: [], missing: [] };
      for (const job of [...jobs, ...ended]) this.#place(job);
      for (const id of missing) this.#place({ id }, true);
    }
    this.#showNews();
  }

  /** Count the jobs that have become due: no event says so. */
  async #countDue() {
    const query = new URLSearchParams(this.query);
    query.delete("order");
    this.#due = (await this.#page("", [...listParams(query), ["due_after", this.#readAt]], 1)).count.n;
    this.#showNews();
  }

  #page(cursor, params = this.params, limit = JOBS_PER_PAGE) {
    const pairs = [["limit", limit], ["view", "line"], ["count", "true"], ["cursor", cursor]];
    return get("jobs", new URLSearchParams([...params, ...pairs.filter(([, value]) => value)]));
  }

  /** Change the row of an event; new jobs wait behind a button. */
  #hear({ type, job }) {
    if (!job) return;
    if (this.table.find(job.id) && this.#isHeld()) this.#held.set(job.id, { type, job });
    else this.#place(job, type === "job.deleted");
    this.#showNews();
  }

  /** Return whether rows stay as they are: somebody selects, reads or confirms. */
  #isHeld = () => this.table.chosen.size > 0 || live.isPaused || document.querySelector("dialog[open]") ||
    !getSelection().isCollapsed;

  #place(job, isDeleted = false) {
    const known = this.table.find(job.id);
    const isGone = isDeleted || !this.#matches(job);
    if (!known) this.#news[isGone || this.word === "due" ? "delete" : "add"](job.id);
    else if (isDeleted || known.version <= job.version) this.table.update({ ...known, ...job }, isGone);
  }

  #matches(job) {
    const [after, before] = ["due_after", "due_before"].map((name) => Date.parse(this.params.get(name)));
    const due = Date.parse(job.due_at);
    return (!this.states.length || this.states.includes(job.state)) && !(due < after) && !(due >= before);
  }

  #showNews() {
    const news = this.#news.size + this.#due;
    const isShown = news > 0 && !live.isPaused && !UNCHECKED.test(this.params);
    const show = () => this.#load("", this.table.rows.length + news);
    fill(this.#newer, isShown && action(`Show ${number(news)} new`, show));
  }

  #showTabs(stats) {
    const numberOf = (word) => stats && word && !this.isFiltered && h("small", ` ${number(stats.jobs[word])}`);
    fill(this.#tabs, TABS.map((word) => link(this.#at({ state: word, order: "" }),
      [stateWord(word || "all"), numberOf(word)],
      { "aria-current": (word ? this.words.includes(word) : !this.word) && "page" })));
  }

  /** Return the address of this list with other parameters. */
  #at(change) {
    const query = new URLSearchParams(this.query);
    for (const [name, value] of Object.entries(change)) value ? query.set(name, value) : query.delete(name);
    return `#/jobs?${query}`;
  }

  #none({ next, scanned }) {
    const clear = link("#/jobs", "Clear filters");
    const more = () => action("Search more", () => this.#load(next));
    if (next) return [`No matching jobs. Searched the newest ${number(scanned)}. `, more(), " ", clear];
    const about = this.query.has("key") && "A word alone is an id or a key. ";
    if (this.isFiltered) return ["No matching jobs. ", about, clear];
    if (this.word) return `No ${this.name} jobs.`;
    return ["No jobs yet. ", can("submit") && [link("#/submit", "Submit one here"), ", or run: "],
      h("code", `curl ${urlOf("jobs")} -H 'Content-Type: application/json' -d '{"kind": "echo"}'`)];
  }

  #search() {
    const without = new URLSearchParams(this.query);
    without.delete("state");
    const text = input(write(without), { type: "search", placeholder: EXAMPLE, "aria-label": "Search jobs" });
    const onsubmit = (event) => {
      event.preventDefault();
      const address = this.#typed(text.value);
      if (address === location.hash) this.#load();
      else if (address) location.hash = address;
    };
    return h("form.search", { role: "search", onsubmit }, text, submitButton("Search", "button"),
      this.#views(text));
  }

  /** Return the address of a search in the states of this list, or say what is wrong with it. */
  #typed(text) {
    const { id, params, faults } = read(text);
    fill(this.#fault, [...new Set(faults)].join(" "));
    if (!params.has("state")) this.words.forEach((one) => params.append("state", one));
    return faults.length ? null : id ? at("jobs", id) : `#/jobs?${params}`;
  }

  /** Searches that were saved in this browser. */
  #views(text) {
    let saved = JSON.parse(localStorage.getItem(VIEWS) || "{}");
    const options = () =>
      [["", "Saved searches"], ...Object.keys(saved), ["+", "Save this search"], ["-", "Forget all"]];
    const node = choice(options(), "", (name) => {
      const what = name === "+" && text.value.trim();
      const address = what && this.#typed(what);
      if (address) saved[what] = address;
      else if (what === "") fill(this.#fault, "Type the search to save.");
      else if (name === "-") saved = {};
      else if (saved[name]) location.hash = saved[name];
      localStorage.setItem(VIEWS, JSON.stringify(saved));
      fill(node, optionsOf(options(), ""));
    }, { "aria-label": "Saved searches" });
    return node;
  }

  #orders() {
    const others = this.word === "due" ? this.query.getAll("queue").length === 1 && ["due_at", "next", "last"]
      : { scheduled: ["created", "due_at"], running: ["created", "started_at"] }[this.word]
        || (this.words.every((one) => FINAL.includes(one)) && this.word && ["created", "finished_at"]);
    if (!others) return null;
    const options = others.map((name) => [name, JOB_ORDERS[name]]);
    const order = this.query.get("order") || others[0];
    const pick = choice(options, order, (name) => (location.hash = this.#at({ order: name })));
    return h("label", "order ", pick);
  }

  #showSelection() {
    const { chosen } = this.table;
    const due = this.word === "due" && { due_before: fromNow(0) };
    const matching = () => ({ ...operationFilter(this.params), ...due, created_before: fromNow(0.001) });
    const all = this.#buttons("button.link", matching, "All jobs that match the search");
    fill(this.#selection, chosen.size > 0 && [
      h("b", `${number(chosen.size)} selected`),
      this.#buttons("button", () => ({ jobs: [...chosen] }), count(chosen.size, "selected job")),
      action("Clear", () => this.table.clear()),
      this.#next && all.length > 0 && h("span.soft", "or all that match: ", all),
    ]);
  }

  #buttons(spec, filter, what) {
    const isFor = ([name, [, states]]) =>
      can(scopeOf(name)) && (!this.states.length || this.states.some((one) => states.includes(one)));
    return Object.entries(ACTS).filter(isFor)
      .map(([name, [text]]) => button(text, () => this.#act(name, filter(), what), {}, spec));
  }

  #onRows(name) {
    const { chosen, current } = this.table;
    const asked = chosen.size ? [...chosen] : current ? [current.id] : [];
    if (!asked.length || !can(scopeOf(name))) return;
    const jobs = asked.filter((id) => ACTS[name][1].includes(this.table.find(id).state));
    if (jobs.length) this.#act(name, { jobs }, count(jobs.length, "selected job"));
    else complain({ code: "wrong_state", job: this.table.find(asked[0]) });
  }

  async #act(name, filter, what) {
    const more = name === "patch" ? await askForTime() : {};
    if (more && (await bulk(name, filter, what, more))) this.table.clear();
  }
}

const scopeOf = (name) => (name === "cancel" || name === "delete" ? "cancel" : "submit");

/** Ask for the time of many jobs; return what an operation takes, or null. */
const askForTime = () => ask({
  title: "Reschedule jobs", verb: "Count jobs",
  entries: [["time", "Time", "+1h", "+1h: later. -30m: earlier. 2h: from now. Or an instant: 2026-12-01T09:00+01:00."]],
  act: ({ time }) => (/^[+-]/.test(time) ? { shift: time.replace("+", "") } : { set: timeField(time) }),
});

/** Return the parameters of the list for the query of the screen. */
function listParams(query) {
  const params = instants(query);
  if (params.get("state") !== "due") return params;
  const order = params.get("order") || "due_at";
  params.set("state", "scheduled");
  params.set("order", order === "last" ? "next" : order);
  if (order === "last") params.set("reverse", "true");
  if (order === "due_at") params.set("due_before", fromNow(0));
  return params;
}

function whenOf(job) {
  if (job.state === "scheduled") return when(job.due_at, Date.parse(job.due_at) < now() ? "overdue" : "both");
  return when(job.state === "running" ? job.started_at : job.finished_at);
}

/** Return the key, the labels, and the error or the beginning of the params, without secrets. */
function aboutOf(job) {
  const isOver = job.error && FINAL.includes(job.state);
  const text = isOver ? h("span.preview", job.error.message)
    : h("span.preview.mono", job.params_preview && withoutSecrets(job.params_preview));
  return [job.key && h("b.label", job.key), labelsOf(job.labels), text];
}
