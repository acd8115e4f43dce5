/** The card that asks for an API key, in place of a screen or over one. */

import { Problem, call } from "./api.js";
import { button, fill, make } from "./dom.js";
import { ask, keep, key, know } from "./session.js";

/** Find out what this tab may do, with a key of its own or of another tab; return null if a key is needed. */
export async function enter() {
  const found = await tryMe();
  if (found) return found;
  const offered = await ask();
  if (!offered) return null;
  keep(offered);
  return tryMe();
}

/** Ask for a key until one is right. */
export function askForKey() {
  return new Promise((resolve) => {
    const input = make("input", { type: "password", id: "key", autocomplete: "current-password", spellcheck: "false", required: true });
    const fault = make("p", { class: "fault", role: "alert", hidden: true });
    const submit = async (event) => {
      event.preventDefault();
      keep(input.value.trim());
      try {
        if (await tryMe()) return dialog.close();
        fill(fault, "This is not a key of the service. Check that it is complete: it begins with erl_.").hidden = false;
      } catch (problem) {
        fill(fault, problem.detail || problem.message).hidden = false;
      }
      forgetQuietly();
      input.select();
    };
    const form = make("form", { onsubmit: submit }, make("h2", {}, "Sign in"),
      make("p", {}, "This service requires an API key."), make("label", { for: "key" }, "API key"), input, fault,
      make("div", { class: "actions" }, make("button", { type: "submit", class: "main" }, "Sign in")),
      make("p", { class: "soft" }, "Create one: ", make("code", {}, "erelong new-key --name me --scopes read,submit,cancel,admin")),
      make("p", { class: "soft" }, "The key is kept in this tab and forgotten when you close it."));
    const dialog = make("dialog", { class: "signin", "aria-label": "Sign in", oncancel: (event) => event.preventDefault() }, form);
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve();
    });
    document.body.append(dialog);
    dialog.showModal();
    input.focus();
  });
}

/** Show why the service refuses this page altogether. */
export function showRefusal(main, problem) {
  fill(main, make("div", { class: "card" }, make("h1", { tabindex: "-1" }, problem.title || "No access"), make("p", {}, problem.detail || problem.message),
    problem.request_id ? make("p", { class: "soft" }, `${problem.code} · ${problem.request_id}`) : "",
    make("div", { class: "actions" }, button("Try again", () => location.reload(), { sort: "main" }))));
}

async function tryMe() {
  try {
    const { json } = await call("GET", "me");
    know(json);
    return json;
  } catch (problem) {
    if (problem instanceof Problem && problem.status === 401) return null;
    throw problem;
  }
}

function forgetQuietly() {
  if (key()) sessionStorage.removeItem("erelong.key");
}
