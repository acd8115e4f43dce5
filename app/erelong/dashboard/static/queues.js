/** Queues: what waits and runs in each, its limits, when its jobs are due, and what can be done to it. */

import { bars, share, spanOf } from "./chart.js";
import { announce, ask, attempt, formOf, REASON, submitButton } from "./dialog.js";
import {
  action, at, button, choice, choices, facts, fields, fill, go, h, input, link, linkButton, menu, optionsOf, panel,
  paused, when,
} from "./dom.js";
import { numberOf, wrong } from "./form.js";
import { call, can, get, post } from "./service.js";
import { tableScreen } from "./table.js";
import { MINUTE, asOf, count, duration, fromNow, number, rate, shortId, stepStart, sumOf, timeOf } from "./text.js";

const SPANS = { "10 min": [10, 60], "1 h": [60, 60], "24 h": [900, 96], "7 d": [7200, 84], "30 d": [43_200, 60] };
const QUEUE_ORDERS = [["due", "most due"], ["late", "latest"], ["failed", "most failed"], ["name", "by name"]];
const OVERFLOWS = [["reject", "reject new jobs"], ["drop_oldest", "drop the oldest"], ["wait", "let submits wait"]];
export const NO_QUEUES = "No queue yet. A queue exists once a job, a setting or a pause names it.";
const LIMITS = [
  ["concurrency", "Concurrency", "", "Jobs that run at once."],
  ["rate", "Rate per second", "", "Starts per second.", { placeholder: "no limit" }],
  ["burst", "Burst", "", "", { placeholder: "as the rate" }],
  ["label_concurrency", "Label", "", "Values of this label take turns.", { placeholder: "label" }],
  ["each", "Jobs per value", "", "", { placeholder: "no limit" }],
  ["max_backlog", "Backlog", "", "Waiting jobs at most; 0: no limit."],
  ["overflow", "When full", "", "", { options: OVERFLOWS }],
];
const PEEKED = 5;
const QUEUES_PER_PAGE = 25;
const MOST_QUEUES = 1_000;
const PACE = 200; // milliseconds for each queue that is read

export function showQueues({ main, title }) {
  let found = { queues: [] };
  let pages = 1;
  let nextAt = 0;
  const search = input("", { type: "search", placeholder: "Find a queue", "aria-label": "Find a queue" });
  const order = choice(QUEUE_ORDERS, "due", () => {
    screen.table.show([]); // so that no row stays in its place
    pages = 1;
    reread();
  }, { "aria-label": "Order" });
  const more = h("div", action("Show more", () => {
    pages += 1;
    reread();
  }));
  const read = async (_, table) => {
    const query = search.value ? { order: "name", limit: MOST_QUEUES }
      : { order: order.value, limit: QUEUES_PER_PAGE * pages };
    if (Date.now() > nextAt && !(search.value && found.limit === MOST_QUEUES)) {
      found = { ...query, ...(await get("queues", { ...query, view: "brief" })) };
      nextAt = Date.now() + PACE * found.queues.length;
    }
    const shown = found.queues.filter(({ name }) => name.includes(search.value.trim()));
    more.hidden = !found.next;
    return { rows: inPlace(table.rows, shown), none: found.queues.length ? "No queue name matches." : NO_QUEUES };
  };
  const reread = (queue) => {
    if (screen.table.find(queue?.name)) screen.table.update(queue);
    nextAt = 0;
    screen.again();
  };
  title("Queues");
  const screen = tableScreen(main, {
    name: "Queues", tools: [search, order, more], read, key: "name", open: ({ name }) => go("queues", name),
    columns: queueColumns(reread),
  });
  search.oninput = () => reread();
  return screen;
}

