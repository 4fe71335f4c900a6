"""memory.db: what must be replayed. Every call with its decision, and both texts where one was replaced.

SQLite in WAL mode; a commit outlives the process (synchronous=NORMAL), which is what a killed proxy needs.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

import msgspec

from ledger.decisions import LedgerError, open_private
from ledger.records import SkipReason

# Counts up with every change of the tables below.
_VERSION = 3
_SCHEMA = """
CREATE TABLE IF NOT EXISTS conversations (
    run_id TEXT NOT NULL, conversation TEXT NOT NULL, role TEXT NOT NULL, header TEXT, workspace TEXT,
    PRIMARY KEY (run_id, conversation)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS tips (
    run_id TEXT NOT NULL, chain BLOB NOT NULL, conversation TEXT NOT NULL, depth INTEGER NOT NULL,
    calls INTEGER NOT NULL, first INTEGER NOT NULL, PRIMARY KEY (run_id, chain));
CREATE TABLE IF NOT EXISTS answers (
    run_id TEXT NOT NULL, answer TEXT NOT NULL, conversation TEXT NOT NULL, depth INTEGER NOT NULL,
    calls INTEGER NOT NULL, first INTEGER NOT NULL, PRIMARY KEY (run_id, answer, conversation));
CREATE TABLE IF NOT EXISTS calls (
    run_id TEXT NOT NULL, conversation TEXT NOT NULL, position INTEGER NOT NULL,
    call_id TEXT NOT NULL, call_digest TEXT NOT NULL, nth INTEGER NOT NULL,
    tool TEXT NOT NULL, family TEXT NOT NULL, occurrence INTEGER NOT NULL, ordinal INTEGER NOT NULL,
    depth INTEGER NOT NULL,
    draw BLOB NOT NULL, arguments BLOB NOT NULL, target TEXT NOT NULL, draw_us REAL NOT NULL,
    answered INTEGER NOT NULL, skipped TEXT, payload TEXT, payload_error INTEGER, original TEXT,
    delivered INTEGER NOT NULL, mark BLOB, wire_name TEXT,
    PRIMARY KEY (run_id, conversation, position));
CREATE TABLE IF NOT EXISTS runs (run_id TEXT PRIMARY KEY, settings BLOB NOT NULL) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS calls_by_id ON calls (run_id, call_id);
CREATE TABLE IF NOT EXISTS texts (
    run_id TEXT NOT NULL, conversation TEXT NOT NULL, digest BLOB NOT NULL, new TEXT NOT NULL,
    PRIMARY KEY (run_id, conversation, digest)) WITHOUT ROWID;
"""

# A turn adds two items: the tip of the turn before is mostly among the first few that are asked for.
_FIRST_TIPS, _MORE_TIPS = 3, 100


class Tip(NamedTuple):
    """A history that went upstream: ``depth`` items long, when ``calls`` calls had been drawn; those from
    position ``first`` on stand in it."""

    conversation: str
    depth: int
    calls: int
    first: int


@dataclass(slots=True)
class ConversationRow:
    """One conversation; ``header`` is the harness's own name for it, where it has one."""

    conversation: str
    role: str
    header: str | None
    workspace: str | None


class CallRow(msgspec.Struct, eq=False):
    """One remembered call. ``draw`` is the encoded draw, ``draw_us`` the time it took; ``depth`` how long the
    history was that the model answered with this call; ``target`` what the call is about.

    ``payload`` stands in the result's place on every resend; ``original`` is what it replaced. ``mark`` is a
    digest by which the result is known again when the harness retells it. ``wire_name`` is the name under
    which a call went on that was kept from running: its own when its arguments were swapped.
    """

    position: int
    call_id: str
    call_digest: str
    nth: int
    tool: str
    family: str
    occurrence: int
    ordinal: int
    depth: int
    draw: bytes
    arguments: bytes
    target: str
    draw_us: float
    answered: bool = False
    skipped: SkipReason | None = None
    payload: str | None = None
    payload_error: bool | None = None
    original: str | None = None
    delivered: bool = False
    mark: bytes | None = None
    wire_name: str | None = None

    @property
    def is_swapped(self) -> bool:
        """Whether it was kept from running by harmless arguments in the place of its own."""
        return self.wire_name == self.tool


_COLUMNS = (
    "position, call_id, call_digest, nth, tool, family, occurrence, ordinal, depth, draw, arguments,"
    " target, draw_us, answered, skipped, payload, payload_error, original, delivered, mark, wire_name"
)


def memory_of(log: Path) -> Path:
    """Where the memory of a decision log is: memory.db in a run folder, a name of its own beside a log that
    is named otherwise, since several of those can share a folder."""
    return log.with_name("memory.db" if log.name == "decisions.jsonl" else f"{log.stem}.memory.db")


def _text(value: str | None) -> str | bytes | None:
    """SQLite takes no lone surrogate in a TEXT: such a text is kept as bytes."""
    if value is None:
        return None
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return value.encode("utf-8", "surrogatepass")
    return value


def _back(value: str | bytes | None) -> str | None:
    return value.decode("utf-8", "surrogatepass") if isinstance(value, bytes) else value


class _Transaction:
    """A block of changes. A class, since the machinery of a generator costs as much as a small commit."""

    __slots__ = ("_db", "_path")

    def __init__(self, db: sqlite3.Connection, path: Path) -> None:
        self._db = db
        self._path = path

    def __enter__(self) -> None:
        try:
            self._db.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            raise self._failed(error) from error

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._db.execute("COMMIT" if error is None else "ROLLBACK")
        except sqlite3.Error as failure:
            raise self._failed(failure) from failure
        if isinstance(error, sqlite3.Error):
            raise self._failed(error) from error

    def _failed(self, error: sqlite3.Error) -> LedgerError:
        return LedgerError(f"cannot write the memory {self._path}: {error}")


class Memory:
    """The store. One connection, one thread at a time; every change is made inside ``transaction``."""

    def __init__(self, path: Path) -> None:
        """Opens or creates ``path`` (0600); raises ``LedgerError`` when that cannot be done."""
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            os.close(open_private(path))
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            self._check_version()
            self._db.executescript(_SCHEMA)
        except LedgerError:
            raise
        except (OSError, sqlite3.Error) as error:
            raise LedgerError(f"cannot use the memory {path}: {error}") from error

    def _check_version(self) -> None:
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        (tables,) = self._db.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        if tables and version != _VERSION:
            self._db.close()
            raise LedgerError(
                f"cannot use the memory {self.path}: another version of chaosproxy wrote it; give another"
                " --log"
            )
        self._db.execute(f"PRAGMA user_version = {_VERSION}")

    def transaction(self) -> _Transaction:
        """All or nothing; committed when the block is left. Raises ``LedgerError`` when that fails."""
        return _Transaction(self._db, self.path)

    def runs(self) -> list[bytes]:
        """What was put down of every run that was registered."""
        return [bytes(row[0]) for row in self._db.execute("SELECT settings FROM runs ORDER BY run_id")]

    def put_run(self, run_id: str, settings: bytes) -> None:
        """Puts down how a run was registered, in the place of what was put down before."""
        self._db.execute("INSERT OR REPLACE INTO runs VALUES (?, ?)", (run_id, settings))

    def run_ids(self) -> list[str]:
        """The runs that have a conversation."""
        return [str(row[0]) for row in self._db.execute("SELECT DISTINCT run_id FROM conversations")]

    def conversations(self, run_id: str) -> list[ConversationRow]:
        rows = self._db.execute(
            "SELECT conversation, role, header, workspace FROM conversations WHERE run_id = ?"
            " ORDER BY length(conversation), conversation",
            (run_id,),
        )
        return [ConversationRow(*row) for row in rows]

    def conversation(self, run_id: str, conversation: str) -> ConversationRow:
        """One conversation that is there."""
        row = self._db.execute(
            "SELECT conversation, role, header, workspace FROM conversations"
            " WHERE run_id = ? AND conversation = ?",
            (run_id, conversation),
        ).fetchone()
        return ConversationRow(*row)

    def add_conversation(self, run_id: str, row: ConversationRow) -> None:
        self._db.execute(
            "INSERT INTO conversations VALUES (?, ?, ?, ?, ?)",
            (run_id, row.conversation, row.role, row.header, row.workspace),
        )

    def set_workspace(self, run_id: str, row: ConversationRow) -> None:
        """Writes down the workspace of a conversation that is there already."""
        self._db.execute(
            "UPDATE conversations SET workspace = ? WHERE run_id = ? AND conversation = ?",
            (row.workspace, run_id, row.conversation),
        )

    def deepest_tip(self, run_id: str, chain: Sequence[bytes]) -> Tip | None:
        """The longest request that went upstream whose history is the first part of ``chain``."""
        ends = [len(chain), *range(len(chain) - _FIRST_TIPS, 0, -_MORE_TIPS)]
        for end, next_end in zip(ends, [*ends[1:], 0], strict=True):
            some = chain[next_end:end]
            found = self._db.execute(
                "SELECT conversation, depth, calls, first FROM tips WHERE run_id = ? AND chain IN"
                f" ({', '.join('?' * len(some))}) ORDER BY depth DESC LIMIT 1",
                (run_id, *some),
            ).fetchone()
            if found is not None:
                return Tip(*found)
        return None

    def latest_tip(self, run_id: str, conversation: str) -> bytes:
        """The hash of the history that a conversation sent last; empty when it sent none."""
        found = self._db.execute(
            "SELECT chain FROM tips WHERE run_id = ? AND conversation = ? ORDER BY rowid DESC LIMIT 1",
            (run_id, conversation),
        ).fetchone()
        return b"" if found is None else bytes(found[0])

    def add_tip(self, run_id: str, chain: bytes, tip: Tip) -> None:
        """Remembers a whole history that went upstream."""
        self._db.execute("INSERT OR REPLACE INTO tips VALUES (?, ?, ?, ?, ?, ?)", (run_id, chain, *tip))

    def add_beginning(self, run_id: str, chain: bytes, tip: Tip) -> None:
        """Remembers the beginning of one, unless it went upstream by itself."""
        self._db.execute("INSERT OR IGNORE INTO tips VALUES (?, ?, ?, ?, ?, ?)", (run_id, chain, *tip))

    def answer(self, run_id: str, answer: str, conversation: str) -> Tip | None:
        """The history that the model answered under this id: of ``conversation``, if it has one, else the
        latest."""
        found = self._db.execute(
            "SELECT conversation, depth, calls, first FROM answers WHERE run_id = ? AND answer = ?"
            " ORDER BY conversation = ? DESC, rowid DESC LIMIT 1",
            (run_id, answer, conversation),
        ).fetchone()
        return None if found is None else Tip(*found)

    def add_answer(self, run_id: str, answer: str, tip: Tip) -> None:
        self._db.execute("INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?, ?, ?)", (run_id, answer, *tip))

    def calls(self, run_id: str, conversation: str) -> list[CallRow]:
        rows = self._db.execute(
            f"SELECT {_COLUMNS} FROM calls WHERE run_id = ? AND conversation = ? ORDER BY position",
            (run_id, conversation),
        )
        return [_row(values) for values in rows]

    def arguments(self, run_id: str, conversation: str, position: int) -> bytes:
        """The arguments of one call as the model wrote them."""
        row = self._db.execute(
            "SELECT arguments FROM calls WHERE run_id = ? AND conversation = ? AND position = ?",
            (run_id, conversation, position),
        ).fetchone()
        return bytes(row[0]) if row is not None else b"{}"

    def call_by_id(self, run_id: str, call_id: str) -> str | None:
        """The latest conversation of a run that has a call with this id, first among those where it was
        answered: a fork has calls that it went past."""
        row = self._db.execute(
            "SELECT conversation FROM calls WHERE run_id = ? AND call_id = ?"
            " ORDER BY answered DESC, length(conversation) DESC, conversation DESC LIMIT 1",
            (run_id, call_id),
        ).fetchone()
        return None if row is None else str(row[0])

    def newest_tip(self, run_id: str) -> Tip | None:
        """The history that went upstream last, among the conversations that are told apart by it."""
        found = self._db.execute(
            "SELECT conversation, depth, calls, first FROM tips WHERE run_id = ? ORDER BY rowid DESC LIMIT 1",
            (run_id,),
        ).fetchone()
        return None if found is None else Tip(*found)

    def unanswered_conversations(self, run_id: str) -> list[str]:
        """The conversations that have a call without an answer."""
        rows = self._db.execute(
            "SELECT DISTINCT conversation FROM calls WHERE run_id = ? AND NOT answered"
            " ORDER BY length(conversation), conversation",
            (run_id,),
        )
        return [str(row[0]) for row in rows]

    def has_replaced(self, run_id: str) -> bool:
        """Whether any result of a run was replaced."""
        found = self._db.execute(
            "SELECT EXISTS (SELECT 1 FROM calls WHERE run_id = ? AND payload IS NOT NULL)", (run_id,)
        ).fetchone()
        return bool(found[0])

    def text(self, run_id: str, conversation: str, digest: bytes) -> str | None:
        """What was sent in the place of a text that the harness wrote, when it was replaced."""
        row = self._db.execute(
            "SELECT new FROM texts WHERE run_id = ? AND conversation = ? AND digest = ?",
            (run_id, conversation, digest),
        ).fetchone()
        return None if row is None else _back(row[0])

    def add_text(self, run_id: str, conversation: str, digest: bytes, new: str) -> None:
        self._db.execute(
            "INSERT OR REPLACE INTO texts VALUES (?, ?, ?, ?)", (run_id, conversation, digest, _text(new))
        )

    def add_calls(self, run_id: str, conversation: str, rows: Sequence[CallRow]) -> None:
        """Adds calls; one at a taken position replaces what stands there."""
        self._db.executemany(
            f"INSERT OR REPLACE INTO calls (run_id, conversation, {_COLUMNS})"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (
                    run_id, conversation, row.position, row.call_id, row.call_digest, row.nth, row.tool,
                    row.family, row.occurrence, row.ordinal, row.depth, row.draw, row.arguments,
                    _text(row.target), row.draw_us, row.answered, row.skipped, _text(row.payload),
                    row.payload_error, _text(row.original), row.delivered, row.mark, row.wire_name,
                )
                for row in rows
            ],
        )  # fmt: skip

    def update_calls(self, run_id: str, conversation: str, rows: Sequence[CallRow]) -> None:
        """Writes down what became of calls that are there already."""
        self._db.executemany(
            "UPDATE calls SET call_digest = ?, answered = ?, skipped = ?, payload = ?, payload_error = ?,"
            " original = ?, delivered = ?, mark = ? WHERE run_id = ? AND conversation = ? AND position = ?",
            [
                (
                    row.call_digest, row.answered, row.skipped, _text(row.payload), row.payload_error,
                    _text(row.original), row.delivered, row.mark, run_id, conversation, row.position,
                )
                for row in rows
            ],
        )  # fmt: skip

    def close(self) -> None:
        self._db.close()


def _row(values: Sequence[object]) -> CallRow:
    row = CallRow(*values)  # type: ignore[arg-type]
    row.answered = bool(row.answered)
    row.delivered = bool(row.delivered)
    row.payload_error = None if row.payload_error is None else bool(row.payload_error)
    row.payload, row.original = _back(row.payload), _back(row.original)
    row.target = _back(row.target) or ""
    return row


def forget_memory(folder: Path) -> list[Path]:
    """Deletes the memories of a run folder, and what SQLite keeps beside them; returns what was deleted.

    Raises ``LedgerError`` when one cannot be deleted, or ``folder`` is no directory.
    """
    if not folder.is_dir():
        raise LedgerError(f"{folder} is no run folder")
    gone: list[Path] = []
    for path in sorted(folder.iterdir()):
        if path.name.removesuffix("-wal").removesuffix("-shm").endswith("memory.db"):
            try:
                path.unlink()
            except OSError as error:
                raise LedgerError(f"cannot delete {path}: {error.strerror}") from error
            gone.append(path)
    return gone
