/** The overview: what is wrong, what is due when, and how the last hour went. */

import { call, get, pathOf } from "./api.js";
import { bars, lines, share, spark } from "./chart.js";
import { announce, complain } from "./dialog.js";
import { button, choice, fill, icon, keyed, link, make, panel, say } from "./dom.js";
import { every, live, onStats, stream } from "./live.js";
import { can } from "./session.js";
import { bytes, count, duration, now, number, rate, short, timeOf } from "./text.js";

export const SPANS = { "10 min": [10, 60], "1 h": [60, 60], "24 h": [900, 96], "7 d": [7200, 84], "30 d": [43_200, 60] };
const TILES = [
  ["waiting", (stats) => short(stats.jobs.scheduled), "#/jobs?state=scheduled"],
  ["due", (stats) => short(stats.jobs.due), "#/jobs?state=due"],
  ["running", (stats) => [short(stats.jobs.running), make("small", {}, ` of ${number(stats.workers.of)}`)], "#/jobs?state=running"],
  ["failed", (stats) => short(stats.jobs.failed), "#/failed"],
  ["done", (stats) => rate(stats.rates.succeeded), "#/jobs?state=succeeded"],
  ["late p99", (stats) => duration(stats.late.p99), null],
];
const COLORED = { failed: (stats) => stats.jobs.failed > 0 };

export function show({ main, signal, title }) {
  title("Overview");
  const attention = make("section", { class: "attention", "aria-label": "Needs attention", hidden: true });
  const tiles = makeTiles();
  const due = duePanel({ signal });
  const charts = hourPanels(signal);
  const queues = panel("Busiest queues", { tools: [link("#/queues", "All queues")] });
  const failures = panel("Top failures", { tools: [link("#/failed", "All failures")] });
  fill(main, make("h1", { class: "hidden", tabindex: "-1" }, "Overview"), attention, tiles.node, due.node,
    make("div", { class: "three" }, charts.map(({ node }) => node)), make("div", { class: "two" }, queues.node, failures.node));
  const known = { queues: [], kinds: [], causes: [] };
  onStats((stats) => {
    tiles.show(stats);
    showAttention(attention, stats, known);
  }, signal);
  every(5, async () => {
    known.queues = (await get("queues", {}, signal)).queues;
    showQueues(queues, known.queues);
    if (live.stats) showAttention(attention, live.stats, known);
    due.queues(known.queues.map(({ name }) => name));
  }, signal, queues.fail);
  every(30, async () => (known.kinds = (await get("kinds", {}, signal)).kinds), signal);
  const readFailures = async () => showFailures(failures, (known.causes = await get("jobs/errors", { last: 10_000 }, signal)));
  every(30, readFailures, signal, failures.fail);
  followFailures(readFailures, signal);
}

/**
 * A chart of due times with a choice of its span.
 * @param {{queue?: string, signal: AbortSignal}} options with a queue, of that queue alone
 */
export function duePanel({ queue = "", signal }) {
  const asked = { span: sessionStorage.getItem("erelong.span") || "24 h", queue };
  let shown = null;
  const chart = bars({ label: "Due times", unit: "due", open: (index) => openSpan(shown, index, asked.queue) });
  const sides = make("p", { class: "sides" });
  const spans = make("div", { class: "choices", role: "group", "aria-label": "Span" }, Object.keys(SPANS).map((name) =>
    button(name, () => choose({ span: name }), { sort: "link", "aria-pressed": String(name === asked.span) })));
  const pick = choice([["", "all queues"]], "", (name) => choose({ queue: name }), { "aria-label": "Queue" });
  const part = panel("Due times", { tools: [spans, queue ? "" : pick], name: "due" });
  const read = async () => {
    const [step, bins] = SPANS[asked.span];
    shown = await get("due", { step, bins, queue: asked.queue || null }, signal);
    if (!chart.node.isConnected) fill(part.body, chart.node, sides);
    chart.show({ from: Date.parse(shown.from), step: shown.step, counts: shown.counts, caption: captionOf(shown) });
    fill(sides, make("span", {}, "overdue ", make("b", {}, number(shown.overdue))), make("span", {}, "later ", make("b", {}, number(shown.later))));
    part.fresh(`as of ${timeOf(shown.as_of)}`);
  };
  const choose = (change) => {
    Object.assign(asked, change);
    sessionStorage.setItem("erelong.span", asked.span);
    for (const one of spans.children) one.setAttribute("aria-pressed", String(one.textContent === asked.span));
    read().catch(part.fail);
  };
  every(5, read, signal, part.fail);
  return {
    node: part.node,
    queues(names) {
      if (pick.length !== names.length + 1) fill(pick, [["", "all queues"], ...names.map((name) => [name, name])].map(([value, text]) => make("option", { value, selected: value === asked.queue }, text)));
    },
  };
}