/** Show one queue. */
export function showQueue({ main, args: [name], title }) {
  const head = h("p.lead");
  const actions = h("div.actions");
  const counts = panel("Now");
  const limits = panel("Limits");
  let [queue, form] = [null, null];
  const due = duePanel({ queue: name, queues: () => (queue ? [queue] : []) });
  const again = () => read();
  const read = counts.poll(5, async () => {
    try {
      queue = await get(["queues", name]);
    } catch (problem) {
      if (problem.status === 404) limits.node.hidden = due.node.hidden = next.hidden = true;
      throw problem;
    }
    const { paused: isPaused, pause } = queue;
    const by = pause?.by && ` by ${pause.by}`;
    fill(head, isPaused && [paused(), when(pause?.at), by, pause?.reason && h("span", `“${pause.reason}”`)]);
    fill(actions, queueActions(queue, again));
    counts.show(countsOf(queue));
    form ??= limitsForm(name, again);
    limits.show(form.node, "");
    form.update(queue);
  });
  const next = peekPanel(name);
  title(name);
  fill(main, h("h1", name), head, actions, h("div.two", h("div.column", counts.node, next), limits.node), due.node);
}

/** Make a chart of due times with a choice of its span. @param {{queue?: string, queues: () => any[]}} options */
export function duePanel({ queue = "", queues }) {
  const asked = { span: sessionStorage.getItem("erelong.span") || "24 h", queue };
  const open = (from, to) => {
    const [after, before] = [from, to].map((instant) => new Date(instant).toISOString());
    go("jobs", { state: "scheduled", order: "due_at", queue: asked.queue, due_after: after, due_before: before });
  };
  const chart = bars({ label: "Due times", unit: "due", open });
  const spans = h("div");
  const pick = choice([["", "all queues"]], "", (name) => choose({ queue: name }), { "aria-label": "Queue" });
  const part = panel("Due times", { name: "due", tools: [spans, !queue && pick] });
  const read = part.poll(5, async () => {
    const { span, queue: name } = asked;
    const [step, bins] = SPANS[span];
    const found = await get("due", { from: stepStart(step), step, bins, queue: name });
    if (span !== asked.span || name !== asked.queue) return;
    const chosen = queues().find((one) => one.name === name) || {};
    const shown = { ...found, from: Date.parse(found.from), limit: chosen.settings?.rate?.per_second * found.step };
    const sides = [["earlier", found.overdue], ["later", found.later]]
      .map(([word, jobs]) => h("span", `${word} `, h("b", number(jobs))));
    part.show([chart.node, h("p.sides", sides)], asOf(found.as_of));
    chart.show({ ...shown, caption: captionOf(shown) + catchUpOf(chosen) });
  });
  const showSpans = () => fill(spans, choices("Span", Object.keys(SPANS), asked.span, (span) => choose({ span })));
  const choose = (change) => {
    Object.assign(asked, change);
    sessionStorage.setItem("erelong.span", asked.span);
    showSpans();
    read();
  };
  showSpans();
  return { node: part.node, queues: (names) => {
    if (pick.length <= names.length) fill(pick, optionsOf([["", "all queues"], ...names], asked.queue));
  } };
}

/** Make a button that pauses or resumes a queue. */
export const pauseQueueButton = ({ name, paused: isPaused }, again) =>
  can("admin") && switchButton(["queues", name], isPaused, "Its jobs stop starting; running ones finish.", again);

/** Make a button that pauses, with a reason, or resumes a queue or a schedule. */
export function switchButton(path, isPaused, about, again = () => {}) {
  const [, name] = path;
  const pause = () => ask({
    title: `Pause ${name}?`, verb: "Pause", about, entries: [REASON], said: `${name} paused.`,
    act: (given) => post([...path, "pause"], given),
  });
  const resume = () => attempt(post([...path, "resume"]), `${name} resumed.`);
  return button(isPaused ? "Resume" : "Pause", () => (isPaused ? resume : pause)().then(again));
}

const queueActions = (queue, again) => [
  pauseQueueButton(queue, again) || h("span.soft", "This key can view queues but not change them."),
  linkButton(at("jobs", { state: "due", queue: queue.name }), "Due jobs"),
  linkButton(at("jobs", { queue: queue.name }), "All jobs"),
  linkButton(at("failed", { queue: queue.name }), "Failures"), purgeButton(queue, again),
];

