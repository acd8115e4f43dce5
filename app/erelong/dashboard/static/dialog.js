/** Dialogs, what is said about an action, and operations on many jobs with their progress. */

import { call, get, pathOf } from "./api.js";
import { button, choice, draw, facts, field, fill, make, say } from "./dom.js";
import { every } from "./live.js";
import { count, now, number, stateWord } from "./text.js";

const MANY = 1_000;
const DONE = { retry: "Retried", cancel: "Cancelled", run: "Made due", delete: "Deleted", patch: "Changed" };
const VERBS = { retry: "Retry", cancel: "Cancel", run: "Run now", delete: "Delete", patch: "Reschedule" };
const OVER = new Set(["succeeded", "cancelled", "refused", "failed"]);

/** Say the result of an action of the user, in a corner and to screen readers. */
export function announce(text, { isBad = false, action = null } = {}) {
  say(document.getElementById("said"), text);
  const note = make("div", { class: `note${isBad ? " bad" : ""}` }, make("span", {}, text), action, button("×", () => note.remove(), { sort: "link", "aria-label": "Dismiss" }));
  document.getElementById("tasks").append(note);
  setTimeout(() => note.remove(), isBad ? 15_000 : 6_000);
}

/** Say why an action failed. */
export const complain = (problem) => announce(`${problem.title || "Failed"}: ${problem.detail || problem.message}`, { isBad: true });

/**
 * Open a dialog; `act(dialog)` is called by its button and closes it unless it raises, which is shown inside.
 * @param {{title: string, body: any, verb: string, isBad?: boolean, act: (dialog: HTMLDialogElement) => Promise<any>, wide?: boolean}} options
 * @returns {Promise<any>} what `act` returned, or null
 */
