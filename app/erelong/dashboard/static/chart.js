/** Charts: bars over time, lines, and bars of a row of numbers. They state their numbers in words too. */

import { button, draw, fill, make, say } from "./dom.js";
import { number, timeOf } from "./text.js";

const TOP = 8;
const AXIS = 18;

/**
 * A chart of bars over time, read with the pointer or with the arrow keys.
 * @param {{label: string, height?: number, unit: string, open?: (index: number) => void}} options
 * @returns {{node: HTMLElement, show: (data: {from: number, step: number, counts: number[], caption: string}) => void}}
 */
export function bars({ label, height = 132, unit, open }) {
  let data = null;
  let cursor = -1;
  const readout = make("p", { class: "readout", "aria-live": "polite" });
  const caption = make("figcaption", {});
  const plot = make("div", { class: "plot", tabindex: "0", role: "group", "aria-label": `${label}: arrow keys read the bars` });
  const table = make("div", { class: "numbers", hidden: true });
  const node = make("figure", { class: "chart" }, plot, make("div", { class: "below" }, caption, readout, switchOf(table, () => data && fill(table, numbers(data, unit)))), table);
  const render = () => data && drawBars(plot, data, height, cursor);
  const point = (index) => {
    cursor = Math.max(-1, Math.min(data.counts.length - 1, index));
    say(readout, cursor < 0 ? "" : `${spanText(data, cursor)}: ${number(data.counts[cursor])} ${unit}`);
    render();
  };
  const find = (event) => Math.floor(((event.clientX - plot.getBoundingClientRect().left) / plot.clientWidth) * data.counts.length);
  const keys = { ArrowRight: () => cursor + 1, ArrowLeft: () => Math.max(0, cursor - 1), Home: () => 0, End: () => Infinity, Escape: () => -1 };
  plot.addEventListener("pointermove", (event) => data && point(find(event)));
  plot.addEventListener("pointerleave", () => data && point(-1));
  plot.addEventListener("click", (event) => data && open && open(find(event)));
  plot.addEventListener("keydown", (event) => {
    if (!data) return;
    if (event.key === "Enter" && cursor >= 0 && open) open(cursor);
    else if (keys[event.key]) point(keys[event.key]());
    else return;
    event.preventDefault();
  });
  new ResizeObserver(render).observe(plot);
  if (open) plot.classList.add("opens");
  return {
    node,
    show(shown) {
      data = shown;
      say(caption, data.caption);
      render();
      if (!table.hidden) fill(table, numbers(data, unit));
    },
  };
}

/**
 * Lines over time. A null is a gap.
 * @param {{label: string, format: (value: number) => string, isLog?: boolean, height?: number}} options
 * @returns {{node: HTMLElement, show: (data: {from: number, step: number, lines: {name: string, values: (number | null)[]}[], marks: {at: number, text: string}[]}) => void}}
 */
export function lines({ label, format, isLog = false, height = 96 }) {
  let data = null;
  const plot = make("div", { class: "plot", role: "img", "aria-label": label });
  const caption = make("figcaption", {});
  const node = make("figure", { class: "chart" }, plot, make("div", { class: "below" }, caption));
  const render = () => data && drawLines(plot, data, height, { format, isLog });
  new ResizeObserver(render).observe(plot);
  return {
    node,
    show(shown) {
      data = shown;
      fill(caption, data.lines.map(({ name, values }, index) => [
        make("span", { class: `key key${index}` }, name), ` ${format(latest(values))} `,
      ]));
      plot.setAttribute("aria-label", `${label}: ${data.lines.map(({ name, values }) => `${name} ${format(latest(values))}`).join(", ")}`);
      render();
    },
  };
}

/** Small bars of a row of numbers. */
export function spark(values, label) {
  const highest = Math.max(...values, 1);
  const width = 4;
  return draw("svg", { class: "spark", viewBox: `0 0 ${values.length * width} 20`, role: "img", "aria-label": label },
    values.map((value, index) => draw("rect", { x: index * width, width: width - 1, ...heightOf(value / highest, 20) })));
}

/** A bar that shows a share. */
export const share = (value, of) =>
  draw("svg", { class: `share${of && value >= of ? " full" : ""}`, viewBox: "0 0 60 6", preserveAspectRatio: "none", "aria-hidden": "true" },
    draw("rect", { class: "all", width: 60, height: 6, rx: 1 }),
    draw("rect", { width: of ? Math.min(60, (60 * value) / of) : 0, height: 6, rx: 1 }));

const latest = (values) => values.findLast((value) => value !== null) ?? null;

const heightOf = (part, full) => {
  const height = part > 0 ? Math.max(1, part * full) : 0;
  return { y: full - height, height };
};

function switchOf(table, show) {
  const control = button("Show table", () => {
    table.hidden = !table.hidden;
    say(control, table.hidden ? "Show table" : "Hide table");
    if (!table.hidden) show();
  }, { sort: "link" });
  return control;
}

