/** Schedules: what each makes, when next, how the last went, and the form to make or change one. */

import { announce, ask, complain, formOf, operate, showProblem, submitButton } from "./dialog.js";
import {
  at, button, facts, fields, fill, go, h, jobLink, link, linkButton, panel, paused, state, when,
} from "./dom.js";
import { durationOf, json, pretty, readJson, wrong } from "./form.js";
import { switchButton } from "./queues.js";
import { call, can, debounced, get, post } from "./service.js";
import { tableScreen } from "./table.js";
import { HOUR, count, duration, fromNow, isSet, number, timeOf } from "./text.js";

const NEW = "+";
const ABOUT_PAUSE = "Occurrences that pass while it is paused are left out.";
const DRAFT = { cron: "0 9 * * MON-FRI", missed: "once", overlap: "skip", job: { kind: "echo", params: {} } };
const KEPT_FIELDS = ["starts_at", "ends_at", "catchup"]; // which the form does not show
const OF_CRON = ["gap", "fold"];
const OF_INTERVALS = ["anchor"];
const INTERVAL = /^\d[\w.]*$|^P/i;

export function showSchedules({ main, title }) {
  const first = can("submit") && link(at("schedules", NEW), "Make the first");
  const read = async (limit) => {
    const { schedules, next } = await get("schedules", { limit });
    const none = ["No schedules yet. A schedule makes ordinary jobs at recurring times. ", first];
    return { rows: schedules, isMore: next, none };
  };
  title("Schedules");
  const screen = tableScreen(main, {
    name: "Schedules", tools: can("submit") && linkButton(at("schedules", NEW), "New schedule"),
    columns: scheduleColumns(() => screen.again()), key: "name", open: ({ name }) => go("schedules", name), read,
  });
  return screen;
}

/** Show one schedule, or the form of a new one. */
export function showSchedule({ main, args: [name], title }) {
  title(name === NEW ? "New schedule" : name);
  if (name === NEW) return showNew({ main });
  const actions = h("div.actions");
  const head = h("p.lead");
  const [next, recent, about] = ["Next", "Recent", "Definition"].map((text) => panel(text));
  let [schedule, results] = [null, null];
  const read = next.poll(5, async () => {
    try {
      schedule = await get(["schedules", name]);
      const ids = schedule.recent.flatMap(({ job }) => job || []);
      const { ended } = ids.length ? await post("jobs/wait", { jobs: ids }) : { ended: [] };
      results = new Map(ended.map((job) => [job.id, state(job)]));
    } catch (problem) {
      if (problem.status === 404) recent.node.hidden = about.node.hidden = actions.hidden = true;
      throw problem;
    }
    const reason = schedule.reason && h("span", `“${schedule.reason}”`);
    fill(head, schedule.paused && [paused(), reason], h("span", specOf(schedule)));
    fill(actions, scheduleActions(schedule, () => read()));
    next.show(nextOf(schedule));
    recent.show(recentOf(schedule, results), "");
    about.show(definitionOf(schedule), "");
  });
  fill(main, h("h1", name), head, actions, h("div.two", next.node, recent.node), about.node);
  return { keys: { e: () => can("submit") && editSchedule(schedule).then(read) }, ready: next.ready };
}

const pauseScheduleButton = ({ name, paused: isPaused }, again) =>
  can(isPaused ? "submit" : "cancel") && switchButton(["schedules", name], isPaused, ABOUT_PAUSE, again);

const triggerButton = ({ name }, again) => can("submit") && button("Trigger", () => {
  const more = ({ id }) => link(at("jobs", id), "Show the job");
  const trigger = (body) => post(["schedules", name, "trigger"], body);
  const anyway = (problem) => {
    if (problem.code !== "overlap") throw problem;
    return ask({
      title: `Trigger ${name} again?`, verb: "Trigger anyway", act: () => trigger({ overlap: "allow" }),
      about: [link(at("jobs", { schedule: name }), "An earlier job"), " has not ended yet."],
    });
  };
  return trigger().catch(anyway).then((job) => job && announce(`${name} triggered.`, more(job)), complain).then(again);
});

/** Return when a schedule is due, in words. */
const specOf = ({ described, cron, every, zone }) =>
  [described || cron || `Every ${duration(every)}`, zone && h("span.soft", ` ${zone}`)];

