/** One job: why it waits, what happened to it, what it carries, and everything that can be done to it. */

import { shares } from "./chart.js";
import { announce, ask, complain, REASON } from "./dialog.js";
import {
  WAITING, action, at, button, facts, fill, go, h, icon, jobLink, labelsOf, link, linkButton, menu, panel, state, when,
} from "./dom.js";
import { json, masked, numberOf, pretty, readJson, unmasked } from "./form.js";
import { pauseQueueButton } from "./queues.js";
import { call, can, every, get, live, screen, sleep, visible } from "./service.js";
import { draftOf, requestsOf, timeControl } from "./submit.js";
import { count, duration, isSet, number, shortId, stateWord } from "./text.js";

const SECRETS = "Secrets in params are stored with the job. Webhooks can use {secret:name} instead.";
const CHANGED = "This job was changed by someone else. Check it, then try again.";
const TIMED = ["time", "retry"];
const KEPT_ATTEMPTS = 20;
const PATIENCE = 25; // seconds
export const LIVE = ["scheduled", "running"];
export const OVER = ["failed", "cancelled", "expired"];

export function showJob({ main, args: [id], title }) {
  const shown = new Job(id, title);
  fill(main, shown.nodes);
  shown.follow(screen.signal);
  return shown;
}

class Job {
  #etag = null;
  #job = null;

