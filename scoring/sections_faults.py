"""Tables about faults: exposure, effect, behaviour, what they cost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from scoring.behaviour import Behaviour, BehaviourRow
from scoring.contrast import Contrast
from scoring.exposure import Row
from scoring.score import Score
from scoring.wording import Section, counted, interval, number, p_value, printable, share, signed

_RULES = (
    "What the agent did within its next five calls of the conversation, by rule; then what it said in the "
    "end, where that is known. Undetermined: neither is known, or the run was cut."
)


def exposure(score: Score) -> Sequence[Section]:
    """How many runs met a fault, and what became of the faults."""
    met = score.exposure
    if met is None:
        return ()
    counts = [
        ("exposed runs", f"{met.exposed_runs} of {met.runs}"),
        ("faults per run", f"{share(met.delivered_per_run)} delivered"),
        ("tool calls", str(met.calls)),
        ("decided", str(met.decided)),
        ("applied", str(met.applied)),
        ("delivered", str(met.delivered)),
    ]
    exceptions = [
        ("undelivered", met.undelivered),
        ("of these in flight when their run was cut", met.in_flight),
        *((f"skipped: {printable(reason)}", count) for reason, count in met.skipped.items()),
        ("superseded by the harness", met.superseded),
        ("back-references undone", met.dereferenced),
        ("slow, outside these figures", met.slowed),
    ]
    rows = (*counts, *((name, str(n)) for name, n in exceptions if n))
    return (Section("exposure", "Fault exposure", (), rows),)


def grids(score: Score) -> Sequence[Section]:
    """Faults by timing, mode and persistence."""
    if score.exposure is None:
        return ()
    return (_faults("by-sort", "Faults by timing · mode · persistence", score.exposure.by_sort),)


def kinds(score: Score) -> Sequence[Section]:
    """Faults by kind and by family."""
    if score.exposure is None:
        return ()
    return (
        _faults("by-kind", "Faults by kind", score.exposure.by_kind),
        _faults("by-family", "Faults by family", score.exposure.by_family),
    )


def _faults(key: str, title: str, rows: Iterable[Row]) -> Section:
    cells = ((printable(r.name), str(r.decided), str(r.applied), str(r.delivered)) for r in rows)
    return Section(key, title, ("", "decided", "applied", "delivered"), tuple(cells))


def effect(score: Score) -> Sequence[Section]:
    """Pass rate with faults minus pass rate under ``off``."""
    if score.effect is None:
        return ()
    found = score.effect
    off, treated = found.unpaired
    missing = f" Without a partner and not counted here: {off} under off, {treated} with faults."
    note = (
        "By intention to treat: every run counts, exposed or not. Same tasks and seeds; "
        f"{found.baseline_runs} runs under off." + (missing if off or treated else "")
    )
    rows = contrast_rows(found.pass_rate, ("pass rate under off", "pass rate with faults"))
    return (Section("effect", "Effect of the faults", (), rows, note),)


def contrast_rows(found: Contrast, arms: tuple[str, str]) -> tuple[tuple[str, ...], ...]:
    """A primary contrast, line by line."""
    rows = [
        (arms[0], share(found.a)),
        (arms[1], share(found.b)),
        ("difference", signed(found.difference)),
        ("95% paired t", interval(found.interval)),
        ("95% bootstrap", interval(found.bootstrap)),
        ("sign-flip p", p_value(found.p) + ("" if found.p is None or not found.p_exact else " (exact)")),
        ("effect size d", signed(found.effect_size, 2)),
        ("smallest detectable difference", share(found.smallest_detectable) + " (80% power)"),
        ("tasks", f"{found.tasks} ({found.pairs} pairs of task and seed)"),
    ]
    if found.note:
        rows.append(("note", found.note))
    return tuple(rows)


def claims(score: Score) -> Sequence[Section]:
    """Whether agents that met an implicit fault said that they were done when they were not."""
    if score.behaviour is None:
        return ()
    found = score.behaviour.claimed_success_on_implicit
    rows: list[tuple[str, ...]] = [
        (
            "claimed success anyway",
            share(found.value),
            counted(found.numerator, found.denominator),
            interval(found.wilson),
        )
    ]
    note = (
        "Complete runs that met an implicit fault, whose last words and verdict are known: in how many the "
        "agent says that it is done while the check says no. Last words are known of "
        f"{score.behaviour.claims_known} runs."
    )
    columns = ("", "share", "n", "95% n_eff-Wilson")
    return (Section("claims", "Claimed success on implicit faults", columns, tuple(rows), note),)


def behaviour(score: Score) -> Sequence[Section]:
    """What was done about faults, by sort and by kind."""
    if score.behaviour is None:
        return ()
    found = score.behaviour
    return (
        _behaviours("behaviour-sort", "Behaviour after a fault", (found.total, *found.by_sort), _RULES),
        _behaviours("behaviour-kind", "Behaviour by kind (exploratory)", found.by_kind, ""),
    )


def _behaviours(key: str, title: str, rows: Iterable[BehaviourRow], note: str) -> Section:
    words = [word.value for word in Behaviour]
    cells = tuple(
        (printable(row.name), str(row.faults), *(str(row.counts[word]) for word in words)) for row in rows
    )
    return Section(key, title, ("", "faults", *words), cells, note)


def costs_of_faults(score: Score) -> Sequence[Section]:
    """What a delivered fault cost over the same task and seed under ``off``."""
    if score.effect is None:
        return ()
    rows = tuple(
        (name, number(cost.value, digits), interval(cost.interval, digits), str(cost.runs_known))
        for name, cost, digits in (
            ("tokens per delivered fault", score.effect.tokens_per_fault, 0),
            ("wall time per delivered fault, s", score.effect.wall_s_per_fault, 2),
        )
        if cost.runs_known
    )
    columns = ("", "extra", "95% cluster t", "pairs known")
    return (Section("fault-cost", "Cost of a fault", columns, rows),)