const scheduleColumns = (again) => [
  ["Schedule", ({ name }) => link(at("schedules", name), name)],
  ["When", (one) => specOf(one)[0], "about"],
  ["Zone", ({ zone }) => zone || "–"],
  ["Makes", ({ job }) => `${job.kind}${job.queue ? ` in ${job.queue}` : ""}`],
  ["Next", (one) => (one.paused ? paused(one.reason) : when(one.next_at))],
  ["Made", ({ name, counts }) => link(at("jobs", { schedule: name }), number(counts.made)), "number"],
  ["Skipped", ({ counts }) => number(counts.skipped), "number"],
  ["Missed", ({ counts: { missed } }) => h(missed ? "b.bad" : "span", number(missed)), "number"],
  ["", (one) => [triggerButton(one, again), pauseScheduleButton(one, again)], "actions"],
];

const scheduleActions = (schedule, again) => [
  triggerButton(schedule, again), can("submit") && button("Edit", () => editSchedule(schedule).then(again)),
  can("submit") ? button("Make past occurrences…", () => backfill(schedule.name))
    : h("span.soft", "This key can view schedules but not change them."),
  pauseScheduleButton(schedule, again), can("cancel") && button("Delete", () => remove(schedule.name)),
  linkButton(at("jobs", { schedule: schedule.name }), "Jobs"),
];

const nextOf = ({ next, paused: isPaused, queued }) => [
  h("ol.timeline", next.map((instant) => h("li", when(instant)))),
  !next.length && h("p.empty", isPaused ? "Nothing while it is paused." : "No occurrence is left."),
  queued && h("p.soft", "Waits for the live job: ", when(queued)),
];

const recentOf = ({ recent, live, counts }, results) => [
  h("p.soft", `${number(counts.made)} made, ${number(counts.skipped)} skipped, ${number(counts.missed)} missed`,
    live.length > 0 && [" · live: ", live.map((id) => jobLink(id))]),
  h("ol.timeline", recent.map(({ outcome, occurrence, reason, job, count: times }) => h("li",
    h(outcome === "made" ? "span.good" : "span.bad", outcome), when(occurrence), reason && h("span.soft", reason),
    job && [jobLink(job), results.get(job)], times > 1 && h("span.soft", `× ${number(times)}`)))),
  !recent.length && h("p.empty", "Nothing yet."),
];

const definitionOf = ({ cron, every, zone, gap, fold, spread, missed, overlap, version, job, ...more }) =>
  h("div.two", facts([
    ["cron", cron && h("code", cron)], ["every", every && duration(every)], ["zone", zone],
    ["gap, fold", gap && `${gap}, ${fold}`], ["starts at", more.starts_at && when(more.starts_at)],
    ["ends at", more.ends_at && when(more.ends_at)], ["spread", spread > 0 && duration(spread)], ["missed", missed],
    ["overlap", overlap], ["changed", when(more.changed_at)], ["version", number(version)],
  ]), h("div", h("h3", "Job"), json(job, "Job")));

function editSchedule(schedule) {
  const form = new Form(schedule);
  const title = `Edit ${schedule.name}`;
  const about = [form.node, form.preview];
  return ask({ title, verb: "Save", isWide: true, about, said: "Saved.", act: () => form.save() });
}

async function backfill(name) {
  const path = ["schedules", name, "backfill"];
  const range = await ask({
    title: "Make the jobs of past occurrences", verb: "Count jobs",
    about: "They are due at once, the oldest first. Occurrences whose job is stored are skipped.",
    entries: [["from", "From", "", "", { placeholder: "2026-12-01T00:00:00Z" }], ["to", "To", fromNow(0)]],
    act: async (given) => {
      await post(path, given, { query: { dry_run: "true" } });
      return given;
    },
  });
  if (range) operate("backfill", path, range, `${name}, ${timeOf(range.from)} to ${timeOf(range.to)}`);
}

async function remove(name) {
  const isGone = await ask({
    title: `Delete ${name}?`, verb: "Delete schedule", isBad: true, said: "Deleted.",
    about: "It makes no more jobs. The jobs that it made stay.", act: () => call("DELETE", ["schedules", name]),
  });
  if (isGone) go("schedules");
}

