/** Dialogs, what is said about an action, and operations on many jobs with their progress. */

import { shares } from "./chart.js";
import { action, button, byId, choice, facts, field, fields, fill, h } from "./dom.js";
import { call, can, every, get, post, reasonOf } from "./service.js";
import { count, duration, number, stateWord } from "./text.js";

const MANY_JOBS = 1_000;
const SPREADS = [["", "none"], ["60", "1 min"], ["600", "10 min"], ["3600", "1 h"], ["86400", "24 h"]];
const ACTIONS = {
  run: ["Run now", "Made due"], retry: ["Retry", "Retried"], patch: ["Reschedule", "Rescheduled"],
  cancel: ["Cancel", "Cancelled"], delete: ["Delete", "Deleted"], backfill: ["Make", "Made"],
};
const CONFIRM = ["confirm", "Number", "", "Type the number of jobs to confirm.", { inputmode: "numeric" }];

/** A field for a reason: an entry of `fields`. */
export const REASON = ["reason", "Reason", "", "Optional; everybody sees it.", { maxlength: 500 }];

/** Say the result of an action, in a corner and to screen readers. */
export function announce(text, more, kind = "") {
  const note = h(`div.note.${kind}`, h("span", text), more, dismiss(() => note.remove()));
  byId("tasks").append(note);
  fill(byId("said"), text);
  setTimeout(() => note.remove(), kind ? 15_000 : 6_000);
}

export const complain = (problem) => announce(problemText(problem), null, "bad");

/** Do what the user asked for, and say that it is done or why not. Return the result, if there is one. */
export async function attempt(work, said) {
  try {
    const result = await work;
    announce(said);
    return result;
  } catch (problem) {
    return complain(problem);
  }
}

/**
 * Ask in a dialog. Its button calls `act` with what was typed and closes it, unless `act` raises: that is shown inside.
 * @param {{title: string, verb: string, about?: any, entries?: any[], isBad?: boolean, isWide?: boolean, said?: string,
 *   act: (given: Object<string, string>, parts: any) => any, begin?: (parts: any) => void}} options `entries` as of
 *   `fields`; `begin` may change the parts of the dialog; `said` is announced at the end
 * @returns {Promise<any>} what `act` returned, or null
 */
export function ask({ title, verb, about, entries = [], isBad = false, isWide = false, said, act, begin }) {
  const { nodes, read } = fields(entries);
  const [heading, content] = [h("h2", title), h("div.content", about && h("div", about), nodes)];
  const go = submitButton(verb, isBad ? "button.bad" : "button.main");
  let result = null;
  const work = async () => {
    result = (await act(read(), parts)) ?? true;
    dialog.close();
    if (said) announce(said);
  };
  const form = formOf("form", [heading, content], go, work, button("Go back", () => dialog.close()));
  const parts = { heading, content, go, run: form.run };
  const dialog = h(`dialog.${isWide ? "wide" : ""}`, { "aria-label": title }, form.node);
  const closed = popUp(dialog);
  begin?.(parts);
  return closed.then(() => result);
}

/** Show a dialog until it is closed; then the focus returns to where it was. */
export function popUp(dialog) {
  const opener = document.activeElement;
  document.body.append(dialog);
  dialog.showModal();
  return new Promise((resolve) => dialog.addEventListener("close", () => {
    dialog.remove();
    if (opener?.isConnected) opener.focus();
    resolve();
  }));
}

/**
 * Make a form: its button `go` does `work`, and what is wrong is shown inside.
 * @param {string} spec its element @param {any[]} more below its fields
 * @returns {{node: HTMLElement, run: (work: () => any, button?: HTMLElement) => Promise<void>}} `run` does other work
 *   in the same way; the button is disabled meanwhile
 */
