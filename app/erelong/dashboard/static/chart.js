/** Charts: bars over time, lines, and small bars in rows. They say their numbers in words too. */

import { fill, h, headRow, svg } from "./dom.js";
import { DAY, HOUR, dateOf, number, timeOf } from "./text.js";

const TOP = 16;
const AXIS = 18;
const HIGH = 140;
const LOW = 104;
const STEPS = [60, 120, 300, 600, 900, 1800, HOUR, 2 * HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, DAY, 2 * DAY, 5 * DAY];

/**
 * Make a chart of bars over time, read with the pointer or with the arrow keys.
 * @param {{label: string, unit: string, open: (from: number, to: number) => void}} options
 * @returns its `node`, and `show({from, step, counts, limit, caption})`; `limit` is drawn as a line
 */
export function bars({ label, unit, open }) {
  let data = null;
  let chosen = -1;
  const attributes = { tabindex: "0", role: "group", "aria-label": `${label}: arrow keys read the bars` };
  const plot = h("div.plot.opens", attributes);
  const readout = h("p.readout", { "aria-live": "polite" });
  const caption = h("figcaption");
  const table = h("div.numbers");
  const node = h("figure.chart", plot, h("div.below", caption, readout), h("details", h("summary", "Table"), table));
  const render = () => data && plot.clientWidth && drawBars(plot, data, chosen);
  const choose = (index) => {
    chosen = Math.max(-1, Math.min(data.counts.length - 1, index));
    fill(readout, chosen >= 0 && `${spanOf(data, chosen)}: ${number(data.counts[chosen])} ${unit}`);
    render();
  };
  const openBar = (index) => open(data.from + index * data.step * 1000, data.from + (index + 1) * data.step * 1000);
  const indexAt = ({ clientX }) =>
    Math.floor(((clientX - plot.getBoundingClientRect().left) / plot.clientWidth) * data.counts.length);
  const keys = {
    ArrowRight: () => choose(chosen + 1), ArrowLeft: () => choose(Math.max(0, chosen - 1)), Home: () => choose(0),
    End: () => choose(Infinity), Escape: () => choose(-1), Enter: () => chosen >= 0 && openBar(chosen),
  };
  plot.onpointermove = (event) => data && choose(indexAt(event));
  plot.onpointerleave = () => data && choose(-1);
  plot.onclick = (event) => data && openBar(indexAt(event));
  plot.onkeydown = (event) => {
    if (!data || !keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
  };
  new ResizeObserver(render).observe(plot);
  return { node, show: (shown) => {
    data = shown;
    fill(caption, data.caption);
    fill(table, numbersOf(data, unit));
    render();
  } };
}

/**
 * Make a chart of lines over time. A null is a gap.
 * @returns its `node`, and `show({from, step, lines: [[name, values]], marks: [[instant, text]]})`
 */
export function lines({ label, format, isLog }) {
  let data = null;
  const plot = h("div.plot", { role: "img", "aria-label": label });
  const caption = h("figcaption");
  const render = () => data && plot.clientWidth && drawLines(plot, data, format, isLog);
  new ResizeObserver(render).observe(plot);
  return { node: h("figure.chart", plot, h("div.below", caption)), show: (shown) => {
    data = shown;
    const latest = data.lines.map(([name, values]) => [name, format(values.findLast((value) => value !== null))]);
    fill(caption, latest.map(([name, text], index) => [h(`span.key.key${index}`, name), ` ${text} `]));
    plot.setAttribute("aria-label", `${label}: ${latest.map((pair) => pair.join(" ")).join(", ")}`);
    render();
  } };
}

/** Make small bars of a few numbers. */
export function spark(values, label) {
  const highest = Math.max(...values, 1);
  const rect = (value, index) => value > 0 && svg("rect", { x: index * 4, width: 3, ...upTo(value / highest, 20) });
  const attributes = { viewBox: `0 0 ${values.length * 4} 20`, role: "img", "aria-label": label };
  return svg("svg.spark", attributes, values.map(rect));
}

/** Make a bar that shows one or more shares of something. @param {[number, string?][]} parts with their classes */
export function shares(parts, of, kind = "") {
  let x = 0;
  return svg(`svg.share.${kind}`, { viewBox: "0 0 60 6", preserveAspectRatio: "none", "aria-hidden": "true" },
    svg("rect.all", { width: 60, height: 6 }), parts.map(([value, name = ""]) => {
      const width = of ? Math.min(60 - x, (60 * value) / of) : 0;
      x += width;
      return svg(`rect.${name}`, { x: x - width, width, height: 6 });
    }));
}

/** Make a bar that shows a share. */
export const share = (value, of) => shares([[value]], of, of && value >= of ? "full" : "");

const upTo = (part, full) => {
  const height = Math.max(1, part * full);
  return { y: full - height, height };
};

/** Return the time of a bar in words; with its day where the chart has many. */
export function spanOf({ from, step }, index) {
  const seconds = step < 60;
  const [first, last] = [step > HOUR ? "always" : "auto", step >= DAY ? "always" : "never"];
  const start = from + index * step * 1000;
  return `${timeOf(start, { seconds, day: first })}–${timeOf(start + step * 1000, { seconds, day: last })}`;
}

function numbersOf(data, unit) {
  const row = (count, index) =>
    count > 0 && h("tr", h("th", { scope: "row" }, spanOf(data, index)), h("td.right", number(count)));
  return h("table", headRow(["Time", unit]), h("tbody", data.counts.map(row)));
}

function drawBars(plot, { from, step, counts, limit }, chosen) {
  const width = plot.clientWidth;
  const full = HIGH - TOP - AXIS;
  const highest = Math.max(...counts, 1);
  const one = width / counts.length;
  const gap = Math.min(1.5, one / 4);
  const bar = (count, index) => {
    const { y, height } = upTo(count / highest, full);
    const place = { x: index * one + gap / 2, y: TOP + y, width: one - gap, height };
    return count > 0 && svg(`rect.bar.${index === chosen ? "now" : ""}`, place);
  };
  const cursor = chosen >= 0 && svg("rect.cursor", { x: chosen * one, y: 0, width: one, height: HIGH - AXIS });
  const level = TOP + full * (1 - limit / highest);
  const mark = limit < highest && [
    across("line.mark", width, level), svg("text.tick", { x: 2, y: level - 3 }, "rate limit")];
  draw(plot, HIGH, number(highest), from, step * counts.length, cursor, counts.map(bar), mark);
}

function drawLines(plot, { from, step, lines: shown, marks }, format, isLog) {
  const width = plot.clientWidth;
  const full = LOW - TOP - AXIS;
  const span = shown[0][1].length * step;
  const values = shown.flatMap(([, line]) => line).filter((value) => value !== null && (!isLog || value > 0));
  const highest = Math.max(...values, isLog ? 0.001 : 1);
  const lowest = isLog ? Math.min(...values, highest / 10) : 0;
  const part = (value) =>
    (isLog ? Math.log(Math.max(value, lowest) / lowest) / Math.log(highest / lowest) : value / highest);
  const path = (line) => line.map((value, index) => {
    if (value === null) return "";
    const move = index && line[index - 1] !== null ? "L" : "M";
    return `${move}${((index * step * width) / span).toFixed(1)} ${(TOP + full * (1 - part(value))).toFixed(1)}h.1`;
  }).join("");
  const mark = ([instant, text]) => {
    const x = ((instant - from) / (span * 1000)) * width;
    return x >= 0 && [
      svg("line.mark", { x1: x, x2: x, y1: TOP, y2: TOP + full }),
      svg("text.tick", { x: Math.min(x + 3, width - 6 * text.length), y: TOP + 11 }, text)];
  };
  draw(plot, LOW, format(highest), from, span, marks.map(mark),
    shown.map(([, line], index) => svg(`path.line.line${index}`, { d: path(line) })));
}

const across = (spec, width, y) => svg(spec, { x1: 0, x2: width, y1: y, y2: y });

/** Draw a chart with its scale, and with times at round distances below. */
function draw(plot, height, highest, from, seconds, ...parts) {
  const width = plot.clientWidth;
  const step = STEPS.find((size) => seconds / size <= Math.max(2, width / 90)) || 14 * DAY;
  const offset = step >= HOUR ? new Date(from).getTimezoneOffset() * 60 : 0;
  const start = from / 1000;
  const ticks = [];
  for (let at = Math.ceil((start - offset) / step) * step + offset; at < start + seconds; at += step) {
    const x = ((at - start) / seconds) * width;
    const time = timeOf(at * 1000, { seconds: false, day: "never" });
    const text = step >= DAY || time === "00:00" ? dateOf(at * 1000) : time;
    if (x > 14 && x < width - 20) ticks.push(svg("text.tick", { x, y: height - 4, "text-anchor": "middle" }, text));
  }
  fill(plot, svg("svg", { width, height, "aria-hidden": "true" }, parts,
    across("line.grid", width, TOP), across("line.base", width, height - AXIS),
    svg("text.tick", { x: width, y: TOP - 5, "text-anchor": "end" }, highest), ticks));
}
