"""What journals say of effects: which were done twice, differently or in the same way."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from ledger.problems import Problem
from ledger.reading_journal import CallRow, JournalRow
from scoring.gather import Gathered, owner_of
from scoring.links import Links
from scoring.runs import Run

# Reaching this checkpoint means that the workspace was changed.
EFFECTS = frozenset(("patch_applied",))
_LISTED = 100


class DoubleApply(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint of one run with more than one payload; ``attempts`` are those that reached it."""

    run: str
    task_id: str | None
    checkpoint: str
    digests: tuple[str, ...]
    attempts: tuple[int, ...]


class JournalFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of a journal, null without one; see ``scoring.recovery.Recovery``."""

    checkpoints: tuple[str, ...]
    journaled_tasks: int | None = None
    double_apply_tasks: int | None = None
    double_apply_by_checkpoint: dict[str, int] = {}
    double_applies: tuple[DoubleApply, ...] = ()
    repeated_effects: int | None = None
    repeated_effect_runs: int | None = None
    identical_repeats: int | None = None
    violations: int | None = None
    untreated: int | None = None


def journal_figures(gathered: Gathered, problems: list[Problem]) -> JournalFigures:
    """Counts every journal; a second row for one (run, checkpoint, attempt) is told as a problem."""
    if not gathered.journal:
        return JournalFigures(checkpoints=_declared(gathered))
    journal = _Journal(gathered, problems)
    doubles = [found for key in journal.rows if (found := journal.double(key)) is not None]
    repeats = repeated_calls(gathered.calls) if gathered.calls else journal.repeats()
    by_checkpoint = Counter(double.checkpoint for double in doubles)
    return JournalFigures(
        checkpoints=_declared(gathered) or tuple(sorted({checkpoint for _, checkpoint in journal.rows})),
        journaled_tasks=len({task or owner for owner, task in journal.tasks.items()}),
        double_apply_tasks=len({double.task_id or double.run for double in doubles}),
        double_apply_by_checkpoint=dict(sorted(by_checkpoint.items())),
        double_applies=tuple(doubles[:_LISTED]),
        repeated_effects=len(repeats),
        repeated_effect_runs=len({owner for owner, _ in repeats}),
        identical_repeats=sum(same for _, same in repeats),
        violations=journal.violations,
        untreated=_untreated(gathered, journal.keys),
    )


class Replayed(NamedTuple):
    """What one resumed attempt spent on calls that an earlier attempt had journaled."""

    tokens: int
    seconds: float


def repeated_calls(calls: Sequence[CallRow]) -> list[tuple[str, bool]]:
    """(run, True) for each call that changed the workspace in an earlier attempt and did so again in a later
    one: the same tool with the same arguments."""
    before: dict[tuple[str, str, str], int] = {}
    found = []
    for call in sorted((call for call in calls if call.changed_workspace), key=lambda call: call.attempt):
        first = before.setdefault((call.run_id, call.tool, call.call_digest), call.attempt)
        if first < call.attempt:
            found.append((call.run_id, True))
    return found


def replayed_calls(calls: Sequence[CallRow]) -> dict[tuple[str, int], Replayed]:
    """(run, attempt) → what a resumed attempt spent on calls that an earlier one had journaled, for every
    resumed attempt with a call. A call costs the step from the one before it."""
    first: dict[tuple[str, str, str], int] = {}
    spent: dict[tuple[str, int], Replayed] = {}
    tokens: dict[str, int] = {}
    wall: dict[tuple[str, int], float] = {}
    for call in sorted(calls, key=lambda call: call.attempt):
        key = (call.run_id, call.attempt)
        step = Replayed(
            max(0, call.tokens - tokens.get(call.run_id, 0)),
            max(0.0, call.wall_ms - wall.get(key, 0.0)) / 1000,
        )
        tokens[call.run_id], wall[key] = call.tokens, call.wall_ms
        again = first.setdefault((call.run_id, call.tool, call.call_digest), call.attempt) < call.attempt
        if call.attempt > 1:
            old = spent.get(key, Replayed(0, 0.0))
            spent[key] = Replayed(old.tokens + step.tokens * again, old.seconds + step.seconds * again)
    return spent


def _declared(gathered: Gathered) -> tuple[str, ...]:
    return tuple(sorted({name for m in gathered.manifests.values() for name in m.checkpoints or ()}))


class _Journal:
    """The rows of all journals by (owner, checkpoint), in the order in which they were written."""

    def __init__(self, gathered: Gathered, problems: list[Problem]) -> None:
        links = Links(gathered.runs)
        self.tasks: dict[str, str | None] = {}
        self.rows: dict[tuple[str, str], list[JournalRow]] = defaultdict(list)
        self.violations = 0
        self.keys: set[tuple[str, str, int]] = set()
        for path, row in gathered.journal:
            owner = owner_of(row)
            run = links.of_row(row)
            self.tasks[owner] = row.task_id or (run.task_id if run else None)
            self.rows[owner, row.checkpoint].append(row)
            key = (owner, row.checkpoint, row.attempt)
            if key in self.keys:
                self.violations += 1
                what = (
                    f"a second row for {row.checkpoint} of {owner}, attempt {row.attempt}: a violation, kept"
                )
                problems.append(Problem(str(path), None, what))
            self.keys.add(key)

    def double(self, key: tuple[str, str]) -> DoubleApply | None:
        """The double apply at one (owner, checkpoint), where there is one."""
        owner, checkpoint = key
        digests = dict.fromkeys(
            row.payload_digest for row in self.rows[key] if row.payload_digest is not None
        )
        if len(digests) < 2:
            return None
        return DoubleApply(
            run=owner,
            task_id=self.tasks[owner],
            checkpoint=checkpoint,
            digests=tuple(digests),
            attempts=tuple(sorted({row.attempt for row in self.rows[key]})),
        )

    def repeats(self) -> list[tuple[str, bool]]:
        """(owner, was it the same payload) for each effect that a later attempt had again."""
        found = []
        for (owner, checkpoint), rows in self.rows.items():
            if checkpoint not in EFFECTS:
                continue
            first = min(row.attempt for row in rows)
            for attempt in sorted({row.attempt for row in rows if row.attempt > first}):
                again = {row.payload_digest for row in rows if row.attempt == attempt}
                before = {row.payload_digest for row in rows if row.attempt < attempt}
                found.append((owner, bool(again & before - {None})))
        return found


def _untreated(gathered: Gathered, keys: set[tuple[str, str, int]]) -> int | None:
    """Runs of folders with a kill plan whose first attempt never reached the checkpoint of the plan."""
    points = {
        folder.path.resolve(): point
        for folder in gathered.folders
        if folder.manifest is not None and folder.journals
        if (point := _killed_at(gathered.manifests[folder.manifest].plan)) is not None
    }
    if not points:
        return None
    missed = 0
    for run in gathered.runs:
        point = points.get(_folder_of(run))
        owners = (run.run_id, run.task_id)
        missed += point is not None and not any((owner, point, 1) in keys for owner in owners)
    return missed


def _folder_of(run: Run) -> Path:
    return Path(run.where.rpartition(":")[0]).parent.resolve()


def _killed_at(plan: str | None) -> str | None:
    """The checkpoint of a plan with one kill, such as ``patch_applied:hard_exit``."""
    if plan is None or "," in plan:
        return None
    point, colon, _ = plan.partition(":")
    return point if colon else None
