"""One served proxy: its settings made into a log, a memory, a run book and an injector."""

from __future__ import annotations

import os
import socket
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from ledger.attempts import logged_attempts
from ledger.decisions import DecisionLog, LedgerError, starts_of
from ledger.memory import Memory, memory_of
from ledger.records import Start
from proxy.injector import Injector
from proxy.observer import Observer
from proxy.options import InjectorOptions
from proxy.registering import take_up
from proxy.runs import DEFAULT_RUN, RunBook, RunSettings
from proxy.upstream import Origin, UpstreamError, Upstreams
from scheduler.fitting import shared_gaps, shared_part
from scheduler.profile import Profile
from scheduler.uniform import SEED_LIMIT


class ServiceError(RuntimeError):
    """The proxy cannot serve as asked; the message says what to change."""


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """What ``chaosproxy`` was asked to do. ``log`` is the decisions.jsonl; the memory stands beside it."""

    seed: int
    profile: Profile
    upstreams: Upstreams
    log: Path
    workspace: str | None = None
    options: InjectorOptions = field(default_factory=InjectorOptions)


def open_service(
    settings: ServiceSettings, tell: Callable[[str], None], observer: Observer | None = None
) -> Injector:
    """Opens the files, knows again what was registered, and checks that an older log is of the same runs.

    Raises ``LedgerError`` when a file cannot be written, ``ServiceError`` when the log is another run's.
    """
    log = DecisionLog(settings.log)
    try:
        log.claim()
        memory = Memory(memory_of(settings.log))
    except LedgerError:
        log.close()
        raise
    try:
        runs = _runs(settings, memory)
    except (LedgerError, ServiceError):
        log.close()
        memory.close()
        raise
    return Injector(runs, log, memory, settings.options, pid=os.getpid(), tell=tell, observer=observer)


def _runs(settings: ServiceSettings, memory: Memory) -> RunBook:
    """The runs that are known; raises ``ServiceError`` when log and memory are of other runs than these."""
    if not 0 <= settings.seed < SEED_LIMIT:
        raise ServiceError(f"a seed is a whole number from 0 to 2^64 - 1, not {settings.seed}")
    defaults = RunSettings(
        run_id=DEFAULT_RUN,
        task_id=DEFAULT_RUN,
        seed=settings.seed,
        profile=settings.profile,
        workspace=settings.workspace,
        home=str(Path.home()),
        temp=_temp_directories(),
    )
    begun = {start.run_id: start for start in starts_of(settings.log)}
    runs = RunBook(defaults, begun)
    _take_up(runs, memory, settings.log)
    for run_id in memory.run_ids():
        if run_id not in begun:
            raise ServiceError(
                f"{memory.path} remembers run {run_id}, which {settings.log} does not have: its log was moved"
                " or deleted; delete the memory too, or give another --log"
            )
    for run_id, start in begun.items():
        if not runs.is_registered(run_id):
            _check_restart(settings, defaults, start)
        known = runs.get(run_id).settings.profile if runs.is_registered(run_id) else settings.profile
        _check_shared(settings, known, start)
    return runs


def _take_up(runs: RunBook, memory: Memory, log: Path) -> None:
    """The runs that were registered before, with what they have used of their budgets."""
    take_up(runs, memory.runs())
    budgeted = [run for run in runs.all() if run.settings.token_budget is not None]
    used: Counter[str] = Counter()
    for attempt, logged in logged_attempts(log).items() if budgeted else ():
        used[attempt.run_id] += logged.tokens
    for run in budgeted:
        run.tokens = used[run.run_id]


def _temp_directories() -> tuple[str, ...]:
    return tuple(dict.fromkeys(("/tmp", "/var/tmp", tempfile.gettempdir())))


def _check_restart(settings: ServiceSettings, defaults: RunSettings, start: Start) -> None:
    if start.seed != defaults.seed or start.profile_sha256 != defaults.profile_sha256:
        raise ServiceError(
            f"{settings.log} was begun with seed {start.seed} and profile"
            f" {start.profile.get('name')!r} ({start.profile_sha256[:12]}), not with seed"
            f" {defaults.seed} and profile {defaults.profile.name!r} ({defaults.profile_sha256[:12]});"
            " give another --log, or the seed and profile that it was begun with"
        )


def _check_shared(settings: ServiceSettings, profile: Profile, start: Start) -> None:
    """What two harnesses leave out together stays the same as long as a run goes on."""
    was = shared_part(start.profile.get("gaps", {}))
    if was != shared_gaps(profile, settings.options.shared_gaps):
        raise ServiceError(
            f"{settings.log} was begun with other --capabilities: run {start.run_id} leaves out"
            f" {was or 'nothing'}; give the same, or another --log"
        )


def check_reachable(origin: Origin, timeout_s: float = 5.0) -> None:
    """Opens and closes one connection; raises ``UpstreamError`` when that fails."""
    try:
        with socket.create_connection((origin.host, origin.port), timeout=timeout_s):
            return
    except OSError as error:
        raise UpstreamError(
            f"the upstream {origin.url} cannot be reached ({error.strerror or error}); is it running, and is"
            " the address right?"
        ) from None