function showNew({ main }) {
  const form = new Form(null);
  const create = async () => {
    const { name } = await form.save();
    announce("Created.");
    go("schedules", name);
  };
  const back = linkButton(at("schedules"), "Go back");
  const { node } = formOf("form.card", form.node, submitButton("Create"), create, back);
  const next = panel("Next times");
  next.show(form.preview, "");
  fill(main, h("h1", "New schedule"), h("div.two.submit", node, next.node));
}

/** The fields of a schedule, with its next times as somebody types. */
class Form {
  constructor(schedule) {
    const base = schedule || { ...DRAFT, zone: Intl.DateTimeFormat().resolvedOptions().timeZone };
    this.base = schedule;
    this.fields = fields([
      ["name", "Name", schedule?.name, "", { disabled: Boolean(schedule), isNeeded: true }],
      ["cron", "Cron or interval", base.cron ?? `${base.every}s`,
        "Five or six fields, such as 0 9 * * MON-FRI, or an interval such as 1h30m.", { isNeeded: true }],
      ["zone", "Zone", base.zone, "Europe/Berlin, for example. Intervals have none.", { placeholder: "UTC" }],
      ["overlap", "Overlap", base.overlap, "What happens while an earlier job is live.",
        { options: ["skip", "queue_one", "replace", "allow"] }],
      ["missed", "Missed", base.missed, "What happens to occurrences of a downtime.",
        { options: ["once", "skip", "all"] }],
      ["spread", "Spread", base.spread ? `${base.spread}s` : "", "A fixed share of it delays each job: 30s, 10m."],
      ["job", "Job", pretty(base.job), "As in a submit, without its time.", { rows: 8, isNeeded: true }],
    ]);
    this.fault = h("div.fault", { role: "alert" });
    this.preview = h("div.preview", { "aria-live": "polite" });
    const oninput = debounced(() => this.#preview());
    this.node = h("div.form", { oninput }, this.fields.nodes, this.fault);
    oninput();
  }

  /** Store the schedule; raise what is wrong with it. */
  async save() {
    const { name } = this.fields.read();
    if (!name) throw wrong("A schedule needs a name.", "/name");
    return this.#put(name, {}, this.base ? { "If-Match": `"${this.base.version}"` } : { "If-None-Match": "*" });
  }

  #put = async (name, query, headers) =>
    (await call("PUT", ["schedules", name], { body: this.#body(), query, headers })).json;

  #body() {
    const { cron = "", zone = "UTC", job = "", spread = "", name, ...given } = this.fields.read();
    const isInterval = INTERVAL.test(cron);
    const names = [...KEPT_FIELDS, ...(isInterval ? OF_INTERVALS : OF_CRON)].filter((one) => isSet(this.base?.[one]));
    return {
      ...Object.fromEntries(names.map((one) => [one, this.base[one]])), ...given,
      ...(isInterval ? { every: durationOf(cron) } : { cron, zone }), ...(spread && { spread: durationOf(spread) }),
      job: readJson(job, "/job"),
    };
  }

  async #preview() {
    try {
      const found = await this.#put(this.fields.read().name || "unnamed", { dry_run: "true" }, {});
      const item = (instant) =>
        h("li", timeOf(instant, { day: "always" }), h("span.soft", ` ${instant}${noteOf(found, instant)}`));
      showProblem(this.node, this.fault, null);
      fill(this.preview, h("p", specOf(found)), h("p.soft", `The next ${count(found.next.length, "time")}:`),
        h("ol", found.next.map(item)));
    } catch (problem) {
      fill(this.preview);
      showProblem(this.node, this.fault, problem, true);
    }
  }
}

/** Return whether a change of the clock moves an occurrence of a daily time, or makes its local time occur twice. */
function noteOf({ cron, zone }, instant) {
  const options = { timeZone: zone, hour: "2-digit", minute: "2-digit", hourCycle: "h23" };
  const clock = (shift) => cron && new Intl.DateTimeFormat("en-GB", options).format(Date.parse(instant) + shift * 1000);
  const [minute, hour] = (cron || "").split(/\s+/).slice(-5);
  const daily = /^\d+ \d+$/.test(`${minute} ${hour}`) && [hour, minute].map((part) => part.padStart(2, "0")).join(":");
  if (daily && clock(0) !== daily) return ` · moved: the clock skips ${daily}`;
  return cron && [-HOUR, HOUR].some((shift) => clock(shift) === clock(0)) ? " · this local time occurs twice" : "";
}
