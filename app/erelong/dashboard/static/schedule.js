/** One schedule: its next and recent occurrences, and the form to change or make one. */

import { call, get, pathOf } from "./api.js";
import { announce, ask, complain, place } from "./dialog.js";
import { button, choice, facts, field, fill, icon, link, make, panel } from "./dom.js";
import { readJson } from "./job.js";
import { json, pretty } from "./json.js";
import { every } from "./live.js";
import { spec, switchSchedule, trigger } from "./schedules.js";
import { can } from "./session.js";
import { count, duration, number, shortId, timeOf, when, now } from "./text.js";

const NEW = "+";
const PAUSE = 300;

export function show({ main, path: [name], signal, title }) {
  title(name === NEW ? "New schedule" : name);
  if (name === NEW) return fill(main, make("h1", { tabindex: "-1" }, "New schedule"), new Form(null).node) && {};
  const actions = make("div", { class: "actions" });
  const state = make("p", { class: "lead" });
  const next = panel("Next");
  const recent = panel("Recent");
  const about = panel("Definition");
  let text = "";
  let isReady;
  const ready = new Promise((resolve) => (isReady = resolve));
  const read = async () => {
    const schedule = await get(pathOf("schedules", name), {}, signal);
    isReady();
    next.fresh(`as of ${timeOf(now())}`);
    if (JSON.stringify(schedule) === text) return;
    text = JSON.stringify(schedule);
    fill(state, schedule.paused ? make("span", { class: "state paused" }, icon("paused"), "paused", schedule.reason ? `: ${schedule.reason}` : "") : "", make("span", {}, spec(schedule)));
    fill(actions, buttons(schedule, () => read().catch(next.fail)));
    fill(next.body, schedule.next.length ? make("ol", { class: "timeline" }, schedule.next.map((at) => make("li", {}, when(at)))) : make("p", { class: "empty" }, schedule.paused ? "Nothing while it is paused." : "No occurrence is left."), schedule.queued ? make("p", { class: "soft" }, "Waits for the live job: ", when(schedule.queued)) : "");
    fill(recent.body, occurrences(schedule));
    fill(about.body, definition(schedule));
  };
  fill(main, make("div", { class: "heading" }, make("h1", { tabindex: "-1" }, name)), state, actions, make("div", { class: "two" }, next.node, recent.node), about.node);
  every(5, read, signal, (problem) => {
    next.fail(problem);
    if (problem.status === 404) recent.node.hidden = about.node.hidden = actions.hidden = true;
  });
  return { keys: { e: () => can("submit") && edit(JSON.parse(text)) }, ready };
}

function buttons(schedule, again) {
  return [
    can("submit") ? [button("Trigger", () => trigger(schedule.name).then(again)), button("Edit", () => edit(schedule).then(again)), button("Make past occurrences…", () => backfill(schedule.name))] : make("span", { class: "soft" }, "This key can view schedules but not change them."),
    can(schedule.paused ? "submit" : "cancel") ? button(schedule.paused ? "Resume" : "Pause", () => switchSchedule(schedule).then(again)) : "",
    can("cancel") ? button("Delete", () => remove(schedule.name)) : "",
    link(`#/jobs?schedule=${encodeURIComponent(schedule.name)}`, "Jobs", { class: "button plain" }),
  ];
}

function occurrences({ recent, live, counts }) {
  return [
    make("p", { class: "soft" }, `${number(counts.made)} made, ${number(counts.skipped)} skipped, ${number(counts.missed)} missed`, live.length ? [" · live: ", live.map((id) => link(`#/jobs/${id}`, shortId(id)))] : ""),
    make("ol", { class: "timeline" }, recent.map((one) => make("li", {}, make("span", { class: `outcome ${one.outcome === "made" ? "succeeded" : "failed"}` }, one.outcome), when(one.occurrence), one.reason ? make("span", { class: "soft" }, one.reason) : "", one.job ? link(`#/jobs/${one.job}`, shortId(one.job)) : "", one.count > 1 ? make("span", { class: "soft" }, `× ${number(one.count)}`) : ""))),
    recent.length ? "" : make("p", { class: "empty" }, "Nothing yet."),
  ];
}

function definition(schedule) {
  return [facts([
    ["cron", schedule.cron && make("code", {}, schedule.cron)], ["every", schedule.every && duration(schedule.every)], ["zone", schedule.zone], ["gap, fold", schedule.gap && `${schedule.gap}, ${schedule.fold}`],
    ["starts at", schedule.starts_at && when(schedule.starts_at)], ["ends at", schedule.ends_at && when(schedule.ends_at)], ["spread", schedule.spread ? duration(schedule.spread) : null],
    ["missed", schedule.missed], ["overlap", schedule.overlap], ["changed", when(schedule.changed_at)], ["version", String(schedule.version)],
  ]), make("h3", {}, "Job"), json(schedule.job, "Job")];
}

async function edit(schedule) {
  const form = new Form(schedule);
  return ask({ title: `Edit ${schedule.name}`, verb: "Save", wide: true, body: form.fields, act: async () => {
    await form.save();
    announce("Saved.");
  } });
}

