"""What became of interrupted runs: whether they came back, what they did twice, what it cost."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from ledger.problems import Problem
from ledger.reading import Lined
from scoring.costs import Cost
from scoring.gather import Gathered, owner_of, replayed_until
from scoring.intervals import cluster_t
from scoring.journal import DoubleApply, Replayed, journal_figures, replayed_calls
from scoring.links import Links
from scoring.runs import Run, seconds_between


class Recovery(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of interrupted and resumed runs; docs/statistics.md has the formulas.

    interrupted: first attempts that were cut, in folders with a resume pass (``resume_pass``) · recovered:
    those whose last attempt passed · journaled_tasks: tasks with a journal · violations: second rows of one
    (run, checkpoint, attempt) · untreated: runs that never reached the checkpoint that the plan kills at ·
    checkpoints: declared in the manifest, else seen in the journal. Without a journal its figures are null.
    """

    resume_pass: bool
    resumed_attempts: int
    resumed_passed: int
    interrupted: int
    recovered: int
    interrupted_tasks: int
    recovered_tasks: int
    recovery_ratio: float | None
    rsr: float | None
    attempts_total: int
    checkpoints: tuple[str, ...]
    journaled_tasks: int | None
    double_apply_tasks: int | None
    double_apply_by_checkpoint: dict[str, int]
    double_applies: tuple[DoubleApply, ...]
    repeated_effects: int | None
    repeated_effect_runs: int | None
    identical_repeats: int | None
    violations: int | None
    untreated: int | None
    replay_tokens: Cost | None
    replay_wall_s: Cost | None


class Comeback(NamedTuple):
    """Per task: resumed attempts and passes among them; interrupted runs, and those that recovered."""

    resumed: Counter[str]
    resumed_passed: Counter[str]
    interrupted: Counter[str]
    recovered: Counter[str]


def comeback_of(gathered: Gathered, problems: list[Problem]) -> Comeback:
    """Counts the resumed log by task. First attempts are never changed by it."""
    links = Links(gathered.runs)
    last: dict[int, Lined] = {}
    resumed: Counter[str] = Counter()
    passed: Counter[str] = Counter()
    for found in gathered.resumed:
        run = links.of_line(found)
        task = found.line.task_id
        resumed[task] += 1
        passed[task] += _passed(found)
        if run is None:
            what = "a resumed attempt of a run that has no first attempt here: counted in the recovery ratio"
            problems.append(Problem(str(found.path), found.number, what))
            continue
        if not run.is_cut:
            what = (
                f"a resumed attempt of run {run.run_id}, which was not cut but ended {run.ended or 'unknown'}"
            )
            problems.append(Problem(str(found.path), found.number, what))
        known = last.get(id(run))
        if known is None or known.line.attempt <= found.line.attempt:
            last[id(run)] = found
    interrupted: Counter[str] = Counter()
    recovered: Counter[str] = Counter()
    if any(folder.resumed for folder in gathered.folders):
        for run in gathered.runs:
            if run.is_cut:
                interrupted[run.task_id] += 1
                recovered[run.task_id] += id(run) in last and _passed(last[id(run)])
    return Comeback(resumed, passed, interrupted, recovered)


def _passed(found: Lined) -> bool:
    return found.line.ended == "complete" and found.line.passed is True


def recovery_of(gathered: Gathered, comeback: Comeback, problems: list[Problem]) -> Recovery | None:
    """The figures; null when there is neither a resume pass nor a journal. Appends to ``problems``."""
    resume_pass = any(folder.resumed for folder in gathered.folders)
    if not resume_pass and not gathered.journal:
        return None
    figures = journal_figures(gathered, problems)
    resumed, interrupted = comeback.resumed.total(), comeback.interrupted.total()
    return Recovery(
        resume_pass=resume_pass,
        resumed_attempts=resumed,
        resumed_passed=comeback.resumed_passed.total(),
        interrupted=interrupted,
        recovered=comeback.recovered.total(),
        interrupted_tasks=len(+comeback.interrupted),
        recovered_tasks=sum(
            comeback.recovered[task] == count for task, count in comeback.interrupted.items() if count
        ),
        recovery_ratio=comeback.resumed_passed.total() / resumed if resumed else None,
        rsr=comeback.recovered.total() / interrupted if interrupted else None,
        attempts_total=len(gathered.runs) + resumed,
        **msgspec.structs.asdict(figures),
        replay_tokens=_replay_cost(gathered, lambda known: known.tokens, _replayed_tokens)
        if gathered.journal
        else None,
        replay_wall_s=_replay_cost(gathered, lambda known: known.seconds, _replayed_seconds)
        if gathered.journal
        else None,
    )


def _replay_cost(
    gathered: Gathered,
    of_calls: Callable[[Replayed], float],
    amount: Callable[[Gathered, Run, Lined, str | None], float | None],
) -> Cost | None:
    """Σ amount / resumed attempts whose amount is known, with a cluster-t interval over tasks.

    From the journaled calls where there are some; else ``amount``: what was spent until the attempt had
    reached the last checkpoint that an earlier one had reached.
    """
    journaled = replayed_calls(gathered.calls)
    until = replayed_until(entry.row for entry in gathered.journal)
    reached = {(owner_of(entry.row), entry.row.attempt) for entry in gathered.journal}
    reached |= {(call.run_id, call.attempt) for call in gathered.calls}
    links = Links(gathered.runs)
    by_task: Mapping[str, list[float]] = defaultdict(list)
    for found in gathered.resumed:
        run = links.of_line(found)
        if run is None:
            continue
        key = next((k for k in _keys(run, found) if k in reached), None)
        if key is None:
            continue
        known = journaled.get(key)
        spent = of_calls(known) if known is not None else amount(gathered, run, found, until.get(key))
        if spent is not None:
            by_task[run.task_id].append(spent)
    if not by_task:
        return None
    amounts = np.array([math.fsum(spent) for spent in by_task.values()])
    attempts = np.array([float(len(spent)) for spent in by_task.values()])
    total, per = math.fsum(amounts.tolist()), int(attempts.sum())
    return Cost(
        value=total / per, total=total, per=per, runs_known=per, interval=cluster_t(amounts, attempts)
    )


def _keys(run: Run, found: Lined) -> Sequence[tuple[str, int]]:
    attempt = found.line.attempt
    return [(run.run_id or "", attempt), (run.task_id, attempt)]


def _replayed_tokens(gathered: Gathered, run: Run, found: Lined, until: str | None) -> float | None:
    if run.index is None or run.run_id is None:
        return None
    trace = gathered.folded.runs[run.run_id]
    attempt = found.line.attempt
    if attempt not in trace.attempts_started:
        return None
    return 0.0 if until is None else float(trace.replayed_tokens.get(attempt, 0))


def _replayed_seconds(gathered: Gathered, run: Run, found: Lined, until: str | None) -> float | None:
    if until is None:
        return 0.0
    started = found.line.started
    if started is None and run.run_id in gathered.folded.runs:
        started = gathered.folded.runs[run.run_id].attempts_started.get(found.line.attempt)
    took = seconds_between(started, until)
    return None if took is None else max(0.0, took)