function spanText({ from, step }, index) {
  const at = from + index * step * 1000;
  const day = step >= 86400 ? "always" : "auto";
  return `${timeOf(at, { seconds: step < 60, day })}–${timeOf(at + step * 1000, { seconds: step < 60, day: step >= 86400 ? "always" : "never" })}`;
}

function numbers(data, unit) {
  const rows = data.counts.map((count, index) => [index, count]).filter(([, count]) => count);
  return make("table", {},
    make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "Time"), make("th", { scope: "col", class: "right" }, unit))),
    make("tbody", {}, rows.length ? rows.map(([index, count]) => make("tr", {}, make("th", { scope: "row" }, spanText(data, index)), make("td", { class: "right" }, number(count))))
      : make("tr", {}, make("td", { colspan: 2, class: "soft" }, "All are zero."))));
}

function drawBars(plot, { from, step, counts }, height, cursor) {
  const width = plot.clientWidth;
  if (!width) return;
  const highest = Math.max(...counts, 1);
  const full = height - TOP - AXIS;
  const one = width / counts.length;
  const gap = one > 5 ? 1.5 : one > 3 ? 1 : 0;
  const grown = counts.map((count, index) => {
    const { y, height: tall } = heightOf(count / highest, full);
    return tall ? draw("rect", { class: index === cursor ? "bar now" : "bar", x: index * one + gap / 2, y: TOP + y, width: Math.max(1, one - gap), height: tall, rx: one > 8 ? 1.5 : 0 }) : null;
  });
  fill(plot, frame(width, height,
    cursor >= 0 ? draw("rect", { class: "cursor", x: cursor * one, y: 0, width: one, height: height - AXIS }) : null,
    grown, scale(width, full, number(highest)), axis(width, height, from, step * counts.length)));
}

function drawLines(plot, { from, step, lines: shown, marks = [] }, height, { format, isLog }) {
  const width = plot.clientWidth;
  if (!width) return;
  const size = shown[0].values.length;
  const values = shown.flatMap((line) => line.values).filter((value) => value !== null && (!isLog || value > 0));
  const highest = Math.max(...values, isLog ? 0.001 : 1);
  const lowest = isLog ? Math.min(...values, highest / 10) : 0;
  const full = height - TOP - AXIS;
  const part = (value) => (isLog ? Math.log(Math.max(value, lowest) / lowest) / Math.log(highest / lowest) : value / highest);
  const x = (index) => (index / (size - 1 || 1)) * width;
  const path = (line) => line.map((value, index) => {
    if (value === null) return "";
    const isStart = index === 0 || line[index - 1] === null;
    return `${isStart ? "M" : "L"}${x(index).toFixed(1)} ${(TOP + full - part(value) * full).toFixed(1)}${isStart ? "h.1" : ""}`;
  }).join("");
  fill(plot, frame(width, height,
    marks.filter(({ at }) => at >= from && at <= from + size * step * 1000).map(({ at, text }) => mark(((at - from) / (size * step * 1000)) * width, text, full)),
    shown.map(({ values: line }, index) => draw("path", { class: `line line${index}`, d: path(line) })),
    scale(width, full, format(highest)),
    axis(width, height, from, step * size)));
}

const frame = (width, height, ...parts) => draw("svg", { width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" }, parts);

const scale = (width, full, text) => [
  draw("line", { class: "grid", x1: 0, x2: width, y1: TOP + 0.5, y2: TOP + 0.5 }),
  draw("line", { class: "base", x1: 0, x2: width, y1: TOP + full + 0.5, y2: TOP + full + 0.5 }),
  draw("text", { class: "tick", x: width - 2, y: TOP + 11, "text-anchor": "end" }, text),
];

const mark = (x, text, full) => [
  draw("line", { class: "mark", x1: x, x2: x, y1: TOP, y2: TOP + full }),
  draw("text", { class: "tick", x: x + 3, y: TOP + 11 }, text),
];

/** Draw times at round distances below a chart. */
function axis(width, height, from, seconds) {
  const most = Math.max(2, Math.floor(width / 90));
  const step = [60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 432000, 604800].find((size) => seconds / size <= most) || 2592000;
  const zone = step >= 3600 ? new Date(from).getTimezoneOffset() * 60e3 : 0;
  const first = Math.ceil((from - zone) / (step * 1000)) * step * 1000 + zone;
  const ticks = [];
  for (let at = first; at < from + seconds * 1000; at += step * 1000) {
    const x = ((at - from) / (seconds * 1000)) * width;
    const text = step >= 86400 ? timeOf(at, { day: "always" }).split(",").slice(0, 2).join(",").replace(/, \d\d:\d\d$/, "") : timeOf(at, { seconds: false, day: "never" });
    if (x > 14 && x < width - 20) ticks.push(draw("text", { class: "tick", x, y: height - 4, "text-anchor": "middle" }, text));
  }
  return ticks;
}
