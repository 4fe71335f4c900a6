"""One attempt of one run: started, watched, judged, and written down the moment it is over."""

from __future__ import annotations

import os
import shutil
import stat
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from harness.adapter import Adapter, HarnessError, Job, Program
from harness.checkpoints import CheckpointObserver, Watched
from harness.endings import Ending, Seen, ending_of
from harness.folder import Cell, RunFolder
from harness.launch import Outcome, Running
from harness.task import Task, TaskError, verdict
from harness.taskset import task_sha
from harness.workspace import Watch, fresh_workspace
from ledger.decisions import timestamp
from ledger.identity import boot_id
from ledger.journal import Journal
from ledger.machine import machine_started
from ledger.manifest import Manifest
from ledger.runs import Claim, RunLine, append_run
from proxy.injector import Injector
from proxy.runs import Run, RunSettings
from proxy.server import BackgroundServer
from scheduler.profile import Profile

# The proxy hears of the end of a connection a little later than the harness that has closed it.
_LAST_REQUESTS_S = 10.0
_LOOK_AGAIN_S = 0.005


class Start(NamedTuple):
    """What one attempt begins with. ``resumed_from``: the checkpoint that a resume goes on from.

    ``fresh``: the workspace and the home are made anew. ``resume``: the harness has a session to go on with.
    ``tokens_before``: what the earlier attempts of the run have used.
    """

    attempt: int
    prompt: str
    fresh: bool = True
    resume: bool = False
    resumed_from: str | None = None
    tokens_before: int = 0
    kills: tuple[str, ...] = ()


@dataclass
class Bench:
    """What all attempts of one command share: the harness, the proxy that serves it, the ledgers."""

    folder: RunFolder
    manifest: Manifest
    profile: Profile
    adapter: Adapter
    program: Program
    injector: Injector
    server: BackgroundServer
    observer: CheckpointObserver
    journal: Journal
    stopping: threading.Event = field(default_factory=threading.Event)
    _running: dict[str, Running] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def started(self, run_id: str, running: Running) -> None:
        with self._lock:
            self._running[run_id] = running
            stop = self.stopping.is_set()
        if stop:
            running.kill()

    def ended(self, run_id: str) -> None:
        with self._lock:
            self._running.pop(run_id, None)

    def stop(self) -> None:
        """Kills every harness that is at work; their attempts end as restart_cut."""
        with self._lock:
            self.stopping.set()
            running = list(self._running.values())
        for one in running:
            one.kill()


class _Over(NamedTuple):
    """What is left of an attempt when its harness has gone."""

    ending: Ending
    outcome: Outcome | None
    tokens: int
    claimed: Claim | None


def make_attempt(bench: Bench, cell: Cell, start: Start) -> RunLine:
    """Runs the harness once; its line is in the run log when this returns.

    A harness that fails, hangs or cannot be started is no error: it stands in the line. Raises ``TaskError``
    when the workspace cannot be made, ``LedgerError`` or ``OSError`` when it cannot be written down.
    """
    workspace, home = bench.folder.workspace(cell.run_id), bench.folder.home(cell.run_id)
    if start.fresh:
        fresh_workspace(cell.task, workspace)
        shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True, exist_ok=True)
    watched = _watched(bench, cell, start)
    run = bench.server.do(lambda: _register(bench, cell, start, watched))
    try:
        line = _played(bench, cell, start, watched, run)
    except BaseException:
        # No end is written for it: the next command finds it begun and completes the ledger.
        run.ended = True
        raise
    if line.ended in ("complete", "error"):
        shutil.rmtree(home, ignore_errors=True)
    return line


def _played(bench: Bench, cell: Cell, start: Start, watched: Watched, run: Run) -> RunLine:
    """From the start of the harness to the line: what the files are is written before how it ended."""
    began, started = time.monotonic(), timestamp()
    outcome = _play(bench, cell, start, watched)
    wall_s = time.monotonic() - began if outcome is None else outcome.wall_s
    ending = _ending(bench, run, watched, start, outcome)
    over = _Over(ending, outcome, run.tokens - start.tokens_before, run.claimed)
    workspace = bench.folder.workspace(cell.run_id)
    bench.journal.stopped(cell.run_id, start.attempt, Watch(workspace, cell.task.ignore).look().digest)
    passed = judged(cell.task, workspace, bench.folder.scratch(cell.run_id), over.ending)
    bench.server.do(lambda: _close(bench, run, over.ending, passed))
    line = _line(bench, cell, start, over, passed, round(wall_s, 3), started)
    append_run(bench.folder.runlog(start.attempt), line)
    return line


def _close(bench: Bench, run: Run, ending: Ending, passed: bool | None) -> None:
    bench.injector.end(run, ending.ended, passed)
    bench.observer.remove(run.run_id)


def _watched(bench: Bench, cell: Cell, start: Start) -> Watched:
    declared = declared_of(cell.task, bench.manifest)
    bench.journal.declare(cell.task.id, declared)
    watch = Watch(bench.folder.workspace(cell.run_id), cell.task.ignore)
    return Watched(
        run_id=cell.run_id,
        attempt=start.attempt,
        task=cell.task,
        task_digest=task_sha(cell.task),
        declared=declared,
        kills=frozenset(start.kills),
        watch=watch,
        seen=watch.look(),
        model_id=bench.manifest.endpoint.model_id,
        earlier=tuple(bench.journal.reached(cell.run_id)),
        done=frozenset((call.call_id, call.call_digest) for call in bench.journal.calls(cell.run_id)),
    )


