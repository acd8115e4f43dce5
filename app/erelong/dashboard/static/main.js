/** The frame of all screens: routes, header, keys, and what is said when the service is gone. */

import { watch } from "./api.js";
import { announce } from "./dialog.js";
import { button, fill, icon, link, make, say } from "./dom.js";
import * as failed from "./failed.js";
import * as job from "./job.js";
import * as jobs from "./jobs.js";
import * as kinds from "./kinds.js";
import { follow, live, onHealth, onStats, retryNow } from "./live.js";
import * as overview from "./overview.js";
import * as queue from "./queue.js";
import * as queues from "./queues.js";
import * as schedule from "./schedule.js";
import * as schedules from "./schedules.js";
import * as session from "./session.js";
import { askForKey, enter, showRefusal } from "./signin.js";
import * as submit from "./submit.js";
import { browserAhead, duration, isUtc, now, number, switchZone, tick, timeOf, zoneName } from "./text.js";

const SCREENS = { "": overview, queues, jobs, failed, schedules, kinds, submit };
const SINGLE = { queues: queue, jobs: job, schedules: schedule };
const LINKS = [["", "Overview", "o"], ["queues", "Queues", "q"], ["jobs", "Jobs", "j"], ["failed", "Failed", "f"], ["schedules", "Schedules", "s"], ["kinds", "Kinds", "k"]];
const SHORTCUTS = [
  ["?", "Show these keys"], ["/", "Search"], ["g then o q j f s k", "Go to overview, queues, jobs, failed, schedules, kinds"], ["n", "Submit a job"],
  ["j, k", "Next and previous row"], ["Enter", "Open the row"], ["x", "Select the row"], ["a", "Select all on the page"], ["r", "Retry"], ["c", "Cancel"],
  ["u", "Run now"], ["e", "Edit"], [".", "Pause updates"], ["t", "Local time or UTC"], ["Esc", "Close"],
];
const SLACK = 2; // seconds

const main = document.getElementById("main");
const parts = { clock: make("button", { type: "button", class: "link clock", onclick: zone, title: "Local time or UTC (t)" }), status: make("button", { type: "button", class: "link status", onclick: pause, title: "Pause updates (.)" }) };
const screen = { end: new AbortController(), keys: {}, ready: null, address: null, name: "", title: "" };
let isGoing = false;

/** Follow the address: show its screen. */
function route() {
  screen.address = location.hash;
  const [path, query = ""] = location.hash.slice(1).split("?");
  const [name = "", ...rest] = path.split("/").filter(Boolean).map(decodeURIComponent);
  const module = rest.length ? SINGLE[name] : SCREENS[name];
  screen.end.abort();
  Object.assign(screen, { end: new AbortController(), keys: {}, name });
  const place = make("div", { class: `screen ${name || "overview"}` });
  fill(main, place);
  mark(name);
  if (!module) return fill(place, make("h1", { tabindex: "-1" }, "No such screen"), make("p", {}, link("#/", "Go to the overview")));
  const shown = module.show({ main: place, path: rest, query: new URLSearchParams(query), signal: screen.end.signal, title });
  Object.assign(screen, { keys: {}, ready: null, ...shown });
  scrollTo(0, 0);
  place.querySelector("h1")?.focus({ preventScroll: true });
}

/** Name the screen in the title of the page. */
function title(text) {
  screen.title = text;
  document.title = `${live.isPaused ? "‖ " : ""}${text} · erelong`;
}

function header() {
  const nav = make("nav", { "aria-label": "Screens" }, LINKS.map(([name, text]) => link(`#/${name}`, [text, name === "failed" ? make("span", { class: "badge", hidden: true }) : ""], { "data-name": name })));
  fill(document.getElementById("top"), link("#/", "erelong", { class: "brand", "aria-label": "erelong, overview" }), nav,
    make("div", { class: "right" }, session.can("submit") ? link("#/submit", [icon("plus"), "Submit"], { class: "button" }) : "",
      parts.clock, parts.status,
      session.me.anonymous ? "" : button(session.me.name, leave, { sort: "link", title: "Sign out" }),
      button("?", help, { sort: "link", "aria-label": "Keys and help" })));
  mark(screen.name);
}

function mark(name) {
  for (const shown of document.querySelectorAll("#top nav a")) {
    if ((shown.dataset.name || "") === name) {
      shown.setAttribute("aria-current", "page");
      shown.parentNode.scrollLeft = shown.offsetLeft - shown.parentNode.offsetLeft - 40;
    } else shown.removeAttribute("aria-current");
  }
}

function showStatus() {
  const stale = Date.now() - live.at > 10_000;
  const [sign, word] = live.isPaused ? ["‖", "paused"] : live.failing || stale ? ["○", live.at ? `stale since ${timeOf(live.at + now() - Date.now())}` : "no response"] : live.streamFailures ? ["◐", "catching up"] : ["●", "live"];
  parts.status.className = `link status ${live.failing ? "bad" : live.isPaused ? "soft" : "good"}`;
  fill(parts.status, make("span", { "aria-hidden": "true" }, sign), make("span", { class: "word" }, word));
}

function showClock() {
  say(parts.clock, `${timeOf(now(), { day: "never" })} ${zoneName()}`);
}

function showFailed(stats) {
  const badge = document.querySelector("#top .badge");
  if (!badge) return;
  badge.hidden = !stats.jobs.failed;
  say(badge, number(stats.jobs.failed));
}

