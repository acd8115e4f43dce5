/** Failures by cause: what failed, how often, since when, and retrying it together. */

import { get } from "./api.js";
import { spark } from "./chart.js";
import { bulk, complain, untilNow } from "./dialog.js";
import { button, choice, fill, link, make, panel } from "./dom.js";
import { every } from "./live.js";
import { can } from "./session.js";
import { Table } from "./table.js";
import { count, now, number, timeOf, when } from "./text.js";

const SINCE = { 3600: "the last hour", 86400: "the last day", 604800: "the last week" };

export function show({ main, query, signal, title }) {
  title("Failed");
  const asked = { queue: query.get("queue"), kind: query.get("kind"), since: query.get("since") };
  const wanted = query.get("cause");
  const part = panel("Failed", { level: "h1", tools: [filters(asked, signal), link("#/jobs?state=failed", "As jobs")] });
  part.node.querySelector("h1").tabIndex = -1;
  const table = new Table({ caption: "Causes of failures", keyOf: ({ cause }) => cause, open: (cause) => open(cause, asked), columns: columns(asked, () => read().catch(part.fail)) });
  const read = async () => {
    const { causes, scanned, of } = await get("jobs/errors", { queue: asked.queue, kind: asked.kind, last: 10_000, ...bound(asked) }, signal);
    const shown = wanted ? causes.filter(({ cause }) => cause === wanted) : causes;
    part.fresh(scanned < of ? `based on the newest ${number(scanned)} of ${number(of)}` : `based on all ${number(of)}`);
    title(of ? `${number(of)} failed` : "Failed");
    if (!table.node.isConnected) fill(part.body, table.node, wanted ? make("p", { class: "foot" }, link("#/failed", "Show all causes")) : "");
    table.show(shown, wanted ? "No failed job has this cause any more." : asked.since ? `No failures in ${SINCE[asked.since]}.` : "No failed jobs. Jobs appear here when all their attempts have failed.");
  };
  fill(main, part.node);
  every(30, read, signal, part.fail);
  return { keys: { ...table.keys, r: () => table.current && act("retry", table.current, asked, read) }, ready: table.ready };
}

function columns(asked, again) {
  return [
    { head: "Jobs", isNumber: true, cell: ({ count: jobs }) => make("b", {}, number(jobs)) },
    { head: "Kind", cell: ({ kind }) => kind },
    { head: "Cause", name: "about", cell: (cause) => make("button", { type: "button", class: "link message", onclick: () => open(cause, asked) }, make("span", { class: "type" }, cause.type), " ", cause.message) },
    { head: "First", cell: ({ first_at: at }) => when(at, "relative") },
    { head: "Last", cell: ({ last_at: at }) => when(at, "relative") },
    { head: "Last 24 h", cell: ({ by_hour: hours }) => spark(hours, `${count(hours.reduce((sum, one) => sum + one, 0), "failure")} in the last 24 hours`) },
    { head: "", name: "actions", cell: (cause) => [
      can("submit") ? button("Retry…", () => act("retry", cause, asked, again)) : "",
      can("cancel") ? button("Delete…", () => act("delete", cause, asked, again)) : "",
    ] },
  ];
}

function filters(asked, signal) {
  const go = (change) => {
    const query = new URLSearchParams(Object.entries({ ...asked, ...change }).filter(([, value]) => value));
    location.hash = `#/failed${query.size ? `?${query}` : ""}`;
  };
  const queue = choice([["", "all queues"]], "", (name) => go({ queue: name }), { "aria-label": "Queue" });
  const kind = choice([["", "all kinds"]], "", (name) => go({ kind: name }), { "aria-label": "Kind" });
  const add = (list, names, current) => names.forEach((name) => list.append(make("option", { value: name, selected: name === current }, name)));
  get("queues", {}, signal).then(({ queues }) => add(queue, queues.map(({ name }) => name), asked.queue), () => {});
  get("kinds", {}, signal).then(({ kinds }) => add(kind, kinds.map(({ name }) => name), asked.kind), () => {});
  const since = choice([["", "any time"], ...Object.entries(SINCE)], asked.since || "", (seconds) => go({ since: seconds }), { "aria-label": "Since" });
  return [queue, kind, since];
}

/** Return the filter of what ended since the chosen time. */
const bound = ({ since }) => (since ? { finished_after: new Date(now() - since * 1000).toISOString() } : {});

function open({ cause, kind, sample }, asked) {
  const query = new URLSearchParams({ state: "failed", kind, cause, ...bound(asked), ...(asked.queue ? { queue: asked.queue } : {}) });
  location.hash = sample.length === 1 ? `#/jobs/${sample[0]}` : `#/jobs?${query}`;
}

async function act(action, { cause, kind, type, message }, asked, again) {
  const until = untilNow();
  const filter = { state: ["failed"], cause, kind: [kind], finished_before: until, ...bound(asked), ...(asked.queue ? { queue: [asked.queue] } : {}) };
  try {
    await bulk({ action, filter, what: `Failed, ${kind}, ${type}: ${message}; ended before ${timeOf(until)}` });
    await again();
  } catch (problem) {
    complain(problem);
  }
}
