/** One job: why it waits, what happened to it, what it carries, and everything that can be done to it. */

import { call, get, pathOf, Problem, urlOf } from "./api.js";
import { share } from "./chart.js";
import { announce, ask, complain } from "./dialog.js";
import { button, facts, field, fill, link, make, panel } from "./dom.js";
import { seconds } from "./filter.js";
import { json, pretty } from "./json.js";
import { every, sleep, visible } from "./live.js";
import { can } from "./session.js";
import { count, duration, now, number, shortId, state, timeOf, when } from "./text.js";

const KEPT = 20;

export function show({ main, path: [id], signal, title }) {
  const screen = new Screen(id, signal, title);
  fill(main, screen.node);
  screen.follow();
  return { keys: screen.keys, ready: screen.ready };
}

class Screen {
  #etag = null;
  #job = null;

  constructor(id, signal, title) {
    Object.assign(this, { id, signal, title });
    this.ready = new Promise((resolve) => (this.isReady = resolve));
    this.head = make("div", { class: "heading" }, make("h1", { tabindex: "-1", class: "mono" }, shortId(id)));
    this.now = make("div", { class: "now" });
    this.why = panel("Why it waits", { name: "why" });
    this.why.node.hidden = true;
    this.actions = make("div", { class: "actions" });
    this.time = panel("Timeline");
    this.data = panel("Params", { name: "data" });
    this.about = panel("About");
    this.node = [this.head, this.now, this.actions, this.why.node, make("div", { class: "two job" }, this.time.node, this.about.node), this.data.node];
    const when = (allowed, act) => () => this.#job && allowed(this.#job) && act();
    this.keys = {
      r: when((job) => can("submit") && ["failed", "cancelled", "expired"].includes(job.state), () => this.#do("retry")),
      c: when((job) => can("cancel") && isLive(job), () => this.#cancel()),
      u: when((job) => can("submit") && job.state === "scheduled", () => this.#do("run")),
      e: when((job) => can("submit") && job.state === "scheduled", () => this.#edit()),
    };
  }

  /** Show each new version of the job while the tab is visible. */
  async follow() {
    this.title(`${shortId(this.id)}`);
    every(5, () => this.#explain(), this.signal);
    while (!this.signal.aborted) {
      await visible();
      try {
        const headers = this.#etag ? { "If-None-Match": this.#etag } : {};
        const query = this.#etag ? { wait: 25 } : {};
        const answer = await call("GET", pathOf("jobs", this.id), { query, headers, signal: this.signal, patience: 60_000 });
        if (answer.status !== 304) this.#show(answer.json, answer.headers.get("ETag"));
        if (!isLive(this.#job)) await sleep(3_000, this.signal);
      } catch (problem) {
        if (this.signal.aborted) return;
        this.#fail(problem);
        await sleep(problem.status === 404 ? 30_000 : 3_000, this.signal);
      }
    }
  }

  #show(job, etag) {
    this.#etag = etag || `"${job.version}"`;
    this.#job = job;
    this.title(`${job.kind} ${shortId(job.id)}`);
    fill(this.head.firstChild, job.id);
    fill(this.head, this.head.firstChild, make("p", { class: "soft" }, job.kind, " · ", link(`#/queues/${encodeURIComponent(job.queue)}`, job.queue), job.key ? ` · ${job.key}` : "", " ",
      Object.entries(job.labels).map(([name, value]) => make("span", { class: "label" }, `${name}=${value}`)), make("span", { class: "stamp" }, `version ${job.version}`)));
    fill(this.now, headline(job));
    fill(this.actions, this.#buttons(job));
    fill(this.time.body, timeline(job));
    fill(this.about.body, details(job));
    showData(this.data.body, job);
    this.why.node.hidden = job.state !== "scheduled";
    this.#explain();
    this.isReady();
  }

  #fail(problem) {
    if (problem.status === 404) fill(this.now, make("p", { class: "fault" }, this.#job ? "This job was deleted." : problem.detail));
    else this.time.fail(problem);
    this.actions.hidden = problem.status === 404;
  }

  async #explain() {
    if (!this.#job || this.#job.state !== "scheduled") return;
    try {
      const { summary, blockers, ahead, ahead_is_more: isMore, start } = await get(pathOf("jobs", this.id, "explain"), {}, this.signal);
      fill(this.why.body, make("p", { class: "lead" }, summary),
        blockers.length ? make("ol", { class: "blockers" }, blockers.map((one) => make("li", {}, make("b", {}, one.type), make("span", {}, one.detail), remedy(one, this.#job)))) : "",
        make("p", { class: "soft" }, `${number(ahead)}${isMore ? "+" : ""} ahead`, start.likely ? [" · likely start ", when(start.likely)] : "", start.basis ? ` (${start.basis})` : ""));
      this.why.fresh(`as of ${timeOf(now())}`);
    } catch (problem) {
      if (!this.signal.aborted) this.why.fail(problem);
    }
  }

  #buttons(job) {
    const isWaiting = job.state === "scheduled";
    const canRetry = ["failed", "cancelled", "expired"].includes(job.state);
    return [
      isWaiting && can("submit") ? [button("Run now", () => this.#do("run")), button("Reschedule", () => this.#reschedule()), button("Edit", () => this.#edit())] : "",
      canRetry && can("submit") ? button("Retry", () => this.#do("retry"), { sort: "main" }) : "",
      isLive(job) && can("cancel") ? button("Cancel", () => this.#cancel(), { disabled: job.cancel_requested }) : "",
      job.state !== "running" && can("cancel") ? button("Delete", () => this.#remove()) : "",
      can("submit") ? link(`#/submit?from=${job.id}`, "Duplicate", { class: "button plain" }) : "",
      button("Copy ID", () => copy(job.id, "ID")), button("Copy as JSON", () => copy(pretty(job), "JSON")), button("Copy as curl", () => copy(`curl ${urlOf(pathOf("jobs", job.id))}`, "Command")),
      can("submit") ? "" : make("span", { class: "soft" }, "This key can view jobs but not change them."),
    ];
  }

  async #do(action, body = {}) {
    try {
      const answer = await call("POST", pathOf("jobs", this.id, action), { body, headers: { "If-Match": this.#etag } });
      this.#show(answer.json, answer.headers.get("ETag"));
      announce({ run: "Due now.", retry: "Scheduled again.", cancel: answer.status === 202 ? "Asked to stop." : "Cancelled." }[action]);
    } catch (problem) {
      if (problem.job) this.#show(problem.job);
      complain(problem.status === 412 ? new Problem(412, { title: "This job has changed meanwhile", detail: "Look again, then repeat the action." }) : problem);
      this.#etag = null;
    }
  }

  async #cancel() {
    const reason = make("input", { maxlength: 500 });
    await ask({ title: "Cancel this job?", verb: "Cancel job", isBad: true, body: [make("p", {}, this.#job.state === "running" ? "It is running and will be asked to stop." : "It will not run."), field("Reason", reason, { about: "Optional; kept with the job." })], act: () => this.#do("cancel", reason.value ? { reason: reason.value } : {}) });
  }

  async #remove() {
    const isGone = await ask({ title: "Delete this job?", verb: "Delete job", isBad: true, body: make("p", {}, "Its history and result are gone too."), act: () => call("DELETE", pathOf("jobs", this.id), { headers: { "If-Match": this.#etag } }) });
    if (isGone) {
      announce("Deleted.");
      location.hash = "#/jobs";
    }
  }

  async #reschedule() {
    const job = await reschedule(this.#job);
    if (job) this.#show(job);
  }

  async #edit() {
    const job = await edit(this.#job);
    if (job) this.#show(job);
  }
}

/** Ask for a new time of a job and set it; return the job, or null. */
export async function reschedule(job) {
  const time = make("input", { value: "1h", autocomplete: "off" });
  return ask({
    title: "Reschedule", verb: "Reschedule",
    body: [make("p", { class: "soft" }, "Due ", when(job.due_at)), field("New time", time, { pointer: "/delay", about: "A delay from now such as 90s, 2h, 1d, or an instant such as 2026-12-01T09:00+01:00." })],
    act: async () => (await change(job, timeField(time.value))).json,
  });
}

/** Return a time as a field of a submit or a change. */
export function timeField(text) {
  return seconds(text) === null && /^\d{4}-/.test(text.trim()) ? { execute_at: text.trim() } : { delay: text.trim() };
}

/** Edit the fields of a waiting job; return the job, or null. */
async function edit(job) {
  let base = job;
  const inputs = editInputs(job);
  const draft = () => {
    const fields = {};
    for (const [name, { read, before }] of Object.entries(inputs)) {
      const value = read();
      if (JSON.stringify(value) !== JSON.stringify(before)) fields[name] = value;
    }
    return fields;
  };
  return ask({
    title: "Edit job", verb: "Save", wide: true,
    body: Object.entries(inputs).map(([name, { control, label, about }]) => field(label, control, { pointer: `/${name}`, about })),
    act: async () => {
      try {
        return (await change(base, draft())).json;
      } catch (problem) {
        if (problem.status !== 412) throw problem;
        base = await get(pathOf("jobs", job.id));
        throw new Error(`This job was changed by someone else and is at version ${base.version}. Save again to apply your changes to it.`);
      }
    },
  });
}

function editInputs(job) {
  const text = (value) => make("input", { value: String(value), inputmode: "decimal" });
  const area = (value) => make("textarea", { value: pretty(value), rows: 6, spellcheck: "false", class: "mono" });
  const [params, labels, priority, timeout, attempts] = [area(job.params), area(job.labels), text(job.priority), text(job.timeout), text(job.retry.max_attempts)];
  return {
    params: { label: "Params", control: params, before: job.params, read: () => readJson(params.value, "Params") },
    labels: { label: "Labels", control: labels, before: job.labels, read: () => readJson(labels.value, "Labels") },
    priority: { label: "Priority", control: priority, before: job.priority, read: () => Number(priority.value), about: "-100 to 100; higher goes first among due jobs." },
    timeout: { label: "Timeout", control: timeout, before: job.timeout, read: () => (seconds(timeout.value) ?? timeout.value), about: "Seconds, or 90s, 2m, 1h." },
    retry: { label: "Attempts", control: attempts, before: { max_attempts: job.retry.max_attempts }, read: () => ({ max_attempts: Number(attempts.value) }), about: "At most, the first included." },
  };
}

/** Parse JSON that somebody has typed; the error says where it is wrong. */
export function readJson(text, name) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Error(`${name} is not JSON: ${error.message}`);
  }
}

const change = (job, fields) => call("PATCH", pathOf("jobs", job.id), { body: fields, headers: { "If-Match": `"${job.version}"` } });

const isLive = (job) => job !== null && (job.state === "scheduled" || job.state === "running");

function headline(job) {
  const shown = state(job);
  const policy = `attempt ${job.attempt + (job.state === "scheduled" ? 1 : 0)} of ${job.retry.max_attempts}`;
  if (job.state === "scheduled") return make("p", { class: "lead" }, shown, make("span", {}, job.attempt ? "Next attempt " : "Due ", when(job.due_at), make("span", { class: "soft" }, ` (${policy})`)));
  if (job.state === "running") return make("p", { class: "lead" }, shown, make("span", { class: "soft" }, `${policy}, timeout ${duration(job.timeout)}`));
  return [make("p", { class: "lead" }, shown, make("span", {}, when(job.finished_at), make("span", { class: "soft" }, ` (${policy})`))), job.error ? make("p", { class: "error" }, make("b", {}, job.error.type), " ", job.error.message) : ""];
}

function remedy({ type, clears_at: at }, job) {
  if (type === "pause" && can("admin")) return button("Resume", () => call("POST", pathOf("queues", job.queue, "resume"), { body: {} }).then(() => announce(`${job.queue} resumed.`), complain), { sort: "link" });
  return at ? when(at) : make("span", {});
}

function timeline(job) {
  const longest = Math.max(...job.attempts.map(took), 0.001);
  const missing = job.attempt - job.attempts.length;
  return make("ol", { class: "timeline" },
    make("li", {}, make("b", {}, "created"), when(job.created_at, "absolute"), make("span", { class: "soft" }, job.submitted_by ? `by ${job.submitted_by}` : "")),
    job.attempts.length >= KEPT && missing > 0 ? make("li", { class: "soft" }, `${number(missing)} earlier attempts are not kept`) : "",
    job.attempts.map((attempt) => attemptItem(attempt, longest)),
    job.state === "running" ? make("li", {}, make("b", {}, `${job.attempt}`), state(job), when(job.started_at, "absolute")) : "",
    job.state === "scheduled" ? make("li", { class: "next" }, make("b", {}, job.attempt ? `${job.attempt + 1}` : "due"), when(job.due_at)) : "");
}

const took = ({ started_at: start, finished_at: end }) => (Date.parse(end) - Date.parse(start)) / 1000;

function attemptItem(attempt, longest) {
  const word = attempt.outcome === "succeeded" ? "succeeded" : attempt.outcome === "released" || attempt.outcome === "cancelled" ? "cancelled" : "failed";
  const output = attempt.output ? make("details", {}, make("summary", {}, "output"), make("pre", { tabindex: "0" }, attempt.output)) : "";
  return make("li", {}, make("b", {}, String(attempt.number)), state({ state: word, error: null }).firstChild, make("span", { class: `outcome ${word}` }, attempt.outcome),
    when(attempt.started_at, "absolute"), make("span", { class: "soft" }, `late ${duration(attempt.late_by)}, took ${duration(took(attempt))}`),
    share(took(attempt), longest * 1.001), attempt.worker ? make("span", { class: "soft" }, attempt.worker) : "",
    attempt.error ? make("p", { class: "message" }, attempt.error.message) : "", output);
}

function details(job) {
  const { retry } = job;
  return facts([
    ["execute at", job.local_time ? `${job.local_time} ${job.zone}` : when(job.execute_at, "absolute")], ["expires at", job.expires_at && when(job.expires_at)],
    ["late by", job.late_by === null ? null : duration(job.late_by)], ["priority", String(job.priority)], ["timeout", duration(job.timeout)],
    ["retry", `${count(retry.max_attempts, "attempt")}, ${duration(retry.delay)} × ${retry.factor}, at most ${duration(retry.max_delay)}, ± ${Math.round(retry.jitter * 100)} %`],
    ["schedule", job.schedule && link(`#/schedules/${encodeURIComponent(job.schedule)}`, job.schedule)], ["occurrence", job.occurrence && when(job.occurrence, "absolute")],
    ["callback of", job.callback_of && link(`#/jobs/${job.callback_of}`, shortId(job.callback_of))],
    ["on finish", job.on_finish && [job.on_finish.url, job.on_finish.job ? [" ", link(`#/jobs/${job.on_finish.job}`, shortId(job.on_finish.job))] : ""]],
  ]);
}

function showData(body, job) {
  const shown = [["Params", job.params], ["Result", job.result], ["Error", job.error], ["Raw", job]].filter(([, value]) => value !== null && value !== undefined);
  const before = body.querySelector("[aria-selected=true]")?.textContent;
  const view = make("div", { role: "tabpanel" });
  const pick = (name) => {
    for (const tab of tabs.children) tab.setAttribute("aria-selected", String(tab.textContent === name));
    const value = shown.find(([one]) => one === name)[1];
    fill(view, json(value, name), name === "Result" && job.result_truncated ? make("p", { class: "soft" }, "The result was longer and is cut.") : "",
      /"(?:[^"]*)(token|secret|passw|authorization)/i.test(JSON.stringify(value)) && name === "Params" ? make("p", { class: "soft" }, "Secrets in params are stored with the job. In headers of webhooks, write {secret:name} instead.") : "");
  };
  const tabs = make("div", { class: "tabs", role: "tablist" }, shown.map(([name]) => make("button", { type: "button", role: "tab", class: "link", onclick: () => pick(name) }, name)));
  body.closest(".panel").querySelector("header").hidden = true;
  fill(body, tabs, view);
  pick(shown.some(([name]) => name === before) ? before : "Params");
}

async function copy(text, what) {
  try {
    await navigator.clipboard.writeText(text);
    announce(`${what} copied.`);
  } catch {
    ask({ title: `Copy ${what}`, verb: "Close", body: make("textarea", { value: text, rows: 8, class: "mono" }), act: async () => true });
  }
}
