"""What the log says of one run, gathered record by record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ledger.problems import Damaged
from ledger.records import End, Error, Quota, Start
from scheduler.fitting import shared_part
from scoring.watch import Watch

_ERRORS_KEPT = 3


@dataclass(slots=True)
class RunTrace:
    """What the log says of one run. Everything concerns its first attempt alone, but for ``attempt``,
    ``attempts_started`` (attempt → when its first start was written) and ``replayed_tokens`` (by attempt).
    ``lines``: where its start, its end, its errors stand in the log. ``left_out``: the kinds that were not
    drawn for the sake of another harness.
    """

    index: int
    run_id: str
    source: str
    watch: Watch
    task_id: str | None = None
    seed: int | None = None
    repeat: int | None = None
    profile: str | None = None
    profile_sha256: str | None = None
    boot_id: str | None = None
    started: bool = False
    attempt: int = 1
    can_fire: bool = False
    agent_requests: int = 0
    has_calls: bool = False
    errors: dict[str, int] = field(default_factory=dict)
    quota: bool = False
    ended: str | None = None
    passed: bool | None = None
    claimed: str | None = None
    left_out: str = ""
    tokens: int = 0
    usage_missing: bool = False
    first_request: str | None = None
    last_request: str | None = None
    attempts_started: dict[int, str] = field(default_factory=dict)
    replayed_tokens: dict[int, int] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)

    def begin(self, start: Start, line: int) -> None:
        """A process began to serve the run."""
        self.attempt = start.attempt
        self.task_id, self.seed, self.repeat = start.task_id, start.seed, start.repeat
        self.profile, self.profile_sha256 = str(start.profile.get("name", "")), start.profile_sha256
        gaps = start.profile.get("gaps")
        shared = shared_part(gaps) if isinstance(gaps, dict) else {}
        self.left_out = "; ".join(f"{family} {' '.join(kinds)}" for family, kinds in sorted(shared.items()))
        self.boot_id = self.boot_id or start.boot_id
        self.started = self.started or start.attempt == 1
        self.can_fire = self.can_fire or can_fire(start.profile)
        self.attempts_started.setdefault(start.attempt, start.ts)
        self.lines.setdefault("start", line)

    def note(self, record: Error | Damaged | Quota | End, line: int) -> None:
        """Something that says how the run went."""
        if isinstance(record, Error):
            self._error(f"{record.where}: {record.reason}", line)
        elif isinstance(record, Damaged):
            self._error(f"damaged {record.event} record on line {record.line}", line)
        elif isinstance(record, Quota):
            self.quota = True
            self.lines.setdefault("quota", line)
        else:
            self.ended = record.ended if record.ended is not None else self.ended
            self.passed = record.passed if record.passed is not None else self.passed
            self.claimed = record.claimed
            self.lines["end"] = line

    def _error(self, reason: str, line: int) -> None:
        # The first few say what is wrong; a run with a million errors must not hold a million texts.
        if reason in self.errors or len(self.errors) < _ERRORS_KEPT:
            self.errors[reason] = self.errors.get(reason, 0) + 1
            self.lines.setdefault("error", line)


def can_fire(profile: Mapping[str, Any]) -> bool:
    """Whether a resolved profile can fire anything: some rate above 0, or a forced fault."""
    if profile.get("max_faults") == 0:
        return False
    rates = [profile.get("rate"), *(profile.get("rates") or {}).values()]
    return bool(profile.get("force")) or any(isinstance(r, int | float) and r > 0 for r in rates)