/** Return the three charts of the last hour. */
function hourPanels(signal) {
  const flow = lines({ label: "Done, failed and retried per second in the last hour", format: rate });
  const late = lines({ label: "Lateness in the last hour", format: duration, isLog: true });
  const load = lines({ label: "Due and running jobs in the last hour", format: short });
  const panels = [panel("Done · failed · retried, 1 h"), panel("Lateness, 1 h"), panel("Due · running, 1 h")];
  every(30, async () => {
    const { series, notes, now: at } = await get("stats", { span: "1h" }, signal);
    if (!series) return panels.forEach(({ node }) => (node.hidden = true));
    const shared = { from: Date.parse(series.from), step: series.step, marks: notes.filter(({ event }) => event === "started" || event === "clock_stepped").map((note) => ({ at: Date.parse(note.at), text: note.event === "started" ? "start" : `clock ${note.detail}` })) };
    const line = (name, from) => ({ name, values: series[from] });
    flow.show({ ...shared, lines: [line("done", "succeeded"), line("failed", "failed"), line("retried", "retried")] });
    late.show({ ...shared, lines: [line("p50", "late_p50"), line("p99", "late_p99")] });
    load.show({ ...shared, lines: [line("due", "due"), line("running", "running")] });
    [flow, late, load].forEach((chart, index) => {
      if (!chart.node.isConnected) fill(panels[index].body, chart.node);
      panels[index].fresh(`as of ${timeOf(at)}`);
    });
  }, signal, (problem) => panels.forEach((part) => part.fail(problem)));
  return panels;
}

function makeTiles() {
  const values = TILES.map(() => make("b", {}, "–"));
  const node = make("dl", { class: "tiles" }, TILES.map(([name, , href], index) =>
    make("div", {}, make("dt", {}, href ? link(href, name) : name), make("dd", {}, values[index]))));
  return {
    node,
    show(stats) {
      TILES.forEach(([name, read], index) => {
        const value = read(stats);
        if (typeof value === "string") say(values[index], value);
        else fill(values[index], value);
        values[index].classList.toggle("bad", Boolean(COLORED[name] && COLORED[name](stats)));
      });
    },
  };
}

function captionOf({ counts, from, step, overdue, later, sampled }) {
  const peak = Math.max(...counts);
  const total = counts.reduce((sum, one) => sum + one, 0);
  if (!total) return later || overdue ? "Nothing is due in this span." : "No job is waiting.";
  const at = Date.parse(from) + counts.indexOf(peak) * step * 1000;
  const end = timeOf(at + step * 1000, { seconds: step < 60, day: "never" });
  return `${sampled > 1 ? "About " : ""}${number(total)} due in this span. Peak: ${number(peak)} at ${timeOf(at, { seconds: step < 60 })}–${end}.`;
}

function openSpan({ from, step }, index, queue) {
  const at = Date.parse(from) + index * step * 1000;
  const query = new URLSearchParams({ state: "scheduled", order: "due_at", due_after: new Date(at).toISOString(), due_before: new Date(at + step * 1000).toISOString() });
  if (queue) query.set("queue", queue);
  location.hash = `#/jobs?${query}`;
}

function followFailures(read, signal) {
  let timer = 0;
  const soon = () => {
    timer ||= setTimeout(() => {
      timer = 0;
      if (!signal.aborted && !live.isPaused) read().catch(() => {});
    }, 5_000);
  };
  stream({ type: ["job.failed", "job.expired"] }, soon, soon, signal);
}

function showQueues(part, queues) {
  const shown = queues.toSorted((a, b) => b.counts.due - a.counts.due || b.counts.running - a.counts.running || b.counts.scheduled - a.counts.scheduled).slice(0, 8);
  part.fresh(`as of ${timeOf(now())}`);
  if (!shown.length) return fill(part.body, make("p", { class: "empty" }, "No queue yet. A queue exists once a job, a setting or a pause names it."));
  const list = part.body.querySelector("ul") || fill(part.body, make("ul", { class: "list queues" })).firstChild;
  keyed(list, shown, ({ name }) => name, (queue, known) => {
    const item = known || make("li", {});
    return fill(item, link(`#/queues/${encodeURIComponent(queue.name)}`, queue.name, { class: "name" }),
      make("span", { class: queue.paused ? "state paused" : "soft" }, queue.paused ? [icon("paused"), "paused"] : ""),
      make("span", {}, make("small", {}, "due "), number(queue.counts.due)),
      make("span", {}, make("small", {}, "running "), number(queue.counts.running), share(queue.counts.running, queue.settings.concurrency)),
      make("span", {}, make("small", {}, "p99 "), duration(queue.late_p99)));
  });
}

function showFailures(part, { causes, of, scanned }) {
  part.fresh(`${scanned < of ? `newest ${number(scanned)} of ` : "all "}${number(of)}`);
  if (!causes.length) return fill(part.body, make("p", { class: "empty" }, "No failed jobs."));
  fill(part.body, make("ul", { class: "list causes" }, causes.slice(0, 8).map((cause) => make("li", {},
    make("b", {}, number(cause.count)), make("span", { class: "name" }, cause.kind),
    link(`#/failed?cause=${cause.cause}`, [make("span", { class: "type" }, cause.type), " ", cause.message], { class: "message", title: cause.message }),
    spark(cause.by_hour, "failures by hour in the last day")))));
}