const purgeButton = (queue, again) =>
  can("cancel") && queue.counts.scheduled > 0 && button("Cancel all waiting jobs…", () => purge(queue).then(again));

const resetButton = ({ name, overridden }, again) => can("admin") && overridden && button("Reset to config", () =>
  attempt(call("PUT", ["queues", name], { body: {} }), "The settings of config.toml apply.")
    .then((answer) => again(answer?.json)));

/** Cancel all waiting jobs of a queue, after a question. */
async function purge({ name, counts }) {
  const found = await ask({
    title: `Cancel all ${count(counts.scheduled, "waiting job")} of ${name}?`, isBad: true,
    verb: "Cancel all waiting jobs", about: "They will not run. Running jobs finish.",
    entries: [["name", "Queue", "", `Type ${name} to confirm.`]],
    act: (given) => {
      if (given.name !== name) throw new Error(`Type ${name} to confirm.`);
      return post(["queues", name, "purge"], {}, { patience: 120 });
    },
  });
  if (found) announce(`${count(found.cancelled, "job")} cancelled.`);
}

const queueColumns = (again) => [
  ["Queue", ({ name }) => link(at("queues", name), name)],
  ["State", (queue) => (queue.paused ? paused(queue.pause?.reason) : h("span.soft", "active"))],
  ["Due", ({ counts }) => number(counts.due), "number"],
  ["Waiting", ({ counts }) => number(counts.scheduled), "number"],
  ["Running", runningOf, "number"],
  ["Rate limit", ({ settings }) => (settings.rate ? rate(settings.rate.per_second) : "–"), "number"],
  ["Late p99", (queue) => duration(queue.late_p99), "number"],
  ["Failed", ({ name, counts: { failed } }) =>
    (failed ? link(at("failed", { queue: name }), number(failed), { class: "bad" }) : "0"), "number"],
  ["", (queue) => [pauseQueueButton(queue, again), menu(`More for ${queue.name}`,
    linkButton(at("queues", queue.name), "Limits"), linkButton(at("jobs", { queue: queue.name }), "Show jobs"),
    purgeButton(queue, again), resetButton(queue, again))], "actions"],
];

const runningOf = ({ counts: { running }, settings: { concurrency } }) =>
  [`${number(running)}/${number(concurrency)}`, share(running, concurrency)];

/** Return new data in the order of the rows on screen, so that none moves by itself. */
function inPlace(rows, found) {
  const left = new Map(found.map((queue) => [queue.name, queue]));
  const kept = rows.flatMap(({ name }) => left.get(name) || []);
  kept.forEach(({ name }) => left.delete(name));
  return [...kept, ...left.values()];
}

const countsOf = ({ counts, rates, oldest_due_age: age, late_p99: late, ...queue }) => facts([
  ["due", number(counts.due)], ["oldest due", age && `${duration(age)} ago`], ["waiting", number(counts.scheduled)],
  ["running", runningOf({ counts, ...queue })], ["late p99", duration(late)],
  ["last minute", `${rate(rates.started)} started, ${rate(rates.failed)} failed`],
  ...["succeeded", "failed", "cancelled", "expired"].map((word) => [word, number(counts[word])]),
]);

function captionOf({ counts, from, step, overdue, later, sampled }) {
  const peak = Math.max(...counts);
  const total = sumOf(counts);
  if (!total) return later || overdue ? "Nothing is due in this span." : "No job is waiting.";
  const span = spanOf({ from, step }, counts.indexOf(peak));
  return `${sampled > 1 ? "About " : ""}${number(total)} due in this span. Peak: ${number(peak)} at ${span}.`;
}

/** Return when the due jobs of a queue with a rate have started, unless that is soon. */
function catchUpOf({ name, paused: isPaused, counts, settings: { rate: limit } = {} }) {
  const seconds = counts?.due / limit?.per_second;
  if (isPaused || !(seconds > 1)) return "";
  const end = timeOf(fromNow(seconds), { seconds: seconds < MINUTE });
  return ` ${name} is limited to ${rate(limit.per_second)} and catches up at about ${end}.`;
}

