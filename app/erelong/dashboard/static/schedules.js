/** All schedules: what each makes, when next, and how the last went. */

import { call, get, pathOf } from "./api.js";
import { announce, ask, complain } from "./dialog.js";
import { button, field, fill, icon, link, make, panel } from "./dom.js";
import { every } from "./live.js";
import { can } from "./session.js";
import { Table } from "./table.js";
import { duration, number, timeOf, when, now } from "./text.js";

export function show({ main, signal, title }) {
  title("Schedules");
  const part = panel("Schedules", { level: "h1", tools: [can("submit") ? link("#/schedules/+", "New schedule", { class: "button plain" }) : ""] });
  part.node.querySelector("h1").tabIndex = -1;
  const foot = make("p", { class: "foot" });
  let limit = 100;
  const read = async () => {
    const { schedules, next } = await get("schedules", { limit }, signal);
    part.fresh(`as of ${timeOf(now())}`);
    if (!table.node.isConnected) fill(part.body, table.node, foot);
    table.show(schedules, "No schedules yet. A schedule makes ordinary jobs at recurring times.");
    fill(foot, next && limit < 1000 ? button("Show more", () => ((limit = 1000), read().catch(part.fail)), { sort: "link" }) : "");
  };
  const table = new Table({ caption: "Schedules", columns: columns(() => read().catch(part.fail)), keyOf: ({ name }) => name, open: ({ name }) => (location.hash = hashOf(name)) });
  fill(main, part.node);
  every(5, read, signal, part.fail);
  return { keys: table.keys, ready: table.ready };
}

/** Make a job of a schedule now. */
export async function trigger(name) {
  try {
    const { json: job } = await call("POST", pathOf("schedules", name, "trigger"), { body: {} });
    announce(`${name} triggered.`, { action: link(`#/jobs/${job.id}`, "Show the job") });
  } catch (problem) {
    complain(problem);
  }
}

/** Pause a schedule, with a reason, or resume it. */
export async function switchSchedule({ name, paused }) {
  const reason = make("input", { maxlength: 500 });
  const send = (verb, body) => call("POST", pathOf("schedules", name, verb), { body });
  if (paused) {
    await send("resume", {}).then(() => announce(`${name} resumed.`), complain);
    return;
  }
  const isDone = await ask({ title: `Pause ${name}?`, verb: "Pause", body: [make("p", {}, "Occurrences that pass while it is paused are not made up for."), field("Reason", reason, { pointer: "/reason" })], act: () => send("pause", reason.value ? { reason: reason.value } : {}) });
  if (isDone) announce(`${name} paused.`);
}

/** Return when a schedule is due, in words. */
export const spec = ({ described, cron, every: seconds, zone }) => [described || (cron ? cron : `Every ${duration(seconds)}`), zone ? make("span", { class: "soft" }, ` ${zone}`) : ""];

const hashOf = (name) => `#/schedules/${encodeURIComponent(name)}`;

function columns(again) {
  return [
    { head: "Schedule", cell: ({ name }) => link(hashOf(name), name) },
    { head: "When", name: "about", cell: spec },
    { head: "Makes", cell: ({ job }) => `${job.kind}${job.queue ? ` in ${job.queue}` : ""}` },
    { head: "Next", cell: (one) => (one.paused ? make("span", { class: "state paused", title: one.reason || "" }, icon("paused"), "paused") : when(one.next_at)) },
    { head: "Made", isNumber: true, cell: ({ counts }) => number(counts.made) },
    { head: "Skipped", isNumber: true, cell: ({ counts }) => number(counts.skipped) },
    { head: "Missed", isNumber: true, cell: ({ counts }) => (counts.missed ? make("b", { class: "bad" }, number(counts.missed)) : "0") },
    { head: "", name: "actions", cell: (one) => [
      can("submit") ? button("Trigger", () => trigger(one.name).then(again)) : "",
      can(one.paused ? "submit" : "cancel") ? button(one.paused ? "Resume" : "Pause", () => switchSchedule(one).then(again)) : "",
    ] },
  ];
}