export function formOf(spec, content, go, work, ...more) {
  const fault = h("div.fault", { role: "alert" });
  const run = async (act, pressed = go) => {
    const isFocused = document.activeElement === pressed;
    pressed.disabled = true;
    try {
      await act();
      showProblem(node, fault, null);
    } catch (problem) {
      showProblem(node, fault, problem);
    }
    pressed.disabled = false;
    if (isFocused && document.activeElement === document.body) pressed.focus(); // a disabled button loses the focus
  };
  const onsubmit = (event) => {
    event.preventDefault();
    if (!go.disabled) run(work);
  };
  const node = h(spec, { onsubmit }, content, fault, go && h("div.actions", go, more));
  return { node, run };
}

/** Return a function that sends a POST. If no answer comes, the same POST again does nothing twice. */
export function sender() {
  let [sent, key] = [null, null];
  return async (path, body) => {
    const text = JSON.stringify(body);
    if (text !== sent) [sent, key] = [text, `ui-${Date.now()}-${Math.random()}`];
    const answer = await post(path, body, { headers: { "Idempotency-Key": key } });
    sent = null;
    return answer;
  };
}

export const submitButton = (verb, spec = "button.main") => h(spec, { type: "submit" }, verb);

/** Show what is wrong with a form, or that nothing is: details of a 422 below their fields, the rest in one place. */
export function showProblem(form, place, problem, isQuiet = false) {
  const places = [...form.querySelectorAll("[data-pointer]")];
  for (const one of places) fill(one.querySelector(".fault"));
  if (!problem) return fill(place);
  const errors = problem.pointer ? [{ pointer: problem.pointer, detail: problem.message }] : problem.errors || [];
  const left = [];
  let first = null;
  for (const { pointer, detail } of errors) {
    const isOf = (prefix) => `${pointer}/`.startsWith(`${prefix}/`);
    const found = places.findLast(({ dataset }) => dataset.pointer.split(" ").some(isOf));
    if (found) fill(found.querySelector(".fault"), detail);
    else left.push(`${pointer}: ${detail}`);
    first ||= found;
  }
  first?.closest("details")?.setAttribute("open", "");
  const control = (spec) => first?.querySelector(spec);
  if (!isQuiet) (control("input:not([hidden]), textarea") || control("select"))?.focus();
  const id = problem.request_id && h("small", ` ${problem.code} · ${problem.request_id}`);
  return fill(place, errors.length ? left.join("; ") : [problemText(problem), problem.node, id]);
}

/** Ask about an action on all jobs of a filter, start it and show its progress. Return the operation, or null. */
export const bulk = (name, filter, what, more) => operate(name, "operations", { action: name, filter, ...more }, what);

/** Count the jobs of an operation, ask, start it and show its progress. Return the operation, or null. */
export async function operate(name, path, body, what) {
  const [verb] = ACTIONS[name];
  const { nodes: [confirm, reason], read } = fields([CONFIRM, REASON]);
  const spread = choice(SPREADS, "");
  const send = sender();
  let found = null;
  const begin = async ({ heading, content, go, run }) => {
    await run(async () => {
      found = await post(path, body, { query: { dry_run: "true" }, patience: 60 });
      const jobs = `${found.more ? "more than " : ""}${count(found.matches, "job")}`;
      fill(heading, `${verb} ${jobs}?`);
      fill(go, `${verb} ${jobs}`);
      fill(content, h("p", `${what}.`), await consequences(name, found, field("Spread over", spread)),
        name === "cancel" && reason, found.matches >= MANY_JOBS && confirm);
    });
    go.disabled = !found?.matches;
    (content.querySelector("input") || go).focus();
  };
  const act = () => {
    const { confirm: typed = "", ...given } = read();
    if (found.matches >= MANY_JOBS && typed.replaceAll(/\D/g, "") !== String(found.matches)) {
      throw new Error(`Type ${found.matches} to confirm.`);
    }
    const most = body.filter && { at_most: found.more ? null : found.matches };
    return send(path, { ...body, ...most, ...given, ...(spread.value && { spread: Number(spread.value) }) });
  };
  const isBad = name === "cancel" || name === "delete";
  const operation = await ask({ title: `${verb} jobs?`, verb, isBad, about: "Counting jobs…", begin, act });
  if (operation) progress(operation);
  return operation;
}

