/** All queues: what waits and runs in each, its limits, and what can be done to it. */

import { call, get, pathOf } from "./api.js";
import { share } from "./chart.js";
import { announce, ask, complain } from "./dialog.js";
import { button, choice, field, fill, icon, link, make, panel } from "./dom.js";
import { every } from "./live.js";
import { can } from "./session.js";
import { Table } from "./table.js";
import { count, duration, number, timeOf, now } from "./text.js";

const SORTS = {
  due: ["most due", (queue) => -queue.counts.due], name: ["name", null], late: ["latest", (queue) => -(queue.late_p99 || 0)],
  failed: ["most failed", (queue) => -queue.counts.failed], waiting: ["most waiting", (queue) => -queue.counts.scheduled],
};
const SHOWN = 200;

export function show({ main, signal, title }) {
  title("Queues");
  let queues = [];
  const asked = { sort: "due", search: "" };
  const search = make("input", { type: "search", placeholder: "Find a queue", "aria-label": "Find a queue", oninput: () => render({ search: search.value }) });
  const sort = choice(Object.entries(SORTS).map(([name, [text]]) => [name, text]), asked.sort, (name) => render({ sort: name }), { "aria-label": "Sort" });
  const part = panel("Queues", { level: "h1", tools: [search, sort] });
  part.node.querySelector("h1").tabIndex = -1;
  const read = async () => {
    queues = (await get("queues", {}, signal)).queues;
    part.fresh(`as of ${timeOf(now())}`);
    render({});
  };
  const table = new Table({ caption: "Queues", columns: columns(() => read().catch(part.fail)), keyOf: ({ name }) => name, open: ({ name }) => (location.hash = `#/queues/${encodeURIComponent(name)}`) });
  const foot = make("p", { class: "foot" });
  const render = (change) => {
    const isAsked = Object.keys(change).length > 0;
    Object.assign(asked, change);
    const found = sorted(queues.filter(({ name }) => name.includes(asked.search)), asked.sort);
    const shown = isAsked || !table.rows.length ? found.slice(0, SHOWN) : inPlace(table.rows, found).slice(0, SHOWN);
    if (!table.node.isConnected) fill(part.body, table.node, foot);
    table.show(shown, queues.length ? "No queue has this in its name." : "No queue yet. A queue exists once a job, a setting or a pause names it.");
    fill(foot, found.length > shown.length ? `${number(shown.length)} of ${number(found.length)}; search to find the others` : "");
  };
  fill(main, part.node);
  every(5, read, signal, part.fail);
  return { keys: table.keys, ready: table.ready };
}

/** Pause or resume a queue; a pause asks for a reason. Return whether it was done. */
export async function switchPause(queue) {
  if (queue.paused) {
    try {
      await call("POST", pathOf("queues", queue.name, "resume"), { body: {} });
      announce(`${queue.name} resumed.`);
    } catch (problem) {
      complain(problem);
    }
    return;
  }
  const reason = make("input", { maxlength: 500 });
  const isDone = await ask({
    title: `Pause ${queue.name}?`, verb: "Pause", body: [make("p", {}, "Its jobs stop starting; running ones finish. The pause survives restarts."), field("Reason", reason, { pointer: "/reason", about: "Optional; everybody sees it." })],
    act: () => call("POST", pathOf("queues", queue.name, "pause"), { body: reason.value ? { reason: reason.value } : {} }),
  });
  if (isDone) announce(`${queue.name} paused.`);
}

/** Cancel all waiting jobs of a queue, after a question. */
export async function purge(queue) {
  const typed = make("input", { autocomplete: "off" });
  const found = await ask({
    title: `Cancel all ${count(queue.counts.scheduled, "waiting job")} of ${queue.name}?`, verb: "Cancel all waiting jobs", isBad: true,
    body: [make("p", {}, "They will not run. Running jobs finish."), field("Queue", typed, { about: `Type ${queue.name} to confirm.` })],
    act: async () => {
      if (typed.value !== queue.name) throw new Error(`type ${queue.name} to confirm`);
      return (await call("POST", pathOf("queues", queue.name, "purge"), { body: {}, patience: 120_000 })).json;
    },
  });
  if (found) announce(`${count(found.cancelled, "job")} cancelled.`);
}

/** Return how often jobs of a queue may start. */
export const rateText = ({ rate }) => (rate ? `${number(rate.per_second)}/s` : "–");

function columns(again) {
  return [
    { head: "Queue", cell: ({ name }) => link(`#/queues/${encodeURIComponent(name)}`, name) },
    { head: "State", cell: (queue) => (queue.paused ? make("span", { class: "state paused", title: queue.pause?.reason || "" }, icon("paused"), "paused") : make("span", { class: "soft" }, "active")) },
    { head: "Due", isNumber: true, cell: ({ counts }) => number(counts.due) },
    { head: "Waiting", isNumber: true, cell: ({ counts }) => number(counts.scheduled) },
    { head: "Running", isNumber: true, name: "sharing", cell: ({ counts, settings }) => [`${number(counts.running)}/${number(settings.concurrency)}`, share(counts.running, settings.concurrency)] },
    { head: "Rate limit", isNumber: true, cell: ({ settings }) => rateText(settings) },
    { head: "Late p99", isNumber: true, cell: (queue) => duration(queue.late_p99) },
    { head: "Failed", isNumber: true, cell: ({ name, counts }) => (counts.failed ? link(`#/failed?queue=${encodeURIComponent(name)}`, number(counts.failed), { class: "bad" }) : "0") },
    { head: "", name: "actions", cell: (queue) => [can("admin") ? button(queue.paused ? "Resume" : "Pause", () => switchPause(queue).then(again)) : "", link(`#/jobs?queue=${encodeURIComponent(queue.name)}`, "Jobs", { class: "button plain" })] },
  ];
}

function sorted(queues, sort) {
  const [, rank] = SORTS[sort];
  return rank ? queues.toSorted((a, b) => rank(a) - rank(b) || a.name.localeCompare(b.name)) : queues.toSorted((a, b) => a.name.localeCompare(b.name));
}

/** Return new data in the order of the rows on screen, so that none moves by itself. */
function inPlace(rows, found) {
  const byName = new Map(found.map((queue) => [queue.name, queue]));
  const kept = rows.map(({ name }) => byName.get(name)).filter(Boolean);
  const names = new Set(kept.map(({ name }) => name));
  return [...kept, ...found.filter(({ name }) => !names.has(name))];
}
