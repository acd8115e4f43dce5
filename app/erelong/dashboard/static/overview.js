/** The overview: what needs attention, what is due when, and how the last hour went. */

import { lines, share, spark } from "./chart.js";
import { at, fill, h, icon, link, panel, paused } from "./dom.js";
import { NO_QUEUES, duePanel, pauseQueueButton } from "./queues.js";
import { every, get, live, onStats, stream } from "./service.js";
import {
  HOUR, MINUTE, asOf, bytes, count, duration, lateness, now, number, rate, roughly, short, sumOf, timeOf,
} from "./text.js";

const TILES = [
  ["waiting", ({ jobs }) => short(jobs.scheduled), { state: "scheduled" }],
  ["due", ({ jobs }) => short(jobs.due), { state: "due" }],
  ["running", ({ jobs, workers }) =>
    [short(jobs.running), h("small", ` of ${number(workers.of)}`)], { state: "running" }],
  ["failed", ({ jobs }) => h(jobs.failed ? "span.bad" : "span", short(jobs.failed)), { state: "failed" }],
  ["done", ({ rates }) => rate(rates.succeeded), { state: "succeeded" }],
  ["late p99", ({ late }) => lateness(late.p99)],
];
const CHARTS = [
  ["Done · failed · retried, 1 h", rate, { done: "succeeded", failed: "failed", retried: "retried" }],
  ["Lateness, 1 h", lateness, { p50: "late_p50", p99: "late_p99" }],
  ["Due · running, 1 h", short, { due: "due", running: "running" }],
];

export function showOverview({ main, title }) {
  const known = { queues: [], kinds: [], causes: [], hour: null };
  const attention = h("section.attention", { "aria-label": "Needs attention" });
  const tiles = h("dl.tiles");
  const due = duePanel({ queues: () => known.queues });
  const queues = panel("Busiest queues", { tools: link(at("queues"), "All queues") });
  const failures = panel("Top failures", { tools: link(at("failed"), "All failures") });
  const render = () => {
    const { stats } = live;
    title(stats.jobs.failed ? `${number(stats.jobs.failed)} failed` : "Overview");
    fill(tiles, TILES.map(([name, read, query]) =>
      h("div", h("dt", query ? link(at("jobs", query), name) : name), h("dd", read(stats)))));
    fill(attention, issuesOf(stats, known));
  };
  fill(main, h("h1.hidden", "Overview"), attention, tiles, due.node,
    h("div.three", hourPanels(known)), h("div.two", queues.node, failures.node));
  onStats(render);
  const readQueues = queues.poll(5, async () => {
    const { queues: found } = await get("queues", { order: "due", limit: 8, view: "brief" });
    known.queues = await Promise.all(found.map((queue) => (isSuspect(queue) ? get(["queues", queue.name]) : queue)));
    due.queues(known.queues.map(({ name }) => name));
    queues.show(queueList(known.queues, () => readQueues()));
    render();
  });
  every(MINUTE, async () => (known.kinds = (await get("kinds")).kinds));
  const readFailures = failures.poll(30, async () => {
    const found = await get("jobs/errors", { last: 10_000 });
    known.causes = found.causes;
    failures.show(causeList(found.causes), basedOn(found));
  });
  let isOld = false;
  const age = () => (isOld = true);
  stream({ type: ["job.failed", "job.expired"] }, age, age);
  every(5, async () => {
    if (isOld) readFailures();
    isOld = false;
  });
}

/** Return what a grouping of errors is based on, in words. */
export const basedOn = ({ scanned, of }) =>
  `based on ${scanned < of ? `the newest ${number(scanned)} of` : "all"} ${number(of)}`;

/** Return the type and the message of a group of errors. */
export const causeText = ({ type, message }) => [h("span.type", type), " ", message];

function hourPanels(known) {
  const charts = CHARTS.map(([label, format, names]) => {
    const part = panel(label);
    return { ...part, chart: lines({ label, format, isLog: format === lateness }), names: Object.entries(names) };
  });
  every(MINUTE, async () => {
    known.hour = await get("stats", { span: "1h" });
    const { series, notes, now: instant } = known.hour;
    const marks = notes.filter(({ event }) => event === "started" || event === "clock_stepped").map((note) =>
      [Date.parse(note.at), note.event === "started" ? "start" : `clock ${note.detail}`]);
    for (const { show: fillPanel, chart, names } of charts) {
      fillPanel(series ? chart.node : h("p.soft", "This key is limited to queues: it sees no charts."), asOf(instant));
      const shown = series && { ...series, marks, lines: names.map(([name, line]) => [name, series[line]]) };
      if (series) chart.show({ ...shown, from: Date.parse(series.from) });
    }
  }, (problem) => charts.forEach(({ fail }) => fail(problem)));
  return charts.map(({ node }) => node);
}

