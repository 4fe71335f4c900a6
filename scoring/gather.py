"""Reads run folders: every first attempt with what the logs say of it, the resumed attempts, the journals."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ledger.problems import EmptyLog, NoStart, Problem
from ledger.reading import Lined, read_decisions, read_resumed, read_runlogs
from ledger.reading_folder import Folder, find_folders
from ledger.reading_journal import CallRow, JournalRow, read_journal, read_journaled_calls
from ledger.reading_stated import Manifest, Verdict, read_manifest, read_verdicts
from ledger.records import Start
from scoring.fold import Fold, Folded
from scoring.runs import Run, join_runs
from scoring.traces import can_fire

OFF = "off"


class Journaled(NamedTuple):
    """A row of a journal and the file that it stands in."""

    path: Path
    row: JournalRow


class Gathered(NamedTuple):
    """Everything that was read. ``runs`` in the order of (task, seed, repeat, run_id)."""

    folders: tuple[Folder, ...]
    manifests: dict[Path, Manifest]
    runs: tuple[Run, ...]
    resumed: tuple[Lined, ...]
    journal: tuple[Journaled, ...]
    calls: tuple[CallRow, ...]
    folded: Folded
    problems: tuple[Problem, ...]

    @property
    def by_task(self) -> list[list[Run]]:
        """The runs, grouped by task in the order of task ids."""
        return [list(group) for _, group in itertools.groupby(self.runs, key=lambda run: run.task_id)]

    @property
    def sources(self) -> tuple[str, ...]:
        """The ledgers that were read."""
        return tuple(str(ledger) for folder in self.folders for ledger in folder.ledgers)


def gather(paths: Sequence[Path], verdicts: Path | None = None) -> Gathered:
    """Reads run folders and single ledgers together. Raises ``ReadingError``.

    ``verdicts``: a file that goes before the verdicts.json of the folders.
    """
    problems: list[Problem] = []
    folders = find_folders(paths, problems)
    return gather_folders(folders, verdicts, problems)


def gather_folders(folders: tuple[Folder, ...], verdicts: Path | None, problems: list[Problem]) -> Gathered:
    """As ``gather``, for folders that have been found."""
    manifests = {f.manifest: read_manifest(f.manifest) for f in folders if f.manifest is not None}
    said = _verdicts(folders, verdicts)
    journals = [path for f in folders for path in f.journals]
    journal = tuple(Journaled(path, row) for path in journals for row in read_journal(path))
    calls = tuple(call for path in journals for call in read_journaled_calls(path))
    resumed = tuple(read_resumed([path for f in folders for path in f.resumed], problems))
    with Fold(replayed_until(entry.row for entry in journal)) as fold:
        for folder in folders:
            for log in folder.decisions:
                fold.add_log(log, problems, lone=not folder.runlogs, memory=folder.memory)
        folded = fold.finish()
    _note_unread(folders, problems)
    runs = join_runs(folders, folded, said, problems)
    return Gathered(folders, manifests, runs, resumed, journal, calls, folded, tuple(problems))


def replayed_until(rows: Iterable[JournalRow]) -> dict[tuple[str, int], str]:
    """(run, attempt) → when a resumed attempt reached the last checkpoint that an earlier one had reached."""
    before: dict[str, dict[str, int]] = {}
    until: dict[tuple[str, int], str] = {}
    for row in sorted(rows, key=lambda row: row.attempt):
        owner = owner_of(row)
        first = before.setdefault(owner, {}).setdefault(row.checkpoint, row.attempt)
        if row.ts is not None and first < row.attempt:
            key = (owner, row.attempt)
            until[key] = max(until.get(key, ""), row.ts)
    return until


def owner_of(row: JournalRow) -> str:
    """Whose row it is: its run, or in journals from elsewhere its task."""
    return row.run_id if row.run_id is not None else str(row.task_id)


def _verdicts(folders: Sequence[Folder], given: Path | None) -> dict[str, Verdict]:
    said: dict[str, Verdict] = {}
    for folder in folders:
        if folder.verdicts is not None:
            said |= read_verdicts(folder.verdicts)
    return said | (read_verdicts(given) if given is not None else {})


def _note_unread(folders: Sequence[Folder], problems: list[Problem]) -> None:
    for folder in folders:
        beside = folder.path / "decisions.jsonl"
        if folder.runlogs and not folder.decisions and beside.is_file():
            what = "not given, so exposure and invalid runs are unknown: score the folder to have them"
            problems.append(Problem(str(beside), None, what))


def split_baseline(folders: Sequence[Folder]) -> tuple[tuple[Folder, ...], tuple[Folder, ...]]:
    """(folders with faults, folders under ``off``); the second is empty unless there are both."""
    off = [_is_faultless(folder) for folder in folders]
    if all(off) or not any(off):
        return tuple(folders), ()
    treated = tuple(folder for folder, is_off in zip(folders, off, strict=True) if not is_off)
    return treated, tuple(folder for folder, is_off in zip(folders, off, strict=True) if is_off)


def _is_faultless(folder: Folder) -> bool:
    """By the first start record, else the first run line, else the manifest."""
    for log in folder.decisions:
        with contextlib.suppress(EmptyLog, NoStart):
            for record in read_decisions(log, []):
                if isinstance(record, Start):
                    return not can_fire(record.profile)
    for found in read_runlogs(folder.runlogs, []):
        return found.line.profile == OFF
    return folder.manifest is not None and read_manifest(folder.manifest).profile == OFF


def thresholds(manifests: Mapping[Path, Manifest]) -> dict[str, float]:
    """The thresholds that manifests state, by their path."""
    return {str(path): m.threshold for path, m in manifests.items() if m.threshold is not None}
