/** The kinds of jobs, and the form that submits one: made from its schema, with the same request for other programs. */

import { announce, formOf, sender, submitButton } from "./dialog.js";
import {
  at, button, choice, choices, facts, field, fields, fill, h, headRow, input, link, linkButton, optionsOf, panel, when,
} from "./dom.js";
import {
  UNSET, durationOf, form, hasFields, json, jsonField, masked, numberOf, ofPairs, pretty, readJson, unmasked, wrong,
} from "./form.js";
import { can, debounced, get, me, post, urlOf } from "./service.js";
import { HOUR, count, duration, fromNow, isSet, number } from "./text.js";

const KEPT_PARAMS = "erelong.params.";
const STOPS = { kill: "is killed", cooperative: "is cancelled", none: "is left running" };
const MODES = ["Form", "JSON"];
const OPTIONS = [
  ["queue", "Queue", "", "", { placeholder: "default" }], ["key", "Key", "", "Names the live job; unique per queue."],
  ["priority", "Priority", "", "-100 to 100"], ["timeout", "Timeout", "", "Of one attempt, such as 60s."],
  ["retry", "Attempts", "", "At most, the first included."],
  ["expires_after", "Expires after", "", "If it has not begun by then: 10m, 2h."],
];
const OTHERS = ["others", "Other fields", "", "JSON: on_finish, spread, on_conflict, more of retry.", { rows: 3 }];

export function showSubmit({ main, query, title }) {
  title("Submit");
  const heading = h("h1", "Submit a job");
  if (!can("submit")) return fill(main, heading, h("p.soft", "This key can view jobs but not submit them."));
  const screen = new Submit();
  screen.begin(query.get("kind"), query.get("from"));
  return fill(main, heading, screen.node);
}

class Submit {
  #kinds = [];
  #params = null; // the control of the params
  #original = {}; // the params with which the form began, secrets included
  #mode = "Form";
  #language = "curl";
  #copied = {}; // the fields of the job that is copied, secrets included
  #post = sender();

  constructor() {
    this.kind = choice([], "", (name) => this.#begin(this.#kept(name)));
    this.modes = h("div");
    this.params = h("div");
    this.time = timeControl("now");
    this.options = fields([...OPTIONS, OTHERS]);
    this.labels = h("div");
    this.more = h("details.more", h("summary", "Queue, key, labels, retries, expiry"),
      this.options.nodes.toSpliced(2, 0, this.labels));
    this.result = h("div.result", { "aria-live": "polite" });
    this.same = panel("Same request");
    const check = button("Check", () => {
      this.#echo();
      this.run(() => this.#check(), check);
    });
    const parts = [field("Kind", this.kind, { pointer: "/kind" }), this.modes, this.params, this.time.node, this.more];
    const { node, run } = formOf("form.card", parts, submitButton("Submit"), () => this.#send(), check);
    this.run = run;
    node.oninput = () => this.#echo();
    node.append(this.result);
    this.node = h("div.two.submit", node, this.same.node);
    this.#label({});
  }

  begin = (kind, from) => this.run(async () => {
    const [{ kinds }, job] = await Promise.all([get("kinds"), from && get(["jobs", from])]);
    const name = job?.kind || kind || (kinds.find((one) => one.name === "http") || kinds[0]).name;
    this.#kinds = kinds;
    fill(this.kind, optionsOf(kinds.map((one) => one.name), name));
    if (job) this.#take(draftOf(job));
    this.#begin(job ? job.params : this.#kept(name));
  });

  #kindOf = (name) => this.#kinds.find((kind) => kind.name === name);

  #kept = (name) => JSON.parse(sessionStorage.getItem(KEPT_PARAMS + name)) ?? this.#kindOf(name)?.example ?? {};

  #begin(params) {
    this.#original = params;
    this.#build(masked(params));
  }

  #build(params) {
    const schema = this.#kindOf(this.kind.value)?.params_schema;
    const isForm = this.#mode === "Form" && hasFields(schema);
    const modes = () => choices("How to write params", MODES, this.#mode, (mode) => this.#switch(mode));
    fill(this.modes, hasFields(schema) && modes());
    this.#params = isForm ? form(schema, params) : jsonField(params, "/params", 10);
    const { node } = this.#params;
    this.params.replaceChildren(isForm ? node : field("Params", node, { pointer: "/params" }));
    this.#echo();
  }

  #switch = (mode) => this.run(() => {
    const params = this.#params.read();
    this.#mode = mode;
    this.#build(params === UNSET ? {} : params);
  });

