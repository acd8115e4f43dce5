/** One queue: its due times, its jobs and its limits. */

import { call, get, pathOf } from "./api.js";
import { announce, complain, place } from "./dialog.js";
import { button, choice, facts, field, fill, icon, link, make, panel, say } from "./dom.js";
import { every } from "./live.js";
import { duePanel } from "./overview.js";
import { purge, switchPause } from "./queues.js";
import { can } from "./session.js";
import { duration, number, timeOf, when, now } from "./text.js";

const OVERFLOWS = [["reject", "reject new jobs"], ["drop_oldest", "drop the oldest"], ["wait", "let submits wait"]];

export function show({ main, path: [name], signal, title }) {
  title(name);
  const head = make("div", { class: "heading" }, make("h1", { tabindex: "-1" }, name));
  const pause = make("p", { class: "lead state paused", hidden: true });
  const actions = make("div", { class: "actions" });
  const counts = panel("Now", {});
  const due = duePanel({ queue: name, signal });
  const limits = panel("Limits", {});
  let form = null;
  const read = async () => {
    const queue = await get(pathOf("queues", name), {}, signal);
    showHead({ pause, actions }, queue, () => read().catch(counts.fail));
    showCounts(counts.body, queue);
    counts.fresh(`as of ${timeOf(now())}`);
    if (!form) {
      form = new Limits(queue, limits, again);
      limits.fresh("");
    }
    form.update(queue);
  };
  const again = () => ((form = null), read().catch(counts.fail));
  const fail = (problem) => {
    counts.fail(problem);
    if (problem.status === 404) limits.node.hidden = due.node.hidden = actions.hidden = true;
  };
  fill(main, head, pause, actions, make("div", { class: "two" }, counts.node, limits.node), due.node);
  every(5, read, signal, fail);
}

function showHead({ pause, actions }, queue, again) {
  pause.hidden = !queue.paused;
  if (queue.paused) fill(pause, icon("paused"), "paused ", when(queue.pause?.at), queue.pause?.by ? ` by ${queue.pause.by}` : "", queue.pause?.reason ? make("span", { class: "soft" }, ` “${queue.pause.reason}”`) : "");
  const text = `${queue.paused} ${queue.counts.scheduled > 0}`;
  if (actions.dataset.text === text) return;
  actions.dataset.text = text;
  const path = encodeURIComponent(queue.name);
  fill(actions, can("admin") ? button(queue.paused ? "Resume" : "Pause", () => switchPause(queue).then(again), { sort: queue.paused ? "main" : "plain" }) : make("span", { class: "soft" }, "This key can view queues but not change them."),
    link(`#/jobs?state=due&queue=${path}`, "Due jobs", { class: "button plain" }), link(`#/jobs?queue=${path}`, "All jobs", { class: "button plain" }), link(`#/failed?queue=${path}`, "Failures", { class: "button plain" }),
    can("cancel") && queue.counts.scheduled ? button("Cancel all waiting jobs…", () => purge(queue).then(again)) : "");
}

function showCounts(body, { counts, settings, oldest_due_age: age, late_p99: late, rates }) {
  fill(body, facts([
    ["due", number(counts.due)], ["oldest due", age === null ? null : `${duration(age)} ago`], ["waiting", number(counts.scheduled)], ["running", `${number(counts.running)} of ${number(settings.concurrency)}`],
    ["late p99", duration(late)], ["per second", rates ? `${number(rates.started)} started, ${number(rates.succeeded)} succeeded, ${number(rates.failed)} failed` : null],
    ["succeeded", number(counts.succeeded)], ["failed", number(counts.failed)], ["cancelled", number(counts.cancelled)], ["expired", number(counts.expired)],
  ]));
}

/** The form of the settings of a queue. What somebody has typed stays when new numbers arrive. */
class Limits {
  constructor(queue, part, again) {
    const { settings } = queue;
    const text = (value, more = {}) => make("input", { value: value ?? "", inputmode: "decimal", disabled: !can("admin"), ...more });
    Object.assign(this, { name: queue.name, again, part, settings });
    this.concurrency = text(settings.concurrency);
    this.rate = text(settings.rate?.per_second, { placeholder: "no limit" });
    this.burst = text(settings.rate?.burst, { placeholder: "as the rate" });
    this.label = text(settings.label_concurrency?.label, { placeholder: "label", inputmode: "text" });
    this.perLabel = text(settings.label_concurrency?.limit, { placeholder: "no limit" });
    this.backlog = text(settings.max_backlog);
    this.overflow = choice(OVERFLOWS, settings.overflow, null, { disabled: !can("admin") });
    this.fault = make("p", { class: "fault", role: "alert", hidden: true });
    this.source = make("p", { class: "soft" });
    this.node = make("form", { class: "limits", onsubmit: (event) => this.#save(event) },
      field("Concurrency", this.concurrency, { pointer: "/concurrency", about: "Jobs that run at once." }),
      field("Rate per second", this.rate, { pointer: "/rate", about: "Starts per second." }), field("Burst", this.burst),
      field("Label", this.label, { pointer: "/label_concurrency", about: "Values of this label take turns." }), field("Jobs per value", this.perLabel),
      field("Backlog", this.backlog, { pointer: "/max_backlog", about: "Waiting jobs at most; 0: no limit." }), field("When full", this.overflow, { pointer: "/overflow" }),
      this.fault, can("admin") ? make("div", { class: "actions" }, make("button", { type: "submit", class: "main" }, "Save"), button("Reset to config", () => this.#reset())) : "", this.source);
    fill(part.body, this.node);
  }

  update(queue) {
    this.settings = queue.settings;
    say(this.source, queue.overridden === undefined ? "" : queue.overridden ? "Set here; differs from config.toml." : "As in config.toml.");
  }

  #body() {
    const kept = Object.fromEntries(["timeout", "retry", "retention"].map((name) => [name, this.settings[name]]).filter(([, value]) => value !== null));
    const amount = (input) => (input.value.trim() === "" ? undefined : Number(input.value.replaceAll(/[,\s]/g, "")));
    const body = { ...kept, concurrency: amount(this.concurrency), max_backlog: amount(this.backlog), overflow: this.overflow.value };
    if (this.rate.value.trim()) body.rate = { per_second: amount(this.rate), burst: amount(this.burst) };
    if (this.label.value.trim()) body.label_concurrency = { label: this.label.value.trim(), limit: amount(this.perLabel) };
    return body;
  }

  async #save(event) {
    event.preventDefault();
    try {
      await call("PUT", pathOf("queues", this.name), { body: this.#body() });
      this.fault.hidden = true;
      place(this.node, []);
      announce("Limits saved; they apply at once.");
      this.again();
    } catch (problem) {
      const left = place(this.node, problem.errors || []);
      if (left.length || !problem.errors?.length) fill(this.fault, problem.detail || problem.message).hidden = false;
    }
  }

  async #reset() {
    try {
      await call("DELETE", pathOf("queues", this.name));
      announce("The settings of config.toml apply.");
      this.again();
    } catch (problem) {
      complain(problem);
    }
  }
}
