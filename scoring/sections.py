"""The score as titled tables of plain text, in the order of the report; text.py and report.py show them."""

from __future__ import annotations

from collections.abc import Sequence

from scoring.costs import Cost
from scoring.fold import Origin
from scoring.score import Counts, Score
from scoring.sections_faults import behaviour, claims, costs_of_faults, effect, exposure, grids, kinds
from scoring.sections_recovery import double_applies, recovery
from scoring.wording import Section, counted, interval, more_than, number, printable, share

TASKS_SHOWN = 500
_LISTED = 20

INTERVAL_NOTE = (
    "The task, with all its seeds and repeats, is the sampling unit. n_eff-Wilson is the interval to quote: "
    "it keeps its coverage at few tasks and when everything passes or fails. The bootstrap assumes no shape "
    "and also serves gaps, but at few tasks it is too narrow, and it shrinks to a point when all tasks agree."
)


def all_sections(score: Score) -> tuple[Section, ...]:
    """Every section that the score has data for, most important first."""
    wanted = (
        validity(score),
        *exposure(score),
        *effect(score),
        scores(score),
        ends(score.counts),
        *claims(score),
        *recovery(score),
        *double_applies(score),
        *grids(score),
        *behaviour(score),
        *kinds(score),
        *costs_of_faults(score),
        efficiency(score),
        *latency(score),
        *invalid_runs(score),
        *problems(score),
    )
    return tuple(section for section in wanted if section.rows)


def validity(score: Score) -> Section:
    """What the other numbers rest on."""
    counts, met = score.counts, score.exposure
    rows = [
        ("runs", f"{counts.runs} first attempts of {counts.tasks} tasks"),
        ("invalid runs", f"{counts.invalid} (they count as failures)"),
        ("not judged", f"{counts.unjudged} (they count as failures)"),
        *((f"{control.kind} control", control.sentence) for control in score.controls),
    ]
    if met is not None:
        rows.append(("faults", f"{met.decided} decided, {met.delivered} delivered"))
    rows += [("harness", printable(_origin(origin))) for origin in score.origins[:_LISTED]]
    rows += [("tools digest", printable(digest)) for digest in score.tool_sets[:_LISTED]]
    rows.append(("repeats", repeats_line(score)))
    rows.append(("threshold", f"{score.threshold.value:g} ({printable(score.threshold.source)})"))
    rows += [("exit code", f"{finding.exit}: {finding.what}") for finding in score.findings]
    return Section("validity", "Validity", (), tuple(rows))


def repeats_line(score: Score) -> str:
    """How often cells were repeated, and what that allows to say."""
    found = score.repeats
    if found.fewest is None:
        return "no runs"
    many = f"{found.fewest}" if found.fewest == found.most else f"{found.fewest} to {found.most}"
    said = f"{many} per (task, seed) in {found.cells} cells"
    if found.repeated:
        said += f", {found.disagreeing} of {found.repeated} repeated cells disagree"
    return said + ("; fewer than 5 repeats are a sanity check" if found.sanity_check else "")


def _origin(origin: Origin) -> str:
    harness = " ".join(filter(None, (origin.harness or "unknown harness", origin.harness_version)))
    untested = " (untested version: injected by its dialect)" if origin.untested else ""
    return f"{harness}{untested}, profile {origin.profile}, chaosproxy {origin.version}"


_SHOWN_ELSEWHERE = frozenset(("recovery_ratio", "rsr"))


def scores(score: Score) -> Section:
    """Every registered score with both intervals."""
    rows = []
    for name, estimate in score.estimates.items():
        absent = name == "exposure" and score.exposure is None
        if absent or (name in _SHOWN_ELSEWHERE and score.recovery is None):
            continue
        dropped = f" ({estimate.dropped:.1%} dropped)" if estimate.dropped else ""
        rows.append(
            (
                name,
                share(estimate.value),
                counted(estimate.numerator, estimate.denominator),
                interval(estimate.wilson),
                interval(estimate.bootstrap) + dropped,
                "" if estimate.n_used is None else f"{estimate.n_used:.1f}",
            )
        )
        if name == "strict" and score.strict_bound != score.strict:
            rows.append(("  if invalid and unjudged had passed", share(score.strict_bound), "", "", "", ""))
    percent = f"{score.method.level:.0%}"
    return Section(
        "scores",
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
    rows.append(("passed, complete and valid", str(counts.passed)))
    return Section("ends", "How the runs ended", (), tuple(rows))


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
        "efficiency",
        "Efficiency",
        ("", "mean", f"{score.method.level:.0%} cluster t", "runs known"),
        tuple(cost_row(name, cost, digits) for name, cost, digits in costs if cost.runs_known),
    )


def cost_row(name: str, cost: Cost, digits: int) -> tuple[str, ...]:
    """A mean with its interval and how many runs it rests on."""
    return (name, number(cost.value, digits), interval(cost.interval, digits), str(cost.runs_known))


def latency(score: Score) -> Sequence[Section]:
    """The injector's own time."""
    if score.latency is None:
        return ()
    took = score.latency
    cells = (f"{took.p50_us:,.1f}", f"{took.p99_us:,.1f}", f"{took.max_us:,.1f}", str(took.calls))
    columns = ("p50 µs", "p99 µs", "max µs", "calls")
    title = "Injector latency per call (slow faults left out)"
    return (Section("latency", title, columns, (cells,), left=0),)


def invalid_runs(score: Score) -> Sequence[Section]:
    """The first of the invalid runs, with their reasons."""
    if not score.invalid_runs:
        return ()
    rows = tuple(
        (printable(run.run_id or ""), printable(run.task_id), printable("; ".join(run.reasons)))
        for run in score.invalid_runs[:_LISTED]
    )
    note = more_than(len(score.invalid_runs), _LISTED)
    return (Section("invalid", "Invalid runs", ("run", "task", "why"), rows, note, left=3),)


def problems(score: Score) -> Sequence[Section]:
    """The first of what was tolerated in the files."""
    if not score.problems:
        return ()
    rows = tuple((printable(str(problem)),) for problem in score.problems[:_LISTED])
    return (Section("problems", "Noticed in the files", (), rows, more_than(len(score.problems), _LISTED)),)


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
    return Section("tasks", "Tasks", columns, rows, more_than(len(score.tasks), TASKS_SHOWN))
