"""Which faults were decided, which reached the model, and what the injector took for it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import msgspec

from scoring.runs import Run
from scoring.sums import Cell, CellCounts, Counted

_NANOSECONDS = 1000


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """Faults of one sort. ``decided`` fired · ``applied`` not skipped · ``delivered`` reached the model."""

    name: str
    decided: int
    applied: int
    delivered: int


class Latency(msgspec.Struct, frozen=True, kw_only=True):
    """The injector's own time per call, ``calls`` of them; quantiles to four digits, ``slow`` left out."""

    calls: int
    p50_us: float
    p99_us: float
    max_us: float


class Exposure(msgspec.Struct, frozen=True, kw_only=True):
    """Faults of the first attempts. ``slow`` faults wait and change nothing: counted in ``slowed`` alone.

    runs: with a decision log · exposed_runs: with at least one delivered fault · calls: tool calls drawn ·
    undelivered: applied, with a payload, never answered by the model (in_flight of them when the run was
    cut) · superseded: the harness's own text won later · dereferenced: pointers at a transient fault undone ·
    skipped: decided faults that were not applied, by reason.
    """

    runs: int
    exposed_runs: int
    calls: int
    decided: int
    applied: int
    delivered: int
    undelivered: int
    in_flight: int
    superseded: int
    dereferenced: int
    slowed: int
    delivered_per_run: float | None
    by_kind: tuple[Row, ...]
    by_family: tuple[Row, ...]
    by_sort: tuple[Row, ...]
    skipped: dict[str, int]


def exposure_of(counted: Counted, runs: Sequence[Run]) -> Exposure | None:
    """The exposure of runs with a decision log; null when there is none."""
    logged = [run for run in runs if run.faults_decided is not None]
    if not logged:
        return None
    total = _row("all", counted.cells.values())
    return Exposure(
        runs=len(logged),
        exposed_runs=sum(bool(run.faults_delivered) for run in logged),
        calls=counted.calls,
        decided=total.decided,
        applied=total.applied,
        delivered=total.delivered,
        undelivered=int(counted.undelivered.sum()),
        in_flight=sum(run.in_flight for run in logged),
        superseded=counted.superseded,
        dereferenced=counted.dereferenced,
        slowed=counted.slowed,
        delivered_per_run=total.delivered / len(logged),
        by_kind=_rows(counted.cells, lambda cell: cell.kind or "unknown"),
        by_family=_rows(counted.cells, lambda cell: cell.family),
        by_sort=_rows(counted.cells, _sort),
        skipped=counted.skipped,
    )


def _sort(cell: Cell) -> str:
    return " · ".join(part or "unknown" for part in (cell.timing, cell.mode, cell.persistence))


def _rows(cells: Mapping[Cell, CellCounts], name: Callable[[Cell], str]) -> tuple[Row, ...]:
    groups: dict[str, list[CellCounts]] = {}
    for cell, counts in cells.items():
        groups.setdefault(name(cell), []).append(counts)
    return tuple(_row(group, groups[group]) for group in sorted(groups))


def _row(name: str, counts: Collection[CellCounts]) -> Row:
    return Row(
        name=name,
        decided=sum(count.decided for count in counts),
        applied=sum(count.applied for count in counts),
        delivered=sum(count.delivered for count in counts),
    )


def latency_of(counted: Counted) -> Latency | None:
    """Quantiles of the injector's latency per call; null when no call was drawn."""
    took = counted.latency_ns
    if took.maximum is None:
        return None
    return Latency(
        calls=len(took),
        p50_us=took.quantile(0.50) / _NANOSECONDS,
        p99_us=took.quantile(0.99) / _NANOSECONDS,
        max_us=took.maximum / _NANOSECONDS,
    )
