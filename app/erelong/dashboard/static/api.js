/** Requests to the service, and problems as errors. */

import { key } from "./session.js";

const BASE = new URL("v1/", location.href.split("#")[0]);
const PATIENCE = 30_000;

/** An answer other than 2xx, in the words of the service. */
export class Problem extends Error {
  constructor(status, body) {
    super(body.detail || body.title || `HTTP ${status}`);
    Object.assign(this, { status, code: "", title: "", detail: "", errors: [], ...body });
  }
}

/** No answer: the service or the network is gone. */
export class Unreachable extends Error {
  title = "No response from the service";
}

/** What hears of 401 and of the end of a drain. */
export const watch = new EventTarget();

/**
 * Send a request. Raise `Problem` or `Unreachable`; an aborted `signal` raises its AbortError.
 * @param {string} method @param {string} path below `v1/`
 * @param {{query?: any, body?: any, headers?: Object<string, string>, signal?: AbortSignal, patience?: number}} options
 * @returns {Promise<{status: number, json: any, headers: Headers}>}
 */
export async function call(method, path, { query, body, headers = {}, signal, patience = PATIENCE } = {}) {
  const answer = await send(urlOf(path, query), {
    method,
    headers: { ...authorization(), ...(body === undefined ? {} : { "Content-Type": "application/json" }), ...headers },
    body: body === undefined ? undefined : JSON.stringify(body),
    cache: "no-store",
    signal: AbortSignal.any([AbortSignal.timeout(patience), ...(signal ? [signal] : [])]),
  }, signal);
  const text = answer.status === 304 ? "" : await answer.text();
  const json = parse(text);
  if (answer.ok || answer.status === 304) return { status: answer.status, json, headers: answer.headers };
  const problem = new Problem(answer.status, json && typeof json === "object" ? json : { title: `HTTP ${answer.status}`, detail: text.slice(0, 300) });
  watch.dispatchEvent(new CustomEvent("problem", { detail: problem }));
  throw problem;
}

/** Return the JSON of a GET. */
export const get = async (path, query, signal) => (await call("GET", path, { query, signal })).json;

/** Open a stream of events; the caller reads its body. */
export function open(path, query, headers, signal) {
  return send(urlOf(path, query), { headers: { ...authorization(), ...headers }, cache: "no-store", signal }, signal);
}

/** Return the address of a call, as other programs need it. */
export function urlOf(path, query) {
  const url = new URL(path, BASE);
  for (const [name, value] of query instanceof URLSearchParams ? query : Object.entries(query || {})) {
    for (const one of [value].flat()) if (one !== null && one !== undefined && one !== "") url.searchParams.append(name, one);
  }
  return url;
}

/** Return the path of a job, queue or schedule by its name. */
export const pathOf = (...parts) => parts.map(encodeURIComponent).join("/");

function authorization() {
  return key() ? { Authorization: `Bearer ${key()}` } : {};
}

async function send(url, options, signal) {
  try {
    return await fetch(url, options);
  } catch (error) {
    if (signal && signal.aborted) throw error;
    throw new Unreachable(error.name === "TimeoutError" ? "no response in time" : "no connection");
  }
}

function parse(text) {
  try {
    return text ? JSON.parse(text) : null;
  } catch {
    return null;
  }
}
