"""What the faults did: runs under a profile against runs of the same tasks and seeds under ``off``."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

import msgspec
import numpy as np

from scoring.contrast import Amount, Contrast, Pairs, TaskDifference, contrast, pair, task_differences
from scoring.costs import Cost
from scoring.intervals import cluster_t_signed
from scoring.runs import Run


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """A is the runs under ``off``, B those with faults; by intention to treat: exposed or not, all count.

    ``tokens_per_fault`` and ``wall_s_per_fault``: what a delivered fault cost over the same task and seed
    without faults. ``baseline``: the ledgers that A was read from; ``unpaired``: runs (off, with faults)
    without a partner, which do not count here.
    """

    pass_rate: Contrast
    rows: tuple[TaskDifference, ...]
    tokens_per_fault: Cost
    wall_s_per_fault: Cost
    baseline: tuple[str, ...]
    baseline_runs: int
    unpaired: tuple[int, int]


def passes(run: Run) -> float:
    """1 for a strict pass, else 0: cut, failed, invalid and unjudged runs did not pass."""
    return float(run.is_pass)


def effect_of(treated: Sequence[Run], off: Sequence[Run], baseline: Sequence[str]) -> Effect:
    """Pass rate under the profile minus pass rate under ``off``, with what a fault cost."""
    pairs = pair(off, treated)
    rows = task_differences(pairs, passes)
    return Effect(
        pass_rate=contrast("effect of faults on the pass rate", "primary", rows, share=True),
        rows=rows,
        tokens_per_fault=_per_fault(pairs, lambda run: run.tokens_used),
        wall_s_per_fault=_per_fault(pairs, lambda run: run.wall_s),
        baseline=tuple(baseline),
        baseline_runs=len(off),
        unpaired=(pairs.only_a, pairs.only_b),
    )


def _per_fault(pairs: Pairs, amount: Amount) -> Cost:
    """Σ over pairs of (mean with faults − mean under off) / Σ of the mean number of delivered faults.

    Pairs whose amounts are not known on both sides, or whose faults are not, are left out.
    """
    extra: dict[str, list[float]] = defaultdict(list)
    faults: dict[str, list[float]] = defaultdict(list)
    for (task, _), (off, treated) in pairs.both.items():
        spent = [value for run in off if (value := amount(run)) is not None]
        known = [
            (value, run.faults_delivered)
            for run in treated
            if (value := amount(run)) is not None and run.faults_delivered is not None
        ]
        if not spent or not known:
            continue
        extra[task].append(
            math.fsum(value for value, _ in known) / len(known) - math.fsum(spent) / len(spent)
        )
        faults[task].append(sum(count for _, count in known) / len(known))
    amounts = np.array([math.fsum(extra[task]) for task in extra])
    delivered = np.array([math.fsum(faults[task]) for task in extra])
    total, per = math.fsum(amounts.tolist()), math.fsum(delivered.tolist())
    return Cost(
        value=total / per if per else None,
        total=total,
        per=int(per) if per.is_integer() else per,
        runs_known=sum(len(values) for values in extra.values()),
        interval=cluster_t_signed(amounts, delivered) if per else None,
    )