  #label(labels) {
    this.pairs = ofPairs(labels, "/labels");
    const node = field("Labels", this.pairs.node, { pointer: "/labels" });
    this.labels.replaceWith(node);
    this.labels = node;
  }

  /** Fill in the fields of a copy. Its key is left out: the job may be live. */
  #take({ kind, params, key, labels = UNSET, retry: { max_attempts: most, ...retry }, on_finish: callback, ...given }) {
    this.#copied = { retry, on_finish: callback };
    const texts = { ...given, retry: most, others: pretty(masked(this.#copied)) };
    for (const [name, text] of Object.entries(texts)) this.options.controls[name].value = text ?? "";
    this.#label(labels);
    this.more.open = true;
  }

  /** Return the body of the request, where undefined stands for no value; raise an Error with a pointer. */
  #body() {
    const params = this.#params.read();
    const { priority, retry, timeout, expires_after: expiry, others = "{}", ...given } = this.options.read();
    const more = unmasked(readJson(others, "/others"), this.#copied, "/others");
    if (more?.constructor !== Object) throw wrong("not a JSON object", "/others");
    const [labels, most] = [this.pairs.read(), numberOf(retry, "/retry")];
    return {
      kind: this.kind.value, params: params === UNSET ? undefined : unmasked(params, this.#original),
      ...this.time.read(), ...given, priority: numberOf(priority, "/priority"), timeout: durationOf(timeout),
      expires_after: durationOf(expiry), labels: Object.keys(labels).length ? labels : undefined, ...more,
      retry: isSet(most) ? { ...more.retry, max_attempts: most } : more.retry,
    };
  }

  #echo() {
    this.result.querySelector(".good")?.remove();
    try {
      const body = this.#body();
      const shown = masked(body);
      const requests = requestsOf(shown);
      const choose = (name) => {
        this.#language = name;
        this.#echo();
      };
      this.same.show([choices("Language", Object.keys(requests), this.#language, choose),
        h("pre", { tabindex: "0" }, requests[this.#language]),
        pretty(shown) !== pretty(body) && h("p.soft", "Replace •••• by the secret that it hides.")], "");
    } catch (problem) {
      this.same.show(h("p.soft", `Incomplete: ${problem.message}`), "");
    }
  }

  async #check() {
    const job = await post("jobs", this.#body(), { query: { dry_run: "true" } });
    this.result.prepend(h("p.good", "This job would be accepted. Due ", when(job.due_at), "."));
  }

  async #send() {
    const body = this.#body();
    const job = await this.#post("jobs", body);
    sessionStorage.setItem(KEPT_PARAMS + body.kind, JSON.stringify(body.params || {}));
    const list = this.result.querySelector("ul") || fill(this.result, h("ul.list")).firstChild;
    list.prepend(h("li", link(at("jobs", job.id), job.id, {}, "a.mono"), when(job.due_at)));
    const text = `Submitted; ${count(list.childElementCount, "job")} from this form.`;
    announce(text, link(at("jobs", job.id), "Show the job"));
  }
}

/** Make a field for a time: now, after a delay, or at a time of day in a zone. It shows the instant that is meant. */
export function timeControl(how) {
  const delay = input("1h");
  const local = h("input", { type: "datetime-local", "aria-label": "Date and time", value: localTime(fromNow(HOUR)) });
  const zone = input(Intl.DateTimeFormat().resolvedOptions().timeZone, { "aria-label": "Time zone" });
  const resolved = h("p.about", { "aria-live": "polite" });
  const parts = { now: [], in: [delay], at: [local, zone] };
  const values = {
    now: () => ({}), in: () => ({ delay: durationOf(delay.value.trim()) }),
    at: () => ({ local_time: local.value.padEnd(19, ":00"), zone: zone.value.trim() }),
  };
  const read = () => values[pick.value]();
  const resolve = debounced(async () => {
    try {
      const body = { kind: "echo", queue: me.queues?.[0], ...read() };
      const { due_at: due } = await post("jobs", body, { query: { dry_run: "true" } });
      fill(resolved, pick.value !== "now" && when(due));
      fill(fault);
    } catch ({ errors: [error] = [], message }) {
      fill(resolved, !error && message);
      fill(fault, error?.detail);
    }
  });
  const change = () => {
    for (const [name, inputs] of Object.entries(parts)) inputs.forEach((one) => (one.hidden = name !== pick.value));
    resolve();
  };
  const pick = choice(["now", "in", "at"], how, change, { "aria-label": "When" });
  const inputs = h("div.times", { oninput: change }, pick, delay, local, zone);
  const node = field("When", inputs, { pointer: "/delay /execute_at /local_time /zone" });
  const fault = node.querySelector(".fault");
  fault.role = "status";
  node.append(resolved);
  change();
  return { node, read };
}

/** Return the submit that makes a job like this one; undefined stands for no value. */
export function draftOf({ kind, params, queue, key, labels, priority, timeout, retry, on_finish: callback, ...job }) {
  const begin = Math.max(Date.parse(job.execute_at), Date.parse(job.created_at));
  const expiry = job.expires_at && Math.round((Date.parse(job.expires_at) - begin) / 100) / 10;
  return {
    kind, params, queue: queue === "default" ? undefined : queue, key: key ?? undefined,
    labels: Object.keys(labels).length ? labels : undefined, priority: priority || undefined,
    timeout: `${timeout}s`, retry, expires_after: isSet(expiry) ? `${expiry}s` : undefined,
    on_finish: callback && { ...callback, job: undefined },
  };
}

/** Return a submit as other programs write it. */
export function requestsOf(body) {
  const { kind, params = {}, delay, local_time: local, zone, labels = {}, retry = {}, on_finish: hook, ...more } = body;
  const quote = (text) => (/^[\w.:/@%+=-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);
  const key = me.anonymous ? "" : ` -H "Authorization: Bearer $ERELONG_KEY"`;
  const param = ([name, value]) => `${name}${typeof value === "string" ? `=${value}` : `:=${JSON.stringify(value)}`}`;
  const words = [
    kind, ...Object.entries(params).map(param), ...(delay ? ["--in", delay] : []),
    ...(local ? ["--at", local, "--zone", zone] : []),
    ...Object.entries(retry).flatMap(([name, value]) => ["--retry", `${name}=${value}`]),
    ...(hook ? ["--on-finish", hook.url] : []),
    ...Object.entries(more).flatMap(([name, value]) => [`--${name.replace("_", "-")}`, String(value)]),
    ...Object.entries(labels).flatMap(([name, value]) => ["--label", `${name}=${value}`]),
  ];
  const options = Object.entries(body).slice(1).filter(([name]) => name !== "params").map(([name, value]) =>
    `, ${name}=${name === "local_time" ? `datetime.fromisoformat(${python(value)})` : python(value)}`);
  return {
    curl: [`curl ${urlOf("jobs")}${key}`, "-H 'Content-Type: application/json'", `-d ${quote(JSON.stringify(body))}`]
      .join(" \\\n  "),
    erelong: `erelong submit ${words.map(quote).join(" ")}`,
    Python: `client.submit(${python(kind)}, ${python(params)}${options.join("")})`,
  };
}

/** Write JSON as Python does. */
function python(value) {
  if (Array.isArray(value)) return `[${value.map(python).join(", ")}]`;
  const words = { true: "True", false: "False", null: "None" };
  if (typeof value !== "object" || !value) return (typeof value !== "string" && words[value]) || JSON.stringify(value);
  return `{${Object.entries(value).map(([name, one]) => `${python(name)}: ${python(one)}`).join(", ")}}`;
}

const localTime = (instant) =>
  new Date(Date.parse(instant) - new Date(instant).getTimezoneOffset() * 60_000).toISOString().slice(0, 16);

export function showKinds({ main, title }) {
  const part = panel("Kinds", { level: "h1" });
  part.poll(10, async () => {
    const { kinds } = await get("kinds");
    part.show(h("div", kinds.map(cardOf)), count(kinds.length, "kind"));
  });
  title("Kinds");
  fill(main, part.node);
}

function cardOf({ name, type, isolation, polling, counts, params_schema: schema, ...kind }) {
  const isForsaken = type === "pull" && polling === 0;
  const { stop, timeout, declared, last_polled_at: polled } = kind;
  const workers = isForsaken ? h("span.paused", "no worker polls")
    : h("span.soft", count(polling, "worker polls", "workers poll"));
  return h("details.kind", { "data-key": name },
    h("summary", h("b", name), h("span.soft", [type, isolation].filter(Boolean).join(", ")),
      type === "pull" ? workers : h("span"),
      h("span.soft", counts && `${number(counts.waiting)} waiting, ${number(counts.failed)} failed`),
      can("submit") && link(at("submit", { kind: name }), "Submit")),
    h("div.inside", schema?.description && h("p", schema.description),
      isForsaken && h("p", "Workers ask for these jobs over HTTP. Run one: ", h("code", "erelong work my_jobs:worker")),
      facts([["on timeout", `an attempt ${STOPS[stop] || stop}`], ["timeout", timeout && duration(timeout)],
        ["declared", declared], ["last polled", polled && when(polled)]]),
      paramsTable(schema), h("div.actions", can("submit") && linkButton(at("submit", { kind: name }), "Submit a job"),
        linkButton(at("jobs", { kind: name }), "Jobs")),
      h("details", h("summary", "JSON Schema"), json(schema, "Schema of the params"))));
}

function paramsTable(schema) {
  const properties = Object.entries(schema?.properties || {});
  if (!properties.length) return h("p.soft", "Params: any JSON object.");
  const star = (name) => schema.required?.includes(name) && h("span.needed", { title: "required" }, " *");
  return h("div.scroll", h("table.rows", h("caption.hidden", "Params"),
    headRow(["Param", "Type", "About"]),
    h("tbody", properties.map(([name, one]) => h("tr", h("th.mono", { scope: "row" }, name, star(name)),
      h("td", { "data-head": "Type" }, typeOf(one)), h("td.about", { "data-head": "About" }, one.description))))));
}

function typeOf({ type = "any JSON", enum: values, anyOf: choices, $ref: ref, default: standard }) {
  const plain = ref?.split("/").pop() || [type].flat().join(" or ");
  const text = values?.join(" · ") || choices?.map(typeOf).join(" or ") || plain;
  return !isSet(standard) ? text : `${text} = ${JSON.stringify(standard)}`;
}
