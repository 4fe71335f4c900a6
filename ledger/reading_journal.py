"""Reads journals: durable checkpoints in SQLite, one row per (run_id, checkpoint, attempt).

Journals from elsewhere, keyed (task_id, checkpoint, attempt), are read as well. The table is known by its
columns, whatever it is called; rows come in the order in which they were written.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from ledger.problems import BadJournal

_NEEDED = frozenset(("checkpoint", "attempt"))
_OWNERS = ("run_id", "task_id")


class JournalRow(msgspec.Struct, frozen=True, kw_only=True):
    """One checkpoint that one attempt reached; ``wall_ms`` since the attempt began, ``ts`` RFC 3339."""

    run_id: str | None
    task_id: str | None
    checkpoint: str
    attempt: int
    payload_digest: str | None = None
    wall_ms: float | None = None
    ts: str | None = None


class CallRow(msgspec.Struct, frozen=True, kw_only=True):
    """One call that an attempt executed. ``tokens`` the run had used by then, ``wall_ms`` since the attempt
    began: the cost of a call is the step from the one before it."""

    run_id: str
    attempt: int
    tool: str
    call_digest: str
    changed_workspace: bool
    tokens: int
    wall_ms: float


def read_journaled_calls(path: Path) -> list[CallRow]:
    """The calls that a journal keeps beside its checkpoints, in the order of writing; none where it has no
    such table. Raises ``BadJournal``."""
    columns = CallRow.__struct_fields__
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as database:
            there = {name for (name,) in database.execute("SELECT name FROM pragma_table_info('calls')")}
            if not there >= set(columns):
                return []
            rows = database.execute(f"SELECT {', '.join(columns)} FROM calls ORDER BY rowid").fetchall()
        return [msgspec.convert(dict(zip(columns, row, strict=True)), CallRow, strict=False) for row in rows]
    except (sqlite3.Error, msgspec.ValidationError) as error:
        raise BadJournal(f"cannot read {path} as a journal: {error}") from error


def read_journal(path: Path) -> Iterator[JournalRow]:
    """The rows of a journal. Raises ``BadJournal``."""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as database:
            table, columns = _table(path, database)
            wanted = [name if name in columns else "NULL" for name in JournalRow.__struct_fields__]
            # Names of tables come from the file itself; a quote in one is doubled.
            quoted = table.replace('"', '""')
            order = _order(database, quoted, columns)
            for row in database.execute(f'SELECT {", ".join(wanted)} FROM "{quoted}"{order}'):
                yield _row(path, row)
    except sqlite3.Error as error:
        raise BadJournal(f"cannot read {path} as a journal: {error}") from error


def _table(path: Path, database: sqlite3.Connection) -> tuple[str, frozenset[str]]:
    names = database.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name").fetchall()
    for (name,) in names:
        found = database.execute("SELECT name FROM pragma_table_info(?)", (name,))
        columns = frozenset(column for (column,) in found)
        if columns >= _NEEDED and any(owner in columns for owner in _OWNERS):
            return str(name), columns
    raise BadJournal(
        f"{path} has no table with the columns checkpoint, attempt and run_id (or task_id): it is no journal"
    )


def _order(database: sqlite3.Connection, quoted: str, columns: frozenset[str]) -> str:
    try:
        database.execute(f'SELECT rowid FROM "{quoted}" LIMIT 1')
    except sqlite3.OperationalError:
        keys = [name for name in ("run_id", "task_id", "attempt", "ts", "checkpoint") if name in columns]
        return f" ORDER BY {', '.join(keys)}"
    return " ORDER BY rowid"


def _row(path: Path, row: tuple[Any, ...]) -> JournalRow:
    named = dict(zip(JournalRow.__struct_fields__, row, strict=True))
    for name in ("payload_digest", "ts"):
        if isinstance(named[name], bytes):
            named[name] = named[name].hex()
        elif named[name] is not None:
            named[name] = str(named[name])
    try:
        return msgspec.convert(named, JournalRow)
    except msgspec.ValidationError as error:
        raise BadJournal(f"{path}: a row cannot be read: {error}") from error
