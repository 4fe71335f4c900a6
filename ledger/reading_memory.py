"""Reads out of memory.db what calls were asked with; the file may be gone, deleted after scoring."""

from __future__ import annotations

import sqlite3
from collections import OrderedDict
from pathlib import Path
from types import TracebackType
from typing import Self

_CONVERSATIONS_HELD = 16


class Arguments:
    """Arguments of calls as they stand in a memory.db; use as a context manager.

    Whatever cannot be read counts as not known: the figures that need it then say so. A conversation is read
    at once when it is first asked for; few of them are held.
    """

    def __init__(self, path: Path | None) -> None:
        self._database = None if path is None else _opened(path)
        self._held: OrderedDict[tuple[str, str], dict[str, bytes]] = OrderedDict()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._database is not None:
            self._database.close()

    def __bool__(self) -> bool:
        return self._database is not None

    def of(self, run_id: str, conversation: str, call_digest: str) -> bytes | None:
        """The arguments' JSON text of a call with this digest; null when it is not known."""
        if self._database is None:
            return None
        key = (run_id, conversation)
        found = self._held.get(key)
        if found is None:
            found = self._held[key] = _read(self._database, *key)
            if len(self._held) > _CONVERSATIONS_HELD:
                self._held.popitem(last=False)
        return found.get(call_digest)


def _opened(path: Path) -> sqlite3.Connection | None:
    try:
        return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
    except sqlite3.Error:
        return None


def _read(database: sqlite3.Connection, run_id: str, conversation: str) -> dict[str, bytes]:
    try:
        rows = database.execute(
            "SELECT call_digest, arguments FROM calls WHERE run_id = ? AND conversation = ?",
            (run_id, conversation),
        )
        return {digest: arguments for digest, arguments in rows if isinstance(arguments, bytes)}
    except sqlite3.Error:
        return {}
