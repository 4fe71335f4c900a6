"""report.html: the score on one self-contained page that needs no JavaScript and prints well."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from scoring import ledger_rows, page, plots, sections
from scoring.behaviour import BehaviourRow
from scoring.compare import Comparison
from scoring.compare_text import compare_lines, compare_sections
from scoring.contrast import Contrast, TaskDifference
from scoring.score import Score
from scoring.text import score_lines
from scoring.wording import Section, interval, number, printable, share, signed

_FAULTS_SHOWN = 300
_STRIPS_SHOWN = 60
_MARKS_SHOWN = 120
_CONTENTS = (
    ("validity", "Validity"),
    ("exposure", "Exposure"),
    ("effect", "Effect"),
    ("scores", "Scores"),
    ("recovery", "Recovery"),
    ("grid", "Timing × mode"),
    ("costs", "Costs"),
    ("tasks", "Tasks"),
    ("kinds", "Kinds"),
    ("machines", "Machines"),
    ("ledger-rows", "Ledger rows"),
)


def write_report(score: Score, path: Path, *, label: str | None = None) -> None:
    """Writes the page, 0600. ``label`` marks a demo or smoke run, whose numbers rank nothing.

    A score of fewer than ten runs or two tasks is a smoke run whatever the label. Raises ``OSError`` when the
    file cannot be written.
    """
    _write(report_html(score, label=label), path)


def write_comparison(comparison: Comparison, path: Path, *, label: str | None = None) -> None:
    """Writes the page of a comparison, 0600; otherwise as ``write_report``."""
    _write(comparison_html(comparison, label=label), path)


def _write(html: str, path: Path) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(html.encode())


def report_html(score: Score, *, label: str | None = None) -> str:
    """The page as a string; see ``write_report``."""
    rows, off = ledger_rows.Rows(score.rows), ledger_rows.Rows(score.baseline_rows, "off", "off-rows")
    tables = _by_key(sections.all_sections(score))
    tables["tasks"] = sections.tasks(score)
    found = page.grid(score)
    return _rendered(
        "report.html.j2",
        score=score,
        label=label or ("smoke" if score.repeats.smoke else None),
        untested=[origin for origin in score.origins if origin.untested],
        about=_about(score),
        lines=score_lines(score),
        contents=_CONTENTS,
        checks=page.checks(score),
        facts=_facts(score),
        invalid=tables["invalid"],
        tiles={
            "exposure": page.exposure_tiles(score, rows),
            "effect": page.effect_tiles(score, rows, off),
            "scores": page.score_tiles(score, rows),
            "claims": page.claim_tiles(score, rows),
            "recovery": page.recovery_tiles(score, rows),
            "costs": page.cost_tiles(score, rows, off),
            "efficiency": page.efficiency_tiles(score, rows),
        },
        tables=tables,
        plots=_plots(score),
        plots_missing=plots.plots_missing(),
        strips_caption=_strips_caption(score),
        grid=found,
        modes=sorted({mode for cells in found.values() for mode in cells} | {"explicit", "implicit"}),
        faults=score.behaviour.faults[:_FAULTS_SHOWN] if score.behaviour else (),
        effect_rows=None if score.effect is None else _difference_table(score.effect.rows, "off", "faults"),
        machines=_machines(score),
        baseline=score.effect.baseline if score.effect else (),
        ledger_columns=ledger_rows.LEDGER_COLUMNS,
        ledgers=[
            (title, key, shown.table(), max(0, len(runs) - ledger_rows.ROWS_SHOWN))
            for title, key, shown, runs in (
                ("Ledger rows", "ledger-rows", rows, score.rows),
                ("Ledger rows under off", "off-rows", off, score.baseline_rows),
            )
            if runs
        ],
    )


def comparison_html(comparison: Comparison, *, label: str | None = None) -> str:
    """The page of a comparison as a string; see ``write_comparison``."""
    found = comparison.primary
    tiles = [
        page.Tile("A", share(found.a), f"{comparison.a.runs} runs", interval(comparison.a.strict.wilson)),
        page.Tile("B", share(found.b), f"{comparison.b.runs} runs", interval(comparison.b.strict.wilson)),
        page.Tile(
            "difference",
            signed(found.difference),
            f"{found.tasks} tasks, {found.pairs} pairs of task and seed",
            found.note if found.interval is None else f"{interval(found.interval)} paired t",
            mood="head",
        ),
        page.Tile(
            "smallest detectable",
            None if found.smallest_detectable is None else share(found.smallest_detectable),
            "difference that this design finds with 80% power",
            why=found.note,
        ),
    ]
    tables = _by_key(compare_sections(comparison))
    return _rendered(
        "comparison.html.j2",
        comparison=comparison,
        label=label or ("smoke" if comparison.smoke else None),
        about=f"A: {', '.join(comparison.a.sources)} · B: {', '.join(comparison.b.sources)}",
        lines=compare_lines(comparison),
        tiles=tiles,
        tables=tables,
        plots=_drawn({"paired": lambda: _paired(comparison.rows, found)}),
        plots_missing=plots.plots_missing(),
    )


def _rendered(template: str, **context: Any) -> str:
    environment = Environment(
        loader=PackageLoader("scoring"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(template).render(**context)


def _by_key(parts: Sequence[Section]) -> dict[str, Section | None]:
    """Sections by key; asking for one that is not there gives null."""
    found: dict[str, Section | None] = defaultdict(lambda: None)
    found.update((part.key, part) for part in parts)
    return found


def _about(score: Score) -> str:
    served = dict.fromkeys(
        f"{origin.harness or 'unknown harness'} {origin.harness_version or ''}".strip()
        + f" under profile {origin.profile}"
        for origin in score.origins
    )
    runs = f"{score.counts.runs:,} first attempts of {score.counts.tasks:,} tasks"
    return " · ".join([printable(name) for name in served] + [runs])


def _facts(score: Score) -> list[tuple[str, str]]:
    validity = sections.validity(score).rows
    return [
        (row[0], row[1]) for row in validity if row[0] in ("harness", "tools digest", "repeats", "threshold")
    ]


def _machines(score: Score) -> list[tuple[str, str]]:
    boots = Counter(run.boot_id for run in score.rows)
    found = [
        (f"boot {printable(boot)}" if boot else "boot not known", f"{n:,} runs") for boot, n in boots.items()
    ]
    return [
        *found[:20],
        ("injector", ", ".join(sorted({f"chaosproxy {o.version}" for o in score.origins})) or "–"),
    ]


def _drawn(wanted: dict[str, Callable[[], str | None]]) -> dict[str, str | None]:
    if plots.plots_missing() is not None:
        return dict.fromkeys(wanted)
    return {key: draw() for key, draw in wanted.items()}


def _plots(score: Score) -> dict[str, str | None]:
    behaviour, effect = score.behaviour, score.effect
    return _drawn(
        {
            "scores": lambda: _forest(score),
            "ends": lambda: _ends(score),
            "strips": lambda: _strips(score),
            "behaviour": lambda: _behaviours(
                (behaviour.total, *behaviour.by_sort) if behaviour else (), "behaviour"
            ),
            "kinds": lambda: _behaviours(behaviour.by_kind if behaviour else (), "kinds"),
            "paired": lambda: None if effect is None else _paired(effect.rows, effect.pass_rate),
        }
    )


def _forest(score: Score) -> str | None:
    dots = [
        plots.Dot(name.replace("_", " "), e.value, share(e.value), e.wilson, e.bootstrap)
        for name, e in score.estimates.items()
        if e.value is not None and e.denominator
    ]
    title = "Each score with both intervals; the table below has the numbers."
    return plots.forest(dots, title, "scores-plot") if dots else None


def _ends(score: Score) -> str | None:
    counts = {name: getattr(score.counts, name) for name in plots.ENDS}
    said = " ".join(f"{name}: {n}." for name, n in counts.items() if n)
    return plots.stacked([plots.Bar("runs", counts)], plots.ENDS, said, "ends-plot") if said else None


def _strips(score: Score) -> str | None:
    outcomes: dict[str, list[str]] = {}
    for run in score.rows:
        outcomes.setdefault(run.task_id, []).append(run.outcome)
    rows = [
        plots.Strip(
            printable(task), tuple(marks[:_MARKS_SHOWN]), f"{marks.count('passed')}/{len(marks)} passed"
        )
        for task, marks in list(outcomes.items())[:_STRIPS_SHOWN]
    ]
    title = "The outcome of each run of each task; the table below has the counts."
    return plots.strips(rows, title, "strips-plot") if rows else None


def _strips_caption(score: Score) -> str:
    said = "A row for each task, a mark for each run in the order of seeds and repeats."
    more = len(score.tasks) - _STRIPS_SHOWN
    return said + (f" {more:,} more tasks are in the table." if more > 0 else "")


def _behaviours(rows: Sequence[BehaviourRow], key: str) -> str | None:
    bars = [plots.Bar(f"{printable(row.name)}  ({row.faults})", row.counts) for row in rows]
    title = "What was done about delivered faults; the table below has the numbers."
    return plots.stacked(bars, plots.BEHAVIOURS, title, f"{key}-plot") if bars else None


def _paired(rows: Sequence[TaskDifference], found: Contrast) -> str | None:
    if found.difference is None:
        return None
    shown = sorted(rows, key=lambda row: row.difference)[:_STRIPS_SHOWN]
    marks = [(printable(row.task_id), row.difference) for row in shown]
    title = "The difference for each task, and the mean; the table below has the numbers."
    return plots.differences(marks, found.difference, found.interval, title, "paired-plot")


def _difference_table(rows: Sequence[TaskDifference], a: str, b: str) -> Section:
    cells = tuple(
        (printable(row.task_id), number(row.seeds), share(row.a), share(row.b), signed(row.difference))
        for row in rows
    )
    return Section("paired-rows", "Differences by task", ("task", "seeds", a, b, "difference"), cells)