/** List what needs a person, the worst first. */
function showAttention(place, stats, { queues, kinds, causes }) {
  const found = [...ofChecks(stats), ...ofQueues(queues), ...ofWorkers(kinds), ...ofLimits(queues), ...ofFailures(stats, causes), ...ofHost(stats)];
  const text = JSON.stringify(found.map(({ name, text: words }) => [name, words]));
  if (place.dataset.text === text) return;
  place.dataset.text = text;
  place.hidden = !found.length;
  fill(place, make("h2", {}, icon("warning"), `${count(found.length, "issue needs", "issues need")} attention`),
    make("ul", {}, found.map(({ name, text: words, actions = [] }) => make("li", {}, make("b", {}, name), make("span", {}, words), make("span", { class: "actions" }, actions)))));
}

const ofChecks = ({ checks }) => Object.entries(checks || {}).filter(([, state]) => !state.startsWith("ok")).map(([name, text]) => ({ name, text }));

const ofQueues = (queues) => queues.filter(({ paused, counts }) => paused && counts.due).map((queue) => ({
  name: queue.name,
  text: `paused with ${count(queue.counts.due, "due job")}${queue.oldest_due_age ? `; the oldest is ${duration(Math.round(queue.oldest_due_age / 60) * 60 || queue.oldest_due_age)} overdue` : ""}${queue.pause?.reason ? `; “${queue.pause.reason}”` : ""}`,
  actions: [can("admin") ? button("Resume", () => resume(queue.name)) : "", showOf(queue.name)],
}));

const ofWorkers = (kinds) => kinds.filter(({ type, counts, polling }) => type === "pull" && counts && counts.due && polling === 0).map(({ name, counts }) => ({
  name,
  text: `${count(counts.due, "due job")}, but no worker is polling for this kind`,
  actions: [link(`#/jobs?state=due&kind=${name}`, "Show")],
}));

function ofLimits(queues) {
  const found = [];
  for (const { name, counts, settings, oldest_due_age: age, paused } of queues) {
    const isFull = counts.running >= settings.concurrency;
    if (!paused && age > 60 && (isFull || settings.rate)) {
      const limit = isFull ? `all ${number(settings.concurrency)} of its jobs are running (concurrency)` : `its rate is ${settings.rate.per_second}/s`;
      found.push({ name, text: `${count(counts.due, "job")} due, the oldest ${duration(age)} ago: ${limit}`, actions: [link(`#/queues/${name}`, "Set")] });
    }
    if (settings.max_backlog && counts.scheduled >= 0.8 * settings.max_backlog) {
      found.push({ name, text: `${number(counts.scheduled)} of at most ${number(settings.max_backlog)} jobs wait; then: ${settings.overflow.replaceAll("_", " ")}`, actions: [link(`#/queues/${name}`, "Set")] });
    }
  }
  return found;
}

function ofFailures({ rates, abandoned }, { causes = [] }) {
  const found = [];
  const attempts = rates.succeeded + rates.failed + (rates.retried || 0);
  const recent = causes.filter(({ last_at: at }) => now() - Date.parse(at) < 600e3);
  if (rates.failed + (rates.retried || 0) >= 0.05 * attempts && recent.some(({ count: jobs }) => jobs >= 20)) {
    const [worst] = recent;
    found.push({ name: worst.kind, text: `fails: ${count(worst.count, "job")}, ${worst.type}: ${worst.message}`, actions: [link(`#/failed?cause=${worst.cause}`, "Show")] });
  }
  if (abandoned) found.push({ name: "abandoned", text: `${count(abandoned, "attempt")} ended, but the code still runs: a kind swallows its cancellation` });
  return found;
}

function ofHost({ host, notes, now: at }) {
  const found = [];
  if (host && host.disk_free !== null && host.store_bytes !== null && host.disk_free < 2 * host.store_bytes) {
    found.push({ name: "disk", text: `${bytes(host.disk_free)} free, the store takes ${bytes(host.store_bytes)}` });
  }
  const starts = notes.filter((note) => note.event === "started" && Date.parse(at) - Date.parse(note.at) < 3600e3);
  if (starts.length >= 3) found.push({ name: "restarts", text: `${starts.length} starts in the last hour; the log says why it ended` });
  const step = notes.findLast((note) => note.event === "clock_stepped" && Date.parse(at) - Date.parse(note.at) < 600e3);
  if (step) found.push({ name: "clock", text: `was stepped by ${step.detail} at ${timeOf(step.at)}` });
  return found;
}

const showOf = (queue) => link(`#/jobs?state=due&queue=${encodeURIComponent(queue)}`, "Show");

async function resume(name) {
  try {
    await call("POST", pathOf("queues", name, "resume"), { body: {} });
    announce(`${name} resumed.`);
  } catch (problem) {
    complain(problem);
  }
}