  constructor(id, title) {
    Object.assign(this, { id, title });
    this.head = h("div.heading", h("h1.mono", id));
    this.now = h("div");
    this.actions = h("div.actions");
    this.why = panel("Why it waits");
    this.time = panel("Timeline");
    this.about = panel("About");
    this.data = panel("Data");
    this.nodes = [
      this.head, this.now, this.actions, this.why.node, h("div.two", this.time.node, this.about.node), this.data.node];
    this.ready = this.time.ready;
    this.why.node.hidden = true;
    const may = (scope, states, act) => () => can(scope) && states.includes(this.#job.state) && act();
    this.keys = {
      r: may("submit", OVER, () => this.#do("retry")), c: may("cancel", LIVE, () => this.#cancel()),
      u: may("submit", ["scheduled"], () => this.#do("run")),
      e: may("submit", ["scheduled", ...OVER], () => this.#change(editJob)),
    };
  }

  /** Show each new version of the job. */
  async follow(signal) {
    this.title(shortId(this.id));
    every(5, () => this.#explain(), this.why.fail);
    while (!signal.aborted) {
      await visible();
      const isLive = LIVE.includes(this.#job?.state);
      const known = this.#etag && { query: { wait: isLive ? PATIENCE : 0 }, headers: { "If-None-Match": this.#etag } };
      try {
        const options = { ...known, signal, patience: 2 * PATIENCE };
        const { status, json: job, etag } = await call("GET", ["jobs", this.id], options);
        const isHeld = this.#job && live.isPaused;
        if (status !== 304 && !isHeld) this.#show(job, etag);
        if (!isLive || isHeld) await sleep(3, signal);
      } catch (problem) {
        if (signal.aborted) return;
        if (problem.status === 404) this.#lose(problem);
        else this.time.fail(problem);
        await sleep(3, signal);
      }
    }
  }

  #show(job, etag = `"${job.version}"`) {
    this.#etag = etag;
    this.#job = job;
    this.title(`${job.kind} ${shortId(job.id)}`);
    const queue = link(at("queues", job.queue), job.queue);
    const about = h("p.soft", job.kind, " · ", queue, job.key && ` · ${job.key}`, " ", labelsOf(job.labels));
    fill(this.head, this.head.firstChild, about, h("span.stamp", `version ${job.version}`));
    fill(this.now, headline(job));
    fill(this.actions, this.#buttons(job));
    this.time.show(timeline(job), "");
    this.about.show(detailsOf(job), "");
    showData(this.data, job);
    this.why.node.hidden = job.state !== "scheduled";
    this.#explain().catch(this.why.fail);
  }

  #lose(problem) {
    fill(this.now, h("p.fault", this.#job ? "This job was deleted." : problem.detail));
    fill(this.actions);
    for (const { node } of [this.why, this.time, this.about, this.data]) node.hidden = true;
  }

  async #explain() {
    if (this.#job?.state !== "scheduled") return;
    const { summary, blockers, start } = await get(["jobs", this.id, "explain"]);
    const list = blockers.map((one) =>
      h("li", h("b", WAITING[one.type] || one.type), h("span", detailOf(one)),
        h("span", one.type === "pause" && pauseQueueButton({ name: this.#job.queue, paused: true }))));
    const basis = start.basis && ` (by ${start.basis === "rate" ? "the rate" : "recent starts"})`;
    const likely = start.likely && h("p.soft", "Likely start ", when(start.likely), basis);
    this.why.show([blockers.length ? h("ol.blockers", list) : h("p", summary), likely]);
  }

  #buttons(job) {
    const isWaiting = job.state === "scheduled";
    const { curl, erelong, Python: python } = requestsOf(masked(draftOf(job)));
    const copies = Object.entries(
      { ID: job.id, "as JSON": pretty(job), "as curl": curl, "as erelong": erelong, "as Python": python });
    const copyButton = ([name, text]) => button(`Copy ${name}`, () => copy(text, name));
    return [
      can("submit") && isWaiting && [button("Run now", () => this.#do("run")),
        button("Reschedule", () => this.#change(reschedule)), button("Edit", () => this.#change(editJob))],
      can("submit") && OVER.includes(job.state) && [button("Retry", () => this.#do("retry"), {}, "button.main"),
        button("Edit and retry…", () => this.#change(editJob))],
      can("cancel") && LIVE.includes(job.state) &&
        button("Cancel", () => this.#cancel(), { disabled: job.cancel_requested }),
      can("cancel") && job.state !== "running" && button("Delete", () => this.#remove()),
      can("submit") && linkButton(at("submit", { from: job.id }), "Duplicate"), menu("Copy", copies.map(copyButton)),
      !can("submit") && h("span.soft", `This key can view jobs but not ${can("cancel") ? "run" : "change"} them.`),
    ];
  }

  async #do(name, body = {}) {
    const texts = { run: "Due now.", retry: "Scheduled again.", cancel: "Cancelled." };
    try {
      const headers = { "If-Match": this.#etag };
      const { status, json: job, etag } = await call("POST", ["jobs", this.id, name], { body, headers });
      this.#show(job, etag);
      announce(status === 202 ? "Asked to stop." : texts[name]);
    } catch (problem) {
      if (problem.job) this.#show(problem.job);
      complain(problem.status === 412 ? new Error(CHANGED) : problem);
    }
  }

  #cancel = () => ask({
    title: "Cancel this job?", verb: "Cancel job", isBad: true, entries: [REASON],
    about: this.#job.state === "running" ? "It is running and will be asked to stop." : "It will not run.",
    act: (given) => this.#do("cancel", given),
  });

  async #remove() {
    const isGone = await ask({
      title: "Delete this job?", verb: "Delete job", isBad: true, about: "Its history and result are gone too.",
      said: "Deleted.", act: () => call("DELETE", ["jobs", this.id], { headers: { "If-Match": this.#etag } }),
    });
    if (isGone) go("jobs");
  }

  async #change(dialog) {
    const job = await dialog(this.#job);
    if (job) this.#show(job);
  }
}

/** Ask for a new time of a waiting job and set it; return the job, or null. */
function reschedule(job) {
  const time = timeControl("in");
  const about = [h("span.soft", "Due ", when(job.due_at)), time.node];
  const act = () => sendChange(job, time.read());
  return ask({ title: "Reschedule", verb: "Reschedule", about, said: "Rescheduled.", act });
}

/** Edit a waiting job, or one that is over: that is retried with the changes. Return the job, or null. */
export async function editJob(job) {
  const isOver = OVER.includes(job.state);
  if (!isOver && job.state !== "scheduled") return complain({ code: "wrong_state", job });
  const time = isOver && timeControl("now");
  const all = fieldsOf(job);
  const names = Object.keys(all).filter((name) => !time || !["priority", "labels"].includes(name));
  let base = job;
  const act = async (given, { go: verb }) => {
    const body = time ? time.read() : {};
    for (const name of names) {
      const value = all[name].read(given[name] || "");
      if (pretty(value) !== pretty(all[name].value)) body[name] = value;
    }
    try {
      return await sendChange(base, body);
    } catch (problem) {
      if (problem.status !== 412) throw problem;
      const [mine, theirs] = [fieldsOf(base), await get(["jobs", job.id])];
      const isChanged = ([name, { value }]) => pretty(value) !== pretty(mine[name].value);
      const changes = Object.entries(fieldsOf(theirs)).filter(isChanged);
      base = theirs;
      fill(verb, "Apply my changes");
      const node = facts(changes.map(([, { label, value }]) => [label, `now ${pretty(masked(value))}`]));
      const text = `This job was changed by someone else and is ${stateWord(theirs.state)}, version ${theirs.version}.`;
      throw Object.assign(new Error(text), { node });
    }
  };
  const entries = names.map((name) => [name, all[name].label, all[name].text, all[name].about, all[name].more]);
  const [title, verb, said] = isOver ? ["Edit and retry", "Retry", "Scheduled again."] : ["Edit job", "Save", "Saved."];
  return ask({ title, verb, said, isWide: true, about: time && time.node, entries, act });
}

/** Change a waiting job, or retry one that is over, if nobody else has changed it meanwhile. */
async function sendChange({ id, state: word, version }, body) {
  const options = { body, headers: { "If-Match": `"${version}"` } };
  const isOver = OVER.includes(word);
  return (await call(isOver ? "POST" : "PATCH", ["jobs", id, ...(isOver ? ["retry"] : [])], options)).json;
}

/** Return the fields of a job that can be edited: their values, and how they are written and read. */
function fieldsOf({ params, labels, priority, timeout, retry: { max_attempts: most } }) {
  const text = (label, value, about, read) =>
    ({ label, value: read(String(value)), text: String(value), about, read });
  const whole = (pointer) => (typed) => numberOf(typed, pointer, { isNeeded: true, what: "a whole number" });
  const any = (label, value) => {
    const pointer = `/${label.toLowerCase()}`;
    const read = (typed) => unmasked(readJson(typed, pointer), value, pointer);
    return { label, value, text: pretty(masked(value)), more: { rows: 6 }, read };
  };
  return {
    params: any("Params", params), labels: any("Labels", labels),
    priority: text("Priority", priority, "-100 to 100; higher goes first among due jobs.", whole("/priority")),
    timeout: text("Timeout", timeout, "Seconds, or 90s, 2m, 1h.", (typed) => Number(typed) || typed),
    retry: text("Attempts", most, "At most, the first included.",
      (typed) => ({ max_attempts: whole("/retry")(typed) })),
  };
}

function headline(job) {
  const { attempt, due_at: due, finished_at: end, timeout, error, retry: { max_attempts: most, delay, jitter } } = job;
  const isWaiting = job.state === "scheduled";
  const pause = isWaiting && attempt > 0 && `; retry delay ${duration(delay)} ± ${Math.round(jitter * 100)} %`;
  const policy = h("span.soft", ` (attempt ${attempt + (isWaiting ? 1 : 0)} of ${most}`, pause, ")");
  const text = isWaiting ? [attempt ? "Next attempt " : "Due ", when(due)]
    : job.state === "running" ? h("span.soft", `timeout ${duration(timeout)}`) : when(end);
  const isFailed = error && OVER.includes(job.state);
  return [h("p.lead", state(job), h("span", text, policy)),
    isFailed && h("p.error", h("b", error.type), " ", error.message)];
}

/** Return what a blocker says to people: neither the call that ends it nor instants in UTC. */
function detailOf({ type, detail, value, clears_at: end }) {
  if (TIMED.includes(type)) return when(end);
  return [detail.split("; POST ")[0], type === "pause" && [" since ", when(value, "absolute")]];
}

const between = (start, end) => (Date.parse(end) - Date.parse(start)) / 1000;

function timeline(job) {
  const { attempts, attempt, submitted_by: by } = job;
  const longest = Math.max(...attempts.map((one) => one.late_by + between(one.started_at, one.finished_at)), 0.001);
  const missing = attempts.length >= KEPT_ATTEMPTS && attempt - attempts.length;
  return h("ol.timeline",
    h("li", h("b", "created"), when(job.created_at, "absolute"), by && h("span.soft", `by ${by}`)),
    missing > 0 && h("li.soft", `${number(missing)} earlier attempts are not kept`),
    attempts.map((one, index) => attemptItem(one, attempts[index + 1]?.started_at, longest)),
    job.state === "running" && h("li", h("b", number(attempt)), state(job), when(job.started_at, "absolute")),
    job.state === "scheduled" && h("li.next", h("b", attempt ? number(attempt + 1) : "due"), when(job.due_at)));
}

/** Show an attempt: how late it was and how long it took, with a bar on one scale for all attempts. */
function attemptItem(attempt, nextStart, longest) {
  const { number: nth, started_at: start, finished_at: end, late_by: late, outcome, error, worker, output } = attempt;
  const word = { succeeded: "succeeded", released: "cancelled", cancelled: "cancelled" }[outcome] || "failed";
  const took = between(start, end);
  const waited = nextStart && between(end, nextStart);
  const result = h(`span.${word}`, icon(word), ` ${outcome}`);
  return h("li", h("b", number(nth)), result, when(start, "absolute"),
    h("span.soft", `late ${duration(late)}, took ${duration(took)}`), shares([[late, "late"], [took]], longest),
    worker && h("span.soft", worker), error && h("p", error.message),
    output && h("details", h("summary", "output"), h("pre", { tabindex: "0" }, output)),
    waited > 1 && h("p", `waited ${duration(waited)}`));
}

const detailsOf = ({ retry, ...job }) => facts([
  ["execute at", job.local_time ? `${job.local_time} ${job.zone}` : when(job.execute_at, "absolute")],
  ["expires at", job.expires_at && when(job.expires_at)], ["late by", isSet(job.late_by) && duration(job.late_by)],
  ["priority", number(job.priority)], ["timeout", duration(job.timeout)],
  ["retry", `${count(retry.max_attempts, "attempt")}, ${duration(retry.delay)} × ${retry.factor}, ` +
    `at most ${duration(retry.max_delay)}, ± ${Math.round(retry.jitter * 100)} %`],
  ["schedule", job.schedule && link(at("schedules", job.schedule), job.schedule)],
  ["occurrence", job.occurrence && when(job.occurrence, "absolute")],
  ["callback of", job.callback_of && jobLink(job.callback_of)],
  ["on finish", job.on_finish && [job.on_finish.url, " ", job.on_finish.job && jobLink(job.on_finish.job)]],
]);

function showData({ node, body }, job) {
  const all = { Params: job.params, Result: job.result, Error: job.error, Raw: job };
  const shown = Object.entries(all).filter(([, value]) => isSet(value));
  const pick = (name) => {
    const [, value] = shown.find(([one]) => one === name) || shown[0];
    const isPicked = (one) => ({ role: "tab", "aria-selected": String(one === name) });
    const tabs = shown.map(([one]) => action(one, () => pick(one), isPicked(one)));
    const hasSecret = name === "Params" && pretty(masked(value)) !== pretty(value);
    body.dataset.shown = name;
    const isCut = name === "Result" && job.result_truncated;
    fill(body, h("div.tabs", { role: "tablist" }, tabs), h("div", { role: "tabpanel" }, json(value, name),
      isCut && h("p.soft", "The result was longer and is cut."), hasSecret && h("p.soft", SECRETS)));
  };
  node.querySelector("header").hidden = true;
  pick(shown.some(([name]) => name === body.dataset.shown) ? body.dataset.shown : "Params");
}

async function copy(text, what) {
  try {
    await navigator.clipboard.writeText(text);
    announce(`${what} copied.`);
  } catch {
    ask({ title: `Copy ${what}`, verb: "Close", entries: [["text", what, text, "", { rows: 8 }]], act: () => true });
  }
}
