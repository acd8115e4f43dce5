"""The measures of the benchmark: limits, goals and measured figures."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """One figure; smaller is better. `detail` lists its components."""

    name: str
    must: float
    goal: float
    figure: float
    unit: str = ""
    detail: str = ""

    @property
    def verdict(self) -> str:
        if self.figure <= self.goal:
            return "goal"
        return "ok" if self.figure <= self.must else "MISSED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """A line of the plot, in a panel that it shares with other lines of the same axes."""

    panel: str
    name: str
    x_name: str
    y_name: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """The results of one part of the benchmark."""

    measures: list[Measure]
    series: list[Series] = field(default_factory=list)


def table(measures: Iterable[Measure]) -> str:
    rows = [("measure", "must", "goal", "figure", "", "")]
    rows += [
        (
            measure.name,
            f"{measure.must:g}",
            f"{measure.goal:g}",
            f"{measure.figure:.3g} {measure.unit}".rstrip(),
            measure.verdict,
            measure.detail,
        )
        for measure in measures
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    return "\n".join(
        f"{row[0]:<{widths[0]}}  {row[1]:>{widths[1]}}  {row[2]:>{widths[2]}}  {row[3]:>{widths[3]}}"
        f"  {row[4]:<{widths[4]}}  {row[5]}".rstrip()
        for row in rows
    )
