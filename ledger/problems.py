"""What can be wrong with a ledger: errors that stop a reader, and problems that it tolerates and tells."""

from __future__ import annotations

from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import orjson


class ReadingError(Exception):
    """A ledger cannot be used as it is. The message names the place and says what to do."""


class UnusablePath(ReadingError):
    """The path is missing, unreadable, or none of the ledgers of a run folder."""


class EmptyLog(ReadingError):
    """The file has no record at all."""


class NoStart(ReadingError):
    """A decision log with records but without a ``start``: no run."""


class StartMismatch(ReadingError):
    """A second ``start`` of a run disagrees on seed, profile or task."""


class RunIdClash(ReadingError):
    """Two different runs, or two different attempts of one number, carry one run_id."""


class BadRunLine(ReadingError):
    """A line of a runlog is about a run but cannot be read as one."""


class BadVerdicts(ReadingError):
    """A verdicts file is not what it should be."""


class BadManifest(ReadingError):
    """A manifest cannot be read."""


class BadJournal(ReadingError):
    """A journal is no SQLite file, or has no table of checkpoints."""


class Problem(NamedTuple):
    """Something in a file that was tolerated; ``line`` counts from 1, null: it is about the whole file."""

    path: str
    line: int | None
    what: str

    def __str__(self) -> str:
        return f"{self.path}: {self.what}" if self.line is None else f"{self.path}:{self.line}: {self.what}"


class Damaged(NamedTuple):
    """A record of a known event that could not be read: its run cannot be taken for clean."""

    run_id: str
    event: str
    line: int


def opened(path: Path) -> BinaryIO:
    """``path`` for reading; raises ``UnusablePath`` with the cause."""
    try:
        return path.open("rb")
    except OSError as error:
        raise UnusablePath(f"cannot read {path}: {error.strerror}") from error


def json_object(line: bytes) -> dict[str, Any] | None:
    """The JSON object that the line holds; null when it holds anything else."""
    try:
        data = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    return data if isinstance(data, dict) else None


def report_foreign(path: Path, number: int, line: bytes, what: str, problems: list[Problem]) -> None:
    """Tells of a line that is no ``what``; an empty line is nothing."""
    if not line.strip():
        return
    if not line.endswith(b"\n") and json_object(line) is None:
        said = f"torn last line ({len(line)} bytes): its writer was stopped in the middle of it; not counted"
    elif json_object(line) is None:
        said = f"not a JSON object: a foreign line, or a torn one that was written on; no {what} was read"
    else:
        said = f"foreign line: a JSON object, but no {what}; not counted"
    problems.append(Problem(str(path), number, said))
