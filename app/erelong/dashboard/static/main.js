/** The frame of all screens: routes, header, keys, signing in, and what is said when the service is gone. */

// In this order the modules of the script compress best.
import { showKinds, showSubmit } from "./submit.js";
import { announce, ask, formOf, popUp, submitButton } from "./dialog.js";
import { OLD, action, at, button, byId, choice, field, fill, go, h, input, link, tick } from "./dom.js";
import { showSchedule, showSchedules } from "./schedules.js";
import { showFailed, showOperations } from "./failed.js";
import { showJob } from "./job.js";
import { showJobs } from "./jobs.js";
import { showOverview } from "./overview.js";
import { showQueue, showQueues } from "./queues.js";
import {
  can, enter, follow, leave, live, me, onSignOut, onStats, reasonOf, retryNow, screen, signOut, tryKey,
} from "./service.js";
import { browserAhead, duration, isUtc, now, number, switchZone, timeOf, zoneName } from "./text.js";

const SCREENS = {
  "": showOverview, queues: showQueues, jobs: showJobs, failed: showFailed, operations: showOperations,
  schedules: showSchedules, kinds: showKinds, submit: showSubmit,
};
const SINGLE = { queues: showQueue, jobs: showJob, schedules: showSchedule };
const LINKS = { o: "", q: "queues", j: "jobs", f: "failed", s: "schedules", k: "kinds" };
const SHORTCUTS = [
  ["?", "Show these keys"], ["/", "Search"],
  ["g then o q j f s k", "Go to overview, queues, jobs, …"], ["n", "Submit a job"],
  ["j, k", "Next and previous row"], ["Enter", "Open the row"], ["x", "Select the row"],
  ["a", "Select all on the page"], ["r", "Retry"], ["c", "Cancel"], ["u", "Run now"], ["e", "Edit"],
  [".", "Pause updates"], ["t", "Local time or UTC"],
];
const SLACK = 2; // seconds
const PAGE = new AbortController(); // never ends

const main = byId("main");
const top = byId("top");
const banner = byId("banner");
const shown = { address: null, keys: {}, ready: null, title: "" };
let isGoing = false;

/** Show the screen of the address. */
function route() {
  const [path, query = ""] = location.hash.slice(1).split("?");
  let parts = path.split("/").filter(Boolean);
  try {
    parts = parts.map(decodeURIComponent);
  } catch {} // they stay as they are
  const [name = "", ...args] = parts;
  const show = can("read") ? (args.length ? SINGLE : SCREENS)[name] || showNothing : showNoRight;
  const place = h(`div.screen.${name || "overview"}`);
  leave();
  main.replaceChildren(place);
  for (const one of top.querySelectorAll("nav a")) {
    one.ariaCurrent = one.hash === at(name) ? "page" : null;
    if (one.ariaCurrent) one.scrollIntoView({ inline: "end" });
  }
  const { signal } = screen;
  const title = (text) => signal.aborted || showTitle(text);
  const { keys = {}, ready } = show({ main: place, args, query: new URLSearchParams(query), title }) || {};
  Object.assign(shown, { address: location.hash, keys, ready });
  scrollTo(0, 0);
  const heading = place.querySelector("h1");
  heading.tabIndex = -1;
  heading.focus({ preventScroll: true });
}

/** Return a screen that says one thing. */
const saying = (text, more) => ({ main: place, title }) => {
  title(text);
  fill(place, h("h1", text), h("p", more));
};

const showNothing = saying("No such screen", link("#/", "Go to the overview"));
const showNoRight = saying("This key may not read", "The dashboard needs a key with the scope read.");

/** Name the screen in the title of the page. */
function showTitle(text) {
  shown.title = text;
  document.title = `${live.isPaused ? "‖ " : ""}${text} · erelong`;
}

