"""How the injector behaves when something is wrong, and what it writes down."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class InjectorOptions:
    """How the injector behaves when something is wrong, and what it writes down.

    ``crash_at`` makes it crash on purpose, to show that a crash cannot look like a clean run.
    """

    on_error: Literal["forward", "block"] = "forward"
    log_payloads: bool = False
    crash_at: Literal["request", "response"] | None = None


class CrashedOnPurpose(RuntimeError):
    """Raised where ``crash_at`` says."""
