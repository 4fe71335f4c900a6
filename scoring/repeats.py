"""How often each cell was repeated, and whether repeats agree."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import msgspec

from scoring.runs import Run

# Fewer repeats of a cell than this are a look at whether things work, not a measurement.
ENOUGH = 5
_FEW_RUNS = 10


class Repeats(msgspec.Struct, frozen=True, kw_only=True):
    """Cells are (task, seed). ``fewest`` repeats of one, null without runs; ``disagreeing``: cells with more
    than one repeat whose repeats did not all come out the same; ``smoke``: too few runs or tasks to say
    anything (fewer than ten runs, or than two tasks)."""

    cells: int
    fewest: int | None
    most: int | None
    repeated: int
    disagreeing: int
    sanity_check: bool
    smoke: bool


def repeats_of(runs: Sequence[Run]) -> Repeats:
    """Counts the repeats of every cell."""
    cells: dict[tuple[str, int], list[tuple[bool, str | None]]] = defaultdict(list)
    for run in runs:
        cells[run.task_id, run.seed].append((run.is_pass, run.ended))
    sizes = [len(outcomes) for outcomes in cells.values()]
    return Repeats(
        cells=len(cells),
        fewest=min(sizes, default=None),
        most=max(sizes, default=None),
        repeated=sum(size > 1 for size in sizes),
        disagreeing=sum(len(set(outcomes)) > 1 for outcomes in cells.values()),
        sanity_check=min(sizes, default=0) < ENOUGH,
        smoke=len(runs) < _FEW_RUNS or len({task for task, _ in cells}) < 2,
    )
