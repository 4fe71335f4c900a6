"""The score as titled tables of plain text, in the order of the report; text.py and report.py show them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from scoring.costs import Cost
from scoring.exposure import Exposure, Row
from scoring.fold import Origin
from scoring.intervals import Interval
from scoring.score import Counts, Score

TASKS_SHOWN = 500
_LISTED = 20

INTERVAL_NOTE = (
    "The task, with all its seeds and repeats, is the sampling unit. n_eff-Wilson is the interval to quote: "
    "it keeps its coverage at few tasks and when everything passes or fails. The bootstrap assumes no shape "
    "and also serves gaps, but at few tasks it is too narrow, and it shrinks to a point when all tasks agree."
)


class Section(NamedTuple):
    """A table: ``rows`` have as many cells as ``columns``; without columns, a label and its values."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


def printable(text: str) -> str:
    """Text from a log without line breaks or terminal codes: each becomes U+FFFD."""
    return "".join(char if char.isprintable() else "\ufffd" for char in text)


def share(value: float | None) -> str:
    """Three decimals, or ``null``."""
    return "null" if value is None else f"{value:.3f}"


def interval(value: Interval | None, digits: int = 3) -> str:
    """``[low, high]``, or ``null``."""
    return "null" if value is None else f"[{value.low:,.{digits}f}, {value.high:,.{digits}f}]"


def all_sections(score: Score) -> tuple[Section, ...]:
    """Every section that the score has data for."""
    exposed = () if score.exposure is None else _exposure(score.exposure)
    wanted = (
        validity(score),
        *exposed[:1],
        scores(score),
        ends(score.counts),
        *exposed[1:],
        efficiency(score),
        *latency(score),
        *invalid_runs(score),
        *problems(score),
    )
    return tuple(section for section in wanted if section.rows)


def validity(score: Score) -> Section:
    """What the other numbers rest on."""
    counts, exposure = score.counts, score.exposure
    rows = [
        ("runs", f"{counts.runs} first attempts of {counts.tasks} tasks"),
        ("invalid runs", f"{counts.invalid} (they count as failures)"),
        ("not judged", f"{counts.unjudged} (they count as failures)"),
    ]
    if exposure is not None:
        rows.append(("faults", f"{exposure.decided} decided, {exposure.delivered} delivered"))
    rows += [("harness", printable(_origin(origin))) for origin in score.origins[:_LISTED]]
    rows += [("tools digest", printable(digest)) for digest in score.tool_sets[:_LISTED]]
    rows.append(("threshold", f"{score.threshold.value:g} ({printable(score.threshold.source)})"))
    rows += [("exit code", f"{finding.exit}: {finding.what}") for finding in score.findings]
    return Section("Validity", (), tuple(rows))


def _origin(origin: Origin) -> str:
    harness = " ".join(filter(None, (origin.harness or "unknown harness", origin.harness_version)))
    untested = " (untested version: injected by its dialect)" if origin.untested else ""
    return f"{harness}{untested}, profile {origin.profile}, chaosproxy {origin.version}"


def _exposure(exposure: Exposure) -> tuple[Section, ...]:
    counts = [
        ("exposed runs", f"{exposure.exposed_runs} of {exposure.runs}"),
        ("faults per run", f"{share(exposure.delivered_per_run)} delivered"),
        ("tool calls", str(exposure.calls)),
        ("decided", str(exposure.decided)),
        ("applied", str(exposure.applied)),
        ("delivered", str(exposure.delivered)),
    ]
    exceptions = [
        ("undelivered", exposure.undelivered),
        ("of these in flight when their run was cut", exposure.in_flight),
        *((f"skipped: {printable(reason)}", count) for reason, count in exposure.skipped.items()),
        ("superseded by the harness", exposure.superseded),
        ("back-references undone", exposure.dereferenced),
        ("slow, outside these figures", exposure.slowed),
    ]
    return (
        Section("Fault exposure", (), (*counts, *((name, str(n)) for name, n in exceptions if n))),
        _faults("Faults by timing · mode · persistence", exposure.by_sort),
        _faults("Faults by kind", exposure.by_kind),
        _faults("Faults by family", exposure.by_family),
    )


def _faults(title: str, rows: Iterable[Row]) -> Section:
    return Section(
        title,
        ("", "decided", "applied", "delivered"),
        tuple((printable(r.name), str(r.decided), str(r.applied), str(r.delivered)) for r in rows),
    )


