"""`chaosproxy resume`: every run that was cut goes on from its last durable checkpoint.

Same run id, seed, log and workspace, what is left of the same budget, the harness's own resume command. What
cannot be resumed honestly is not: it gets a line that says why, and counts as a failure.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from harness.adapter import Adapter
from harness.attempt import Bench, Start
from harness.command import Command
from harness.completing import complete_ledger, last_checkpoint
from harness.folder import Cell, RunFolder, cells_of
from harness.preparing import Prepared, read_back
from harness.processes import kill_by_home
from harness.supervisor import Finished, Progress, adapter_of, described, first_lines, opened_bench, run_all
from harness.workspace import Watch, fresh_workspace
from ledger.attempts import AttemptId, LoggedAttempt, logged_attempts
from ledger.decisions import timestamp
from ledger.identity import boot_id
from ledger.journal import Journal
from ledger.machine import machine_started
from ledger.manifest import Manifest
from ledger.runs import RunLine, append_run

_CUT = ("quota_cut", "restart_cut")
# Where a harness keeps its sessions, relative to HOME: all that a machine that went away leaves of it.
_STORED: Mapping[str, tuple[str, ...]] = {
    "reference": (".chaosproxy-reference",),
    "claude-code": (".claude", ".claude.json"),
    "pi": (".pi",),
    "codex": (".codex",),
    "opencode": (".local/share/opencode", ".config/opencode"),
    "gemini-cli": (".gemini",),
    "qwen-code": (".qwen",),
}
# Where the sessions lie of harnesses that do not take our ids for them.
_NAMED_BY_ITSELF: Mapping[str, str] = {
    "codex": ".codex/sessions/**/*.jsonl",
    "opencode": ".local/share/opencode/**/*.db",
    "gemini-cli": ".gemini/tmp/*/chats/*",
}


@dataclass(frozen=True, slots=True)
class Resumable:
    """A cut run and what it goes on from."""

    cell: Cell
    attempt: int
    resumed_from: str
    tokens_before: int


@dataclass(frozen=True, slots=True)
class Unresumable:
    """A cut run that cannot go on, and why."""

    cell: Cell
    attempt: int
    resumed_from: str | None
    reason: str


def resume_folder(
    path: Path,
    progress: Progress,
    *,
    jobs: int = 1,
    upstream: str | None = None,
    adapter: Adapter | None = None,
) -> Finished:
    """One resume pass: each run whose last attempt was cut gets one more.

    ``upstream``: where the endpoint is now, when it is not where the manifest says. Raises what
    ``run_manifest`` raises.
    """
    folder = RunFolder(path)
    with folder.held():
        prepared = read_back(folder)
        if upstream is not None:
            endpoint = prepared.manifest.endpoint.model_copy(update={"base_url": upstream})
            manifest = prepared.manifest.model_copy(update={"endpoint": endpoint})
            prepared = replace(prepared, manifest=manifest)
        journal = Journal(folder.journal)
        try:
            return _resume(folder, prepared, journal, progress, jobs, adapter)
        finally:
            journal.close()


def _resume(
    folder: RunFolder,
    prepared: Prepared,
    journal: Journal,
    progress: Progress,
    jobs: int,
    adapter: Adapter | None,
) -> Finished:
    cells = {cell.run_id: cell for cell in cells_of(prepared.manifest, prepared.tasks)}
    completed = complete_ledger(folder, prepared.manifest, cells, journal)
    for line in completed:
        progress.say(f"completed the ledger: {described(line)}")
    found = cut_runs(folder, prepared.manifest, cells, journal)
    going = [one for one in found if isinstance(one, Resumable)]
    made = []
    for one in found:
        if isinstance(one, Unresumable):
            line = _failed_line(one, prepared)
            append_run(folder.runlog(one.attempt), line)
            progress.say(f"cannot resume {one.cell.run_id}: {one.reason}")
            made.append(line)
    missing = 0
    if going:
        chosen = adapter or adapter_of(prepared.manifest)
        with opened_bench(folder, prepared, chosen, journal, progress) as bench:
            work = [(one.cell, _start(bench, one)) for one in going]
            lines = run_all(bench, work, jobs, progress)
        made += lines
        missing = len(going) - len(lines)
    violations = [str(violation) for violation in journal.violations()]
    return Finished(first_lines(folder), made, completed, violations, missing)


def cut_runs(
    folder: RunFolder, manifest: Manifest, cells: Mapping[str, Cell], journal: Journal
) -> list[Resumable | Unresumable]:
    """Every run whose last attempt was cut, in the order of the ledger."""
    logged = logged_attempts(folder.decisions)
    return [
        _looked_at(folder, manifest, cells[run_id], line.attempt, journal, logged)
        for run_id, line in folder.latest().items()
        if line.ended in _CUT and run_id in cells
    ]


def _looked_at(
    folder: RunFolder,
    manifest: Manifest,
    cell: Cell,
    last: int,
    journal: Journal,
    logged: Mapping[AttemptId, LoggedAttempt],
) -> Resumable | Unresumable:
    checkpoint = last_checkpoint(journal, cell.run_id, last)
    if checkpoint is None:
        reason = f"attempt {last} has no durable checkpoint in the journal: the state is unknown"
        return Unresumable(cell, last + 1, None, reason)
    if manifest.workspace == "keep":
        left = journal.left_behind(cell.run_id, last)
        workspace = folder.workspace(cell.run_id)
        if left is None:
            reason = f"nobody wrote down how attempt {last} left the workspace: the state is unknown"
            return Unresumable(cell, last + 1, checkpoint, reason)
        if Watch(workspace, cell.task.ignore).look().digest != left:
            reason = "the workspace was edited by hand between the kill and the resume"
            return Unresumable(cell, last + 1, checkpoint, reason)
    used = sum(one.tokens for key, one in logged.items() if key.run_id == cell.run_id)
    return Resumable(cell, last + 1, checkpoint, used)


def _start(bench: Bench, one: Resumable) -> Start:
    """What the attempt begins with; in a fresh workspace only the harness's own store is left of before."""
    home = bench.folder.home(one.cell.run_id)
    kill_by_home(str(home))
    if bench.manifest.workspace == "fresh":
        fresh_workspace(one.cell.task, bench.folder.workspace(one.cell.run_id))
        _keep_only(home, stored_of(bench.manifest, bench.adapter))
    has_session = has_stored(home, one.cell.session, bench.adapter.name)
    return Start(
        attempt=one.attempt,
        prompt=bench.manifest.resume_prompt if has_session else one.cell.task.prompt,
        fresh=False,
        resume=has_session,
        resumed_from=one.resumed_from,
        tokens_before=one.tokens_before,
    )


