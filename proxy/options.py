"""How the injector behaves when something is wrong, and what it writes down."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from scheduler.fitting import Gaps


@dataclass(frozen=True, slots=True)
class InjectorOptions:
    """How the injector behaves when something is wrong, and what it writes down.

    ``crash_at`` makes it crash on purpose, to show that a crash cannot look like a clean run.
    ``tested_only`` refuses harness versions that no capability file covers. ``shared_gaps``: family → kinds
    that are never drawn, since another harness cannot do them.
    ``schedule_gaps`` draws what the harness version's capability file calls a gap as well: how a gap is tried
    again.
    """

    on_error: Literal["forward", "block"] = "forward"
    log_payloads: bool = False
    crash_at: Literal["request", "response"] | None = None
    schedule_gaps: bool = False
    tested_only: bool = False
    shared_gaps: Gaps = field(default_factory=dict)


class CrashedOnPurpose(RuntimeError):
    """Raised where ``crash_at`` says."""