/** Show the jobs of a queue that start next. */
function peekPanel(queue) {
  const ordered = (order, text) => link(at("jobs", { state: "due", queue, order }), text);
  const part = panel("Starts next", { tools: [ordered("next", "All"), ordered("last", "From the end")] });
  const item = (job) => h("li", { "data-key": job.id },
    link(at("jobs", job.id), job.key || shortId(job.id), {}, "a.name"), h("span", job.kind),
    when(job.due_at, "overdue"));
  part.poll(10, async () => {
    const { jobs } = await get("jobs", { queue, order: "next", limit: PEEKED });
    part.show(jobs.length ? h("ol.list", jobs.map(item)) : h("p.empty", "No job is due."));
  });
  return part.node;
}

/** Make the form of the settings of a queue. What somebody has typed stays when new settings arrive. */
function limitsForm(name, again) {
  const { nodes, controls } = fields(LIMITS, { disabled: !can("admin") });
  const source = h("p.soft");
  const names = Object.keys(controls);
  let base = {}; // the settings that were shown
  const changed = (texts) => names.filter((one) => texts[one] !== base[one]);
  const typed = () => Object.fromEntries(names.map((one) => [one, controls[one].value.trim()]));
  const show = (texts) => names.forEach((one) => (controls[one].value = texts[one]));
  const rebase = ({ settings, overridden }) => {
    base = textsOf(settings);
    fill(source, overridden ? "◆ Set here: differs from config.toml." : "As in config.toml.");
  };
  const restart = (queue) => {
    rebase(queue);
    show(base);
  };
  const save = async () => {
    const latest = await get(["queues", name]);
    const mine = typed();
    const own = changed(mine);
    const clashes = changed(textsOf(latest.settings)).filter((one) => own.includes(one));
    rebase(latest);
    const wanted = { ...base, ...Object.fromEntries(own.map((one) => [one, mine[one]])) };
    show(wanted);
    const texts = clashes.map((one) => `${one} is ${base[one] || "not set"}`);
    if (clashes.length) throw new Error(`Somebody else has changed it: ${texts.join(", ")}. Save again to replace it.`);
    const body = bodyOf(wanted, latest.settings);
    restart((await call("PUT", ["queues", name], { body })).json);
    announce("Limits saved; they apply at once.");
    again();
  };
  const reset = resetButton({ name, overridden: true }, (queue) => queue && again(restart(queue)));
  const { node } = formOf("form.form", [nodes, source], can("admin") && submitButton("Save"), save, reset);
  return { node, update: (queue) => base.overflow && changed(typed()).length ? null : restart(queue) };
}

/** Return the settings of a queue as its form shows them. */
function textsOf({ concurrency, rate: limit, label_concurrency: labels, max_backlog: backlog, overflow }) {
  const values = {
    concurrency, rate: limit?.per_second, burst: limit?.burst, label_concurrency: labels?.label, each: labels?.limit,
    max_backlog: backlog, overflow,
  };
  return Object.fromEntries(Object.entries(values).map(([name, value]) => [name, String(value ?? "")]));
}

/** Return settings as somebody has typed them, with those that the form does not show. */
function bodyOf(texts, { timeout, retry, retention }) {
  const { rate: perSecond, burst, label_concurrency: label, each, overflow } = texts;
  const amount = (name, isNeeded = true) => numberOf(texts[name], `/${name}`, { isNeeded });
  if (burst && !perSecond) throw wrong("needs a rate", "/burst");
  if (each && !label) throw wrong("needs a label", "/each");
  const others = Object.entries({ timeout, retry, retention }).filter(([, value]) => value !== null);
  return {
    ...Object.fromEntries(others), concurrency: amount("concurrency"), max_backlog: amount("max_backlog"), overflow,
    rate: perSecond ? { per_second: amount("rate"), burst: amount("burst", false) } : null,
    label_concurrency: label ? { label, limit: amount("each") } : null,
  };
}
