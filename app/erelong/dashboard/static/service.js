/** The service: requests, the API key of this tab, statistics once a second, and streams of events. */

import { setClock } from "./text.js";

const BASE = new URL("v1/", location.href.split("#")[0]);
const KEY = "erelong.key";
const TYPING_PAUSE = 300; // milliseconds
const QUIET = 40_000; // milliseconds after which a stream is dead: the service sends something every 15 s
const channel = new BroadcastChannel(`erelong ${location.pathname}`);
const events = new EventTarget();
let wake = () => {};

/** What the key may do: the answer of `GET v1/me`. */
export let me = { scopes: [] };

/** The latest statistics, and how well they arrive. */
export const live = { stats: null, at: 0, problem: null, retryAt: 0, isPaused: false, restartedAt: null, lost: 0 };

/** Ends with the screen that is shown. */
export let screen = new AbortController();

/** An answer other than 2xx, in the words of the service; status 0: no answer. */
export class Problem extends Error {
  constructor(status, { title = `HTTP ${status}`, detail = "", ...more }) {
    super(detail || title);
    Object.assign(this, { status, title, detail, errors: [], ...more });
  }
}

/** Return the title and the detail of a problem, or the message of another error. */
export const reasonOf = ({ title, detail, message }) => (title && detail ? `${title}: ${detail}` : message);

/** Send a request and return its answer; raise a `Problem` otherwise. @param {string | string[]} path below `v1/` */
export async function call(method, path, { query, body, headers, signal, patience = 30 } = {}) {
  const answer = await send(urlOf(path, query), {
    method,
    headers: { ...(body && { "Content-Type": "application/json" }), ...headers },
    body: body && JSON.stringify(body),
    signal: AbortSignal.any([AbortSignal.timeout(patience * 1000), ...(signal ? [signal] : [])]),
  });
  const { status } = answer;
  const json = await answer.json().catch(() => null);
  if (answer.ok || status === 304) return { status, json, etag: answer.headers.get("ETag"), answer };
  if (status === 401) events.dispatchEvent(new Event("out"));
  throw new Problem(status, json?.title ? json : {});
}

/** Return the JSON of a GET. */
export const get = async (path, query) => (await call("GET", path, { query })).json;

/** Return the JSON of a POST. */
export const post = async (path, body = {}, options) => (await call("POST", path, { body, ...options })).json;

/** Return the address of a call, as other programs need it. */
export function urlOf(path, query = {}) {
  const url = new URL(Array.isArray(path) ? path.map(encodeURIComponent).join("/") : path, BASE);
  for (const [name, value] of query instanceof URLSearchParams ? query : Object.entries(query)) {
    for (const one of [value].flat()) if (one || one === 0) url.searchParams.append(name, one);
  }
  return url;
}

export const can = (scope) => me.scopes.includes(scope);

/** Find out what this tab may do, with its key or that of another tab. Return false if it needs a key. */
export async function enter() {
  if (await tryKey(ownKey())) return true;
  const offered = await askOtherTabs();
  return Boolean(offered) && tryKey(offered);
}

/** Keep a key if it is one, and return whether it is. */
export async function tryKey(key) {
  const isKnown = key === ownKey();
  if (key) sessionStorage.setItem(KEY, key);
  try {
    me = await get("me");
  } catch (problem) {
    if (problem.status === 401 || !isKnown) sessionStorage.removeItem(KEY); // a service that is away refuses no key
    if (problem.status !== 401) throw problem;
    return false;
  }
  return true;
}

/** Call a function when a key is missing, wrong or forgotten. */
export const onSignOut = (listener) => events.addEventListener("out", listener);

/** Forget the key in all tabs. */
export function signOut() {
  channel.postMessage({ out: true });
  forget();
}

/** End what the last screen has begun. */
export function leave() {
  screen.abort();
  screen = new AbortController();
  live.lost = 0;
}

/** Call a function with the statistics, now and whenever they are new, until its screen ends. */
export function onStats(listener, { signal } = screen) {
  if (live.stats) listener(live.stats);
  events.addEventListener("stats", () => listener(live.stats), { signal });
}