def scores(score: Score) -> Section:
    """Every registered score with both intervals."""
    rows = []
    for name, estimate in score.estimates.items():
        if name == "exposure" and score.exposure is None:
            continue
        counted = "" if estimate.denominator is None else f"{estimate.numerator}/{estimate.denominator}"
        dropped = f" ({estimate.dropped:.1%} dropped)" if estimate.dropped else ""
        rows.append(
            (
                name,
                share(estimate.value),
                counted,
                interval(estimate.wilson),
                interval(estimate.bootstrap) + dropped,
                "" if estimate.n_used is None else f"{estimate.n_used:.1f}",
            )
        )
        if name == "strict" and score.strict_bound != score.strict:
            rows.append(("  if invalid and unjudged had passed", share(score.strict_bound), "", "", "", ""))
    percent = f"{score.method.level:.0%}"
    return Section(
        "Scores",
        ("", "value", "n", f"{percent} n_eff-Wilson", f"{percent} bootstrap", "n_eff"),
        tuple(rows),
        f"{INTERVAL_NOTE} {score.method.resamples:,} resamples, seed {score.method.seed}; n_eff is the "
        "number of independent runs that the tasks are worth, after the correction for few tasks.",
    )


def ends(counts: Counts) -> Section:
    """How the runs ended."""
    names = ("complete", "quota_cut", "restart_cut", "error", "unknown")
    rows = [(name, str(getattr(counts, name))) for name in names]
    return Section("How the runs ended", (), (*rows, ("passed, complete and valid", str(counts.passed))))


def efficiency(score: Score) -> Section:
    """Costs whose amounts are known for at least one run."""
    spent = score.efficiency
    costs = (
        ("tokens per run", spent.tokens_per_run, 0),
        ("tokens per pass", spent.tokens_per_pass, 0),
        ("wall time per run, s", spent.wall_s_per_run, 2),
        ("wall time per pass, s", spent.wall_s_per_pass, 2),
    )
    return Section(
        "Efficiency",
        ("", "mean", f"{score.method.level:.0%} cluster t", "runs known"),
        tuple(_cost(name, cost, digits) for name, cost, digits in costs if cost.runs_known),
    )


def _cost(name: str, cost: Cost, digits: int) -> tuple[str, ...]:
    value = "null" if cost.value is None else f"{cost.value:,.{digits}f}"
    return (name, value, interval(cost.interval, digits), str(cost.runs_known))


def latency(score: Score) -> Sequence[Section]:
    """The injector's own time."""
    if score.latency is None:
        return ()
    took = score.latency
    cells = (f"{took.p50_us:,.1f}", f"{took.p99_us:,.1f}", f"{took.max_us:,.1f}", str(took.calls))
    columns = ("p50 µs", "p99 µs", "max µs", "calls")
    return (Section("Injector latency per call (slow faults left out)", columns, (cells,)),)


def invalid_runs(score: Score) -> Sequence[Section]:
    """The first of the invalid runs, with their reasons."""
    if not score.invalid_runs:
        return ()
    rows = tuple(
        (printable(run.run_id or ""), printable(run.task_id), printable("; ".join(run.reasons)))
        for run in score.invalid_runs[:_LISTED]
    )
    return (Section("Invalid runs", ("run", "task", "why"), rows, _more(score.invalid_runs, _LISTED)),)


def problems(score: Score) -> Sequence[Section]:
    """The first of what was tolerated in the files."""
    if not score.problems:
        return ()
    rows = tuple((printable(str(problem)),) for problem in score.problems[:_LISTED])
    return (Section("Noticed in the files", (), rows, _more(score.problems, _LISTED)),)


def tasks(score: Score) -> Section:
    """What became of each task."""
    rows = tuple(
        (
            printable(task.task_id),
            f"{task.passed}/{task.runs}",
            str(task.complete),
            str(task.cut),
            str(task.error),
            str(task.invalid),
            "null" if task.faults_delivered is None else str(task.faults_delivered),
        )
        for task in score.tasks[:TASKS_SHOWN]
    )
    columns = ("task", "passed", "complete", "cut", "error", "invalid", "faults delivered")
    return Section("Tasks", columns, rows, _more(score.tasks, TASKS_SHOWN))


def _more(all_of: Sequence[object], shown: int) -> str:
    return f"{len(all_of) - shown} more: see the JSON form." if len(all_of) > shown else ""
