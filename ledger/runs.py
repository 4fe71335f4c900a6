"""runlog.jsonl: one line per first attempt, written the moment it stops."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Literal

import msgspec

Ended = Literal["complete", "quota_cut", "restart_cut", "error"]
Claim = Literal["done", "gave_up"]


class RunLine(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt of one run. Times are RFC 3339 in UTC; ``wall_s`` is seconds.

    Only the first five fields are needed to score; a log made elsewhere may leave out the rest. ``claimed``
    is what the agent's last words come down to: that it is done, that it gave up, or neither (null).
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
    claimed: Claim | None = None


def append_run(path: Path, line: RunLine) -> None:
    """Appends one line (runlog.jsonl or runlog.resumed.jsonl) and makes it durable before returning.

    The file is created 0600. The line goes out in one write, so that concurrent writers never mix; a torn
    line that a killed writer left is closed first. Raises ``OSError`` when the disk does not take all of it.
    """
    data = msgspec.json.encode(line) + b"\n"
    fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        size = os.fstat(fd).st_size
        if size and os.pread(fd, 1, size - 1) != b"\n":
            data = b"\n" + data
        if os.write(fd, data) != len(data):
            raise OSError(errno.ENOSPC, "the line was written in part only", str(path))
        os.fsync(fd)
    finally:
        os.close(fd)
