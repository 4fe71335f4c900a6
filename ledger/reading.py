"""Reads the JSONL ledgers back: decisions.jsonl, runlog.jsonl and runlog.resumed.jsonl.

Memory does not grow with the length of a log. What can be tolerated (a torn last line, a foreign line, an
unknown event) is appended to a list of ``Problem`` and never dropped silently; what would make the numbers
wrong raises a ``ReadingError`` whose message says what to do.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import msgspec
import numpy as np

from ledger.problems import (
    BadRunLine,
    Damaged,
    EmptyLog,
    NoStart,
    Problem,
    ReadingError,
    RunIdClash,
    StartMismatch,
    json_object,
    opened,
    report_foreign,
)
from ledger.records import AnyRecord, Checkpoint, Delivery, End, Error, Quota, Request, Start
from ledger.runs import RunLine

__all__ = [
    "AnySlim",
    "Block",
    "Damaged",
    "Lined",
    "Problem",
    "ReadingError",
    "SlimDecision",
    "read_blocks",
    "read_decisions",
    "read_resumed",
    "read_runlogs",
]

_EVENTS = frozenset(("start", "decision", "delivery", "request", "error", "quota", "checkpoint", "end"))
_BLOCK_BYTES = 1 << 16
_NEWLINE, _BRACE = b"\n{"


class SlimDecision(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", tag="decision", gc=False):
    """Of a ``Decision`` what counting needs: half the fields, read in half the time."""

    run_id: str
    conversation: str
    call_id: str
    nth: int
    tool: str
    family: str
    call_digest: str
    fired: bool
    kind: str | None
    timing: str | None
    mode: str | None
    persistence: str | None
    payload_sha256: str | None
    latency_us: float
    skipped: str | None
    target_digest: str | None = None


AnySlim = Start | SlimDecision | Delivery | Request | Error | Quota | Checkpoint | End

_whole = msgspec.json.Decoder(AnyRecord)
_slim = msgspec.json.Decoder(AnySlim)


class Block(NamedTuple):
    """Records of consecutive lines, ``first`` the number of the first of them (from 1)."""

    first: int
    records: list[Any]


def read_decisions(path: Path, problems: list[Problem]) -> Iterator[AnyRecord | Damaged]:
    """The records of one decision log in file order; ``Damaged`` for one that cannot be read.

    Raises ``StartMismatch`` at once, ``EmptyLog`` or ``NoStart`` after the last record, ``UnusablePath``.
    """
    for block in _blocks(path, problems, _whole):
        yield from block.records


def read_blocks(path: Path, problems: list[Problem]) -> Iterator[Block]:
    """The same log block by block with line numbers, decisions as ``SlimDecision``: for long logs."""
    return _blocks(path, problems, _slim)


def _blocks(path: Path, problems: list[Problem], decoder: msgspec.json.Decoder[Any]) -> Iterator[Block]:
    starts: dict[str, Start] = {}
    seen = False
    number = 1
    with opened(path) as file:
        for text in _whole_lines(file):
            lines, blocks = _decoded(path, number, text, decoder, problems)
            number += lines
            for block in blocks:
                for at in [at for at, record in enumerate(block.records) if type(record) is Start]:
                    _check_start(path, block.first + at, block.records[at], starts)
                seen = True
                yield block
    if not seen:
        raise EmptyLog(f"{path} has no record: nothing was served with this log, or it is another file")
    if not starts:
        raise NoStart(
            f"{path} has records but no start, so it is no run: its first lines are lost; "
            "give the whole log, or run again"
        )


def _whole_lines(file: BinaryIO) -> Iterator[bytes]:
    """The file in pieces that end with a line; the last one may lack its newline."""
    rest = b""
    while piece := file.read(_BLOCK_BYTES):
        cut = piece.rfind(b"\n") + 1
        if not cut:
            rest += piece
            continue
        yield rest + piece[:cut]
        rest = piece[cut:]
    if rest:
        yield rest


def _decoded(
    path: Path, number: int, text: bytes, decoder: msgspec.json.Decoder[Any], problems: list[Problem]
) -> tuple[int, list[Block]]:
    """The number of lines, and their records: all at once where each line is one, else line by line."""
    lines = _lines_of_objects(text)
    if lines:
        with contextlib.suppress(msgspec.DecodeError, RecursionError):
            records = decoder.decode_lines(text)
            if len(records) == lines:
                return lines, [Block(number, records)]
    blocks = []
    apart = io.BytesIO(text).readlines()
    for place, line in enumerate(apart, number):
        try:
            record = decoder.decode(line)
        except (msgspec.DecodeError, RecursionError) as error:
            record = _not_a_record(path, place, line, error, problems)
            if record is None:
                continue
        blocks.append(Block(place, [record]))
    return len(apart), blocks


def _lines_of_objects(text: bytes) -> int:
    """How many lines there are when each begins with a brace, else 0: the decoder takes any white space for a
    line end, so it must not be left to it what a line is."""
    characters = np.frombuffer(text, np.uint8)
    starts = np.flatnonzero(characters[:-1] == _NEWLINE) + 1
    if text.startswith(b"{") and (characters[starts] == _BRACE).all():
        return len(starts) + 1
    return 0


def _check_start(path: Path, number: int, start: Start, starts: dict[str, Start]) -> None:
    first = starts.setdefault(start.run_id, start)
    for field in ("seed", "profile_sha256", "task_id"):
        was, now = getattr(first, field), getattr(start, field)
        if was != now:
            raise StartMismatch(
                f"{path}:{number}: run {start.run_id} was started with {field} {was}, and here again with "
                f"{now}: two different runs share one log and one id; give the second its own run_id or --log"
            )


def _not_a_record(
    path: Path, number: int, line: bytes, error: Exception, problems: list[Problem]
) -> Damaged | None:
    data = json_object(line)
    event = data.get("event") if data is not None else None
    if data is None or not isinstance(event, str):
        report_foreign(path, number, line, "record", problems)
        return None
    if event not in _EVENTS:
        problems.append(
            Problem(str(path), number, f"unknown event {event!r} (a newer version?): not counted")
        )
        return None
    run_id = data.get("run_id")
    problems.append(Problem(str(path), number, f"damaged {event} record: {error}"))
    return Damaged(run_id, event, number) if isinstance(run_id, str) else None


class Lined(NamedTuple):
    """A line of a run log and where it stands."""

    path: Path
    number: int
    line: RunLine


def read_runlogs(paths: Iterable[Path], problems: list[Problem]) -> Iterator[Lined]:
    """The first attempts of runlog.jsonl files; memory grows with the runs' ids alone.

    A line written twice counts once. Lines without a run_id are told apart by nothing and all count.
    Raises ``BadRunLine``, ``RunIdClash``, ``UnusablePath``.
    """
    by_id: dict[str, Lined] = {}
    cells: set[tuple[str, int, int]] = set()
    for found in _run_lines(paths, problems):
        path, number, line = found
        if line.attempt > 1:
            what = f"attempt {line.attempt} of {line.run_id}: a resumed attempt is no run; not counted"
            problems.append(Problem(str(path), number, what))
            continue
        if line.run_id is not None:
            known = by_id.setdefault(line.run_id, found)
            if known is not found:
                _same_or_clash(found, known, f"run_id {line.run_id}", problems)
                continue
        cell = (line.task_id, line.seed, line.repeat)
        if cell in cells:
            what = f"a second run of task {cell[0]}, seed {cell[1]}, repeat {cell[2]}: both count"
            problems.append(Problem(str(path), number, what))
        cells.add(cell)
        yield found


def read_resumed(paths: Iterable[Path], problems: list[Problem]) -> Iterator[Lined]:
    """The resumed attempts of runlog.resumed.jsonl files; an attempt that was written twice counts once.

    Raises ``BadRunLine``, ``RunIdClash``, ``UnusablePath``.
    """
    by_attempt: dict[tuple[str, int], Lined] = {}
    for found in _run_lines(paths, problems):
        line = found.line
        if line.run_id is not None and line.attempt > 1:
            known = by_attempt.setdefault((line.run_id, line.attempt), found)
            if known is not found:
                _same_or_clash(found, known, f"attempt {line.attempt} of {line.run_id}", problems)
                continue
        yield found


def _run_lines(paths: Iterable[Path], problems: list[Problem]) -> Iterator[Lined]:
    decode = msgspec.json.Decoder(RunLine).decode
    for path in paths:
        with opened(path) as file:
            for number, line in enumerate(file, 1):
                try:
                    found = Lined(path, number, decode(line))
                except (msgspec.DecodeError, RecursionError) as error:
                    data = json_object(line)
                    if data is None or "task_id" not in data:
                        report_foreign(path, number, line, "run", problems)
                        continue
                    raise BadRunLine(
                        f"{path}:{number}: {error}. Correct the line: leaving it out would take the run out "
                        "of n"
                    ) from error
                yield found


def _same_or_clash(found: Lined, known: Lined, what: str, problems: list[Problem]) -> None:
    where = f"{known.path}:{known.number}"
    if known.line != found.line:
        raise RunIdClash(
            f"{found.path}:{found.number}: {what} already stands at {where} with other contents: two runs "
            "cannot share an id; give one of them another, or score the folders apart"
        )
    said = f"{what} again, the same as at {where}: counted once"
    problems.append(Problem(str(found.path), found.number, said))
