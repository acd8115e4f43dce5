/** Submit a job: a form made from the schema of its kind, a check, and the same request for other programs. */

import { call, get, pathOf, urlOf } from "./api.js";
import { announce, place } from "./dialog.js";
import { button, choice, field, fill, link, make } from "./dom.js";
import { UNSET, form, hasFields, jsonField } from "./form.js";
import { timeField } from "./job.js";
import { every } from "./live.js";
import { can } from "./session.js";
import { count, when } from "./text.js";

const KEPT = "erelong.params.";
const OPTIONS = [
  ["queue", "Queue", "default", ""], ["key", "Key", "", "Names the live job; unique per queue."], ["labels", "Labels", "", "tenant=t1, order=7"], ["priority", "Priority", "0", "-100 to 100"],
  ["timeout", "Timeout", "60s", "Of one attempt."], ["attempts", "Attempts", "5", "At most."], ["expires_after", "Expires after", "", "If it has not begun by then: 10m, 2h."],
];

export function show({ main, query, signal, title }) {
  title("Submit");
  if (!can("submit")) return fill(main, make("h1", { tabindex: "-1" }, "Submit a job"), make("p", { class: "soft" }, "This key can view jobs but not submit them."));
  const screen = new Submit(query, signal);
  fill(main, make("h1", { tabindex: "-1" }, "Submit a job"), screen.node);
  screen.begin();
}

class Submit {
  #kinds = [];
  #kind = null;
  #params = null; // the control of the params
  #isJson = false;