def stored_of(manifest: Manifest, adapter: Adapter) -> tuple[str, ...]:
    """What is left of a home when the machine went away: the manifest's word, else where sessions are."""
    if manifest.stored is not None:
        return manifest.stored
    return _STORED.get(adapter.name, (".",))


def has_stored(home: Path, session: str, harness: str) -> bool:
    """Whether the harness has written a session down: under its id, or where it keeps those it names itself.

    A harness that was killed before it did has nothing to resume: it begins anew with the task's prompt. Of
    any command nothing is known: it is told to resume.
    """
    if harness == Command.name:
        return True
    kept = _NAMED_BY_ITSELF.get(harness)
    if kept is not None:
        return any(path.is_file() for path in home.glob(kept))
    return any(session in path.name for path in home.rglob("*"))


def _keep_only(home: Path, stored: tuple[str, ...]) -> None:
    """Deletes everything in ``home`` that is neither stored nor on the way to it."""
    keep = [home / name for name in stored]
    if home in keep or not home.is_dir():
        return
    for path in sorted(home.rglob("*"), key=lambda path: len(path.parts), reverse=True):
        if any(path == one or one in path.parents or path in one.parents for one in keep):
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _failed_line(one: Unresumable, prepared: Prepared) -> RunLine:
    now = timestamp()
    return RunLine(
        task_id=one.cell.task.id,
        seed=one.cell.seed,
        repeat=one.cell.repeat,
        ended="error",
        passed=False,
        tokens_used=0,
        wall_s=0.0,
        run_id=one.cell.run_id,
        attempt=one.attempt,
        boot_id=boot_id(),
        started=now,
        stopped=now,
        machine_started=machine_started(),
        resumed_from=one.resumed_from,
        harness=prepared.manifest.harness,
        profile=prepared.profile.name,
        reason=one.reason,
    )
