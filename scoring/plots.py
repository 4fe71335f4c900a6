"""Plots as inline SVG: drawn by matplotlib, in the page's own colours, so that they turn dark with it.

Without matplotlib there are none: ``plots_missing`` says what to install, and the page shows its tables.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

from scoring.intervals import Interval
from scoring.svg import inline_svg

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Stand-ins that end up as CSS variables of the page (see templates/style.css).
INK, DIM, LINE, MARK, SOFT = "#000001", "#000002", "#000003", "#000004", "#000005"
GOOD, BAD, CUT, CUT2, NONE, PAGE = "#000006", "#000007", "#000008", "#000009", "#00000a", "#00000b"
VIOLET, TEAL, SAND = "#00000c", "#00000d", "#00000e"
_NAMES = ("ink", "dim", "line", "mark", "soft", "good", "bad", "cut", "cut2", "none", "page")
VARIABLES = {
    f"#{number:06x}": f"var(--{name})"
    for number, name in enumerate((*_NAMES, "violet", "teal", "sand"), start=1)
}

_WIDTH = 7.6
_SIZE = 10.5
_RC = {
    "svg.fonttype": "none",
    "font.size": _SIZE,
    "text.color": INK,
    "axes.edgecolor": LINE,
    "axes.labelcolor": DIM,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "xtick.color": LINE,
    "xtick.labelcolor": DIM,
    "ytick.color": LINE,
    "ytick.labelcolor": INK,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "legend.frameon": False,
    "legend.labelcolor": INK,
}


def plots_missing() -> str | None:
    """What to do to get plots; null when there is nothing to do."""
    if find_spec("matplotlib") is None:
        return (
            "The plots need matplotlib: install chaosproxy[report]. The tables below hold the same numbers."
        )
    return None


class Dot(NamedTuple):
    """A value with its intervals: the one to quote, and the bootstrap beside it."""

    name: str
    value: float
    label: str
    quoted: Interval | None
    beside: Interval | None


class Strip(NamedTuple):
    """One row of marks: a task, the outcome of each of its runs in order, and what stands at the end."""

    name: str
    outcomes: tuple[str, ...]
    label: str


class Bar(NamedTuple):
    """One stacked bar: counts by the names of its parts."""

    name: str
    counts: dict[str, int]


# Outcomes differ in shape as well as in colour.
OUTCOMES: dict[str, tuple[str, str]] = {
    "passed": ("o", GOOD),
    "failed": ("X", BAD),
    "quota_cut": ("<", CUT),
    "restart_cut": (">", CUT2),
    "error": ("D", SAND),
    "invalid": ("P", VIOLET),
    "unjudged": ("s", NONE),
}
BEHAVIOURS: dict[str, str] = {
    "retried": MARK,
    "worked_around": TEAL,
    "verified": GOOD,
    "gave_up": SAND,
    "claimed_success": BAD,
    "ignored": VIOLET,
    "undetermined": NONE,
}
ENDS: dict[str, str] = {
    "complete": GOOD,
    "quota_cut": CUT,
    "restart_cut": CUT2,
    "error": BAD,
    "unknown": NONE,
}


def forest(dots: Sequence[Dot], title: str, key: str) -> str:
    """Shares from 0 to 1, a row each: thick the interval to quote, thin the bootstrap, a ring the value."""
    with _drawing(0.42 * len(dots) + 0.55) as (figure, axes):
        for row, dot in enumerate(dots):
            if dot.beside is not None:
                axes.plot(dot.beside, (row + 0.24,) * 2, color=DIM, linewidth=1.4, clip_on=False)
            if dot.quoted is not None:
                axes.plot(
                    dot.quoted,
                    (row, row),
                    color=MARK,
                    linewidth=6,
                    alpha=0.45,
                    solid_capstyle="round",
                    clip_on=False,
                )
            axes.plot(dot.value, row, "o", ms=8, mfc=PAGE, mec=MARK, mew=2.4, clip_on=False)
            axes.text(1.035, row, dot.label, va="center", fontweight="bold", clip_on=False)
        axes.set_xlim(0, 1)
        _rows(axes, [dot.name for dot in dots])
        axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", ".25", ".5", ".75", "1"])
        axes.grid(axis="x", color=LINE, linewidth=0.8)
        axes.set_axisbelow(True)
        return _svg(figure, title, key)


def strips(tasks: Sequence[Strip], title: str, key: str) -> str:
    """A row for each task with a mark for each of its runs."""
    longest = max(len(task.outcomes) for task in tasks)
    with _drawing(0.3 * len(tasks) + 0.55) as (figure, axes):
        seen = dict.fromkeys(outcome for task in tasks for outcome in task.outcomes)
        for outcome in (name for name in OUTCOMES if name in seen):
            shape, colour = OUTCOMES[outcome]
            at = [(x, y) for y, task in enumerate(tasks) for x, o in enumerate(task.outcomes) if o == outcome]
            axes.plot(
                *zip(*at, strict=True),
                shape,
                color=colour,
                ms=8 if longest <= 40 else 4,
                mew=0,
                label=_words(outcome),
                clip_on=False,
            )
        # Few marks stand close together rather than spread over the width.
        axes.set_xlim(-0.7, max(longest + 2, 22) - 0.3)
        for y, task in enumerate(tasks):
            axes.text(longest, y, task.label, va="center", color=DIM, clip_on=False)
        axes.set_xticks([])
        axes.spines["bottom"].set_visible(False)
        _rows(axes, [task.name for task in tasks])
        _legend(axes, len(seen))
        return _svg(figure, title, key)


def stacked(bars: Sequence[Bar], parts: dict[str, str], title: str, key: str) -> str:
    """Stacked bars of shares, each as wide as the whole; a part is named where it has the room."""
    seen = [part for part in parts if any(bar.counts.get(part) for bar in bars)]
    with _drawing(0.42 * len(bars) + 0.5) as (figure, axes):
        left = [0.0] * len(bars)
        for part in seen:
            widths = [bar.counts.get(part, 0) / (sum(bar.counts.values()) or 1) for bar in bars]
            axes.barh(
                range(len(bars)),
                widths,
                left=left,
                height=0.66,
                color=parts[part],
                edgecolor=PAGE,
                linewidth=1.2,
                label=_words(part),
                clip_on=False,
            )
            for row, (bar, width) in enumerate(zip(bars, widths, strict=True)):
                _inside(axes, left[row] + width / 2, row, width, part, bar.counts.get(part, 0))
            left = [start + width for start, width in zip(left, widths, strict=True)]
        axes.set_xlim(0, 1)
        axes.set_xticks([])
        axes.spines["bottom"].set_visible(False)
        _rows(axes, [bar.name for bar in bars])
        _legend(axes, len(seen))
        return _svg(figure, title, key)


def _inside(axes: Axes, x: float, y: float, width: float, part: str, count: int) -> None:
    if width > 0.012 * (len(part) + 6):
        text = f"{_words(part)} {count}"
    elif width > 0.02:
        text = str(count)
    else:
        return
    axes.text(x, y, text, ha="center", va="center", color=PAGE, fontweight="bold", fontsize=_SIZE - 1)


def _words(name: str) -> str:
    return name.replace("_", " ")


def differences(
    rows: Sequence[tuple[str, float]], mean: float, interval: Interval | None, title: str, key: str
) -> str:
    """A paired difference for each task, a line at 0, and the mean with its interval below."""
    with _drawing(0.3 * (len(rows) + 1.5) + 0.55) as (figure, axes):
        for row, (_, value) in enumerate(rows):
            colour = GOOD if value > 0 else BAD if value < 0 else NONE
            axes.plot((0, value), (row, row), color=colour, linewidth=2.2, clip_on=False)
            axes.plot(value, row, "o", ms=7, color=colour, mew=0, clip_on=False)
        last = len(rows) + 0.4
        if interval is not None:
            axes.plot(
                interval,
                (last, last),
                color=MARK,
                linewidth=6,
                alpha=0.45,
                solid_capstyle="round",
                clip_on=False,
            )
        axes.plot(mean, last, "D", ms=8, mfc=PAGE, mec=MARK, mew=2.4, clip_on=False)
        reach = max(abs(value) for value in (mean, *(value for _, value in rows), *(interval or ())))
        reach = 1.08 * (reach or 1.0)
        axes.set_xlim(-reach, reach)
        axes.axvline(0, color=DIM, linewidth=1)
        axes.set_yticks([*range(len(rows)), last], [*(_short(name) for name, _ in rows), "mean"])
        axes.set_ylim(last + 0.6, -0.6)
        axes.tick_params(axis="y", length=0)
        axes.set_xlabel("fewer passes  ←   difference   →  more passes")
        return _svg(figure, title, key)


def _rows(axes: Axes, names: Sequence[str]) -> None:
    axes.set_yticks(range(len(names)), [_short(name) for name in names])
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0, pad=8)


def _short(name: str, most: int = 34) -> str:
    # A dollar sign would start a formula.
    name = name.replace("$", r"\$")
    return name if len(name) <= most else name[: most - 1] + "…"


def _legend(axes: Axes, entries: int) -> None:
    axes.legend(
        loc="upper left",
        bbox_to_anchor=(0, 0),
        ncols=min(entries, 4),
        fontsize=_SIZE - 0.5,
        handlelength=1.2,
        columnspacing=1.4,
        borderaxespad=0.2,
    )


class _drawing:
    """A figure of the page's width in the page's style; ``height`` in inches."""

    def __init__(self, height: float) -> None:
        from matplotlib import rc_context
        from matplotlib.figure import Figure

        self._rc: Any = rc_context(_RC)  # type: ignore[arg-type]
        self._new = Figure
        self._height = height

    def __enter__(self) -> tuple[Figure, Axes]:
        self._rc.__enter__()
        figure = self._new(figsize=(_WIDTH, self._height))
        return figure, figure.add_axes((0, 0, 1, 1))

    def __exit__(self, *error: Any) -> None:
        self._rc.__exit__(*error)


def _svg(figure: Figure, title: str, key: str) -> str:
    from matplotlib import rc_context

    out = io.BytesIO()
    # The salt makes the ids, and so the file, the same every time.
    with rc_context({"svg.hashsalt": key}):
        figure.savefig(out, format="svg", bbox_inches="tight", pad_inches=0.06, metadata={"Date": None})
    return inline_svg(out.getvalue(), key=key, title=title, colours=VARIABLES)
