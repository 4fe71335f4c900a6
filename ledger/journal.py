"""journal.db: which checkpoints each attempt reached and what its calls did, durable before anything goes on.

SQLite in WAL mode with synchronous=FULL: what ``write`` has taken outlives a power cut. Rows are only added.
``checkpoints`` has no unique key on purpose: a second row for one (run_id, checkpoint, attempt) is kept, so
that it can be reported.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from ledger.decisions import LedgerError, timestamp

CheckpointName = Literal["context_loaded", "patch_drafted", "patch_applied", "tests_run"]
CHECKPOINTS: tuple[CheckpointName, ...] = get_args(CheckpointName)

_SCHEMA = """
CREATE TABLE IF NOT EXISTS checkpoints (
    run_id TEXT NOT NULL, task_id TEXT NOT NULL, checkpoint TEXT NOT NULL, attempt INTEGER NOT NULL,
    payload_digest TEXT NOT NULL, wall_ms REAL NOT NULL, ts TEXT NOT NULL,
    call_id TEXT, call_digest TEXT, workspace_digest TEXT);
CREATE INDEX IF NOT EXISTS checkpoints_by_run ON checkpoints (run_id, attempt);
CREATE TABLE IF NOT EXISTS declared (
    task_id TEXT NOT NULL, checkpoint TEXT NOT NULL, PRIMARY KEY (task_id, checkpoint)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS calls (
    run_id TEXT NOT NULL, attempt INTEGER NOT NULL, conversation TEXT NOT NULL, position INTEGER NOT NULL,
    call_id TEXT NOT NULL, tool TEXT NOT NULL, family TEXT NOT NULL, call_digest TEXT NOT NULL,
    changed_workspace INTEGER NOT NULL, failed INTEGER NOT NULL, tokens INTEGER NOT NULL,
    wall_ms REAL NOT NULL, ts TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS calls_by_run ON calls (run_id, attempt);
CREATE TABLE IF NOT EXISTS stops (
    run_id TEXT NOT NULL, attempt INTEGER NOT NULL, workspace_digest TEXT NOT NULL, ts TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS stops_by_run ON stops (run_id, attempt);
"""


class UndeclaredCheckpoint(LedgerError):
    """A checkpoint that the task does not declare."""


class CheckpointRow(NamedTuple):
    """One checkpoint that one attempt reached. ``wall_ms``: ms since the attempt began; ``ts`` is RFC 3339.

    ``payload_digest`` is the digest of what was applied: of the call at ``patch_applied``; where nothing is
    applied it is the task's own. ``call_id`` and ``call_digest`` name the call that reached it, if one did;
    ``workspace_digest`` is the state of the files right then, where it was looked at.
    """

    run_id: str
    task_id: str
    checkpoint: str
    attempt: int
    payload_digest: str
    wall_ms: float
    ts: str
    call_id: str | None = None
    call_digest: str | None = None
    workspace_digest: str | None = None


class JournaledCall(NamedTuple):
    """One call that an attempt executed, written when its result is first seen.

    ``position`` counts calls of the conversation. ``tokens`` is what the run had used by then, ``wall_ms``
    the time since the attempt began: the cost of a call is the step from the one before it.
    """

    run_id: str
    attempt: int
    conversation: str
    position: int
    call_id: str
    tool: str
    family: str
    call_digest: str
    changed_workspace: bool
    failed: bool
    tokens: int
    wall_ms: float
    ts: str


class Violation(NamedTuple):
    """More than one row for one checkpoint of one attempt. ``digests`` in the order of writing."""

    run_id: str
    checkpoint: str
    attempt: int
    digests: tuple[str, ...]

    def __str__(self) -> str:
        return f"run {self.run_id}, attempt {self.attempt}: {len(self.digests)} rows for {self.checkpoint}"


class Journal:
    """The journal of one run folder. Any thread may use it; every method raises ``LedgerError``."""

    def __init__(self, path: Path) -> None:
        """Opens or creates ``path`` (0600)."""
        self.path = path
        self._lock = threading.Lock()
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=FULL")
            self._db.executescript(_SCHEMA)
        except (OSError, sqlite3.Error) as error:
            raise LedgerError(f"cannot use the journal {path}: {error}") from error

    def declare(self, task_id: str, checkpoints: Collection[str]) -> None:
        """Says which checkpoints a task has; saying it again is fine."""
        rows = [(task_id, name) for name in checkpoints]
        self._change([("INSERT OR IGNORE INTO declared VALUES (?, ?)", rows)])

    def declared(self, task_id: str) -> frozenset[str]:
        """The checkpoints of a task."""
        rows = self._rows("SELECT checkpoint FROM declared WHERE task_id = ?", (task_id,))
        return frozenset(str(name) for (name,) in rows)

    def write(self, checkpoints: Sequence[CheckpointRow], calls: Sequence[JournaledCall] = ()) -> None:
        """Adds rows, all or none, and returns when they are on the disk.

        Raises ``UndeclaredCheckpoint``.
        """
        for row in checkpoints:
            known = self.declared(row.task_id)
            if row.checkpoint not in known:
                raise UndeclaredCheckpoint(
                    f"task {row.task_id} does not declare the checkpoint {row.checkpoint!r}; it declares "
                    + (", ".join(sorted(known)) or "none")
                )
        self._change(
            [
                ("INSERT INTO checkpoints VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", checkpoints),
                ("INSERT INTO calls VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", calls),
            ]
        )

    def stopped(self, run_id: str, attempt: int, workspace_digest: str) -> None:
        """How an attempt left the workspace: a resume finds it so, or it was edited by hand."""
        row = (run_id, attempt, workspace_digest, timestamp())
        self._change([("INSERT INTO stops VALUES (?, ?, ?, ?)", [row])])

    def left_behind(self, run_id: str, attempt: int) -> str | None:
        """The workspace digest when that attempt stopped; None when nobody wrote it down."""
        query = (
            "SELECT workspace_digest FROM stops WHERE run_id = ? AND attempt = ? ORDER BY rowid DESC LIMIT 1"
        )
        return next((str(digest) for (digest,) in self._rows(query, (run_id, attempt))), None)

    def reached(self, run_id: str) -> list[CheckpointRow]:
        """The checkpoints of a run, all attempts, in the order of writing."""
        columns = ", ".join(CheckpointRow._fields)
        query = f"SELECT {columns} FROM checkpoints WHERE run_id = ? ORDER BY rowid"
        return [CheckpointRow(*row) for row in self._rows(query, (run_id,))]

    def calls(self, run_id: str) -> list[JournaledCall]:
        """The calls of a run, all attempts, in the order of writing."""
        columns = ", ".join(JournaledCall._fields)
        query = f"SELECT {columns} FROM calls WHERE run_id = ? ORDER BY rowid"
        found = [JournaledCall(*row) for row in self._rows(query, (run_id,))]
        return [
            call._replace(changed_workspace=bool(call.changed_workspace), failed=bool(call.failed))
            for call in found
        ]

    def violations(self) -> list[Violation]:
        """Every checkpoint that one attempt reached more than once."""
        rows = self._rows(
            "SELECT run_id, checkpoint, attempt, payload_digest FROM checkpoints ORDER BY rowid", ()
        )
        by_key: dict[tuple[str, str, int], list[str]] = {}
        for run_id, checkpoint, attempt, digest in rows:
            by_key.setdefault((run_id, checkpoint, attempt), []).append(digest)
        return [Violation(*key, tuple(digests)) for key, digests in by_key.items() if len(digests) > 1]

    def close(self) -> None:
        with self._lock:
            self._db.close()

    def _change(self, statements: Iterable[tuple[str, Sequence[tuple[object, ...]]]]) -> None:
        with self._lock:
            try:
                self._db.execute("BEGIN IMMEDIATE")
                try:
                    for statement, rows in statements:
                        self._db.executemany(statement, rows)
                except BaseException:
                    self._db.execute("ROLLBACK")
                    raise
                self._db.execute("COMMIT")
            except sqlite3.Error as error:
                raise LedgerError(f"cannot write the journal {self.path}: {error}") from error

    def _rows(self, query: str, values: tuple[object, ...]) -> list[tuple[Any, ...]]:
        with self._lock:
            try:
                return self._db.execute(query, values).fetchall()
            except sqlite3.Error as error:
                raise LedgerError(f"cannot read the journal {self.path}: {error}") from error