/** Read statistics for as long as the page lives. */
export async function follow() {
  for (let failures = 0; ;) {
    await visible();
    try {
      if (can("read")) await readStats();
      failures = 0;
    } catch (problem) {
      live.problem = problem;
      failures += 1;
    }
    const pause = failures ? pauseOf(failures) : live.lost > 3 ? 5 : 1;
    live.retryAt = Date.now() + pause * 1000;
    events.dispatchEvent(new Event("stats"));
    const woken = new AbortController();
    wake = () => woken.abort();
    await sleep(pause, woken.signal);
  }
}

/** Read the statistics at once. */
export const retryNow = () => wake();

/** Call an async function now and every so many seconds, until its screen ends; not while updates are paused. */
export async function every(seconds, work, fail = () => {}, { signal } = screen) {
  for (let isFirst = true; !signal.aborted; isFirst = false) {
    await visible();
    if (isFirst || !live.isPaused) await work().catch((problem) => signal.aborted || fail(problem));
    await sleep(seconds, signal);
  }
}

/** Wait until the tab is visible. */
export function visible() {
  if (!document.hidden) return Promise.resolve();
  return new Promise((resolve) => document.addEventListener("visibilitychange", resolve, { once: true })).then(visible);
}

/** Give each event to `heard` while the screen and the tab are shown; call `missed` where some may be missing. */
export async function stream(query, heard, missed, { signal } = screen) {
  let last = "";
  for (let failures = 0; !signal.aborted;) {
    await visible();
    const hidden = new AbortController();
    const hide = () => document.hidden && hidden.abort();
    document.addEventListener("visibilitychange", hide);
    try {
      const headers = last && { "Last-Event-ID": last };
      const answer = await send(urlOf("events", query), { headers, signal: AbortSignal.any([signal, hidden.signal]) });
      if (!answer.ok) throw new Problem(answer.status, {});
      failures = live.lost = 0;
      for await (const { id, event, data } of eventsOf(answer.body)) {
        last = id || last;
        if (event === "reset") missed();
        else if (data) heard(JSON.parse(data));
      }
    } catch {
      if (!hidden.signal.aborted && !signal.aborted) live.lost = failures += 1;
    }
    document.removeEventListener("visibilitychange", hide);
    if (!hidden.signal.aborted) await sleep(pauseOf(failures || 1), signal);
  }
}

/** Wait some seconds, or until a signal is aborted. */
export const sleep = (seconds, signal) =>
  new Promise((resolve) => (AbortSignal.any([signal, AbortSignal.timeout(seconds * 1000)]).onabort = resolve));

/** Return a function that does `work` once its calls have paused. */
export function debounced(work) {
  let timer = 0;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(work, TYPING_PAUSE);
  };
}

channel.onmessage = ({ data }) => {
  if (data.ask && ownKey()) channel.postMessage({ key: ownKey() });
  if (data.out) forget();
};

const ownKey = () => sessionStorage.getItem(KEY);

function askOtherTabs() {
  const end = AbortSignal.timeout(200);
  channel.postMessage({ ask: true });
  return new Promise((resolve) => {
    end.onabort = () => resolve();
    channel.addEventListener("message", ({ data }) => data.key && resolve(data.key), { signal: end });
  });
}

function forget() {
  sessionStorage.removeItem(KEY);
  events.dispatchEvent(new Event("out"));
}

async function send(url, { headers, ...options }) {
  const key = ownKey() && { Authorization: `Bearer ${ownKey()}` };
  try {
    return await fetch(url, { cache: "no-store", headers: { ...key, ...headers }, ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(0, { title: "No response from the service" });
  }
}

async function readStats() {
  const began = performance.now();
  const { json, answer } = await call("GET", "stats", { query: { view: "brief" }, patience: 10 });
  setClock(json.now, performance.now() - began, answer.headers.get("X-Erelong-Clock") === "virtual");
  if (live.stats && live.stats.started_at !== json.started_at) live.restartedAt = json.started_at;
  Object.assign(live, { stats: (live.isPaused && live.stats) || json, at: Date.now(), problem: null });
}

const pauseOf = (failures) => Math.min(30, 2 ** (failures - 1));

async function* eventsOf(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = "", found = {}; ;) {
    const timer = setTimeout(() => reader.cancel(), QUIET);
    const { done, value } = await reader.read().finally(() => clearTimeout(timer)); // no cancel after an error
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      const [, name, text] = /^(id|event|data): (.*)$/.exec(line) || [];
      if (name) found[name] = text;
      else if (line === "") {
        yield found;
        found = {};
      }
    }
  }
}
