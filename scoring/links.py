"""Which run a resumed line or a journal row belongs to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from ledger.reading import Lined
from ledger.reading_journal import JournalRow
from scoring.runs import Run


class Links:
    """First attempts by id, by (task, seed, repeat) and by task."""

    def __init__(self, runs: Iterable[Run]) -> None:
        self._by_id: dict[str, Run] = {}
        self._by_cell: dict[tuple[str, int, int], Run] = {}
        self._by_task: dict[str, list[Run]] = defaultdict(list)
        for run in runs:
            if run.run_id is not None:
                self._by_id[run.run_id] = run
            self._by_cell.setdefault(run.cell, run)
            self._by_task[run.task_id].append(run)

    def of_line(self, found: Lined) -> Run | None:
        """By run_id, else by (task, seed, repeat)."""
        line = found.line
        if line.run_id is not None and line.run_id in self._by_id:
            return self._by_id[line.run_id]
        return self._by_cell.get((line.task_id, line.seed, line.repeat))

    def of_row(self, row: JournalRow) -> Run | None:
        """By run_id, else by task where the task has one run only."""
        if row.run_id is not None and row.run_id in self._by_id:
            return self._by_id[row.run_id]
        some = self._by_task.get(row.task_id or "", [])
        return some[0] if len(some) == 1 else None
