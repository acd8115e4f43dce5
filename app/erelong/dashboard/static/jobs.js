/** The list of jobs: search, states, live rows, selection, and actions on many. */

import { ask, bulk, submitButton } from "./dialog.js";
import {
  action, button, choice, fill, go, h, input, jobLink, labelsOf, link, optionsOf, state, when,
} from "./dom.js";
import { operationFilter, read, timeField, write } from "./filter.js";
import { editJob } from "./job.js";
import { can, every, get, live, onStats, post, reasonOf, stream, urlOf } from "./service.js";
import { Table } from "./table.js";
import { asOf, count, fromNow, now, number, withoutSecrets } from "./text.js";

const TABS = [
  ["scheduled", "Waiting"], ["due", "Due"], ["running", "Running"], ["succeeded", "Succeeded"], ["failed", "Failed"],
  ["cancelled", "Cancelled"], ["expired", "Expired"], ["", "All"],
];
const FINAL = ["succeeded", "failed", "cancelled", "expired"];
const JOB_ORDERS = {
  created: "newest first", due_at: "due first", finished_at: "latest end first", started_at: "longest running first",
  next: "starts first", last: "starts last",
};
const STREAMED = ["queue", "kind", "key", "schedule"];
const JOBS_PER_PAGE = 100;
const EXAMPLE = "id or key, or queue:mail kind:http label.tenant:t1 error:timeout due:<1h";
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
    const word = query.get("state") || "";
    Object.assign(this, { query, params, states, word });
    this.isFinal = states.length > 0 && states.every((one) => FINAL.includes(one));
    this.ready = this.#first.promise;
    this.name = TABS.find(([one]) => one === word)?.[1] || word;
    this.isFiltered = [...query.keys()].some((name) => name !== "order" && name !== "state");
    const table = new Table({
      caption: "Jobs", columns: COLUMNS, key: "id", open: ({ id }) => go("jobs", id),
      selected: () => this.#showSelection(),
    });
    const bar = h("div.toolbar", this.#search(), this.#orders(), this.#stamp);
    const heading = h("h1.hidden", "Jobs");
    this.nodes = [heading, this.#tabs, bar, this.#fault, this.#selection, this.#newer, table.node, this.#foot];
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
    const asked = [...this.params].filter(([name]) => STREAMED.includes(name) || name.startsWith("label."));
    stream(new URLSearchParams(asked), (event) => this.#hear(event), () => (this.#isBehind = true));
    every(1, () => this.#catchUp());
  }

  /** Show the first page, or add the one after the cursor. */
  async #load(cursor = "") {
    fill(this.#stamp, "Loading…");
    try {
      const found = await this.#page(cursor);
      const jobs = [...(cursor ? this.table.rows : []), ...found.jobs];
      this.#next = found.next;
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
      const listed = new Set(jobs.map(({ id }) => id));
      const others = this.table.rows.map(({ id }) => id).filter((id) => !listed.has(id)).slice(0, 1_000);
      const { ended, missing } = others.length ? await post("jobs/wait", { jobs: others }) : { ended: [], missing: [] };
      for (const job of [...jobs, ...ended]) this.#place(job);
      for (const id of missing) this.#place({ id }, true);
    }
    this.#showNews();
  }

  #page(cursor) {
    const pairs = [["limit", JOBS_PER_PAGE], ["view", "line"], ["count", "true"], ["cursor", cursor]];
    return get("jobs", new URLSearchParams([...this.params, ...pairs.filter(([, value]) => value)]));
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
    if (!known) this.#news[isGone ? "delete" : "add"](job.id);
    else if (isDeleted || known.version <= job.version) this.table.update({ ...known, ...job }, isGone);
  }

  #matches(job) {
    const [after, before] = ["due_after", "due_before"].map((name) => Date.parse(this.params.get(name)));
    const due = Date.parse(job.due_at);
    return (!this.states.length || this.states.includes(job.state)) && !(due < after) && !(due >= before);
  }

  #showNews() {
    const isShown = this.#news.size > 0 && !live.isPaused;
    fill(this.#newer, isShown && action(`Show ${number(this.#news.size)} new`, () => this.#load()));
  }

  #showTabs(stats) {
    const numberOf = (word) => stats && word && !this.isFiltered && h("small", ` ${number(stats.jobs[word])}`);
    fill(this.#tabs, TABS.map(([word, text]) => link(this.#at({ state: word, order: "" }), [text, numberOf(word)],
      { "aria-current": word === this.word && "page" })));
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
    const about = this.query.has("key") && "A word alone is a whole id or a whole key. ";
    if (this.isFiltered) return ["No matching jobs. ", about, clear];
    if (this.word) return `No ${this.name.toLowerCase()} jobs.`;
    const body = `{"kind": "echo", "params": {"hello": "world"}, "delay": "1h"}`;
    return ["No jobs yet. ", can("submit") && [link("#/submit", "Submit one here"), ", or run: "],
      h("code", `curl ${urlOf("jobs")} -H 'Content-Type: application/json' -d '${body}'`)];
  }

  #search() {
    const without = new URLSearchParams(this.query);
    without.delete("state");
    const text = input(write(without), { type: "search", placeholder: EXAMPLE, "aria-label": "Search jobs" });
    const onsubmit = (event) => {
      event.preventDefault();
      const { id, params, faults } = read(text.value);
      if (faults.length) return fill(this.#fault, [...new Set(faults)].join(" "));
      if (id) return go("jobs", id);
      if (this.word && !params.has("state")) params.set("state", this.word);
      location.hash = `#/jobs?${params}`;
    };
    return h("form.search", { role: "search", onsubmit }, text, submitButton("Search", "button"),
      this.#views(text));
  }

  /** Searches that were saved in this browser. */
  #views(text) {
    const saved = JSON.parse(localStorage.getItem(VIEWS) || "{}");
    const options = () =>
      [["", "Saved searches"], ...Object.keys(saved), ["+", "Save this search"], ["-", "Forget all"]];
    const node = choice(options(), "", (name) => {
      if (name === "+" && text.value.trim()) saved[text.value.trim()] = `#/jobs?${this.query}`;
      else if (name === "-") Object.keys(saved).forEach((one) => delete saved[one]);
      else if (saved[name]) location.hash = saved[name];
      localStorage.setItem(VIEWS, JSON.stringify(saved));
      fill(node, optionsOf(options(), ""));
    }, { "aria-label": "Saved searches" });
    return node;
  }

  #orders() {
    const [only] = this.states.length === 1 ? this.states : [];
    const others = this.word === "due" ? this.query.getAll("queue").length === 1 && ["due_at", "next", "last"]
      : { scheduled: ["created", "due_at"], running: ["created", "started_at"] }[only]
        || (this.isFinal && ["created", "finished_at"]);
    if (!others) return null;
    const options = others.map((name) => [name, JOB_ORDERS[name]]);
    const order = this.query.get("order") || others[0];
    const pick = choice(options, order, (name) => (location.hash = this.#at({ order: name })));
    return h("label.order", "order ", pick);
  }

  #showSelection() {
    const { chosen } = this.table;
    const due = this.word === "due" && { due_before: fromNow(0) };
    const matching = () => ({ ...operationFilter(this.params), ...due, created_before: fromNow(0.001) });
    fill(this.#selection, chosen.size > 0 && [
      h("b", `${number(chosen.size)} selected`),
      this.#buttons("button", () => ({ jobs: [...chosen] }), count(chosen.size, "selected job")),
      action("Clear", () => this.table.clear()),
      this.#next && h("span.soft", "or all that match: ",
        this.#buttons("button.link", matching, "All jobs that match the search")),
    ]);
  }

  #buttons(spec, filter, what) {
    const isOpen = !this.isFinal;
    const isOver = this.isFinal || !this.states.length;
    const all = { run: "Run now", patch: "Reschedule", retry: "Retry", cancel: "Cancel", delete: "Delete" };
    const may = { run: isOpen, patch: isOpen, retry: isOver, cancel: isOpen, delete: true };
    const names = Object.keys(all).filter((name) => may[name] && can(scopeOf(name)));
    return names.map((name) => button(all[name], () => this.#act(name, filter(), what), {}, spec));
  }

  #onRows(name) {
    const { chosen, current } = this.table;
    const jobs = chosen.size ? [...chosen] : current ? [current.id] : [];
    if (jobs.length && can(scopeOf(name))) this.#act(name, { jobs }, count(jobs.length, "selected job"));
  }

  async #act(name, filter, what) {
    const more = name === "patch" ? await askForTime() : {};
    if (more && (await bulk(name, filter, what, more))) this.table.clear();
  }
}

const scopeOf = (name) => (name === "cancel" || name === "delete" ? "cancel" : "submit");

/** Ask for the time of many jobs; return what an operation takes, or null. */
const askForTime = () => ask({
  title: "Reschedule jobs", verb: "Count jobs", about: "Moves each job by a time, or all to one time.",
  entries: [["time", "Time", "+1h", "+1h: later. -30m: earlier. 2h: from now. Or an instant: 2026-12-01T09:00+01:00."]],
  act: ({ time }) => (/^[+-]/.test(time) ? { shift: time.replace("+", "") } : { set: timeField(time) }),
});

/** Return the parameters of the list for the query of the screen. */
function listParams(query) {
  const params = new URLSearchParams(query);
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
