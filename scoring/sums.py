"""Adds up calls, bucket by bucket and vectorised, each call once however often it was logged."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scoring.histogram import Histogram

type Ints = NDArray[np.int64]

_SUPERSEDED = "superseded"
_LATENCY_CAP_US = 1e12


class Cell(NamedTuple):
    """What sort of fault: one cell of the exposure grid."""

    kind: str | None
    family: str
    timing: str | None
    mode: str | None
    persistence: str | None


class CellCounts(NamedTuple):
    """``decided`` fired · ``applied`` not skipped · ``delivered`` the model answered with the payload in."""

    decided: int
    applied: int
    delivered: int


class Counted(NamedTuple):
    """The counts of all logs. Arrays have one entry per run; ``exposed``: cell → the runs that met it."""

    decided: Ints
    delivered: Ints
    undelivered: Ints
    conflicting: Ints
    calls: int
    slowed: int
    cells: dict[Cell, CellCounts]
    skipped: dict[str, int]
    dereferenced: int
    superseded: int
    latency_ns: Histogram
    exposed: dict[Cell, Ints]


class Sums:
    """Adds up the buckets of a fold, vectorised."""

    def __init__(self, cells: dict[Cell | None, int], skips: dict[str | None, int], runs: int) -> None:
        self._cells = [cell for cell in cells if cell is not None]
        self._skips = [skip for skip in skips if skip is not None]
        self._runs = runs
        self._is_slow = np.array([False] + [cell.kind == "slow" for cell in self._cells])
        self._superseded_at = skips.get(_SUPERSEDED, -1)
        self._dereferenced_at = skips.get("dereferenced", -1)
        self._by_cell = np.zeros((3, len(cells)), dtype=np.int64)
        self._by_skip = np.zeros(len(skips), dtype=np.int64)
        self.decided, self.delivered, self.undelivered, self.conflicting = np.zeros((4, runs), dtype=np.int64)
        self.calls = self.slowed = self.dereferenced = self.superseded = 0
        self.latency = Histogram()
        self._exposed = np.empty(0, dtype=np.int64)

    def add(self, records: NDArray[Any], deliveries: Ints) -> None:
        """``records``: one bucket's decision records; ``deliveries``: its delivery keys."""
        calls, superseded, conflicting = _once_each(records, self._superseded_at)
        cell, skip, run = calls["cell"], calls["skip"], calls["run"]
        slow = self._is_slow[cell]
        fired = (cell > 0) & ~slow
        applied = fired & (skip == 0)
        has_payload = calls["delivery"] != 0
        delivered = applied & has_payload
        delivered[delivered] = np.isin(calls["delivery"][delivered], deliveries)
        undelivered = applied & has_payload & ~delivered & ~superseded
        self.calls += len(calls)
        self.slowed += int((slow & (skip == 0)).sum())
        self.dereferenced += int((skip == self._dereferenced_at).sum())
        self.superseded += int((superseded & fired).sum())
        for row, mask in enumerate((fired, applied, delivered)):
            self._by_cell[row] += np.bincount(cell[mask], minlength=self._by_cell.shape[1])
        self._by_skip += np.bincount(skip[fired], minlength=len(self._by_skip))
        self.decided += np.bincount(run[fired], minlength=self._runs)
        self.delivered += np.bincount(run[delivered], minlength=self._runs)
        self.undelivered += np.bincount(run[undelivered], minlength=self._runs)
        self.conflicting += np.bincount(run[conflicting], minlength=self._runs)
        met = run[delivered].astype(np.int64) * len(self._is_slow) + cell[delivered]
        self._exposed = np.union1d(self._exposed, met)
        latency_ns = np.clip(calls["latency_us"][~slow], 0, _LATENCY_CAP_US) * 1000
        self.latency.add(np.rint(latency_ns).astype(np.int64))

    def counted(self) -> Counted:
        """The sums of all that was added."""
        return Counted(
            decided=self.decided,
            delivered=self.delivered,
            undelivered=self.undelivered,
            conflicting=self.conflicting,
            calls=self.calls,
            slowed=self.slowed,
            cells=self._cell_counts(),
            skipped=self._skip_counts(),
            dereferenced=self.dereferenced,
            superseded=self.superseded,
            latency_ns=self.latency,
            exposed=self._exposed_runs(),
        )

    def _cell_counts(self) -> dict[Cell, CellCounts]:
        counts = self._by_cell.T[1:].tolist()
        found = {cell: CellCounts(*row) for cell, row in zip(self._cells, counts, strict=True)}
        return {cell: found[cell] for cell in sorted(found, key=repr) if cell.kind != "slow"}

    def _skip_counts(self) -> dict[str, int]:
        found = dict(zip(self._skips, self._by_skip.tolist()[1:], strict=True))
        return {skip: found[skip] for skip in sorted(found) if found[skip]}

    def _exposed_runs(self) -> dict[Cell, Ints]:
        run, cell = np.divmod(self._exposed, len(self._is_slow))
        return {what: run[cell == number] for number, what in enumerate(self._cells, 1)}


def _once_each(
    records: NDArray[Any], superseded_at: int
) -> tuple[NDArray[Any], NDArray[np.bool_], NDArray[np.bool_]]:
    """One row per call out of one or more records of it: (calls, superseded, conflicting), row by row.

    The last record that is not ``superseded`` says what was done; if there is none, the last one.
    Conflicting: two records of one call name different payloads.
    """
    given_up = records["skip"] == superseded_at
    keys = np.sort(records["key"])
    if not (keys[1:] == keys[:-1]).any():
        return records, given_up, np.zeros(len(records), dtype=np.bool_)
    order = np.lexsort((np.arange(len(records)), ~given_up, records["key"]))
    ordered, given_up = records[order], given_up[order]
    last = np.empty(len(records), dtype=np.bool_)
    same = ordered["key"][1:] == ordered["key"][:-1]
    last[-1:], last[:-1] = True, ~same
    group = np.concatenate(([0], np.cumsum(~same)))
    superseded = np.bincount(group, weights=given_up) > 0
    # A record without a payload (an orphan, say) may know less of the fault: only payloads can disagree.
    sent = (ordered["delivery"] != 0) & ~given_up
    differ = same & sent[1:] & sent[:-1] & (ordered["delivery"][1:] != ordered["delivery"][:-1])
    conflicting = np.bincount(group[1:], weights=differ, minlength=len(superseded)) > 0
    return ordered[last], superseded, conflicting
