"""Which ledgers a path names: those of a run folder, or a single file with the papers that lie beside it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from ledger.problems import EmptyLog, Problem, UnusablePath, json_object, opened

DECISIONS = "decisions.jsonl"
RUNLOG = "runlog.jsonl"
RESUMED = "runlog.resumed.jsonl"
JOURNAL = "journal.db"
MEMORY = "memory.db"
MANIFEST = "manifest.yaml"
VERDICTS = "verdicts.json"

_SNIFF_BYTES = 1 << 16
_SQLITE = b"SQLite format 3\x00"

_Sort = Literal["decisions", "runlog", "resumed", "journal"]
_SORTS: dict[str, _Sort] = {
    DECISIONS: "decisions",
    RUNLOG: "runlog",
    RESUMED: "resumed",
    JOURNAL: "journal",
}


class Folder(NamedTuple):
    """The ledgers to read of one run folder: of each sort those that were asked for.

    ``memory`` is what the proxy remembers of the calls; it is there only beside a decision log.
    """

    path: Path
    decisions: tuple[Path, ...]
    runlogs: tuple[Path, ...]
    resumed: tuple[Path, ...]
    journals: tuple[Path, ...]
    memory: Path | None
    manifest: Path | None
    verdicts: Path | None

    @property
    def ledgers(self) -> tuple[Path, ...]:
        """All that is read for counting."""
        return self.decisions + self.runlogs + self.resumed + self.journals


def find_folders(paths: Sequence[Path], problems: list[Problem]) -> tuple[Folder, ...]:
    """The ledgers that ``paths`` (run folders, or single ledgers of them) name, by folder.

    A file brings the manifest.yaml and verdicts.json beside it, but no other ledger.
    Raises ``UnusablePath`` or ``EmptyLog``.
    """
    found: dict[Path, dict[_Sort, list[Path]]] = {}
    taken: set[Path] = set()
    for path in paths:
        for ledger, sort in _ledgers_at(path):
            if ledger.resolve() in taken:
                problems.append(Problem(str(ledger), None, "given twice: read once"))
                continue
            taken.add(ledger.resolve())
            found.setdefault(ledger.parent.resolve(), {}).setdefault(sort, []).append(ledger)
    return tuple(_folder(place, by_sort) for place, by_sort in found.items())


def _folder(place: Path, by_sort: dict[_Sort, list[Path]]) -> Folder:
    decisions = tuple(by_sort.get("decisions", ()))
    first = next(ledger for ledgers in by_sort.values() for ledger in ledgers)
    return Folder(
        first.parent,
        decisions,
        tuple(by_sort.get("runlog", ())),
        tuple(by_sort.get("resumed", ())),
        tuple(by_sort.get("journal", ())),
        _if_file(place / MEMORY) if decisions else None,
        _if_file(place / MANIFEST),
        _if_file(place / VERDICTS),
    )


def _if_file(path: Path) -> Path | None:
    return path if path.is_file() else None


def _ledgers_at(path: Path) -> list[tuple[Path, _Sort]]:
    if path.is_dir():
        found = [(path / name, sort) for name, sort in _SORTS.items() if (path / name).is_file()]
        if not any(sort != "resumed" for _, sort in found):
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
    return [(path, _SORTS.get(path.name) or _sort_inside(path))]


def _sort_inside(path: Path) -> _Sort:
    with opened(path) as file:
        head = file.read(_SNIFF_BYTES)
    if head.startswith(_SQLITE):
        return "journal"
    if not head.strip():
        raise EmptyLog(f"{path} is empty: there is nothing to score in it")
    for line in head.splitlines():
        data = json_object(line)
        if data is not None and "event" in data:
            return "decisions"
        if data is not None and "task_id" in data and "ended" in data:
            return "runlog"
    raise UnusablePath(f"{path} is neither a {DECISIONS} nor a {RUNLOG}: give its run folder or one of these")
