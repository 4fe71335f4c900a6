"""One number of two arms set against each other, task by task."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, NamedTuple

import msgspec
import numpy as np

from scoring.intervals import Floats, Interval, cluster_bootstrap
from scoring.paired import detectable, most_that_can_differ, paired_t, sign_flip
from scoring.runs import Run

type Cell = tuple[str, int]
Amount = Callable[[Run], float | None]
Rank = Literal["primary", "secondary", "exploratory"]


class Contrast(msgspec.Struct, frozen=True, kw_only=True):
    """The mean over tasks of (B − A), each task's value being the mean over its seeds.

    ``interval`` is the paired t interval, ``p`` the two-sided sign-flip p (``p_exact``: over all patterns),
    ``p_holm`` corrected over the secondary contrasts, ``bootstrap`` the cluster bootstrap; ``effect_size``
    the mean difference in standard deviations of the differences; ``smallest_detectable`` what this design
    finds with 80 % power. ``note`` says why a field is null. ``pairs``: (task, seed) pairs that have a value.
    """

    name: str
    rank: Rank
    a: float | None
    b: float | None
    difference: float | None
    tasks: int
    pairs: int
    interval: Interval | None = None
    p: float | None = None
    p_exact: bool = False
    p_holm: float | None = None
    bootstrap: Interval | None = None
    effect_size: float | None = None
    smallest_detectable: float | None = None
    note: str = ""


class TaskDifference(msgspec.Struct, frozen=True, kw_only=True):
    """One task: the mean over its paired seeds in A and in B, and B − A."""

    task_id: str
    seeds: int
    a: float
    b: float
    difference: float


class Pairs(NamedTuple):
    """The runs of two arms by (task, seed); ``only_a`` and ``only_b`` are runs that have no partner."""

    both: dict[Cell, tuple[list[Run], list[Run]]]
    only_a: int
    only_b: int


def pair(a: Iterable[Run], b: Iterable[Run]) -> Pairs:
    """Pairs by (task, seed); repeats of a seed stay together."""
    by_cell: dict[Cell, tuple[list[Run], list[Run]]] = defaultdict(lambda: ([], []))
    for side, runs in enumerate((a, b)):
        for run in runs:
            by_cell[run.task_id, run.seed][side].append(run)
    both = {cell: by_cell[cell] for cell in sorted(by_cell) if all(by_cell[cell])}
    only = [sum(len(sides[s]) for sides in by_cell.values() if not all(sides)) for s in (0, 1)]
    return Pairs(both, *only)


def task_differences(pairs: Pairs, amount: Amount) -> tuple[TaskDifference, ...]:
    """Per task the means over its seeds; a (task, seed) without a value on one side is left out on both."""
    by_task: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for (task, _), (a, b) in pairs.both.items():
        means = (_mean(a, amount), _mean(b, amount))
        if means[0] is not None and means[1] is not None:
            by_task[task].append((means[0], means[1]))
    return tuple(_difference(task, values) for task, values in by_task.items())


def _difference(task: str, values: Sequence[tuple[float, float]]) -> TaskDifference:
    a, b = (math.fsum(pair[side] for pair in values) / len(values) for side in (0, 1))
    return TaskDifference(task_id=task, seeds=len(values), a=a, b=b, difference=b - a)


def _mean(runs: Sequence[Run], amount: Amount) -> float | None:
    values = [value for run in runs if (value := amount(run)) is not None]
    return math.fsum(values) / len(values) if values else None


def contrast(name: str, rank: Rank, rows: Sequence[TaskDifference], *, share: bool) -> Contrast:
    """The contrast of per-task values; ``share``: they are shares, so there is a bound when none differs."""
    pairs = sum(row.seeds for row in rows)
    if not rows:
        return Contrast(
            name=name, rank=rank, a=None, b=None, difference=None, tasks=0, pairs=0, note="nothing to compare"
        )
    differences = np.array([row.difference for row in rows])
    found = paired_t(differences)
    flipped = sign_flip(differences)
    found_sd = found.sd if found.sd else None
    return Contrast(
        name=name,
        rank=rank,
        a=math.fsum(row.a for row in rows) / len(rows),
        b=math.fsum(row.b for row in rows) / len(rows),
        difference=found.mean,
        tasks=len(rows),
        pairs=pairs,
        interval=found.interval,
        p=flipped.p,
        p_exact=flipped.exact,
        bootstrap=_bootstrap(differences),
        effect_size=found.mean / found_sd if found_sd else None,
        smallest_detectable=detectable(found_sd, len(rows)) if found_sd else None,
        note=_note(differences, found.sd, share=share),
    )


def _bootstrap(differences: Floats) -> Interval | None:
    if len(differences) < 2:
        return None
    columns = np.column_stack([differences, np.ones(len(differences))])
    return cluster_bootstrap(columns, {"mean": lambda sums: sums[:, 0] / sums[:, 1]})["mean"].interval


def _note(differences: Floats, sd: float | None, *, share: bool) -> str:
    if sd is None:
        return "one task says nothing about others: no interval"
    if sd > 0:
        return ""
    if share and not differences.any():
        most = most_that_can_differ(len(differences))
        return (
            "no task differed, so there is no spread to make an interval of; at most "
            f"{most:.3f} of the tasks can differ (95%), so the difference lies within ±{most:.3f}"
        )
    return "every task differed by the same amount, so there is no spread to make an interval of"
