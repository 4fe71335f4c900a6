"""report.html: the score on one self-contained page that needs no JavaScript and prints well."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined

from scoring import sections
from scoring.intervals import Interval
from scoring.score import Score
from scoring.text import score_lines

_CHART_LEFT, _CHART_WIDTH, _CHART_ROW = 170, 480, 34
_ENDS = ("complete", "quota_cut", "restart_cut", "error", "unknown")


class Bar(NamedTuple):
    """One score in the chart, in SVG units: the dot, the Wilson line, the bootstrap line."""

    name: str
    label: str
    y: int
    dot: float
    wilson: tuple[float, float] | None
    bootstrap: tuple[float, float] | None


class Slice(NamedTuple):
    """One end state in the stacked bar, in per cent of the width."""

    name: str
    runs: int
    start: float
    width: float


def write_report(score: Score, path: Path, *, label: str | None = None) -> None:
    """Writes the page, 0600. ``label`` marks a demo or smoke run, whose numbers rank nothing.

    Raises ``OSError`` when the file cannot be written.
    """
    data = report_html(score, label=label).encode()
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(data)


def report_html(score: Score, *, label: str | None = None) -> str:
    """The page as a string; see ``write_report``."""
    environment = Environment(
        loader=PackageLoader("scoring"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    bars = _bars(score)
    return environment.get_template("report.html.j2").render(
        label=label,
        untested=[origin for origin in score.origins if origin.untested],
        lines=score_lines(score),
        exit_code=score.exit_code,
        parts=sections.all_sections(score),
        tasks=sections.tasks(score),
        sources=score.sources,
        bars=bars,
        slices=_slices(score),
        chart={"left": _CHART_LEFT, "width": _CHART_WIDTH, "height": _CHART_ROW * len(bars) + 30},
    )


def _bars(score: Score) -> tuple[Bar, ...]:
    shown = [(name, e) for name, e in score.estimates.items() if e.value is not None and e.denominator]
    return tuple(
        Bar(
            name=name,
            label=f"{e.value:.3f}",
            y=_CHART_ROW * row + 20,
            dot=_place(e.value or 0.0),
            wilson=_span(e.wilson),
            bootstrap=_span(e.bootstrap),
        )
        for row, (name, e) in enumerate(shown)
    )


def _place(value: float) -> float:
    return round(_CHART_LEFT + _CHART_WIDTH * value, 2)


def _span(interval: Interval | None) -> tuple[float, float] | None:
    return None if interval is None else (_place(interval.low), _place(interval.high))


def _slices(score: Score) -> tuple[Slice, ...]:
    found, start = [], 0.0
    for name in _ENDS:
        count = getattr(score.counts, name)
        width = 100 * count / score.runs
        if count:
            found.append(Slice(name, count, round(start, 3), round(width, 3)))
        start += width
    return tuple(found)