/** Say above all screens that the service is gone, shuts down, has restarted, or that the clock of the browser is wrong. */
function showBanner() {
  const place = document.getElementById("banner");
  const { stats, failing } = live;
  const lines = [];
  if (failing) {
    const since = live.at ? ` since ${timeOf(live.at + now() - Date.now())}` : "";
    lines.push(["bad", [`${failing.status ? `${failing.title}: ${failing.detail}` : `No response from the service${since}.`} Retrying in ${Math.max(1, Math.round((live.retryAt - Date.now()) / 1000))} s. `, button("Retry now", retryNow, { sort: "link" })]]);
  } else if (stats) {
    if (stats.checks && /drain/.test(stats.checks.service || "")) lines.push(["bad", "The service is shutting down. Running jobs have a moment to finish."]);
    if (/full|space/.test((stats.checks && stats.checks.store) || "")) lines.push(["bad", "Disk full: new jobs are rejected. Everything else works."]);
    if (live.restartedAt) lines.push(["soft", [`The service restarted at ${timeOf(live.restartedAt)}. Charts start there. `, button("Dismiss", () => ((live.restartedAt = null), showBanner()), { sort: "link" })]]);
    if (Math.abs(browserAhead()) > SLACK) lines.push(["soft", `The clock of this browser is ${duration(browserAhead())} ${browserAhead() > 0 ? "ahead" : "behind"}; times here follow the service.`]);
    if (live.streamFailures > 3) lines.push(["soft", "Live updates are off. Numbers are read every 5 s."]);
  }
  const text = lines.map(([, line]) => [line].flat().map((one) => one.textContent || one).join("")).join();
  if (place.dataset.text === text) return;
  place.dataset.text = text;
  fill(place, lines.map(([sort, line]) => make("p", { class: sort }, line)));
}

function zone() {
  switchZone();
  showClock();
  announce(`Times are shown in ${isUtc() ? "UTC" : "local time"}.`);
}

function pause() {
  live.isPaused = !live.isPaused;
  showStatus();
  title(screen.title);
  announce(live.isPaused ? "Updates are paused." : "Updates continue.");
}

function leave() {
  session.signOut();
}

function help() {
  const areKeysOn = () => localStorage.getItem("erelong.keys") !== "off";
  const box = make("input", { type: "checkbox", checked: areKeysOn(), onchange: () => localStorage.setItem("erelong.keys", box.checked ? "on" : "off") });
  const dialog = make("dialog", { "aria-label": "Keys" }, make("form", { method: "dialog" }, make("h2", {}, "Keys"),
    make("dl", { class: "facts keys" }, SHORTCUTS.map(([keys, does]) => make("div", {}, make("dt", {}, make("kbd", {}, keys)), make("dd", {}, does)))),
    make("label", { class: "check" }, box, " Single keys are on"),
    make("p", {}, "The API: ", link("docs", "/docs"), live.stats ? make("span", { class: "soft" }, ` · erelong ${live.stats.version}`) : ""),
    make("div", { class: "actions" }, make("button", { type: "submit" }, "Close"))));
  const opener = document.activeElement;
  dialog.addEventListener("close", () => (dialog.remove(), opener?.focus()));
  document.body.append(dialog);
  dialog.showModal();
}

/** Obey a key. One that is typed ahead, before the screen of the address or its rows are there, waits for them. */
function press(event) {
  if (location.hash !== screen.address) route();
  const focus = document.activeElement;
  if (event.ctrlKey || event.metaKey || event.altKey || focus.closest("input, textarea, select, dialog, [contenteditable]")) return;
  if (event.key === "Enter" && focus.closest("a, button, summary, .plot")) return;
  if (localStorage.getItem("erelong.keys") === "off" && event.key !== "?") return;
  const go = isGoing && LINKS.find(([, , letter]) => letter === event.key);
  isGoing = event.key === "g" && !go;
  const { keys, ready, end } = screen;
  const onScreen = !go && !isGoing && keys[event.key];
  const act = go ? () => (location.hash = `#/${go[0]}`) : isGoing ? () => {} : onScreen || globals[event.key];
  if (!act) return;
  event.preventDefault();
  if (onScreen && ready) ready.then(() => end.signal.aborted || act());
  else act();
}

const globals = {
  "?": help,
  "/": () => (main.querySelector("[type=search]") || { focus: () => (location.hash = "#/jobs") }).focus(),
  n: () => session.can("submit") && (location.hash = "#/submit"),
  ".": pause,
  t: zone,
};

async function signIn() {
  if (signingIn) return;
  signingIn = true;
  await askForKey();
  signingIn = false;
  header();
  route();
  retryNow();
}
let signingIn = false;

async function begin() {
  try {
    if (!(await enter())) await askForKey();
  } catch (problem) {
    return showRefusal(main, problem);
  }
  header();
  watch.addEventListener("problem", ({ detail }) => detail.status === 401 && signIn());
  session.onSignOut(signIn);
  onStats((stats) => (showFailed(stats), showClock(), showStatus()));
  onHealth(() => (showBanner(), showStatus()));
  const firstStats = new Promise((resolve) => onHealth(resolve)); // times are shown by the clock of the service
  addEventListener("hashchange", () => location.hash !== screen.address && route());
  addEventListener("keydown", press);
  setInterval(() => (document.hidden ? 0 : (tick(), showClock(), showStatus(), showBanner())), 1000);
  follow(new AbortController().signal);
  await firstStats;
  route();
  showClock();
  showStatus();
}

begin();
