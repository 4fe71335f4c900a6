"""One served proxy: its settings made into a log, a memory, a run book and an injector."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from ledger.decisions import DecisionLog, starts_of
from ledger.memory import Memory
from proxy.injector import Injector, InjectorOptions
from proxy.runs import DEFAULT_RUN, RunBook, RunSettings
from proxy.upstream import Origin, UpstreamError, Upstreams
from scheduler.profile import Profile


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


def open_service(settings: ServiceSettings, tell: Callable[[str], None]) -> Injector:
    """Opens the files and checks that an older log of the same name is of the same run.

    Raises ``LedgerError`` when a file cannot be written, ``ServiceError`` when the log is another run's.
    """
    log = DecisionLog(settings.log)
    memory = Memory(settings.log.parent / "memory.db")
    defaults = RunSettings(
        run_id=DEFAULT_RUN,
        task_id=DEFAULT_RUN,
        seed=settings.seed,
        profile=settings.profile,
        workspace=settings.workspace,
        home=str(Path.home()),
        temp=_temp_directories(),
    )
    _check_restart(settings, defaults)
    return Injector(RunBook(defaults), log, memory, settings.options, pid=os.getpid(), tell=tell)


def _temp_directories() -> tuple[str, ...]:
    return tuple(dict.fromkeys(("/tmp", "/var/tmp", tempfile.gettempdir())))


def _check_restart(settings: ServiceSettings, defaults: RunSettings) -> None:
    for start in starts_of(settings.log):
        if start.seed != defaults.seed or start.profile_sha256 != defaults.profile_sha256:
            raise ServiceError(
                f"{settings.log} was begun with seed {start.seed} and profile"
                f" {start.profile.get('name')!r} ({start.profile_sha256[:12]}), not with seed"
                f" {defaults.seed} and profile {defaults.profile.name!r} ({defaults.profile_sha256[:12]});"
                " give another --log, or the seed and profile that it was begun with"
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