  constructor(query, signal) {
    Object.assign(this, { query, signal });
    this.kind = choice([], "", (name) => this.#choose(name, this.#kept(name)), { id: "kind", "aria-label": "Kind" });
    this.modes = make("div", { class: "choices", role: "group", "aria-label": "How to write params" }, ["Form", "JSON"].map((name) => button(name, () => this.#mode(name === "JSON"), { sort: "link", "aria-pressed": String(name === "Form") })));
    this.params = make("div", {});
    this.time = make("input", { placeholder: "now", autocomplete: "off", spellcheck: "false", oninput: () => this.#echo() });
    this.resolved = make("p", { class: "about", "aria-live": "polite" });
    this.options = Object.fromEntries(OPTIONS.map(([name, , placeholder]) => [name, make("input", { placeholder, autocomplete: "off", spellcheck: "false" })]));
    this.fault = make("p", { class: "fault", role: "alert", hidden: true });
    this.result = make("div", { class: "result", "aria-live": "polite" });
    this.same = make("pre", { class: "mono", tabindex: "0" });
    const more = make("details", { class: "more" }, make("summary", {}, "Queue, key, labels, retries, expiry"), OPTIONS.map(([name, label, , about]) => field(label, this.options[name], { pointer: pointerOf(name), about })));
    this.form = make("form", { class: "card submit", onsubmit: (event) => this.#send(event), oninput: () => this.#echo() },
      field("Kind", this.kind, { pointer: "/kind" }), this.modes, this.params,
      field("When", this.time, { pointer: "/delay", about: "Empty: now. A delay such as 90s, 2h, 1d, or an instant such as 2026-12-01T09:00+01:00." }), this.resolved, more, this.fault,
      make("div", { class: "actions" }, make("button", { type: "submit", class: "main" }, "Submit"), button("Check", () => this.#check())), this.result);
    this.node = make("div", { class: "two submit" }, this.form, make("section", { class: "panel" }, make("header", {}, make("h2", {}, "Same request")), make("div", { class: "body" }, this.same)));
  }

  async begin() {
    every(3600, async () => {
      const from = this.query.get("from");
      const [{ kinds }, job] = await Promise.all([get("kinds", {}, this.signal), from ? get(pathOf("jobs", from), {}, this.signal) : null]);
      this.#kinds = kinds;
      const name = job?.kind || this.query.get("kind") || (kinds.some((kind) => kind.name === "http") ? "http" : kinds[0]?.name);
      fill(this.kind, kinds.map((kind) => make("option", { value: kind.name, selected: kind.name === name }, kind.name)));
      if (job) this.#take(job);
      this.#choose(name, job ? job.params : this.#kept(name));
    }, this.signal, (problem) => (fill(this.fault, problem.detail || problem.message).hidden = false));
  }

  #kept(name) {
    return JSON.parse(sessionStorage.getItem(KEPT + name) || "null") ?? this.#kinds.find((kind) => kind.name === name)?.example ?? {};
  }

  #choose(name, params) {
    this.#kind = this.#kinds.find((kind) => kind.name === name);
    this.#build(params);
  }

  #build(params) {
    const schema = this.#kind?.params_schema;
    const isForm = !this.#isJson && hasFields(schema);
    this.modes.hidden = !hasFields(schema);
    this.#params = isForm ? form(schema, params) : jsonField(params, "/params", { rows: 10 });
    fill(this.params, isForm ? this.#params.node : field("Params", this.#params.node, { pointer: "/params" }));
    this.#echo();
  }

  #mode(isJson) {
    try {
      const params = this.#params.read();
      this.#isJson = isJson;
      for (const one of this.modes.children) one.setAttribute("aria-pressed", String((one.textContent === "JSON") === isJson));
      this.#build(params === UNSET ? {} : params);
    } catch (problem) {
      place(this.form, [{ pointer: problem.pointer, detail: problem.message }]);
    }
  }

  #take({ queue, key, labels, priority, timeout, retry }) {
    const set = { queue, key: key || "", labels: Object.entries(labels).map((pair) => pair.join("=")).join(", "), priority, timeout: `${timeout}s`, attempts: retry.max_attempts };
    for (const [name, value] of Object.entries(set)) this.options[name].value = value;
  }

  /** Return the body of the request; raise an Error with a pointer. */
  #body() {
    const body = { kind: this.kind.value };
    const params = this.#params ? this.#params.read() : UNSET;
    if (params !== UNSET) body.params = params;
    if (this.time.value.trim() && this.time.value.trim() !== "now") Object.assign(body, timeField(this.time.value));
    const given = (name) => this.options[name].value.trim();
    for (const name of ["queue", "key", "timeout", "expires_after"]) if (given(name)) body[name] = given(name);
    if (given("priority")) body.priority = Number(given("priority"));
    if (given("attempts")) body.retry = { max_attempts: Number(given("attempts")) };
    if (given("labels")) body.labels = Object.fromEntries(given("labels").split(",").map((pair) => pair.split("=").map((part) => part.trim())).map(([name, value = ""]) => [name, value]));
    return body;
  }

  #echo() {
    try {
      const text = JSON.stringify(this.#body());
      fill(this.same, `curl ${urlOf("jobs")} \\\n  -H 'Content-Type: application/json' \\\n  -d '${text.replaceAll("'", "'\\''")}'`);
    } catch {
      return;
    }
  }

  async #check() {
    const job = await this.#post({ dry_run: "true" });
    if (job) fill(this.result, make("p", { class: "good" }, "This job would be accepted. Due ", when(job.due_at), "."));
  }

  async #send(event) {
    event.preventDefault();
    const job = await this.#post({});
    if (!job) return;
    const list = this.result.querySelector("ul") || fill(this.result, make("ul", { class: "list" })).firstChild;
    list.prepend(make("li", {}, link(`#/jobs/${job.id}`, job.id, { class: "mono" }), " ", when(job.due_at)));
    announce(`Submitted; ${count(list.childElementCount, "job")} from this form.`, { action: link(`#/jobs/${job.id}`, "Show the job") });
  }

  async #post(query) {
    try {
      const body = this.#body();
      this.fault.hidden = true;
      const { json } = await call("POST", "jobs", { query, body });
      place(this.form, []);
      sessionStorage.setItem(KEPT + body.kind, JSON.stringify(body.params || {}));
      return json;
    } catch (problem) {
      const errors = problem.pointer ? [{ pointer: problem.pointer, detail: problem.message }] : problem.errors || [];
      this.form.querySelector(".more").open ||= errors.some(({ pointer }) => OPTIONS.some(([name]) => pointer.startsWith(pointerOf(name))));
      const left = place(this.form, errors.map(({ pointer, detail }) => ({ detail, pointer: pointer === "/execute_at" ? "/delay" : pointer })));
      if (left.length || !errors.length) fill(this.fault, left.length ? left.map(({ pointer, detail }) => `${pointer}: ${detail}`).join("; ") : `${problem.title ? `${problem.title}: ` : ""}${problem.detail || problem.message}`).hidden = false;
      return null;
    }
  }
}

const pointerOf = (name) => (name === "attempts" ? "/retry" : `/${name}`);

