"""What the report shows, piece by piece: tiles with a number, and the ledger rows behind each of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from scoring.costs import Cost
from scoring.intervals import Interval
from scoring.ledger_rows import Group, Rows
from scoring.rates import Estimate
from scoring.runs import Run
from scoring.score import Score
from scoring.wording import counted, interval, number, printable, share, signed


class Track(NamedTuple):
    """Where a value and its interval lie on a line from 0 to 100 per cent; ``zero``: where no effect is."""

    at: float
    low: float
    high: float
    zero: float | None = None


class Tile(NamedTuple):
    """One number: what it is, its value, what it was made of, its interval, and the runs behind it.

    ``value`` is null where it is undefined; ``why`` says so then. ``mood``: plain, good, bad or warn.
    """

    title: str
    value: str | None
    made_of: str = ""
    interval: str = ""
    why: str = ""
    mood: str = "plain"
    groups: tuple[Group, ...] = ()
    track: Track | None = None


class Check(NamedTuple):
    """One line of validity; ``state``: ok, failed or open."""

    state: str
    what: str
    detail: str = ""


def checks(score: Score) -> tuple[Check, ...]:
    """What the other numbers rest on, most important first."""
    counts, met = score.counts, score.exposure
    found = [
        Check("ok" if control.holds else "failed", _sentence(control.sentence)) for control in score.controls
    ]
    if not score.controls:
        found.append(Check("open", "No controls", "neither a positive nor a negative control was given"))
    state = "failed" if counts.invalid > score.threshold.value * counts.runs else "ok"
    found.append(
        Check(state, f"{counts.invalid} of {counts.runs} runs are invalid", "they count as failures")
    )
    if counts.unjudged:
        found.append(
            Check("open", f"{counts.unjudged} of {counts.runs} runs are not judged", "they count as failures")
        )
    if met is not None:
        lost = met.undelivered - met.in_flight
        said = f"{met.decided} faults decided, {met.applied} applied, {met.delivered} delivered"
        detail = "every applied fault reached the model"
        if met.undelivered:
            detail = f"{met.in_flight} were on their way when their run was cut, {lost} never arrived"
        elif not met.applied:
            detail = "nothing was applied"
        found.append(Check("failed" if lost else "ok" if met.delivered else "open", said, detail))
    # What failed a check stands above already.
    found += [
        Check("open", _sentence(finding.what), "inconclusive, exit 3")
        for finding in score.findings
        if finding.exit == 3
    ]
    return tuple(found)


def _sentence(text: str) -> str:
    return text[:1].upper() + printable(text[1:])


def rate_tile(
    title: str, estimate: Estimate, groups: tuple[Group, ...], why: str, mood: str = "plain"
) -> Tile:
    """A share with what it was made of and the interval to quote."""
    if estimate.value is None:
        return Tile(title, None, why=why)
    quoted = "" if estimate.wilson is None else f"{interval(estimate.wilson)} n_eff-Wilson"
    return Tile(
        title,
        share(estimate.value),
        counted(estimate.numerator, estimate.denominator),
        quoted or "no interval: fewer than two tasks",
        mood=mood,
        groups=groups,
        track=None if estimate.wilson is None else _track(estimate.value, estimate.wilson),
    )


def _track(value: float, within: Interval, *, signed: bool = False) -> Track:
    """A share on a line from 0 to 1, a difference of two on one from −1 to 1."""
    place: Callable[[float], float] = lambda x: round(50 * x + 50 if signed else 100 * x, 1)  # noqa: E731
    low, high = (place(min(max(end, -1.0), 1.0)) for end in within)
    return Track(place(value), low, high, 50.0 if signed else None)


def _judged(label: str, rows: Rows) -> tuple[Group, ...]:
    return rows.groups(
        (f"{label}, passed", lambda run: run.is_pass), (f"{label}, not passed", lambda run: not run.is_pass)
    )


def exposure_tiles(score: Score, rows: Rows) -> tuple[Tile, ...]:
    """How many runs met a fault, and how many they met."""
    if score.exposure is None:
        return (Tile("exposed runs", None, why="no decision log was given"),)
    groups = rows.groups(
        ("exposed", lambda run: bool(run.faults_delivered)),
        ("not exposed", lambda run: run.faults_delivered == 0),
    )
    per_run = Tile(
        "faults per run",
        number(score.exposure.delivered_per_run, 2),
        f"{score.exposure.delivered} delivered in {score.exposure.runs} runs",
        f"of {score.exposure.calls:,} tool calls",
        groups=groups,
    )
    return (rate_tile("exposed runs", score.estimates["exposure"], groups, ""), per_run)


def effect_tiles(score: Score, rows: Rows, off: Rows) -> tuple[Tile, ...]:
    """Pass rate with faults minus pass rate without."""
    if score.effect is None:
        why = "not measured: give the folder of the same tasks and seeds under off, too"
        return (Tile("effect of the faults", None, why=why),)
    found = score.effect.pass_rate
    quoted = found.note if found.interval is None else f"{interval(found.interval)} paired t"
    made_of = f"{share(found.a)} under off, {share(found.b)} with faults, {found.tasks} tasks"
    smallest = Tile(
        "smallest detectable",
        None if found.smallest_detectable is None else share(found.smallest_detectable),
        "difference that this design finds with 80% power",
        why=found.note,
    )
    effect = Tile(
        "effect of the faults",
        signed(found.difference),
        made_of,
        quoted,
        groups=_judged("with faults", rows) + _judged("under off", off),
        track=None
        if found.interval is None
        else _track(found.difference or 0.0, found.interval, signed=True),
    )
    return (effect, smallest)


def score_tiles(score: Score, rows: Rows) -> tuple[Tile, ...]:
    """Strict with its bound, observed, the gap between them, completion, truncation, errors."""
    estimates, basis = score.estimates, score.headline.basis
    outcome: Callable[[str], Callable[[Run], bool]] = lambda word: lambda run: run.outcome == word  # noqa: E731
    by_outcome = rows.groups(
        *((word, outcome(word)) for word in ("passed", "failed", "quota_cut", "restart_cut", "error")),
        *((word, outcome(word)) for word in ("invalid", "unjudged")),
    )
    complete = rows.groups(
        ("passed", lambda run: run.is_pass),
        ("complete, not passed", lambda run: run.ended == "complete" and not run.is_pass),
    )
    cut = rows.groups(("cut", lambda run: run.is_cut))
    wrong = rows.groups(("ended in error", lambda run: run.ended == "error"))
    none = "no run could be judged"
    strict = rate_tile("strict", estimates["strict"], by_outcome, none)
    if score.strict_bound is not None and score.strict_bound != score.strict:
        bound = f"{share(score.strict_bound)} if every invalid or unjudged run had passed"
        strict = strict._replace(made_of=f"{strict.made_of}; at most {bound}")
    observed = rate_tile("observed", estimates["observed"], complete, "no run was complete")
    gap = estimates["truncation_exposure"]
    quoted = "" if gap.bootstrap is None else f"{interval(gap.bootstrap)} bootstrap"
    return (
        strict._replace(mood="head" if basis == "strict" else "plain"),
        observed._replace(mood="head" if basis == "observed" else "plain"),
        Tile(
            "gap",
            None if gap.value is None else signed(gap.value),
            "observed − strict",
            quoted,
            why=none,
            groups=rows.groups(("not complete: in strict alone", lambda run: run.ended != "complete")),
        ),
        rate_tile("completion", estimates["completion_rate"], complete, "nobody said how the runs ended"),
        rate_tile("truncation", estimates["truncation_rate"], cut, "nobody said how the runs ended"),
        rate_tile("errors", estimates["error_rate"], wrong, "nobody said how the runs ended"),
    )


def claim_tiles(score: Score, rows: Rows) -> tuple[Tile, ...]:
    """Whether runs that met an implicit fault claimed success anyway."""
    title = "claimed success anyway"
    if score.behaviour is None:
        return (Tile(title, None, why="no fault was delivered"),)
    groups = rows.groups(
        ("say done, check says no", lambda run: run.claimed == "done" and run.passed is False)
    )
    known = score.behaviour.claims_known
    why = "no complete run that met an implicit fault has both a verdict and known last words"
    why += f" (known of {known} runs; see verdicts.json)"
    return (rate_tile(title, score.behaviour.claimed_success_on_implicit, groups, why),)


def recovery_tiles(score: Score, rows: Rows) -> tuple[Tile, ...]:
    """Whether interrupted runs came back, and what they did twice."""
    found = score.recovery
    if found is None:
        return (Tile("after an interruption", None, why="no resumed attempt and no journal was given"),)
    none = "no run was interrupted and resumed"
    cut = rows.groups(("interrupted", lambda run: run.is_cut))
    tiles = [
        rate_tile("resume success (RSR)", score.estimates["rsr"], cut, none),
        rate_tile("recovery ratio", score.estimates["recovery_ratio"], cut, none),
    ]
    checkpoints = f"{len(found.checkpoints)} checkpoints declared or seen"
    if found.double_apply_tasks is None:
        tiles.append(Tile("doubled effects", None, why="no journal was given"))
        return tuple(tiles)
    tiles += [
        Tile(
            "double-apply tasks",
            str(found.double_apply_tasks),
            f"of {found.journaled_tasks} journaled",
            checkpoints,
            mood="bad" if found.double_apply_tasks else "plain",
        ),
        Tile(
            "repeated effects",
            str(found.repeated_effects),
            f"{found.identical_repeats} with the same payload",
            checkpoints,
            mood="bad" if found.repeated_effects else "plain",
        ),
    ]
    for title, cost, digits in (
        ("tokens replayed", found.replay_tokens, 0),
        ("seconds replayed", found.replay_wall_s, 2),
    ):
        if cost is not None:
            tiles.append(cost_tile(title, cost, digits, "resumed attempts"))
    return tuple(tiles)


def cost_tiles(score: Score, rows: Rows, off: Rows) -> tuple[Tile, ...]:
    """What a delivered fault costs, or what is needed to know that."""
    if score.effect is None:
        why = "not measured: needs the same tasks and seeds under off"
        return (Tile("cost of a fault", None, why=why),)
    effect = score.effect
    tokens = _counted("with faults", rows, _has_tokens) + _counted("under off", off, _has_tokens)
    seconds = _counted("with faults", rows, _has_seconds) + _counted("under off", off, _has_seconds)
    return (
        cost_tile("tokens per fault", effect.tokens_per_fault, 0, "delivered faults", tokens, sign=True),
        cost_tile("seconds per fault", effect.wall_s_per_fault, 2, "delivered faults", seconds, sign=True),
    )


def efficiency_tiles(score: Score, rows: Rows) -> tuple[Tile, ...]:
    """Tokens and time per run and per pass."""
    spent = score.efficiency
    tokens, seconds = _counted("known", rows, _has_tokens), _counted("known", rows, _has_seconds)
    return (
        cost_tile("tokens per run", spent.tokens_per_run, 0, "runs", tokens),
        cost_tile("tokens per pass", spent.tokens_per_pass, 0, "passes", tokens),
        cost_tile("seconds per run", spent.wall_s_per_run, 2, "runs", seconds),
        cost_tile("seconds per pass", spent.wall_s_per_pass, 2, "passes", seconds),
    )


def _counted(label: str, rows: Rows, counts: Callable[[Run], bool]) -> tuple[Group, ...]:
    return rows.groups((label, counts))


def _has_tokens(run: Run) -> bool:
    return run.tokens_used is not None


def _has_seconds(run: Run) -> bool:
    return run.wall_s is not None


def cost_tile(
    title: str, cost: Cost, digits: int, per: str, groups: tuple[Group, ...] = (), *, sign: bool = False
) -> Tile:
    """A mean amount with its interval."""
    if cost.value is None:
        return Tile(title, None, why="not known of any run" if not cost.runs_known else f"no {per}")
    shown = signed(cost.value, digits) if sign else number(cost.value, digits)
    quoted = "" if cost.interval is None else f"{interval(cost.interval, digits)} cluster t"
    return Tile(title, shown, f"{number(cost.total, digits)} in {cost.per:g} {per}", quoted, groups=groups)


class GridCell(NamedTuple):
    """Faults of one timing and mode: how many were delivered, and what was done about them."""

    delivered: int
    decided: int
    transient: int
    permanent: int
    behaviours: tuple[tuple[str, int], ...]
    weight: int


def grid(score: Score) -> dict[str, dict[str, GridCell]]:
    """timing → mode → cell; ``weight`` is the share of all delivered faults, in per cent."""
    if score.exposure is None:
        return {}
    behaviours: dict[str, Counter[str]] = {}
    for met in score.behaviour.by_sort if score.behaviour else ():
        behaviours.setdefault(met.name.rpartition(" · ")[0], Counter()).update(met.counts)
    table: dict[str, dict[str, GridCell]] = {}
    total = score.exposure.delivered or 1
    for row in score.exposure.by_sort:
        name, _, persistence = row.name.rpartition(" · ")
        timing, _, mode = name.partition(" · ")
        old = table.setdefault(timing, {}).get(mode, GridCell(0, 0, 0, 0, (), 0))
        words = tuple((word, n) for word, n in behaviours.get(name, Counter()).items() if n)
        delivered = old.delivered + row.delivered
        table[timing][mode] = GridCell(
            delivered,
            old.decided + row.decided,
            old.transient + row.delivered * (persistence == "transient"),
            old.permanent + row.delivered * (persistence == "permanent"),
            words,
            round(100 * delivered / total),
        )
    return table
