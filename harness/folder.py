"""A run folder: where everything lies, which runs it is for, and which of them are done."""

from __future__ import annotations

import fcntl
import os
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from harness.adapter import HarnessError
from harness.task import Task
from ledger.attempts import AttemptId, lines_of
from ledger.manifest import Manifest
from ledger.runs import RunLine

_SESSIONS = uuid.UUID("6f4b53b5-43c3-5d0c-9d1a-0e3f5d0a7c11")
_LONGEST_RUN_ID = 128


@dataclass(frozen=True, slots=True)
class Cell:
    """One run that is to be made: its task, seed and repeat. ``session`` is the harness session's id."""

    run_id: str
    task: Task
    seed: int
    repeat: int

    @property
    def session(self) -> str:
        return str(uuid.uuid5(_SESSIONS, self.run_id))


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The files of one set of runs, by the names that users know."""

    path: Path

    @property
    def manifest(self) -> Path:
        return self.path / "manifest.yaml"

    @property
    def decisions(self) -> Path:
        return self.path / "decisions.jsonl"

    @property
    def journal(self) -> Path:
        return self.path / "journal.db"

    def runlog(self, attempt: int) -> Path:
        """First attempts have a log of their own, so that resumes are never folded into them."""
        return self.path / ("runlog.jsonl" if attempt == 1 else "runlog.resumed.jsonl")

    def workspace(self, run_id: str) -> Path:
        return self.path.absolute() / "work" / run_id / "workspace"

    def home(self, run_id: str) -> Path:
        return self.path.absolute() / "work" / run_id / "home"

    def scratch(self, run_id: str) -> Path:
        """Where a copy of the workspace is judged."""
        return self.path.absolute() / "work" / run_id / "judged"

    def lines(self) -> dict[AttemptId, RunLine]:
        """Every line of both run logs, the first of each attempt, in the order of writing."""
        found: dict[AttemptId, RunLine] = {}
        for attempt in (1, 2):
            for line in lines_of(self.runlog(attempt)):
                if line.run_id is not None:
                    found.setdefault(AttemptId(line.run_id, line.attempt), line)
        return found

    def latest(self) -> dict[str, RunLine]:
        """run_id → the line of its last attempt."""
        found: dict[str, RunLine] = {}
        for line in self.lines().values():
            known = found.get(line.run_id or "")
            if known is None or line.attempt > known.attempt:
                found[line.run_id or ""] = line
        return found

    @contextmanager
    def held(self) -> Iterator[None]:
        """Only one command works in a folder at a time. The lock ends with its process, however that ends."""
        self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        fd = os.open(self.path / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise HarnessError(
                    f"another chaosproxy is at work in {self.path}: wait for it, or give another folder"
                ) from None
            yield
        finally:
            os.close(fd)


def cells_of(manifest: Manifest, tasks: Sequence[Task]) -> tuple[Cell, ...]:
    """Every run of a manifest: tasks × seeds × repeats. HarnessError when an id gets too long."""
    cells = [
        Cell(f"{manifest.run_id}.{task.id}.s{seed}.r{repeat}", task, seed, repeat)
        for repeat in range(manifest.faults.repeats)
        for task in tasks
        for seed in manifest.seeds
    ]
    longest = max((cell.run_id for cell in cells), key=len)
    if len(longest) > _LONGEST_RUN_ID:
        raise HarnessError(
            f"the run id {longest} is longer than {_LONGEST_RUN_ID} characters: shorten run_id or the task id"
        )
    return tuple(cells)
