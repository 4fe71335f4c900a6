"""Reads run folders back: streams decisions.jsonl and runlog.jsonl, one frozen struct per line.

Memory does not grow with the length of a log. What can be tolerated (a torn last line, a foreign line, an
unknown event) is appended to a list of ``Problem`` and never dropped silently; what would make the numbers
wrong raises a ``ReadingError`` whose message says what to do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import msgspec
import orjson
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from ledger.records import AnyRecord, Start
from ledger.runs import Ended, RunLine

DECISIONS = "decisions.jsonl"
RUNLOG = "runlog.jsonl"
RESUMED = "runlog.resumed.jsonl"
MANIFEST = "manifest.yaml"
VERDICTS = "verdicts.json"

_EVENTS = frozenset(("start", "decision", "delivery", "request", "error", "quota", "checkpoint", "end"))
_SNIFF_BYTES = 1 << 16


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
    """Two different runs carry one run_id."""


class BadRunLine(ReadingError):
    """A line of a runlog is about a run but cannot be read as one."""


class BadVerdicts(ReadingError):
    """A verdicts file is not what it should be."""


class BadManifest(ReadingError):
    """A manifest cannot be read."""


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


class Verdict(msgspec.Struct, frozen=True):
    """What verdicts.json says of one run; null where it says nothing."""

    passed: bool | None
    ended: Ended | None = None


class Folder(NamedTuple):
    """The ledgers to read of one run folder; ``decisions`` and ``runlogs`` hold what was asked for."""

    path: Path
    decisions: tuple[Path, ...]
    runlogs: tuple[Path, ...]
    manifest: Path | None
    verdicts: Path | None


def find_folders(paths: Sequence[Path], problems: list[Problem]) -> tuple[Folder, ...]:
    """The ledgers that ``paths`` (run folders, decisions.jsonl or runlog.jsonl files) name, by folder.

    A file brings the manifest.yaml and verdicts.json beside it, but no other ledger.
    Raises ``UnusablePath`` or ``EmptyLog``.
    """
    found: dict[Path, tuple[list[Path], list[Path]]] = {}
    taken: set[Path] = set()
    for path in paths:
        for ledger, is_decisions in _ledgers_at(path):
            if ledger.resolve() in taken:
                problems.append(Problem(str(ledger), None, "given twice: read once"))
                continue
            taken.add(ledger.resolve())
            decisions, runlogs = found.setdefault(ledger.parent.resolve(), ([], []))
            (decisions if is_decisions else runlogs).append(ledger)
    return tuple(
        Folder(
            (decisions + runlogs)[0].parent,
            tuple(decisions),
            tuple(runlogs),
            _if_file(folder / MANIFEST),
            _if_file(folder / VERDICTS),
        )
        for folder, (decisions, runlogs) in found.items()
    )


def _if_file(path: Path) -> Path | None:
    return path if path.is_file() else None


def _ledgers_at(path: Path) -> list[tuple[Path, bool]]:
    """(ledger, is it a decision log) for each ledger that the path names."""
    if path.is_dir():
        inside = [(path / name, name == DECISIONS) for name in (DECISIONS, RUNLOG)]
        found = [(ledger, is_decisions) for ledger, is_decisions in inside if ledger.is_file()]
        if not found:
            raise UnusablePath(
                f"{path} holds neither {DECISIONS} nor {RUNLOG}: give a run folder, or one of these files"
            )
        return found
    if not path.exists():
        raise UnusablePath(f"{path} does not exist: give a run folder, a {DECISIONS} or a {RUNLOG}")
    if path.name == RESUMED:
        raise UnusablePath(
            f"{path} holds resumed attempts, which are no runs of their own: give its folder, {path.parent}"
        )
    return [(path, _is_decision_log(path))]


def _is_decision_log(path: Path) -> bool:
    if path.name in (DECISIONS, RUNLOG):
        return path.name == DECISIONS
    with _opened(path) as file:
        head = file.read(_SNIFF_BYTES)
    if not head.strip():
        raise EmptyLog(f"{path} is empty: there is nothing to score in it")
    for line in head.splitlines():
        data = _object(line)
        if data is not None and "event" in data:
            return True
        if data is not None and "task_id" in data and "ended" in data:
            return False
    raise UnusablePath(f"{path} is neither a {DECISIONS} nor a {RUNLOG}: give its run folder or one of these")


def read_decisions(path: Path, problems: list[Problem]) -> Iterator[AnyRecord | Damaged]:
    """The records of one decision log in file order; ``Damaged`` for one that cannot be read.

    Raises ``StartMismatch`` at once, ``EmptyLog`` or ``NoStart`` after the last record, ``UnusablePath``.
    """
    decode = msgspec.json.Decoder(AnyRecord).decode
    starts: dict[str, Start] = {}
    seen = False
    with _opened(path) as file:
        for number, line in enumerate(file, 1):
            try:
                record: AnyRecord | Damaged = decode(line)
            except (msgspec.DecodeError, RecursionError) as error:
                damaged = _not_a_record(path, number, line, error, problems)
                if damaged is None:
                    continue
                record = damaged
            if type(record) is Start:
                _check_start(path, number, record, starts)
            seen = True
            yield record
    if not seen:
        raise EmptyLog(f"{path} has no record: nothing was served with this log, or it is another file")
    if not starts:
        raise NoStart(
            f"{path} has records but no start, so it is no run: its first lines are lost; "
            "give the whole log, or run again"
        )


def _opened(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as error:
        raise UnusablePath(f"cannot read {path}: {error.strerror}") from error


def _check_start(path: Path, number: int, start: Start, starts: dict[str, Start]) -> None:
    first = starts.setdefault(start.run_id, start)
    for field in ("seed", "profile_sha256", "task_id"):
        was, now = getattr(first, field), getattr(start, field)
        if was != now:
            raise StartMismatch(
                f"{path}:{number}: run {start.run_id} was started with {field} {was}, and here again with "
                f"{now}: two different runs share one log and one id; give the second its own run_id or --log"
            )


def _object(line: bytes) -> dict[str, Any] | None:
    """The JSON object that the line holds; null when it holds anything else."""
    try:
        data = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    return data if isinstance(data, dict) else None


def _not_a_record(
    path: Path, number: int, line: bytes, error: Exception, problems: list[Problem]
) -> Damaged | None:
    data = _object(line)
    event = data.get("event") if data is not None else None
    if data is None or not isinstance(event, str):
        _report_foreign(path, number, line, "record", problems)
        return None
    if event not in _EVENTS:
        problems.append(
            Problem(str(path), number, f"unknown event {event!r} (a newer version?): not counted")
        )
        return None
    run_id = data.get("run_id")
    problems.append(Problem(str(path), number, f"damaged {event} record: {error}"))
    return Damaged(run_id, event, number) if isinstance(run_id, str) else None


def _report_foreign(path: Path, number: int, line: bytes, what: str, problems: list[Problem]) -> None:
    if not line.strip():
        return
    if not line.endswith(b"\n") and _object(line) is None:
        said = f"torn last line ({len(line)} bytes): its writer was stopped in the middle of it; not counted"
    elif _object(line) is None:
        said = f"not a JSON object: a foreign line, or a torn one that was written on; no {what} was read"
    else:
        said = f"foreign line: a JSON object, but no {what}; not counted"
    problems.append(Problem(str(path), number, said))


def read_runlogs(paths: Iterable[Path], problems: list[Problem]) -> Iterator[tuple[Path, RunLine]]:
    """The first attempts of runlog.jsonl files, each with its file; memory grows with the runs' ids alone.

    A line written twice counts once. Lines without a run_id are told apart by nothing and all count.
    Raises ``BadRunLine``, ``RunIdClash``, ``UnusablePath``.
    """
    by_id: dict[str, tuple[Path, int, RunLine]] = {}
    cells: set[tuple[str, int, int]] = set()
    for path in paths:
        for number, line in _run_lines(path, problems):
            if line.attempt > 1:
                what = f"attempt {line.attempt} of {line.run_id}: a resumed attempt is no run; not counted"
                problems.append(Problem(str(path), number, what))
                continue
            if line.run_id is not None:
                known = by_id.setdefault(line.run_id, (path, number, line))
                if known[:2] != (path, number):
                    _same_or_clash(path, number, line, known, problems)
                    continue
            cell = (line.task_id, line.seed, line.repeat)
            if cell in cells:
                what = f"a second run of task {cell[0]}, seed {cell[1]}, repeat {cell[2]}: both count"
                problems.append(Problem(str(path), number, what))
            cells.add(cell)
            yield path, line


def _run_lines(path: Path, problems: list[Problem]) -> Iterator[tuple[int, RunLine]]:
    decode = msgspec.json.Decoder(RunLine).decode
    with _opened(path) as file:
        for number, line in enumerate(file, 1):
            try:
                yield number, decode(line)
            except (msgspec.DecodeError, RecursionError) as error:
                data = _object(line)
                if data is None or "task_id" not in data:
                    _report_foreign(path, number, line, "run", problems)
                    continue
                raise BadRunLine(
                    f"{path}:{number}: {error}. Correct the line: leaving it out would take the run out of n"
                ) from error


def _same_or_clash(
    path: Path, number: int, line: RunLine, known: tuple[Path, int, RunLine], problems: list[Problem]
) -> None:
    where = f"{known[0]}:{known[1]}"
    if known[2] != line:
        raise RunIdClash(
            f"{path}:{number}: run_id {line.run_id} already stands at {where} with other contents: two runs "
            "cannot share an id; give one of them another, or score the folders apart"
        )
    problems.append(
        Problem(str(path), number, f"run {line.run_id} again, the same as at {where}: counted once")
    )


def read_verdicts(path: Path) -> dict[str, Verdict]:
    """``{run_id: true|false}`` or ``{run_id: {"passed": …, "ended": …}}``. Raises ``BadVerdicts``."""
    try:
        data = orjson.loads(path.read_bytes())
    except OSError as error:
        raise BadVerdicts(f"cannot read {path}: {error.strerror}") from error
    except orjson.JSONDecodeError as error:
        raise BadVerdicts(f"{path} is not JSON: {error}") from error
    if not isinstance(data, dict):
        raise BadVerdicts(f"{path}: verdicts are an object with run ids as its keys")
    return {run_id: _verdict(path, run_id, said) for run_id, said in data.items()}


def _verdict(path: Path, run_id: str, said: object) -> Verdict:
    if isinstance(said, bool):
        return Verdict(said)
    if isinstance(said, dict):
        unknown = sorted(set(said) - {"passed", "ended"})
        if not unknown:
            try:
                return msgspec.convert(said, Verdict)
            except msgspec.ValidationError as error:
                raise BadVerdicts(f"{path}: run {run_id}: {error}") from error
        raise BadVerdicts(f"{path}: run {run_id}: unknown key {unknown[0]!r}: the keys are passed and ended")
    raise BadVerdicts(f'{path}: run {run_id}: give true, false or {{"passed": …, "ended": …}}, not {said!r}')


def read_threshold(path: Path) -> float | None:
    """The threshold that a manifest.yaml states, or null. Raises ``BadManifest``."""
    try:
        data = YAML(typ="safe", pure=True).load(path)
    except OSError as error:
        raise BadManifest(f"cannot read {path}: {error.strerror}") from error
    except (YAMLError, UnicodeDecodeError) as error:
        raise BadManifest(f"{path} is not YAML: {error}") from error
    said = data.get("threshold") if isinstance(data, dict) else None
    if said is None:
        return None
    if isinstance(said, bool) or not isinstance(said, int | float) or not 0 <= said <= 1:
        raise BadManifest(f"{path}: threshold is {said!r}: give a share between 0 and 1, such as 0.10")
    return float(said)