async function backfill(name) {
  const from = make("input", { placeholder: "2026-12-01T00:00Z" });
  const to = make("input", { value: new Date(now()).toISOString() });
  const body = () => ({ from: from.value, to: to.value });
  const found = await ask({ title: "Make the jobs of past occurrences", verb: "Make jobs", body: [make("p", {}, "They are due at once, the oldest first. Occurrences whose job is stored are skipped."), field("From", from, { pointer: "/from" }), field("To", to, { pointer: "/to" })], act: () => call("POST", pathOf("schedules", name, "backfill"), { body: body() }) });
  if (found) announce("Making the jobs in the background.");
}

async function remove(name) {
  const isGone = await ask({ title: `Delete ${name}?`, verb: "Delete schedule", isBad: true, body: make("p", {}, "It makes no more jobs. The jobs that it made stay."), act: () => call("DELETE", pathOf("schedules", name)) });
  if (!isGone) return;
  announce("Deleted.");
  location.hash = "#/schedules";
}

/** The form of a schedule, with its next times as somebody types. */
class Form {
  constructor(schedule) {
    const base = schedule || { cron: "0 9 * * MON-FRI", zone: Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC", missed: "once", overlap: "skip", spread: 0, job: { kind: "echo", params: {} } };
    this.base = schedule;
    const input = (value, more = {}) => make("input", { value: value ?? "", autocomplete: "off", spellcheck: "false", oninput: () => this.#soon(), ...more });
    this.name = input(schedule?.name, { disabled: Boolean(schedule) });
    this.cron = input(base.cron ?? (base.every && `${base.every}s`));
    this.zone = input(base.zone, { placeholder: "UTC" });
    this.missed = choice(["once", "skip", "all"], base.missed, () => this.#soon());
    this.overlap = choice(["skip", "queue_one", "replace", "allow"], base.overlap, () => this.#soon());
    this.spread = input(base.spread || "");
    this.job = make("textarea", { value: pretty(base.job), rows: 8, class: "mono", spellcheck: "false", oninput: () => this.#soon() });
    this.fault = make("p", { class: "fault", hidden: true });
    this.preview = make("div", { class: "preview", "aria-live": "polite" });
    this.fields = make("div", { class: "form" }, field("Name", this.name, { isNeeded: true }), field("Cron or interval", this.cron, { pointer: "/cron", isNeeded: true, about: "Five or six fields, such as 0 9 * * MON-FRI, or an interval such as 10m." }),
      field("Zone", this.zone, { pointer: "/zone", about: "Europe/Berlin, for example. Intervals have none." }), field("Overlap", this.overlap, { pointer: "/overlap", about: "What happens while the job of the last occurrence lives." }),
      field("Missed", this.missed, { pointer: "/missed", about: "What happens with occurrences of a downtime." }), field("Spread", this.spread, { pointer: "/spread", about: "Seconds; a fixed share of it delays each job." }),
      field("Job", this.job, { pointer: "/job", isNeeded: true, about: "As in a submit, without its time." }), this.fault, this.preview);
    this.node = make("form", { class: "card", onsubmit: (event) => this.#create(event) }, this.fields, make("div", { class: "actions" }, make("button", { type: "submit", class: "main" }, "Create"), link("#/schedules", "Go back", { class: "button plain" })));
    this.#soon();
  }

  /** Store the schedule; raise what is wrong with it. */
  async save(more = {}) {
    const name = this.base ? this.base.name : this.name.value.trim();
    const headers = this.base ? { "If-Match": `"${this.base.version}"` } : more.query ? {} : { "If-None-Match": "*" };
    return (await call("PUT", pathOf("schedules", name || "unnamed"), { body: this.#body(), headers: more.query ? {} : headers, ...more })).json;
  }

  #body() {
    const job = readJson(this.job.value, "Job");
    const kept = this.base ? Object.fromEntries(["gap", "fold", "anchor", "starts_at", "ends_at", "catchup"].filter((name) => this.base[name] !== null).map((name) => [name, this.base[name]])) : {};
    const isInterval = /^[\d.]+\s*[a-z]*$|^P/i.test(this.cron.value.trim());
    const shared = { missed: this.missed.value, overlap: this.overlap.value, job, ...(this.spread.value ? { spread: this.spread.value } : {}) };
    if (isInterval) return { every: this.cron.value.trim(), ...shared };
    return { ...kept, cron: this.cron.value.trim(), zone: this.zone.value.trim() || "UTC", ...shared };
  }

  #soon() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.#try(), PAUSE);
  }

  async #try() {
    try {
      const found = await this.save({ query: { dry_run: "true" } });
      place(this.fields, []);
      this.fault.hidden = true;
      fill(this.preview, make("p", {}, spec(found)), make("p", { class: "soft" }, `The next ${count(found.next.length, "time")}:`), make("ol", {}, found.next.map((at) => make("li", {}, timeOf(at, { day: "always" }), make("span", { class: "soft" }, ` ${at}`)))));
    } catch (problem) {
      fill(this.preview);
      const left = problem.errors?.length ? place(this.fields, problem.errors) : [{ detail: problem.detail || problem.message }];
      fill(this.fault, left.map(({ detail }) => detail).join("; ")).hidden = !left.length;
    }
  }

  async #create(event) {
    event.preventDefault();
    if (!this.name.value.trim()) return this.name.focus();
    try {
      await this.save();
      announce("Created.");
      location.hash = `#/schedules/${encodeURIComponent(this.name.value.trim())}`;
    } catch (problem) {
      if (problem.errors?.length) place(this.fields, problem.errors);
      else complain(problem);
    }
  }
}
