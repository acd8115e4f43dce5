"""The plot of the benchmark, a self-contained SVG."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from tests.bench.verdicts import Series

WIDTH, HEIGHT, GAP = 720, 320, 20
LEFT, RIGHT, TOP, BOTTOM = 70, 190, 50, 45
COLOURS = ("#0b6e99", "#d9730d", "#6940a5", "#0f7b6c", "#ad1a72", "#64473a")
STYLE = "text{font:13px sans-serif;fill:#37352f}.title{font-weight:bold;font-size:15px}.grid{stroke:#e3e2e0}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """A logarithmic scale that maps values from `low` to `high` to pixels from `start` to `end`."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        share = math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)
        return self.start + share * (self.end - self.start)

    def marks(self) -> Iterable[float]:
        exponent = math.ceil(math.log10(self.low) - 1e-9)
        while (mark := 10.0**exponent) <= self.high * 1.000001:
            yield mark
            exponent += 1


def plot(title: str, series: Sequence[Series]) -> str:
    """Draw panels from top to bottom. All scales are logarithmic, so a flat line is a constant cost."""
    panels = list(dict.fromkeys(line.panel for line in series))
    height = len(panels) * (HEIGHT + GAP) + 40
    parts = [f'<text class="title" x="{LEFT}" y="26">{escape(title)}</text>']
    for index, panel in enumerate(panels):
        lines = [line for line in series if line.panel == panel]
        parts.append(f'<g transform="translate(0,{40 + index * (HEIGHT + GAP)})">{_panel(lines)}</g>')
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}">'
    return f'{head}<style>{STYLE}</style><rect width="100%" height="100%" fill="#fff"/>{"".join(parts)}</svg>\n'


def _panel(lines: Sequence[Series]) -> str:
    first = lines[0]
    across = _axis([x for line in lines for x, _ in line.points], LEFT, WIDTH - RIGHT)
    up = _axis([y for line in lines for _, y in line.points], HEIGHT - BOTTOM, TOP)
    parts = [f'<text class="title" x="{LEFT}" y="{TOP - 24}">{escape(first.panel)}</text>']
    parts.append(f'<text x="{LEFT - 55}" y="{TOP - 6}">{escape(first.y_name)}</text>')
    parts.append(f'<text x="{across.end}" y="{HEIGHT - 6}" text-anchor="end">{escape(first.x_name)}</text>')
    parts += [_rule(across.at(mark), TOP, across.at(mark), HEIGHT - BOTTOM) for mark in across.marks()]
    parts += [_rule(LEFT, up.at(mark), across.end, up.at(mark)) for mark in up.marks()]
    parts += [_label(across.at(mark), HEIGHT - BOTTOM + 18, "middle", mark) for mark in across.marks()]
    parts += [_label(LEFT - 8, up.at(mark) + 4, "end", mark) for mark in up.marks()]
    for index, line in enumerate(lines):
        parts.append(_curve(line, COLOURS[index % len(COLOURS)], across.at, up.at, TOP + 14 + 20 * index))
    return "".join(parts)


def _axis(values: Iterable[float], start: float, end: float) -> Axis:
    """Return a scale from the power of ten below all values to the one above."""
    known = [value for value in values if value > 0] or [1.0]
    low, high = math.floor(math.log10(min(known)) + 1e-9), math.ceil(math.log10(max(known)) - 1e-9)
    return Axis(low=10.0**low, high=10.0 ** max(high, low + 1), start=start, end=end)


def _curve(line: Series, colour: str, x: Callable[[float], float], y: Callable[[float], float], legend: float) -> str:
    points = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in line.points)
    dots = "".join(f'<circle cx="{x(a):.1f}" cy="{y(b):.1f}" r="3"/>' for a, b in line.points if len(line.points) < 20)
    edge = WIDTH - RIGHT + 14
    return (
        f'<g stroke="{colour}" fill="{colour}"><polyline points="{points}" fill="none" stroke-width="2"/>{dots}'
        f'<path d="M{edge} {legend - 4}h18" stroke-width="3"/></g>'
        f'<text x="{edge + 24}" y="{legend}">{escape(line.name)}</text>'
    )


def _rule(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="grid" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _label(x: float, y: float, anchor: str, value: float) -> str:
    text = f"{value:g}" if 0.001 <= value < 10_000 else f"1e{round(math.log10(value))}"
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{text}</text>'