/** Show what changes in the header and above all screens. */
function showFrame() {
  const failures = live.stats?.jobs.failed;
  fill(top.querySelector(".badge"), failures > 0 && number(failures));
  const clock = `${timeOf(now(), { day: "never" })} ${zoneName()}`;
  fill(top.lastElementChild, can("read") && [can("submit") && link("#/submit", "+ Submit", {}, "a.button.main"),
    live.stats && action(clock, switchTimes, { title: "Local time or UTC (t)" }), statusButton()],
    me.name && action(me.name, askToLeave, { title: "Sign out" }),
    action("?", help, { "aria-label": "Keys and help" }));
  fill(banner, bannerLines().map(([name, ...parts]) => h(`p.${name}`, parts)));
}

const lastAnswer = () => timeOf(live.at - Date.now() + now());

function statusButton() {
  const isStale = live.problem || Date.now() - live.at > OLD * 1000;
  const [name, sign, word] = live.isPaused ? ["soft", "‖", "paused"]
    : isStale ? ["bad", "○", live.at ? `stale since ${lastAnswer()}` : "no response"]
      : live.lost ? ["soft", "◐", "catching up"] : ["good", "●", "live"];
  const parts = [h("span", { "aria-hidden": "true" }, sign), word];
  const title = `${live.isPaused ? "Continue" : "Pause"} updates (.)`;
  return button(parts, pause, { title, "aria-label": `${word}: ${title}` }, `button.link.status.${name}`);
}

/** Say that the service is gone, shuts down, is full or has restarted, or that the clock of the browser is wrong. */
function bannerLines() {
  const { stats, problem, restartedAt } = live;
  const ahead = browserAhead();
  if (problem) {
    const since = live.at ? ` since ${lastAnswer()}` : "";
    const text = problem.status ? reasonOf(problem) : `No response from the service${since}.`;
    const left = Math.max(1, Math.round((live.retryAt - Date.now()) / 1000));
    return [["bad", h("span", { role: "alert" }, text), ` Retrying in ${left} s. `, action("Retry now", retryNow)]];
  }
  const { service = "", store = "" } = stats?.checks || {};
  const side = ahead > 0 ? "ahead" : "behind";
  const clock = `The clock of this browser is ${duration(ahead)} ${side}; times here follow the service.`;
  const dismiss = action("Dismiss", () => (live.restartedAt = null) || showFrame());
  return [
    /drain/.test(service) && ["bad", "The service is shutting down. Running jobs have a moment to finish."],
    /full|space/.test(store) && ["bad", "Disk full: new jobs are rejected. Everything else works."],
    restartedAt && ["soft", `The service restarted at ${timeOf(restartedAt)}. Charts start there. `, dismiss],
    Math.abs(ahead) > SLACK && ["soft", clock],
    live.lost > 3 && ["soft", "Live updates are off."],
  ].filter(Boolean);
}

const askToLeave = () => ask({ title: "Sign out of all tabs?", verb: "Sign out", act: signOut });

function switchTimes() {
  switchZone();
  tick();
  showFrame();
  announce(`Times are shown in ${isUtc() ? "UTC" : "local time"}.`);
}

function pause() {
  live.isPaused = !live.isPaused;
  showTitle(shown.title);
  showFrame();
  announce(live.isPaused ? "Updates are paused." : "Updates continue.");
}

const areKeysOff = () => localStorage.getItem("erelong.keys") === "off";

function help() {
  const keys = h("input", { type: "checkbox", checked: !areKeysOff() });
  keys.onchange = () => localStorage.setItem("erelong.keys", keys.checked ? "on" : "off");
  const { dataset } = document.documentElement;
  const scheme = choice([["", "as the system"], "light", "dark"], dataset.scheme, (value) => {
    localStorage.setItem("erelong.scheme", value);
    dataset.scheme = value;
  });
  const dialog = h("dialog", { "aria-label": "Keys" }, h("form", { method: "dialog" }, h("h2", "Keys"),
    h("dl.facts.keys", SHORTCUTS.map(([key, does]) => h("div", h("dt", h("kbd", key)), h("dd", does)))),
    h("label", keys, " Single keys are on"), field("Colours", scheme),
    h("p", "The API: ", link("docs", "/docs"), h("span.soft", live.stats && ` · erelong ${live.stats.version}`)),
    h("div.actions", submitButton("Close", "button"))));
  popUp(dialog);
}

