/** The kinds of jobs: where each runs, what it takes, and who works on it. */

import { get } from "./api.js";
import { facts, fill, link, make, panel } from "./dom.js";
import { json } from "./json.js";
import { every } from "./live.js";
import { can } from "./session.js";
import { count, number, when } from "./text.js";

const STOPS = { kill: "is killed", cooperative: "is cancelled", none: "is left running" };

export function show({ main, signal, title }) {
  title("Kinds");
  const list = make("div", { class: "kinds" });
  const part = panel("Kinds", { level: "h1" });
  part.node.querySelector("h1").tabIndex = -1;
  let text = "";
  fill(main, part.node);
  every(10, async () => {
    const { kinds } = await get("kinds", {}, signal);
    part.fresh(count(kinds.length, "kind"));
    if (JSON.stringify(kinds) === text) return;
    const opened = new Set([...list.querySelectorAll("details[open]")].map(({ dataset }) => dataset.kind));
    text = JSON.stringify(kinds);
    fill(list, kinds.map((kind) => card(kind, opened.has(kind.name))));
    if (!list.isConnected) fill(part.body, list);
  }, signal, part.fail);
}

function card(kind, isOpen) {
  const { counts } = kind;
  const summary = make("summary", {}, make("b", {}, kind.name), make("span", { class: "soft" }, kind.type, kind.isolation ? `, ${kind.isolation}` : ""),
    kind.type === "pull" && kind.polling !== undefined ? make("span", { class: kind.polling ? "soft" : "state paused" }, kind.polling ? count(kind.polling, "worker polls", "workers poll") : "no worker polls") : "",
    counts ? make("span", { class: "soft" }, `${number(counts.waiting)} waiting, ${number(counts.failed)} failed`) : "");
  return make("details", { class: "kind", "data-kind": kind.name, open: isOpen }, summary, make("div", { class: "inside" },
    kind.params_schema?.description ? make("p", {}, kind.params_schema.description) : "",
    facts([["on timeout", `an attempt ${STOPS[kind.stop] || kind.stop}`], ["declared", kind.declared], ["last polled", kind.last_polled_at && when(kind.last_polled_at)]]),
    params(kind.params_schema),
    make("div", { class: "actions" }, can("submit") ? link(`#/submit?kind=${encodeURIComponent(kind.name)}`, "Submit a job", { class: "button" }) : "", link(`#/jobs?kind=${encodeURIComponent(kind.name)}`, "Jobs", { class: "button plain" })),
    make("details", {}, make("summary", {}, "JSON Schema"), json(kind.params_schema, "Schema of the params"))));
}

function params(schema) {
  const properties = Object.entries(schema?.properties || {});
  if (!properties.length) return make("p", { class: "soft" }, "Params: any JSON object.");
  const needed = new Set(schema.required || []);
  return make("div", { class: "scroll" }, make("table", { class: "rows" }, make("caption", { class: "hidden" }, "Params"),
    make("thead", {}, make("tr", {}, ["Param", "Type", "About"].map((head) => make("th", { scope: "col" }, head)))),
    make("tbody", {}, properties.map(([name, one]) => make("tr", {}, make("th", { scope: "row", class: "mono" }, name, needed.has(name) ? make("span", { class: "needed", title: "required" }, " *") : ""),
      make("td", { "data-head": "Type" }, typeOf(one)), make("td", { class: "about", "data-head": "About" }, one.description || ""))))));
}

function typeOf({ type, enum: values, anyOf: choices, $ref: ref, default: standard }) {
  const text = values ? values.join(" · ") : choices ? choices.map(typeOf).join(" or ") : ref ? ref.split("/").pop() : [type || "any JSON"].flat().join(" or ");
  return standard === undefined || standard === null ? text : `${text} = ${JSON.stringify(standard)}`;
}
