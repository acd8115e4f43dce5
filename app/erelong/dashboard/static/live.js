/** What stays up to date by itself: statistics once a second, and streams of events, while the tab is visible. */

import { Unreachable, call, open } from "./api.js";
import { setClock } from "./text.js";

const STEPS = [1, 2, 4, 8, 16, 30];
const TRIES = 3;

/** The latest statistics, and how well they arrive. */
export const live = { stats: null, at: 0, failing: null, retryAt: 0, isPaused: false, restartedAt: null, streamFailures: 0 };

const events = new EventTarget();
let wake = () => {};

/** Call a function with the statistics now and whenever they are new. */
export function onStats(listener, signal) {
  if (live.stats) listener(live.stats);
  events.addEventListener("stats", () => listener(live.stats), { signal });
}

/** Call a function when the service is lost, found or restarted. */
export const onHealth = (listener) => events.addEventListener("health", listener);

/** Read statistics for as long as the page lives. */
export async function follow(signal) {
  for (let failures = 0; !signal.aborted;) {
    await visible();
    try {
      await readStats(signal);
      failures = 0;
    } catch (error) {
      if (signal.aborted) return;
      failures += 1;
      live.failing = error;
    }
    const pause = failures ? STEPS[Math.min(failures, STEPS.length) - 1] : live.streamFailures > TRIES ? 5 : 1;
    live.retryAt = Date.now() + pause * 1000;
    if (failures) events.dispatchEvent(new Event("health"));
    await rest(pause * 1000, signal);
  }
}

/** Read the statistics at once. */
export const retryNow = () => wake();

/**
 * Call an async function now and every so many seconds, while the tab is visible and nobody has paused updates.
 * Failures go to `fail`.
 */
export async function every(seconds, work, signal, fail = () => {}) {
  for (let isFirst = true; !signal.aborted; isFirst = false) {
    await visible();
    if (isFirst || !live.isPaused) await work().catch((error) => signal.aborted || fail(error));
    await sleep(seconds * 1000, signal);
  }
}

/** Wait until the tab is visible. */
export function visible() {
  if (!document.hidden) return Promise.resolve();
  return new Promise((resolve) => {
    const look = () => {
      if (document.hidden) return;
      document.removeEventListener("visibilitychange", look);
      resolve();
    };
    document.addEventListener("visibilitychange", look);
  });
}

/**
 * Follow events while the tab is visible; `heard(event)` gets each, `lost()` is called where some may be missing.
 * @param {any} query @param {(event: {type: string, job: any}) => void} heard
 */
export async function stream(query, heard, lost, signal) {
  let last = "";
  for (let failures = 0; !signal.aborted;) {
    await visible();
    const hidden = new AbortController();
    const hide = () => document.hidden && hidden.abort();
    document.addEventListener("visibilitychange", hide);
    try {
      const answer = await open("events", query, last ? { "Last-Event-ID": last } : {}, AbortSignal.any([signal, hidden.signal]));
      if (!answer.ok) throw new Unreachable(`HTTP ${answer.status}`);
      failures = live.streamFailures = 0;
      for await (const { id, type, data } of parts(answer.body)) {
        if (id) last = id;
        if (type === "reset") lost();
        else if (data) heard(JSON.parse(data));
      }
    } catch {
      if (!hidden.signal.aborted) live.streamFailures = failures += 1;
    }
    document.removeEventListener("visibilitychange", hide);
    if (!hidden.signal.aborted) await sleep(STEPS[Math.min(Math.max(failures, 1), STEPS.length) - 1] * 1000, signal);
  }
}

/** Yield the events in the body of a `text/event-stream`. */
export async function* parts(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = "", event = {}; ;) {
    const { done, value } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      if (line === "") {
        if (event.id || event.data) yield event;
        event = {};
      } else if (line.startsWith("id: ")) event.id = line.slice(4);
      else if (line.startsWith("event: ")) event.type = line.slice(7);
      else if (line.startsWith("data: ")) event.data = line.slice(6);
    }
  }
}

/** Wait some milliseconds, or until a signal is aborted. */
export function sleep(milliseconds, signal) {
  return new Promise((resolve) => {
    const end = () => {
      clearTimeout(timer);
      signal.removeEventListener("abort", end);
      resolve();
    };
    const timer = setTimeout(end, milliseconds);
    signal.addEventListener("abort", end);
  });
}

async function readStats(signal) {
  const began = performance.now();
  const { json, headers } = await call("GET", "stats", { signal, patience: 10_000 });
  const before = live.stats;
  const wasFailing = live.failing !== null;
  setClock(json.now, performance.now() - began, headers.get("X-Erelong-Clock") === "virtual");
  Object.assign(live, { stats: json, at: Date.now(), failing: null });
  if (before && before.started_at !== json.started_at) live.restartedAt = json.started_at;
  events.dispatchEvent(new Event("stats"));
  if (wasFailing || !before || before.ready !== json.ready || before.started_at !== json.started_at) events.dispatchEvent(new Event("health"));
}

async function rest(milliseconds, signal) {
  const woken = new AbortController();
  wake = () => woken.abort();
  await sleep(milliseconds, AbortSignal.any([signal, woken.signal]));
}