/** Obey a key. One that is typed ahead, before the screen of the address or its rows are there, waits for them. */
function press(event) {
  if (location.hash !== shown.address) route();
  const focus = document.activeElement;
  const { key, ctrlKey, metaKey, altKey } = event;
  if (key === "Escape") closeMenus();
  if (ctrlKey || metaKey || altKey || focus.closest("input, textarea, select, dialog")) return;
  if ((key === "Enter" && focus.closest("a, button, summary, .plot")) || (areKeysOff() && key !== "?")) return;
  const screenName = isGoing && key in LINKS;
  isGoing = key === "g" && !isGoing;
  const { keys, ready } = shown;
  const act = screenName ? () => go(...[LINKS[key]].filter(Boolean)) : isGoing ? () => {} : keys[key] || KEYS[key];
  if (!act) return;
  event.preventDefault();
  const { signal } = screen;
  if (act === keys[key] && ready) ready.then(() => signal.aborted || act());
  else act();
}

const KEYS = {
  "?": help,
  "/": () => {
    if (!main.querySelector("[type=search]")) go("jobs");
    if (location.hash !== shown.address) route();
    main.querySelector("[type=search]").focus();
  },
  n: () => can("submit") && go("submit"),
  ".": pause,
  t: switchTimes,
};

function closeMenus(target = null) {
  for (const open of document.querySelectorAll(".menu[open]")) {
    if (!open.contains(target) || target.closest("a, button")) open.open = false;
  }
}

/** Ask for a key until one is right, over the screen that is shown. */
async function signIn() {
  if (byId("key")) return;
  const key = input("", { type: "password", id: "key", autocomplete: "current-password", required: true });
  const work = async () => {
    key.select();
    if (await tryKey(key.value.trim())) return dialog.close();
    throw new Error("This is not a key of the service. Check that it is complete: it begins with erl_.");
  };
  const content = [h("h2", "Sign in"), h("p", "This service requires an API key. Create one: "),
    h("code", "erelong new-key --name me --scopes read,submit,cancel,admin"),
    h("p.soft", "The key is kept in this tab and forgotten when you close it."),
    h("label", { for: "key" }, "API key"), key];
  const { node } = formOf("form", content, submitButton("Sign in"), work);
  const dialog = h("dialog.signin", { "aria-label": "Sign in" }, node);
  dialog.oncancel = (event) => event.preventDefault();
  await popUp(dialog);
  retryNow();
  if (live.stats) route();
  else if (shown.address !== null) location.reload(); // the key before could not read
}

/** Show why the service refuses this page altogether. */
function showRefusal({ title, message, code, request_id: id }) {
  const again = button("Try again", () => location.reload(), {}, "button.main");
  fill(main, h("div.card", h("h1", title), h("p", message), id && h("p.soft", `${code} · ${id}`), h("div", again)));
}

async function begin() {
  document.documentElement.dataset.scheme = localStorage.getItem("erelong.scheme") || "";
  try {
    const isIn = await enter();
    if (!isIn) await signIn();
  } catch (problem) {
    return showRefusal(problem);
  }
  onSignOut(signIn);
  addEventListener("hashchange", () => location.hash !== shown.address && route());
  addEventListener("keydown", press);
  addEventListener("click", ({ target }) => closeMenus(target));
  setInterval(() => {
    if (document.hidden) return;
    tick();
    showFrame();
  }, 1000);
  onStats(() => {
    showFrame();
    if (shown.address === null) route(); // only then: screens show times, by the clock of the service
  }, PAGE);
  follow();
}

begin();
