"""What the ledgers of a run folder say of every attempt: begun, ended, lined up, and what it used."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import msgspec

from ledger.records import AnyRecord, End, Quota, Request, Start
from ledger.runs import RunLine


class AttemptId(NamedTuple):
    """``attempt`` counts the processes of a run, from 1."""

    run_id: str
    attempt: int


@dataclass(slots=True)
class LoggedAttempt:
    """One attempt in a decisions.jsonl. ``last_ts`` is when its last record was written, RFC 3339.

    ``tokens``: what its answered requests used. ``quota``: our own quota error was sent.
    """

    start: Start
    last_ts: str
    tokens: int = 0
    quota: bool = False
    end: End | None = None


_records = msgspec.json.Decoder(AnyRecord)
_lines = msgspec.json.Decoder(RunLine)
# Most records are decisions and deliveries, which say nothing that is asked here but when they were written.
_WANTED = (b'"event":"start"', b'"event":"request"', b'"event":"quota"', b'"event":"end"')


def logged_attempts(path: Path) -> dict[AttemptId, LoggedAttempt]:
    """Every attempt that a decisions.jsonl knows, in the order of starting; empty when there is no such file.

    Torn and foreign lines are passed over: whoever scores the log reports them.
    """
    found: dict[AttemptId, LoggedAttempt] = {}
    present: dict[str, LoggedAttempt] = {}
    for line in _read(path):
        if not any(mark in line for mark in _WANTED):
            continue
        try:
            record = _records.decode(line)
        except msgspec.DecodeError:
            continue
        if isinstance(record, Start):
            key = AttemptId(record.run_id, record.attempt)
            present[record.run_id] = found.setdefault(key, LoggedAttempt(record, record.ts))
        attempt = present.get(record.run_id)
        if attempt is not None:
            _note(attempt, record)
    return found


def _note(attempt: LoggedAttempt, record: AnyRecord) -> None:
    attempt.last_ts = record.ts
    match record:
        case Request():
            attempt.tokens += tokens_of(record)
        case Quota():
            attempt.quota = True
        case End():
            attempt.end = record


def tokens_of(request: Request) -> int:
    """Uncached input + cache read + cache write + output, each once; what was not said counts as nothing."""
    counts = (
        request.input_tokens, request.cache_read_tokens, request.cache_write_tokens, request.output_tokens,
    )  # fmt: skip
    return sum(count or 0 for count in counts)


def lines_of(path: Path) -> list[RunLine]:
    """The lines of a runlog; empty when there is no such file. Lines that are none are passed over."""
    found = []
    for line in _read(path):
        try:
            found.append(_lines.decode(line))
        except msgspec.DecodeError:
            continue
    return found


def _read(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            yield from file
    except FileNotFoundError:
        return
