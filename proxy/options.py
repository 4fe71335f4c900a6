"""How the injector behaves when something is wrong, and what it writes down."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class InjectorOptions:
    """How the injector behaves when something is wrong, and what it writes down.

    ``crash_at`` makes it crash on purpose, to show that a crash cannot look like a clean run.
    ``schedule_gaps`` draws what the harness version's capability file calls a gap as well: how a gap is tried
    again.
    """

    on_error: Literal["forward", "block"] = "forward"
    log_payloads: bool = False
    crash_at: Literal["request", "response"] | None = None
    schedule_gaps: bool = False


class CrashedOnPurpose(RuntimeError):
    """Raised where ``crash_at`` says."""