/** Show the progress of an operation until it is over, over all screens. */
export function progress(operation) {
  const end = new AbortController();
  const note = h("div.note", { role: "group", "aria-label": "Progress" });
  const close = dismiss(() => note.remove());
  const show = (found) => {
    fill(note, h("span", toldOf(found)), progressBar(found),
      stopButton(found, action) || close);
    if (!found.finished_at) return;
    end.abort();
    fill(byId("said"), toldOf(found));
    setTimeout(() => note.remove(), 20_000);
  };
  byId("tasks").append(note);
  show(operation);
  every(0.5, async () => show(await get(["operations", operation.id])), () => {}, end);
}

export const progressBar = ({ done, skipped, failed, matches }) => shares([[done + skipped + failed]], matches);

/** Make a button that stops an operation, if it is not over and the key may. */
export const stopButton = ({ id, action: name, finished_at: end }, make = button) =>
  !end && can(name === "cancel" || name === "delete" ? "cancel" : "submit") &&
  make("Stop", () => attempt(call("POST", ["operations", id, "cancel"], { body: {} }), "Stopping."));

/** Return what an operation has done, in words. */
export function toldOf({ action: name, state, done, matches, skipped, failed, errors }) {
  const [verb, past] = ACTIONS[name];
  if (state === "refused") return "Nothing was changed: more jobs match than when you confirmed. Try again.";
  if (matches === null) return `${verb}: counting jobs…`;
  const unchanged = name === "backfill" ? "had a job already" : "changed meanwhile";
  const tail = [skipped && `${number(skipped)} ${unchanged}`, failed && `${number(failed)} refused`];
  const text = [`${past} ${number(done)} of ${number(matches)}`, ...tail.filter(Boolean)].join(" · ");
  const code = errors?.[0]?.code;
  return { cancelled: `Stopped. ${text}`, failed: `Failed${code ? ` (${code})` : ""}. ${text}` }[state] || text;
}

const dismiss = (onclick) => action("×", onclick, { "aria-label": "Dismiss" });

function problemText(problem) {
  const { code, job } = problem;
  return code === "wrong_state" && job ? `This job is already ${stateWord(job.state)}.` : reasonOf(problem);
}

function breakdown(counts) {
  const sorted = Object.entries(counts).sort(([, a], [, b]) => b - a);
  const shown = sorted.slice(0, 5).map(([word, jobs]) => `${stateWord(word)} ${number(jobs)}`);
  return shown.join(", ") + (sorted.length > 5 ? `, and ${sorted.length - 5} more` : "");
}

async function consequences(name, { matches, by }, spread) {
  return [
    matches === 0 && h("p", `None of them can be ${ACTIONS[name][1].toLowerCase()}.`),
    facts(Object.entries(by).map(([word, counts]) => [word, breakdown(counts)])),
    matches > 0 && (name === "run" || name === "retry") && [
      h("p.soft", `They start at once, within the limits of their queues${await limitsOf(by.queue)}.`), spread],
    name === "delete" && h("p.soft", "Deleted jobs are gone.", by.state.scheduled && " Waiting ones never run."),
  ];
}

/** Return which of a few queues are paused, and how long the rates of the others need for so many jobs. */
async function limitsOf(queues) {
  const names = Object.keys(queues).slice(0, 3);
  const found = await Promise.all(names.map((name) => get(["queues", name]).catch(() => null)));
  const limited = found.filter((queue) => queue?.paused || queue?.settings.rate);
  const texts = limited.map(({ name, paused, settings: { rate } }) => `${name}: ${
    paused ? "paused" : `${rate.per_second}/s, so about ${duration(queues[name] / rate.per_second)}`}`);
  return texts.length ? ` (${texts.join("; ")})` : "";
}
