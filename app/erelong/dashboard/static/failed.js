/** Failures by cause, which are retried together, and the operations on many jobs. */

import { spark } from "./chart.js";
import { bulk, progressBar, stopButton, toldOf } from "./dialog.js";
import { at, button, choice, fill, go, h, link, optionsOf, when } from "./dom.js";
import { basedOn, causeText } from "./overview.js";
import { can, get } from "./service.js";
import { tableScreen } from "./table.js";
import { count, fromNow, number, sumOf, timeOf } from "./text.js";

const NO_FAILURES = "No failed jobs. Jobs appear here when all their attempts have failed.";
const SINCE = { 3600: "the last hour", 86400: "the last 24 h", 604800: "the last week" };

export function showFailed({ main, query, title }) {
  const asked = Object.fromEntries(["queue", "kind", "since", "cause"].map((name) => [name, query.get(name)]));
  const { queue, kind, cause, since } = asked;
  const act = async (name, one) => {
    const what = `Failed, ${one.kind}, ${one.type}: ${one.message}; ended before ${timeOf(fromNow(0))}`;
    await bulk(name, filterOf(asked, one), what);
    screen.again();
  };
  const open = (one) => (one.sample.length === 1 ? go("jobs", one.sample[0])
    : go("jobs", { state: "failed", kind: one.kind, cause: one.cause, queue, ...sinceOf(asked) }));
  const read = async () => {
    const found = await get("jobs/errors", { queue, kind, cause, last: 10_000, ...sinceOf(asked) });
    title(found.of ? `${number(found.of)} failed` : "Failed");
    const failures = since && `${number(sumOf(found.causes.map((one) => one.count)))} in ${SINCE[since]}, `;
    const none = since ? `No failures in ${SINCE[since]}.` : NO_FAILURES;
    return { rows: found.causes, none, note: [failures, basedOn(found)] };
  };
  title("Failed");
  const screen = tableScreen(main, {
    name: "Failed", columns: causeColumns(act, open), key: "cause", open, read,
    tools: [filters(asked), cause && link("#/failed", "All causes"), link(at("jobs", { state: "failed" }), "As jobs"),
      link(at("operations"), "Operations")],
  });
  const retry = () => screen.table.current && can("submit") && act("retry", screen.table.current);
  return { ...screen, keys: { ...screen.keys, r: retry } };
}

/** Show the operations on many jobs, the latest first. */
export function showOperations({ main, title }) {
  title("Operations");
  return tableScreen(main, {
    name: "Operations", columns: OPERATION, key: "id", open: () => {}, read: async (limit) => {
      const { operations, next } = await get("operations", { limit });
      const none = "No operations yet. Actions on many jobs are listed here for a week.";
      return { rows: operations, isMore: next, none };
    },
  });
}

function wordsOf(filter = {}) {
  const parts = Object.entries(filter).map(([name, value]) => {
    if (name === "jobs") return `${count(value, "job")} chosen by id`;
    const text = Array.isArray(value) || typeof value !== "object" ? [value].flat().join(", ")
      : Object.entries(value).map((pair) => pair.join("=")).join(", ");
    const word = name.replace("finished", "ended").replace("_", " ");
    return `${word} ${/_(after|before)$/.test(name) ? timeOf(text) : text}`;
  });
  return parts.join(" · ");
}

const OPERATION = [
  ["Started", ({ created_at: start }) => when(start)],
  ["Progress", (one) => [toldOf(one), progressBar(one)]],
  ["State", (one) => one.state],
  ["Jobs", (one) => (one.schedule ? link(at("schedules", one.schedule), one.schedule) : wordsOf(one.filter)), "about"],
  ["By", ({ by }) => by || "–"],
  ["", (one) => stopButton(one), "actions"],
];

const causeColumns = (act, open) => [
  ["Jobs", (one) => h("b", number(one.count)), "number"],
  ["Kind", ({ kind }) => kind],
  ["Cause", (one) => button(causeText(one), () => open(one), {}, "button.link.message"), "about"],
  ["First", (one) => when(one.first_at, "relative")],
  ["Last", (one) => when(one.last_at, "relative")],
  ["Last 24 h", ({ by_hour: hours }) => spark(hours, `${number(sumOf(hours))} in the last 24 h`)],
  ["", (one) => [can("submit") && button("Retry…", () => act("retry", one)),
    can("cancel") && button("Delete…", () => act("delete", one))], "actions"],
];

function filters(asked) {
  const choose = (name) => (value) => go("failed", { ...asked, cause: null, [name]: value });
  const pick = (name, path, query) => {
    const node = choice([["", `all ${path}`]], "", choose(name), { "aria-label": name });
    get(path, query).then((found) => {
      const names = found[path].map((one) => one.name);
      fill(node, optionsOf([["", `all ${path}`], ...names], asked[name]));
    }, () => {}); // the screen says that the service is gone
    return node;
  };
  const spans = [["", "any time"], ...Object.entries(SINCE)];
  return [pick("queue", "queues", { order: "failed", limit: 100, view: "brief" }), pick("kind", "kinds"),
    choice(spans, asked.since || "", choose("since"), { "aria-label": "since" })];
}

/** Return the filter of what ended since the chosen time. */
const sinceOf = ({ since }) => (since ? { finished_after: fromNow(-since) } : {});

const filterOf = (asked, { cause, kind }) => ({
  state: ["failed"], cause, kind: [kind], finished_before: fromNow(0.001), ...sinceOf(asked),
  ...(asked.queue && { queue: [asked.queue] }),
});
