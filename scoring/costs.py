"""What the runs cost: tokens and wall time per run and per pass."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from scoring.intervals import Interval, cluster_t
from scoring.runs import Run


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """Σ amount / Σ runs (or passes) over the runs whose amount is known, with a cluster-t interval."""

    value: float | None
    total: float
    per: int | float
    runs_known: int
    interval: Interval | None


class Efficiency(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens are those of every answered request, each once; wall time is in seconds."""

    tokens_per_run: Cost
    tokens_per_pass: Cost
    wall_s_per_run: Cost
    wall_s_per_pass: Cost


def efficiency_of(by_task: Sequence[Sequence[Run]]) -> Efficiency:
    """The four costs of runs grouped by task. Failures count towards the cost of a pass."""
    return Efficiency(
        tokens_per_run=_cost(by_task, lambda run: run.tokens_used, lambda run: True),
        tokens_per_pass=_cost(by_task, lambda run: run.tokens_used, lambda run: run.is_pass),
        wall_s_per_run=_cost(by_task, lambda run: run.wall_s, lambda run: True),
        wall_s_per_pass=_cost(by_task, lambda run: run.wall_s, lambda run: run.is_pass),
    )


def _cost(
    by_task: Sequence[Sequence[Run]],
    amount: Callable[[Run], float | None],
    counts: Callable[[Run], bool],
) -> Cost:
    known = [[(spent, counts(run)) for run in runs if (spent := amount(run)) is not None] for runs in by_task]
    # fsum, so that the order of the runs changes no digit.
    spent_by_task = np.array([math.fsum(spent for spent, _ in runs) for runs in known])
    per_by_task = np.array([float(sum(counted for _, counted in runs)) for runs in known])
    total, per = math.fsum(spent_by_task.tolist()), int(per_by_task.sum())
    return Cost(
        value=total / per if per else None,
        total=total,
        per=per,
        runs_known=sum(map(len, known)),
        interval=cluster_t(spent_by_task, per_by_task) if per else None,
    )
