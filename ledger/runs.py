"""runlog.jsonl: one line per first attempt, written the moment it stops."""

from __future__ import annotations

from typing import Literal

import msgspec

Ended = Literal["complete", "quota_cut", "restart_cut", "error"]


class RunLine(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt of one run. Times are RFC 3339 in UTC; ``wall_s`` is seconds.

    Only the first five fields are needed to score; a log made elsewhere may leave out the rest.
    """

    task_id: str
    seed: int
    repeat: int
    ended: Ended
    passed: bool | None
    tokens_used: int | None = None
    wall_s: float | None = None
    run_id: str | None = None
    attempt: int = 1
    boot_id: str | None = None
    started: str | None = None
    stopped: str | None = None
    machine_started: str | None = None
    resumed_from: str | None = None
    harness: str | None = None
    harness_version: str | None = None
    profile: str | None = None
    exit_code: int | None = None
    reason: str | None = None
