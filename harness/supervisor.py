"""`chaosproxy run`: every run of a manifest, each in a fresh workspace, behind a proxy in this process."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Protocol

from configs import capability_names, load_capability
from harness.adapter import Adapter, HarnessError
from harness.adapters import adapter_named
from harness.attempt import Bench, Start, make_attempt
from harness.checkpoints import CheckpointObserver
from harness.command import Command
from harness.completing import complete_ledger
from harness.folder import Cell, RunFolder, cells_of
from harness.preparing import Prepared, RunOptions, freeze_into
from ledger.journal import Journal
from ledger.manifest import Manifest
from ledger.runs import RunLine
from proxy.options import InjectorOptions
from proxy.server import BackgroundServer, ProxyServer
from proxy.service import ServiceSettings, check_reachable, open_service
from proxy.upstream import parse_upstreams


class Progress(Protocol):
    """Where long work says how far it is."""

    def step(self, done: int, of: int, what: str) -> None: ...

    def say(self, line: str) -> None: ...


def adapter_of(manifest: Manifest) -> Adapter:
    """The harness that the manifest means; raises ``HarnessError``."""
    if manifest.harness == Command.name:
        return Command(manifest.command or [], manifest.resume_command)
    return adapter_named(manifest.harness)


@contextmanager
def opened_bench(
    folder: RunFolder, prepared: Prepared, adapter: Adapter, journal: Journal, progress: Progress
) -> Iterator[Bench]:
    """The proxy is served while the block runs. SIGINT and SIGTERM end it with a whole ledger."""
    manifest = prepared.manifest
    upstreams = parse_upstreams([manifest.endpoint.base_url] if manifest.endpoint.base_url else [])
    for origin in upstreams.given():
        check_reachable(origin)
    observer = CheckpointObserver(journal)
    service = ServiceSettings(
        0,
        prepared.profile,
        upstreams,
        folder.decisions,
        options=InjectorOptions(shared_gaps=prepared.shared_gaps),
    )
    injector = open_service(service, lambda line: _tell(progress, line), observer)
    with BackgroundServer(ProxyServer(injector, upstreams, "127.0.0.1", 0)) as server:
        yield Bench(
            folder=folder,
            manifest=manifest,
            profile=prepared.profile,
            adapter=adapter,
            program=adapter.find(),
            injector=injector,
            server=server,
            observer=observer,
            journal=journal,
        )


def say_tested(adapter: Adapter, progress: Progress, *, tested_only: bool) -> None:
    """Says when a harness version was never tested; raises ``HarnessError`` where that is refused."""
    program = adapter.find()
    if program.version and load_capability(adapter.name, program.version) is not None:
        return
    named = f"{adapter.name} {program.version}".rstrip()
    if tested_only:
        known = ", ".join(name for name in capability_names() if name.startswith(f"{adapter.name}@"))
        raise HarnessError(
            f"{named} has no capability file, and --tested-only refuses it; tested: {known or 'no version'}"
        )
    progress.say(f"{named} is untested: it has no capability file and is injected by its dialect")


def _tell(progress: Progress, line: str) -> None:
    """Of what the injector says only what is wrong."""
    if ": error in " in line or "nothing more" in line or "refused" in line:
        progress.say(line)


def run_all(bench: Bench, work: Sequence[tuple[Cell, Start]], jobs: int, progress: Progress) -> list[RunLine]:
    """Makes every attempt, ``jobs`` at a time; what was stopped by a signal is missing from the result."""
    lines: list[RunLine] = []
    with stopped_by_signals(bench.stop), ThreadPoolExecutor(jobs) as pool:
        futures = [pool.submit(_attempt, bench, cell, start) for cell, start in work]
        for done in as_completed(futures):
            line = _result(done, futures)
            if line is not None:
                lines.append(line)
                progress.step(len(lines), len(work), described(line))
    return lines


def _attempt(bench: Bench, cell: Cell, start: Start) -> RunLine | None:
    return None if bench.stopping.is_set() else make_attempt(bench, cell, start)


def _result(done: Future[RunLine | None], futures: Sequence[Future[RunLine | None]]) -> RunLine | None:
    try:
        return done.result()
    except BaseException:
        for other in futures:
            other.cancel()
        raise


def described(line: RunLine) -> str:
    """``task seed 1 repeat 0: complete, passed``."""
    verdict = {True: "passed", False: "failed", None: "not judged"}[line.passed]
    reason = f" ({line.reason.splitlines()[0][:100]})" if line.reason else ""
    attempt = f" attempt {line.attempt}" if line.attempt > 1 else ""
    return f"{line.task_id} seed {line.seed} repeat {line.repeat}{attempt}: {line.ended}, {verdict}{reason}"


@contextmanager
def stopped_by_signals(stop: Callable[[], None]) -> Iterator[None]:
    """SIGINT and SIGTERM call ``stop`` while the block runs; only the main thread can be told of them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(_number: int, _frame: FrameType | None) -> None:
        # A handler runs between two instructions of whatever holds the locks: the work is done elsewhere.
        threading.Thread(target=stop, daemon=True).start()

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@dataclass(frozen=True, slots=True)
class Finished:
    """What `run` or `resume` came to. ``missing``: runs that have no line, since it was stopped."""

    lines: Mapping[str, RunLine]
    made: Sequence[RunLine]
    completed: Sequence[RunLine]
    violations: Sequence[str]
    missing: int = 0

    @property
    def is_recognised(self) -> bool:
        """Whether any run of an agent was seen on the wire."""
        return any(line.tokens_used or line.ended != "error" for line in self.lines.values())


def run_manifest(
    prepared: Prepared, options: RunOptions, progress: Progress, adapter: Adapter | None = None
) -> Finished:
    """Makes every run that has no line yet. ``adapter`` stands in for the one that the manifest names.

    Raises ``ManifestError``, ``HarnessError``, ``TaskError``, ``ServiceError``, ``LedgerError``,
    ``UpstreamError``: nothing has been run then, or what was run is written down.
    """
    folder = RunFolder(options.out)
    with folder.held():
        prepared = freeze_into(folder, prepared)
        if prepared.filled and not folder.decisions.exists():
            progress.say(f"read off this machine: {', '.join(prepared.filled)}")
        cells = {cell.run_id: cell for cell in cells_of(prepared.manifest, prepared.tasks)}
        journal = Journal(folder.journal)
        try:
            completed = complete_ledger(folder, prepared.manifest, cells, journal)
            for line in completed:
                progress.say(f"completed the ledger: {described(line)}")
            lined = {key.run_id for key in folder.lines()}
            work = [
                (cell, Start(1, cell.task.prompt, kills=prepared.manifest.kills))
                for cell in cells.values()
                if cell.run_id not in lined
            ]
            if lined:
                progress.say(f"{len(lined)} of {len(cells)} runs are there already")
            made: list[RunLine] = []
            if work:
                chosen = adapter or adapter_of(prepared.manifest)
                with opened_bench(folder, prepared, chosen, journal, progress) as bench:
                    made = run_all(bench, work, options.jobs, progress)
            violations = [str(violation) for violation in journal.violations()]
        finally:
            journal.close()
    return Finished(first_lines(folder), made, completed, violations, len(work) - len(made))


def first_lines(folder: RunFolder) -> dict[str, RunLine]:
    """run_id → the line of its first attempt."""
    return {key.run_id: line for key, line in folder.lines().items() if key.attempt == 1}
