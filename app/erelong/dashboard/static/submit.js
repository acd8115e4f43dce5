/** The kinds of jobs, and the form that submits one: made from its schema, with the same request for other programs. */

import { announce, showProblem, submitButton } from "./dialog.js";
import {
  at, button, choice, choices, facts, field, fields, fill, h, headRow, input, link, linkButton, optionsOf, panel, when,
} from "./dom.js";
import { UNSET, form, hasFields, json, jsonField, masked, pretty, unmasked } from "./form.js";
import { can, debounced, get, me, post, urlOf } from "./service.js";
import { HOUR, count, duration, fromNow, isSet, number } from "./text.js";

const KEPT_PARAMS = "erelong.params.";
const STOPS = { kill: "is killed", cooperative: "is cancelled", none: "is left running" };
const MODES = ["Form", "JSON"];
const OPTIONS = [
  ["queue", "Queue", "", "", { placeholder: "default" }], ["key", "Key", "", "Names the live job; unique per queue."],
  ["labels", "Labels", "", "", { placeholder: "tenant=t1, order=7" }], ["priority", "Priority", "", "-100 to 100"],
  ["timeout", "Timeout", "", "Of one attempt, such as 60s."],
  ["retry", "Attempts", "", "At most.", { placeholder: "5" }],
  ["expires_after", "Expires after", "", "If it has not begun by then: 10m, 2h."],
];

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

  constructor() {
    this.kind = choice([], "", (name) => this.#begin(this.#kept(name)));
    this.modes = h("div");
    this.params = h("div");
    this.time = timeControl("now");
    this.options = fields(OPTIONS);
    this.more = h("details.more", h("summary", "Queue, key, labels, retries, expiry"), this.options.nodes);
    this.fault = h("div.fault", { role: "alert" });
    this.result = h("div.result", { "aria-live": "polite" });
    this.same = panel("Same request");
    const buttons = h("div.actions", submitButton("Submit"), button("Check", () => this.#check()));
    this.form = h("form.card", { onsubmit: (event) => this.#send(event), oninput: () => this.#echo() },
      field("Kind", this.kind, { pointer: "/kind" }), this.modes, this.params, this.time.node, this.more, this.fault,
      buttons, this.result);
    this.node = h("div.two.submit", this.form, this.same.node);
  }

  async begin(kind, from) {
    try {
      const [{ kinds }, job] = await Promise.all([get("kinds"), from && get(["jobs", from])]);
      const name = job?.kind || kind || (kinds.find((one) => one.name === "http") || kinds[0]).name;
      this.#kinds = kinds;
      fill(this.kind, optionsOf(kinds.map((one) => one.name), name));
      if (job) this.#take(job);
      this.#begin(job ? job.params : this.#kept(name));
    } catch (problem) {
      showProblem(this.form, this.fault, problem);
    }
  }

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

  #switch(mode) {
    try {
      const params = this.#params.read();
      this.#mode = mode;
      this.#build(params === UNSET ? {} : params);
    } catch (problem) {
      showProblem(this.form, this.fault, problem);
    }
  }

  #take({ queue, key, labels, priority, timeout, retry }) {
    const pairs = Object.entries(labels).map((pair) => pair.join("=")).join(", ");
    const set = { queue, key: key || "", labels: pairs, priority, timeout: `${timeout}s`, retry: retry.max_attempts };
    for (const [name, value] of Object.entries(set)) this.options.controls[name].value = value;
  }

  /** Return the body of the request; raise an Error with a pointer. */
  #body() {
    const params = this.#params.read();
    const { priority, retry, labels, ...given } = this.options.read();
    const pairs = labels?.split(",").map((pair) => pair.trim().split(/\s*=\s*/));
    return {
      kind: this.kind.value, ...(params !== UNSET && { params: unmasked(params, this.#original) }),
      ...this.time.read(), ...given,
      ...(priority && { priority: Number(priority) }), ...(retry && { retry: { max_attempts: Number(retry) } }),
      ...(labels && { labels: Object.fromEntries(pairs.map(([name, value = ""]) => [name, value])) }),
    };
  }

  #echo() {
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
      this.same.fail(problem);
    }
  }

  async #check() {
    const job = await this.#post({ dry_run: "true" });
    if (job) fill(this.result, h("p.good", "This job would be accepted. Due ", when(job.due_at), "."));
  }

  async #send(event) {
    event.preventDefault();
    const job = await this.#post({});
    if (!job) return;
    const list = this.result.querySelector("ul") || fill(this.result, h("ul.list")).firstChild;
    list.prepend(h("li", link(at("jobs", job.id), job.id, {}, "a.mono"), when(job.due_at)));
    const text = `Submitted; ${count(list.childElementCount, "job")} from this form.`;
    announce(text, link(at("jobs", job.id), "Show the job"));
  }

  async #post(query) {
    try {
      const body = this.#body();
      const job = await post("jobs", body, { query });
      showProblem(this.form, this.fault, null);
      sessionStorage.setItem(KEPT_PARAMS + body.kind, JSON.stringify(body.params || {}));
      return job;
    } catch (problem) {
      showProblem(this.form, this.fault, problem);
      this.more.open ||= [...this.more.querySelectorAll(".fault")].some((fault) => fault.textContent);
      return null;
    }
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
    now: () => ({}), in: () => ({ delay: delay.value.trim() }),
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

/** Return a submit as other programs write it. */
export function requestsOf(body) {
  const { kind, params = {}, delay, local_time: local, zone, labels = {}, retry, ...more } = body;
  const quote = (text) => (/^[\w.:/@%+=-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);
  const key = me.anonymous ? "" : ` -H "Authorization: Bearer $ERELONG_KEY"`;
  const param = ([name, value]) => `${name}${typeof value === "string" ? `=${value}` : `:=${JSON.stringify(value)}`}`;
  const words = [
    kind, ...Object.entries(params).map(param), ...(delay ? ["--in", delay] : []),
    ...(local ? ["--at", local, "--zone", zone] : []),
    ...(retry ? ["--retry", `max_attempts=${retry.max_attempts}`] : []),
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