export function ask({ title, body, verb, isBad = false, act, wide = false, lock = null }) {
  const opener = document.activeElement;
  const fault = make("p", { class: "fault", role: "alert", hidden: true });
  const go = make("button", { type: "submit", class: isBad ? "bad" : "main" }, verb);
  const back = button("Go back", () => dialog.close());
  let result = null;
  const form = make("form", { method: "dialog", onsubmit: submit }, make("h2", {}, title), make("div", { class: "content" }, body), fault, make("div", { class: "actions" }, go, back));
  const dialog = make("dialog", { class: wide ? "wide" : null, "aria-label": title }, form);
  if (lock) lock((isLocked) => (go.disabled = isLocked), (text) => say(go, text));

  async function submit(event) {
    event.preventDefault();
    go.disabled = true;
    try {
      result = (await act(dialog)) ?? true;
      dialog.close();
    } catch (problem) {
      fill(fault, problem.title ? `${problem.title}: ` : "", problem.detail || problem.message, problem.request_id ? make("small", {}, ` ${problem.code} · ${problem.request_id}`) : "").hidden = false;
      place(form, problem.errors || []);
    }
    go.disabled = false;
  }

  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      dialog.remove();
      if (opener && opener.isConnected) opener.focus();
      resolve(result);
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

/** Put the details of a 422 below the fields that they are about; return those without a field. */
export function place(form, errors) {
  const fields = [...form.querySelectorAll("[data-pointer]")];
  fields.forEach((shown) => (shown.querySelector(".fault").hidden = true));
  const left = [];
  let isFirst = true;
  for (const { pointer, detail } of errors) {
    const found = fields.filter((shown) => pointer === shown.dataset.pointer || pointer.startsWith(`${shown.dataset.pointer}/`)).pop();
    if (!found) {
      left.push({ pointer, detail });
      continue;
    }
    fill(found.querySelector(".fault"), detail).hidden = false;
    if (isFirst) found.querySelector("input, select, textarea")?.focus();
    isFirst = false;
  }
  return left;
}

/**
 * Ask about an action on all jobs of a filter, start it and show its progress.
 * @param {{action: string, filter: any, what: string, set?: any, shift?: string}} options `what` describes the jobs
 */
export async function bulk({ action, filter, what, more = {} }) {
  const found = (await call("POST", "operations?dry_run=true", { body: { action, filter, ...more }, patience: 60_000 })).json;
  const total = found.more ? `more than ${number(found.matches)}` : number(found.matches);
  if (!found.matches) return announce(`No job to ${VERBS[action].toLowerCase()}: none of ${what} can be.`);
  const confirm = make("input", { inputmode: "numeric", autocomplete: "off" });
  const reason = make("input", { maxlength: 500 });
  const spread = choice([["", "none"], ["60", "1 min"], ["600", "10 min"], ["3600", "1 h"], ["86400", "24 h"]], "");
  const isMany = found.matches >= MANY;
  const body = [
    make("p", {}, what, "."),
    facts(Object.entries(found.by).map(([name, counts]) => [name, breakdown(name, counts)])),
    action === "retry" || action === "run" ? [make("p", { class: "soft" }, "They start at once, within the limits of their queues."), field("Spread over", spread)] : "",
    action === "cancel" ? field("Reason", reason, { about: "Kept with each job." }) : "",
    action === "delete" ? make("p", { class: "soft" }, "Deleted jobs are gone. Waiting ones never run.") : "",
    isMany ? field("Number", confirm, { about: `Type ${found.matches} to confirm.` }) : "",
  ];
  const operation = await ask({
    title: `${VERBS[action]} ${total} ${found.matches === 1 ? "job" : "jobs"}?`,
    body,
    verb: `${VERBS[action]} ${total} ${found.matches === 1 ? "job" : "jobs"}`,
    isBad: action === "cancel" || action === "delete",
    act: async () => {
      if (isMany && confirm.value.replaceAll(/[,.\s]/g, "") !== String(found.matches)) throw new Error(`type ${found.matches} to confirm`);
      const body = { action, filter, at_most: found.more ? null : found.matches, ...more };
      if (action === "cancel" && reason.value) body.reason = reason.value;
      if (["retry", "run"].includes(action) && spread.value) body.spread = Number(spread.value);
      return (await call("POST", "operations", { body, headers: { "Idempotency-Key": crypto.randomUUID?.() || String(Math.random()) } })).json;
    },
  });
  if (operation) await progress(operation);
  return operation;
}

/** Show the progress of an operation until it is over, over all screens. */
export function progress(operation) {
  const end = new AbortController();
  const text = make("span", {});
  const bar = draw("rect", { height: 6, rx: 1 });
  const stop = button("Stop", () => call("POST", pathOf("operations", operation.id, "cancel"), { body: {} }).catch(complain), { sort: "link" });
  const note = make("div", { class: "note task", role: "group", "aria-label": "Progress" }, text,
    draw("svg", { class: "share", viewBox: "0 0 60 6", preserveAspectRatio: "none", "aria-hidden": "true" }, draw("rect", { class: "all", width: 60, height: 6, rx: 1 }), bar), stop);
  document.getElementById("tasks").append(note);
  const show = (found) => {
    say(text, told(found));
    bar.setAttribute("width", found.matches ? (60 * (found.done + found.skipped + found.failed)) / found.matches : 0);
    if (!OVER.has(found.state)) return;
    end.abort();
    stop.replaceWith(button("×", () => note.remove(), { sort: "link", "aria-label": "Dismiss" }));
    say(document.getElementById("said"), told(found));
    setTimeout(() => note.remove(), 20_000);
  };
  show(operation);
  return every(0.5, async () => show(await get(pathOf("operations", operation.id))), end.signal, () => {});
}

function told({ action, state, done, matches, skipped, failed, code, reason }) {
  const ends = [skipped && `${number(skipped)} changed meanwhile`, failed && `${number(failed)} failed`].filter(Boolean);
  const tail = ends.length ? ` · ${ends.join(" · ")}` : "";
  if (state === "refused") return "Nothing was changed: more jobs match than when you confirmed. Try again.";
  if (matches === null || matches === undefined) return `${VERBS[action] || action}: counting jobs…`;
  const text = `${DONE[action] || action} ${number(done)} of ${number(matches)}${tail}`;
  if (state === "cancelled") return `Stopped. ${text}`;
  return state === "failed" ? `Failed${code || reason ? ` (${code || reason})` : ""}. ${text}` : text;
}

function breakdown(name, counts) {
  const sorted = Object.entries(counts).sort(([, a], [, b]) => b - a);
  const shown = sorted.slice(0, 5).map(([word, jobs]) => `${name === "state" ? stateWord(word) : word} ${number(jobs)}`);
  return shown.join(", ") + (sorted.length > 5 ? `, and ${count(sorted.length - 5, "more")}`.replace("mores", "more") : "");
}

/** Return an instant a little ahead of the clock of the service, as a bound for jobs that exist already. */
export const untilNow = () => new Date(now() + 1).toISOString();

