"""One row per first attempt, out of the run logs, the decision logs and the verdicts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import get_args

import msgspec

from ledger.claims import claim_of
from ledger.problems import EmptyLog, Problem, RunIdClash
from ledger.reading import Lined, read_runlogs
from ledger.reading_folder import Folder
from ledger.reading_stated import Verdict
from ledger.runs import Claim, Ended, RunLine
from scoring.fold import Folded
from scoring.traces import RunTrace

DEFAULT_RUN = "default"

NO_START = "no start in the decision log"


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """A first attempt. ``ended`` and ``passed`` are null where nobody said; ``invalid`` holds the reasons.

    ``faults_decided`` and ``faults_delivered`` are null when the run has no decision log.
    ``in_flight`` faults were decided when the run was cut, before the model could answer. ``index`` is its
    place in the folded decision logs, null without one; ``where`` the ledger line that it stands in.
    """

    run_id: str | None
    task_id: str
    seed: int
    repeat: int
    ended: str | None
    passed: bool | None
    tokens_used: int | None
    wall_s: float | None
    faults_decided: int | None = None
    faults_delivered: int | None = None
    in_flight: int = 0
    invalid: tuple[str, ...] = ()
    claimed: Claim | None = None
    profile: str | None = None
    boot_id: str | None = None
    index: int | None = None
    where: str = ""

    @property
    def is_known(self) -> bool:
        """Whether somebody said how it ended."""
        return self.ended is not None

    @property
    def is_judged(self) -> bool:
        """Whether it can be told to have passed or not: a run that was not complete has not."""
        return self.ended is not None and (self.ended != "complete" or self.passed is not None)

    @property
    def is_pass(self) -> bool:
        """Passed, complete and valid."""
        return self.ended == "complete" and self.passed is True and not self.invalid

    @property
    def is_cut(self) -> bool:
        """Whether it was interrupted: out of quota, or the machine, the supervisor or we ended it."""
        return self.ended in ("quota_cut", "restart_cut")

    @property
    def outcome(self) -> str:
        """In one word: passed, failed, invalid, how it was cut or ended, or unjudged."""
        if self.invalid:
            return "invalid"
        if self.ended in ("quota_cut", "restart_cut", "error"):
            return str(self.ended)
        if not self.is_judged:
            return "unjudged"
        return "passed" if self.passed else "failed"

    @property
    def cell(self) -> tuple[str, int, int]:
        """(task, seed, repeat)."""
        return (self.task_id, self.seed, self.repeat)


def join_runs(
    folders: Sequence[Folder], folded: Folded, verdicts: Mapping[str, Verdict], problems: list[Problem]
) -> tuple[Run, ...]:
    """Every first attempt once, in the order of (task, seed, repeat, run_id).

    Raises ``RunIdClash`` when a run log and a decision log mean different runs by one id, ``EmptyLog`` when
    there is no run at all, and what ``read_runlogs`` raises.
    """
    runs: list[Run] = []
    lined: set[str] = set()
    has_log = {runlog: bool(folder.decisions) for folder in folders for runlog in folder.runlogs}
    by_cell = _by_cell(folded.runs.values())
    for found in read_runlogs(has_log, problems):
        path, _, line = found
        trace = folded.runs.get(line.run_id) if line.run_id else by_cell.get(_cell(line))
        if trace is not None:
            lined.add(trace.run_id)
            _check_same(path, line, trace, problems)
        runs.append(_from_line(found, trace, folded, verdicts, problems, logged=has_log[path]))
    alone = len(folded.runs) == 1 and not runs
    for trace in folded.runs.values():
        if trace.run_id in lined or (not alone and _is_idle_default(trace, problems)):
            continue
        if runs and any(has_log.values()) and not _said(trace, verdicts):
            what = f"run {trace.run_id} has no line in the run log: counted, not judged"
            problems.append(Problem(trace.source, None, what))
        runs.append(_from_log(trace, folded, verdicts, problems))
    if not runs and not any(folder.journals for folder in folders):
        raise EmptyLog(f"no run in {', '.join(str(f.path) for f in folders)}: there is nothing to score yet")
    _report_strays(verdicts, runs, problems)
    return tuple(
        sorted(runs, key=lambda run: (run.task_id, run.seed, run.repeat, run.run_id or "", repr(run)))
    )


def _cell(line: RunLine) -> tuple[str, int, int]:
    return (line.task_id, line.seed, line.repeat)


def _by_cell(traces: Iterable[RunTrace]) -> dict[tuple[str, int, int], RunTrace]:
    """Started runs by (task, seed, repeat), for run logs without ids; cells with two runs are left out."""
    found: dict[tuple[str, int, int], list[RunTrace]] = {}
    for trace in traces:
        if trace.task_id is not None and trace.seed is not None and trace.repeat is not None:
            found.setdefault((trace.task_id, trace.seed, trace.repeat), []).append(trace)
    return {cell: some[0] for cell, some in found.items() if len(some) == 1}


def _check_same(path: Path, line: RunLine, trace: RunTrace, problems: list[Problem]) -> None:
    if trace.task_id is None:
        return
    if (line.task_id, line.seed) != (trace.task_id, trace.seed):
        raise RunIdClash(
            f"{path}: run {trace.run_id} is task {line.task_id} with seed {line.seed}, but in {trace.source} "
            f"it is task {trace.task_id} with seed {trace.seed}: two different runs with one id; put each "
            "run log beside its own decision log"
        )
    if line.repeat != trace.repeat:
        what = f"run {trace.run_id} is repeat {line.repeat} here and {trace.repeat} in {trace.source}"
        problems.append(Problem(str(path), None, what))


def _from_line(
    found: Lined,
    trace: RunTrace | None,
    folded: Folded,
    verdicts: Mapping[str, Verdict],
    problems: list[Problem],
    *,
    logged: bool,
) -> Run:
    path, number, line = found
    passed = line.passed
    verdict = verdicts.get(line.run_id) if line.run_id is not None else None
    if verdict is not None and verdict.passed is not None:
        if passed is None:
            passed = verdict.passed
        elif passed != verdict.passed:
            what = (
                f"run {line.run_id}: the run log says passed {passed}, the verdicts say otherwise: left as is"
            )
            problems.append(Problem(str(path), None, what))
    run = Run(
        run_id=line.run_id,
        task_id=line.task_id,
        seed=line.seed,
        repeat=line.repeat,
        ended=line.ended,
        passed=passed,
        tokens_used=line.tokens_used if line.tokens_used is not None else _tokens(trace),
        wall_s=line.wall_s,
        claimed=line.claimed if line.claimed is not None else _claim(verdict),
        profile=line.profile,
        boot_id=line.boot_id,
        where=f"{path}:{number}",
    )
    if trace is None:
        return msgspec.structs.replace(
            run,
            invalid=(NO_START,) if logged else (),
            faults_decided=0 if logged else None,
            faults_delivered=0 if logged else None,
        )
    return _with_trace(run, trace, folded)


def _from_log(
    trace: RunTrace, folded: Folded, verdicts: Mapping[str, Verdict], problems: list[Problem]
) -> Run:
    """A run that no run log knows: its end is what its own records say, then the verdicts, else null.

    A verdict, or a passed, without an end state means that the run came to its end; a run whose budget ran
    out did not.
    """
    verdict = verdicts.get(trace.run_id, Verdict(None))
    passed = trace.passed if trace.passed is not None else verdict.passed
    ended = trace.ended
    if ended is not None and ended not in get_args(Ended):
        what = f"run {trace.run_id} ended as {ended!r}, none of {', '.join(get_args(Ended))}: not judged"
        problems.append(Problem(trace.source, None, what))
        ended = passed = None
    ended = ended or verdict.ended or ("quota_cut" if trace.quota else None)
    if ended is None and passed is not None:
        ended = "complete"
    run = Run(
        run_id=trace.run_id,
        task_id=trace.task_id if trace.task_id is not None else trace.run_id,
        seed=trace.seed or 0,
        repeat=trace.repeat or 0,
        ended=ended,
        passed=passed,
        tokens_used=_tokens(trace),
        wall_s=seconds_between(trace.first_request, trace.last_request),
        claimed=_claim(verdict) or _seen_claim(trace),
        where=f"{trace.source}:{trace.lines.get('end') or trace.lines.get('start') or 1}",
    )
    return _with_trace(run, trace, folded)


def _claim(verdict: Verdict | None) -> Claim | None:
    if verdict is None:
        return None
    return verdict.claimed if verdict.claimed is not None else claim_of(verdict.final_text)


def _seen_claim(trace: RunTrace) -> Claim | None:
    """What the proxy heard the agent say in the end."""
    return next((claim for claim in get_args(Claim) if claim == trace.claimed), None)


def _with_trace(run: Run, trace: RunTrace, folded: Folded) -> Run:
    counted = folded.counted
    undelivered = int(counted.undelivered[trace.index])
    # What was under way when the harness was killed or cut off could not be answered any more: no fault of
    # the injector, and such a run is a failure as it is.
    reasons = [
        f"injector error: {error}" + (f" ({times} times)" if times > 1 else "")
        for error, times in trace.errors.items()
    ]
    if not trace.started:
        reasons.append(NO_START)
    if undelivered and not run.is_cut:
        reasons.append(f"{undelivered} of {int(counted.decided[trace.index])} faults never reached the model")
    if counted.conflicting[trace.index]:
        reasons.append(f"{int(counted.conflicting[trace.index])} calls were decided twice, differently")
    return msgspec.structs.replace(
        run,
        faults_decided=int(counted.decided[trace.index]),
        faults_delivered=int(counted.delivered[trace.index]),
        in_flight=undelivered if run.is_cut else 0,
        invalid=tuple(reasons),
        profile=run.profile if run.profile is not None else trace.profile,
        boot_id=run.boot_id if run.boot_id is not None else trace.boot_id,
        index=trace.index,
    )


def _said(trace: RunTrace, verdicts: Mapping[str, Verdict]) -> bool:
    return trace.ended is not None or trace.passed is not None or trace.run_id in verdicts


def _is_idle_default(trace: RunTrace, problems: list[Problem]) -> bool:
    """The run of requests without ``/run/…``, when no such request came: beside others it is no run."""
    idle = trace.run_id == DEFAULT_RUN and not (trace.agent_requests or trace.has_calls or trace.errors)
    if idle and trace.ended is None and trace.passed is None:
        problems.append(Problem(trace.source, None, "run default was never used: not counted"))
        return True
    return False


def _tokens(trace: RunTrace | None) -> int | None:
    if trace is None or trace.usage_missing or not trace.tokens:
        return None
    return trace.tokens


def seconds_between(first: str | None, last: str | None) -> float | None:
    """Seconds from one RFC 3339 time to another; null when one is not known or is no time."""
    if first is None or last is None:
        return None
    try:
        return (datetime.fromisoformat(last) - datetime.fromisoformat(first)).total_seconds()
    except (ValueError, TypeError):
        return None


def _report_strays(verdicts: Mapping[str, Verdict], runs: Sequence[Run], problems: list[Problem]) -> None:
    known = {run.run_id for run in runs}
    for run_id in verdicts:
        if run_id not in known:
            problems.append(Problem("verdicts", None, f"a verdict for run {run_id}, which is in no log"))
