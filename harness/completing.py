"""The ledger of a supervisor that died: what it had begun and not written down is written down now."""

from __future__ import annotations

from datetime import datetime

from harness.attempt import declared_of, judged
from harness.endings import Ending
from harness.folder import Cell, RunFolder
from harness.processes import kill_by_home
from harness.workspace import Watch
from ledger.attempts import AttemptId, LoggedAttempt, logged_attempts
from ledger.decisions import DecisionLog, timestamp
from ledger.identity import boot_id
from ledger.journal import Journal
from ledger.machine import machine_started
from ledger.manifest import Manifest
from ledger.records import End
from ledger.runs import Ended, RunLine, append_run

_ENDED: dict[str, Ended] = {
    "complete": "complete",
    "quota_cut": "quota_cut",
    "restart_cut": "restart_cut",
    "error": "error",
}


def complete_ledger(
    folder: RunFolder, manifest: Manifest, cells: dict[str, Cell], journal: Journal
) -> list[RunLine]:
    """Writes a line for every attempt that was begun and has none; gives back what it wrote.

    Call it with the folder held: then whoever began them is dead. What of their harnesses is still alive is
    killed first. Raises ``OSError`` or ``LedgerError``.
    """
    lined = folder.lines()
    written = []
    for key, logged in logged_attempts(folder.decisions).items():
        cell = cells.get(key.run_id)
        if cell is None or key in lined:
            continue
        kill_by_home(str(folder.home(key.run_id)))
        journal.declare(cell.task.id, declared_of(cell.task, manifest))
        line = _line_of(folder, cell, key, logged, journal)
        append_run(folder.runlog(key.attempt), line)
        written.append(line)
    return written


def _line_of(
    folder: RunFolder, cell: Cell, key: AttemptId, logged: LoggedAttempt, journal: Journal
) -> RunLine:
    ending, passed = _ending(folder, cell, key, logged, journal)
    start = logged.start
    return RunLine(
        task_id=cell.task.id,
        seed=cell.seed,
        repeat=cell.repeat,
        ended=ending.ended,
        passed=passed,
        tokens_used=logged.tokens,
        wall_s=_seconds(start.ts, logged.last_ts),
        run_id=key.run_id,
        attempt=key.attempt,
        boot_id=start.boot_id,
        started=start.ts,
        stopped=logged.last_ts,
        machine_started=machine_started(),
        resumed_from=last_checkpoint(journal, key.run_id, key.attempt - 1) if key.attempt > 1 else None,
        harness=start.harness,
        harness_version=start.harness_version,
        profile=str(start.profile.get("name", "")),
        exit_code=None,
        reason=ending.reason,
    )


def _ending(
    folder: RunFolder, cell: Cell, key: AttemptId, logged: LoggedAttempt, journal: Journal
) -> tuple[Ending, bool | None]:
    """What it had come to by itself, when that stands in the log; else the supervisor took it along."""
    end = logged.end
    if end is not None and end.ended in _ENDED:
        return Ending(_ENDED[end.ended], "written down after the supervisor had died"), end.passed
    start = logged.start
    if logged.quota:
        ending = Ending("quota_cut", "the token budget is spent; the supervisor died before it was noted")
    elif start.boot_id != boot_id():
        since = machine_started()
        ending = Ending("restart_cut", "the machine was restarted" + (f" at {since}" if since else ""))
    else:
        ending = Ending("restart_cut", f"the supervisor (process {start.pid}) died")
    workspace = folder.workspace(key.run_id)
    journal.stopped(key.run_id, key.attempt, Watch(workspace, cell.task.ignore).look().digest)
    passed = judged(cell.task, workspace, folder.scratch(key.run_id), ending)
    log = DecisionLog(folder.decisions)
    try:
        log.write([End(ts=timestamp(), run_id=key.run_id, ended=ending.ended, passed=passed)])
    finally:
        log.close()
    return ending, passed


def last_checkpoint(journal: Journal, run_id: str, attempt: int) -> str | None:
    """The last checkpoint that is durable for one attempt; None when there is none."""
    rows = [row for row in journal.reached(run_id) if row.attempt == attempt]
    return rows[-1].checkpoint if rows else None


def _seconds(first: str, last: str) -> float | None:
    try:
        return round((datetime.fromisoformat(last) - datetime.fromisoformat(first)).total_seconds(), 3)
    except ValueError:
        return None
