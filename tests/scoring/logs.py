"""Writes ledgers for tests: every record has defaults, so that a test names only what it is about."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from ledger import records
from ledger.runs import RunLine

MODERATE = {"name": "moderate", "rate": 0.1, "rates": {}, "force": [], "max_faults": None}
OFF = {"name": "off", "rate": 0.0, "rates": {}, "force": [], "max_faults": None}


def line(record: Any) -> bytes:
    return msgspec.json.encode(record) + b"\n"


def start(run_id: str = "r1", **changes: Any) -> records.Start:
    fields: dict[str, Any] = {
        "ts": "2026-01-01T00:00:00.000000Z",
        "run_id": run_id,
        "version": "0.1.0",
        "seed": 7,
        "profile": MODERATE,
        "profile_sha256": "p" * 64,
        "identity": "content",
        "harness": "pi",
        "harness_version": "1.0.3",
        "pid": 1,
        "boot_id": "b",
        "started": "2026-01-01T00:00:00.000000Z",
        "task_id": run_id,
        "repeat": 0,
        "attempt": 1,
    }
    return records.Start(**(fields | changes))


def decision(run_id: str = "r1", call: int = 0, **changes: Any) -> records.Decision:
    """A call that was drawn and left alone."""
    fields: dict[str, Any] = {
        "ts": "2026-01-01T00:00:01.000000Z",
        "run_id": run_id,
        "conversation": "c1",
        "role": "main",
        "call_id": f"toolu_{call}",
        "nth": 0,
        "tool": "read",
        "family": "read",
        "occurrence": 0,
        "ordinal": call,
        "call_digest": f"{call:064x}",
        "u": 0.5,
        "rate": 0.1,
        "fired": False,
        "kind": None,
        "timing": None,
        "mode": None,
        "persistence": None,
        "forced": False,
        "wire_name": None,
        "original_sha256": "o" * 64,
        "original_bytes": 100,
        "payload_sha256": None,
        "payload_bytes": None,
        "latency_us": 10.0,
        "skipped": None,
    }
    return records.Decision(**(fields | changes))


def fault(run_id: str = "r1", call: int = 0, **changes: Any) -> records.Decision:
    """A call whose result was replaced."""
    fields: dict[str, Any] = {
        "u": 0.01,
        "fired": True,
        "kind": "empty",
        "timing": "after",
        "mode": "implicit",
        "persistence": "transient",
        "payload_sha256": f"{call:063x}f",
        "payload_bytes": 0,
    }
    return decision(run_id, call, **(fields | changes))


def delivery(run_id: str = "r1", call: int = 0, **changes: Any) -> records.Delivery:
    fields: dict[str, Any] = {
        "ts": "2026-01-01T00:00:02.000000Z",
        "run_id": run_id,
        "conversation": "c1",
        "call_id": f"toolu_{call}",
        "call_digest": f"{call:064x}",
        "nth": 0,
        "payload_sha256": f"{call:063x}f",
        "upstream_status": 200,
        "first": True,
    }
    return records.Delivery(**(fields | changes))


def request(run_id: str = "r1", **changes: Any) -> records.Request:
    fields: dict[str, Any] = {
        "ts": "2026-01-01T00:00:03.000000Z",
        "run_id": run_id,
        "path": "/v1/messages",
        "protocol": "anthropic",
        "bytes_in": 10,
        "bytes_out": 10,
        "faults": 0,
        "tools_digest": "t" * 64,
        "overhead_us": 50.0,
        "upstream_ms": 1.0,
        "status": 200,
        "input_tokens": 100,
        "cache_read_tokens": 10,
        "cache_write_tokens": 5,
        "output_tokens": 20,
    }
    return records.Request(**(fields | changes))


def error(run_id: str = "r1") -> records.Error:
    return records.Error(ts="2026-01-01T00:00:04Z", run_id=run_id, where="rewrite", reason="it broke")


def end(run_id: str = "r1", ended: str | None = None, passed: bool | None = None) -> records.End:
    return records.End(ts="2026-01-01T00:00:09Z", run_id=run_id, ended=ended, passed=passed)


def run(task: str = "t1", **changes: Any) -> RunLine:
    fields: dict[str, Any] = {"task_id": task, "seed": 7, "repeat": 0, "ended": "complete", "passed": True}
    return RunLine(**(fields | changes))


def write_decisions(folder: Path, *written: Any) -> Path:
    path = folder / "decisions.jsonl"
    path.write_bytes(b"".join(one if isinstance(one, bytes) else line(one) for one in written))
    return path


def write_runs(folder: Path, *written: Any) -> Path:
    path = folder / "runlog.jsonl"
    path.write_bytes(b"".join(one if isinstance(one, bytes) else line(one) for one in written))
    return path


def write_resumed(folder: Path, *written: Any) -> Path:
    path = folder / "runlog.resumed.jsonl"
    path.write_bytes(b"".join(one if isinstance(one, bytes) else line(one) for one in written))
    return path


def write_journal(path: Path, *rows: tuple[Any, ...]) -> Path:
    """Rows of (run_id, task_id, checkpoint, attempt, payload_digest[, ts]) as a supervisor journals them."""
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("PRAGMA journal_mode=WAL")
        database.execute(
            "CREATE TABLE journal (run_id TEXT, checkpoint TEXT, attempt, task_id TEXT,"
            " payload_digest TEXT, wall_ms REAL, ts TEXT)"
        )
        for run_id, task_id, checkpoint, attempt, digest, *ts in rows:
            stamp = ts[0] if ts else "2026-01-01T00:00:00.000000Z"
            values = (run_id, checkpoint, attempt, task_id, digest, 100.0, stamp)
            database.execute("INSERT INTO journal VALUES (?, ?, ?, ?, ?, ?, ?)", values)
    return path


def write_verdicts(folder: Path, verdicts: object) -> Path:
    path = folder / "verdicts.json"
    path.write_text(json.dumps(verdicts))
    return path


def published_runs() -> list[RunLine]:
    """120 runs of 12 tasks: 22 cut, 98 complete, 65 of these passed."""
    found = []
    for number in range(120):
        ended = "complete" if number < 98 else ("quota_cut" if number < 110 else "restart_cut")
        passed = number < 65 if ended == "complete" else None
        found.append(run(f"t{number % 12}", seed=number // 12, ended=ended, passed=passed))
    return found
