"""Two arms under the same seeds: one primary contrast named beforehand, the others beside it, corrected."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from ledger.controls import control_folders
from ledger.problems import Problem, ReadingError
from scoring.contrast import Amount, Contrast, Pairs, TaskDifference, contrast, pair, task_differences
from scoring.effect import passes
from scoring.envelope import Condition, conditions, kill_plans
from scoring.fold import Origin
from scoring.gather import Gathered, gather
from scoring.paired import holm
from scoring.rates import Estimate, Headline
from scoring.runs import Run
from scoring.score import Finding, Method, Score, controls_of, score_gathered, threshold_of
from scoring.sums import Cell

PRIMARY = "pass rate (strict)"


class NothingToPair(ReadingError):
    """The two arms have no (task, seed) in common."""


class Arm(msgspec.Struct, frozen=True, kw_only=True):
    """One side of a comparison, as it scores on its own."""

    sources: tuple[str, ...]
    origins: tuple[Origin, ...]
    runs: int
    tasks: int
    strict: Estimate
    headline: Headline
    unpaired: int


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """B set against A: every difference is B − A.

    ``primary`` was named before any data was seen: the strict pass rate. ``secondary`` are corrected among
    themselves (Holm); ``exploratory`` are not corrected at all and show where to look next. ``rows`` are the
    tasks of the primary contrast. ``smoke``: too few runs or tasks to say which is better.
    """

    a: Arm
    b: Arm
    pairs: int
    primary: Contrast
    secondary: tuple[Contrast, ...]
    exploratory: tuple[Contrast, ...]
    rows: tuple[TaskDifference, ...]
    conditions: tuple[Condition, ...]
    smoke: bool
    interpretable: bool
    method: Method
    problems: tuple[Problem, ...]
    findings: tuple[Finding, ...]

    @property
    def exit_code(self) -> int:
        """0 fine · 1 a check failed · 3 inconclusive; a failed check outweighs."""
        return min((finding.exit for finding in self.findings), default=0)


def _complete(counts: Callable[[Run], float]) -> Amount:
    return lambda run: counts(run) if run.ended == "complete" else None


SECONDARY: tuple[tuple[str, Amount, bool], ...] = (
    ("pass rate of complete runs (observed)", _complete(passes), True),
    ("completion rate", lambda run: float(run.ended == "complete"), True),
    ("truncation rate", lambda run: float(run.is_cut), True),
    ("error rate", lambda run: float(run.ended == "error"), True),
    ("tokens per run", lambda run: run.tokens_used, False),
    ("wall time per run, s", lambda run: run.wall_s, False),
)


def compare_paths(
    a: Path | Sequence[Path],
    b: Path | Sequence[Path],
    *,
    threshold: float | None = None,
    verdicts: Path | None = None,
) -> Comparison:
    """Compares two run folders (or several on a side) task by task under the same seeds.

    Raises ``EnvelopesDiffer`` where they were made under different conditions, ``NothingToPair`` where they
    share no task and seed, and any other ``ReadingError`` for what cannot be read.
    """
    sides = [[side] if isinstance(side, Path) else side for side in (a, b)]
    arms = [gather(side, verdicts) for side in sides]
    envelope = conditions(*arms)
    controls = [
        controls_of(control_folders(side, "positive"), control_folders(side, "negative")) for side in sides
    ]
    scores = [
        score_gathered(arm, threshold_of(arm, threshold), controls=held)
        for arm, held in zip(arms, controls, strict=True)
    ]
    pairs = pair(arms[0].runs, arms[1].runs)
    if not pairs.both:
        raise NothingToPair(
            "A and B have no task with the same seed in common, so nothing can be paired: run both with the "
            "same seeds"
        )
    rows = task_differences(pairs, passes)
    return Comparison(
        a=_arm(scores[0], pairs.only_a),
        b=_arm(scores[1], pairs.only_b),
        pairs=len(pairs.both),
        primary=contrast(PRIMARY, "primary", rows, share=True),
        secondary=_secondary(pairs),
        exploratory=_exploratory(arms, pairs),
        rows=rows,
        conditions=envelope,
        smoke=any(score.repeats.smoke for score in scores),
        interpretable=all(score.interpretable for score in scores),
        method=Method(),
        problems=(
            *_unchecked(envelope),
            *_killed(arms),
            *_unpaired(pairs, scores),
            *scores[0].problems,
            *scores[1].problems,
        ),
        findings=tuple(
            msgspec.structs.replace(finding, what=f"{name}: {finding.what}")
            for name, score in zip("AB", scores, strict=True)
            for finding in score.findings
        ),
    )


def compare_json(comparison: Comparison) -> bytes:
    """The comparison as one JSON object with its exit code and a newline; undefined numbers are null."""
    data = {**msgspec.to_builtins(comparison), "exit_code": comparison.exit_code}
    data["problems"] = [problem._asdict() for problem in comparison.problems]
    for name, arm in (("a", comparison.a), ("b", comparison.b)):
        data[name]["origins"] = [origin._asdict() for origin in arm.origins]
    return msgspec.json.format(msgspec.json.encode(data), indent=2) + b"\n"


def _arm(score: Score, unpaired: int) -> Arm:
    return Arm(
        sources=score.sources,
        origins=score.origins,
        runs=score.counts.runs,
        tasks=score.counts.tasks,
        strict=score.estimates["strict"],
        headline=score.headline,
        unpaired=unpaired,
    )


def _secondary(pairs: Pairs) -> tuple[Contrast, ...]:
    found = [
        contrast(name, "secondary", task_differences(pairs, amount), share=is_share)
        for name, amount, is_share in SECONDARY
    ]
    tested = [one for one in found if one.p is not None]
    adjusted = dict(zip((one.name for one in tested), holm([one.p or 0.0 for one in tested]), strict=True))
    return tuple(msgspec.structs.replace(one, p_holm=adjusted.get(one.name)) for one in found)


def _exploratory(arms: Sequence[Gathered], pairs: Pairs) -> tuple[Contrast, ...]:
    """Pass rates of the runs that met a kind, or a sort, of fault. Who meets one depends on what was done
    before, so these cells compare runs that may differ in more than their arm."""
    kinds: dict[str, set[int]] = {}
    sorts: dict[str, set[int]] = {}
    for arm in arms:
        by_index = {run.index: id(run) for run in arm.runs if run.index is not None}
        for cell, runs in arm.folded.counted.exposed.items():
            met = {by_index[index] for index in runs.tolist() if index in by_index}
            kinds.setdefault(cell.kind or "unknown", set()).update(met)
            sorts.setdefault(_sort(cell), set()).update(met)
    cells = [*sorted(sorts.items()), *sorted(kinds.items())]
    found = (
        contrast(name, "exploratory", task_differences(pairs, _among(met)), share=True) for name, met in cells
    )
    return tuple(one for one in found if one.tasks)


def _sort(cell: Cell) -> str:
    return " · ".join(part or "unknown" for part in (cell.timing, cell.mode, cell.persistence))


def _among(met: set[int]) -> Amount:
    return lambda run: passes(run) if id(run) in met else None


def _unchecked(envelope: Sequence[Condition]) -> list[Problem]:
    return [
        Problem(
            "conditions", None, f"{one.name}: not known in {'both arms' if one.a == one.b else _silent(one)}"
        )
        for one in envelope
        if not one.known
    ]


def _killed(arms: Sequence[Gathered]) -> list[Problem]:
    said = kill_plans(*arms)
    return [] if said is None else [Problem("conditions", None, said)]


def _silent(one: Condition) -> str:
    return "A" if one.a is None else "B"


def _unpaired(pairs: Pairs, scores: Sequence[Score]) -> list[Problem]:
    found = []
    for name, other, only, score in zip("AB", "BA", (pairs.only_a, pairs.only_b), scores, strict=True):
        if only:
            what = (
                f"{only} of {score.counts.runs} runs of {name} have a task and seed that {other} has not: "
                "left out of every difference"
            )
            found.append(Problem("pairing", None, what))
    return found
