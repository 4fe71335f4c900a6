"""Reads out of memory.db what a call was asked with; the file may be gone, deleted after scoring."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from types import TracebackType
from typing import Self


class Arguments:
    """Arguments of calls as they stand in a memory.db; use as a context manager.

    Whatever cannot be read counts as not known: the figures that need it then say so.
    """

    def __init__(self, path: Path | None) -> None:
        self._database = None if path is None else _opened(path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._database is not None:
            self._database.close()

    def of(self, run_id: str, conversation: str, call_digest: str) -> bytes | None:
        """The arguments' JSON text of a call with this digest; null when it is not known."""
        if self._database is None:
            return None
        try:
            row = self._database.execute(
                "SELECT arguments FROM calls WHERE run_id = ? AND conversation = ? AND call_digest = ? LIMIT 1",
                (run_id, conversation, call_digest),
            ).fetchone()
        except sqlite3.Error:
            return None
        return bytes(row[0]) if row is not None and isinstance(row[0], bytes) else None


def _opened(path: Path) -> sqlite3.Connection | None:
    try:
        return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
    except sqlite3.Error:
        return None