def declared_of(task: Task, manifest: Manifest) -> frozenset[str]:
    """The checkpoints of a task: its own, else the manifest's."""
    return frozenset(task.checkpoints if task.checkpoints is not None else manifest.checkpoints)


def _register(bench: Bench, cell: Cell, start: Start, watched: Watched) -> Run:
    """In the proxy's thread: the run is known, watched, and begun in the log before its harness starts."""
    settings = RunSettings(
        run_id=cell.run_id,
        task_id=cell.task.id,
        seed=cell.seed,
        profile=bench.profile,
        repeat=cell.repeat,
        attempt=start.attempt,
        harness=bench.adapter.name,
        harness_version=bench.program.version or None,
        token_budget=bench.manifest.token_budget,
        workspace=str(bench.folder.workspace(cell.run_id)),
        home=str(bench.folder.home(cell.run_id)),
        temp=bench.injector.runs.defaults.temp,
    )
    run = bench.injector.register(settings, tokens=start.tokens_before)
    bench.observer.add(watched)
    bench.injector.begin(run)
    return run


def _play(bench: Bench, cell: Cell, start: Start, watched: Watched) -> Outcome | None:
    """The harness from start to end; None when it could not be started."""
    job = Job(
        base_url=f"http://127.0.0.1:{bench.server.port}/run/{cell.run_id}",
        prompt=start.prompt,
        workspace=bench.folder.workspace(cell.run_id),
        home=bench.folder.home(cell.run_id),
        model=bench.manifest.endpoint.model_id,
        session=None if start.resume else cell.session,
        resume=cell.session if start.resume else None,
        env=_environment(bench.manifest) | {"CHAOSPROXY_ATTEMPT": str(start.attempt)},
    )
    watched.began = time.monotonic()
    try:
        running = bench.adapter.launch(bench.program, job).start()
    except (OSError, HarnessError) as error:
        watched.running.set_exception(error)
        return None
    watched.running.set_result(running)
    bench.started(cell.run_id, running)
    try:
        return running.wait(bench.manifest.timeout)
    finally:
        bench.ended(cell.run_id)


def _environment(manifest: Manifest) -> dict[str, str]:
    """What the manifest lets through of the caller's environment: names stand in it, values never do."""
    return {name: os.environ[name] for name in manifest.pass_env if name in os.environ}


def _ending(bench: Bench, run: Run, watched: Watched, start: Start, outcome: Outcome | None) -> Ending:
    """How it ended, once nothing of it is on the wire any more."""
    _wait_until(lambda: not run.open_requests)
    run.stopped = True
    missed = tuple(name for name in start.kills if name not in watched.reached)
    refused = watched.running.exception() if outcome is None else None
    return ending_of(
        Seen(
            quota=run.quota,
            killed_at=watched.killed_at,
            interrupted=bench.stopping.is_set() and (outcome is None or outcome.exit_code < 0),
            timed_out=outcome is not None and outcome.timed_out,
            timeout_s=bench.manifest.timeout,
            exit_code=None if outcome is None else outcome.exit_code,
            complete=run.complete,
            agent_requests=watched.agent_requests,
            untreated=missed if watched.killed_at is None else (),
            last_words=str(refused or "") if outcome is None else outcome.stderr,
        )
    )


def _wait_until(done: Callable[[], bool]) -> None:
    until = time.monotonic() + _LAST_REQUESTS_S
    while not done() and time.monotonic() < until:
        time.sleep(_LOOK_AGAIN_S)


def judged(task: Task, workspace: Path, scratch: Path, ending: Ending) -> bool | None:
    """What the task's check says; None when there is nothing to judge.

    A run that was cut is judged in a copy: its resume has to find what the harness left, and nothing else.
    """
    if not workspace.is_dir():
        return None
    if ending.ended not in ("quota_cut", "restart_cut"):
        return _verdict(task, workspace)
    shutil.rmtree(scratch, ignore_errors=True)
    try:
        shutil.copytree(workspace, scratch, symlinks=True, ignore=_no_files)
        return _verdict(task, scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _no_files(folder: str, names: list[str]) -> list[str]:
    """Pipes and sockets cannot be copied."""
    modes = ((name, (Path(folder) / name).lstat().st_mode) for name in names)
    return [
        name for name, mode in modes if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode))
    ]


def _verdict(task: Task, workspace: Path) -> bool:
    try:
        return verdict(task, workspace).passed
    except OSError as error:
        raise TaskError(f"the check of task {task.id} cannot be started: {error}") from error


def _line(
    bench: Bench, cell: Cell, start: Start, over: _Over, passed: bool | None, wall_s: float, started: str
) -> RunLine:
    return RunLine(
        task_id=cell.task.id,
        seed=cell.seed,
        repeat=cell.repeat,
        ended=over.ending.ended,
        passed=passed,
        tokens_used=over.tokens,
        wall_s=wall_s,
        run_id=cell.run_id,
        attempt=start.attempt,
        boot_id=boot_id(),
        started=started,
        stopped=timestamp(),
        machine_started=machine_started(),
        resumed_from=start.resumed_from,
        harness=bench.adapter.name,
        harness_version=bench.program.version or None,
        profile=bench.profile.name,
        exit_code=None if over.outcome is None else over.outcome.exit_code,
        reason=over.ending.reason,
        claimed=over.claimed,
    )
