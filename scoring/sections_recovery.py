"""Tables about interrupted runs: whether they came back, and what they did twice."""

from __future__ import annotations

from collections.abc import Sequence

from scoring.recovery import Recovery
from scoring.score import Score
from scoring.wording import Section, interval, number, printable, share

_LISTED = 20


def recovery(score: Score) -> Sequence[Section]:
    """Recovery figures, with the number of declared checkpoints beside them."""
    found = score.recovery
    if found is None:
        return ()
    rows = []
    if found.resume_pass:
        rows += _ratios(score, found)
    rows.append(("attempts in all", str(found.attempts_total)))
    if found.double_apply_tasks is not None:
        rows += _journal(found)
    for name, cost, digits in (
        ("tokens replayed per resume", found.replay_tokens, 0),
        ("wall time replayed per resume, s", found.replay_wall_s, 2),
    ):
        if cost is not None:
            rows.append((name, f"{number(cost.value, digits)}  {interval(cost.interval, digits)} cluster t"))
    names = ", ".join(map(printable, found.checkpoints))
    rows.append(
        ("checkpoints", f"{len(found.checkpoints)} declared or seen" + (f": {names}" if names else ""))
    )
    note = (
        "From the resumed log and the journal alone: no resumed attempt is in any score above. The recovery "
        "ratio counts resumed attempts, the resume success rate interrupted runs."
    )
    return (Section("recovery", "After an interruption", (), tuple(rows), note),)


def _ratios(score: Score, found: Recovery) -> list[tuple[str, str]]:
    ratio, rsr = score.estimates["recovery_ratio"], score.estimates["rsr"]
    return [
        (
            "recovery ratio",
            f"{share(found.recovery_ratio)}  {found.resumed_passed}/{found.resumed_attempts} resumed attempts"
            f"  {interval(ratio.wilson)}",
        ),
        (
            "resume success rate (RSR)",
            f"{share(found.rsr)}  {found.recovered}/{found.interrupted} interrupted runs"
            f"  {interval(rsr.wilson)}",
        ),
    ]


def _journal(found: Recovery) -> list[tuple[str, str]]:
    where = ", ".join(f"{printable(name)} {n}" for name, n in found.double_apply_by_checkpoint.items())
    rows = [
        (
            "double-apply tasks",
            f"{found.double_apply_tasks} of {found.journaled_tasks} journaled"
            + (f" ({where})" if where else ""),
        ),
        (
            "repeated effects",
            f"{found.repeated_effects} in {found.repeated_effect_runs} runs,"
            f" {found.identical_repeats} of them with the same payload",
        ),
    ]
    if found.violations:
        rows.append(("journal violations", f"{found.violations} second rows of one attempt"))
    if found.untreated is not None:
        rows.append(("untreated runs", f"{found.untreated} never reached the checkpoint of the plan"))
    return rows


def double_applies(score: Score) -> Sequence[Section]:
    """The checkpoints that one run reached with different payloads."""
    if score.recovery is None or not score.recovery.double_applies:
        return ()
    rows = tuple(
        (
            printable(double.run),
            printable(double.task_id or ""),
            printable(double.checkpoint),
            ", ".join(map(str, double.attempts)),
            ", ".join(printable(digest[:12]) for digest in double.digests),
        )
        for double in score.recovery.double_applies[:_LISTED]
    )
    columns = ("run", "task", "checkpoint", "attempts", "payloads")
    return (Section("double-applies", "Double applies", columns, rows, left=5),)