const queueList = (queues, again) => (queues.length ? h("ul.list.queues", queues.map((queue) => {
  const { name, counts, settings, late_p99: late } = queue;
  return h("li", { "data-key": name }, link(at("queues", name), name, { class: "name" }),
    h("span", queue.paused && paused(queue.pause?.reason)), h("span", h("small", "due "), number(counts.due)),
    h("span", h("small", "running "), number(counts.running), share(counts.running, settings.concurrency)),
    h("span", h("small", "p99 "), duration(late)), h("span", queue.paused && pauseQueueButton(queue, again)));
})) : h("p.empty", NO_QUEUES));

const causeList = (causes) => (causes.length ? h("ul.list.causes", causes.slice(0, 8).map((one) =>
  h("li", h("b", number(one.count)), h("span.name", one.kind),
    link(at("failed", { cause: one.cause }), causeText(one), {}, "a.message"),
    spark(one.by_hour, "failures by hour in the last day")))) : h("p.empty", "No failed jobs."));

/** Return what needs a person, the worst first. */
function issuesOf(stats, { queues, kinds, causes, hour }) {
  const issues = [
    ...Object.entries(stats.checks || {}).filter(([, check]) => !/^ok|^draining/.test(check)), // a banner says that
    ...queues.flatMap(queueIssues), ...kinds.flatMap(workerIssues),
    ...failureIssues(hour?.series, causes), ...hostIssues(stats, hour),
  ];
  if (!issues.length) return [];
  const item = ([name, text, ...actions]) => h("li", h("b", name), h("span", text), h("span.actions", actions));
  const title = count(issues.length, "issue needs attention", "issues need attention");
  return [h("h2", icon("warning"), title), h("ul", issues.map(item))];
}

/** Return whether more should be read of a queue: the age of its oldest due job costs a search. */
const isSuspect = ({ paused: isPaused, counts: { due, running }, settings: { concurrency, rate: limit } }) =>
  due > 0 && (isPaused || running >= concurrency || due > limit?.per_second);

function queueIssues(queue) {
  const { name, counts: { due, running, scheduled }, settings, pause, oldest_due_age: age } = queue;
  const { concurrency, rate: limit, max_backlog: most, overflow } = settings;
  const issues = [];
  const set = link(at("queues", name), "Set");
  if (isSuspect(queue) && (queue.paused || age > MINUTE)) {
    const why = queue.paused ? ["paused", pause?.reason && ` (${pause.reason})`]
      : running >= concurrency ? `all ${number(concurrency)} slots are in use`
        : `its rate is ${rate(limit.per_second)}`;
    const text = [`${count(due, "due job")}, the oldest ${roughly(age)} overdue: `, why];
    const jobs = link(at("jobs", { state: "due", queue: name }), "Show");
    issues.push([name, text, queue.paused ? pauseQueueButton(queue) : set, jobs]);
  }
  if (most && scheduled >= 0.8 * most) {
    const rest = `when it is full: ${overflow.replaceAll("_", " ")}`;
    issues.push([name, `${number(scheduled)} of at most ${number(most)} jobs wait; ${rest}`, set]);
  }
  return issues;
}

function workerIssues({ name, type, counts, polling }) {
  if (type !== "pull" || !counts?.due || polling) return [];
  const text = `${count(counts.due, "due job")}, but no worker is polling. Run: `;
  const jobs = link(at("jobs", { state: "due", kind: name }), "Show");
  return [[name, [text, h("code", "erelong work my_jobs:worker")], jobs]];
}

/** Complain if at least 20 attempts of the last ten minutes failed, and one in 20. */
function failureIssues(series, [worst]) {
  const total = (name) => sumOf(series[name].slice(-60)) * series.step;
  const failed = series ? total("failed") + total("retried") : 0;
  if (!worst || failed < 20 || failed < 0.05 * (failed + total("succeeded"))) return [];
  const most = `${worst.kind}, ${worst.type}: ${worst.message}`;
  const text = `${number(Math.round(failed))} attempts failed in 10 min; most jobs: ${most}`;
  return [["failures", text, link(at("failed", { cause: worst.cause }), "Show")]];
}

function hostIssues({ abandoned }, hour) {
  const { disk_free: free = null, store_bytes: used } = hour?.host || {};
  const recent = (event, seconds) =>
    (hour?.notes || []).filter((one) => one.event === event && now() - Date.parse(one.at) < seconds * 1000);
  const starts = recent("started", HOUR);
  const step = recent("clock_stepped", 10 * MINUTE).at(-1);
  return [
    abandoned > 0 && ["abandoned", `${count(abandoned, "attempt")} ended, but the code still runs`],
    free !== null && free < 2 * used && ["disk", `${bytes(free)} free, and the store takes ${bytes(used)}`],
    starts.length >= 3 && ["restarts", `${starts.length} starts in the last hour: the log says why the service ended`],
    step && ["clock", `stepped by ${step.detail} at ${timeOf(step.at)}`],
  ].filter(Boolean);
}
