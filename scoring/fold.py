"""Folds decision logs into counts: what each run did in its first attempt, and what became of its faults.

Counts are kept per run; calls and deliveries go through a ``Spill``, so that a call that was logged twice
counts once and memory does not grow with the number of calls.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ledger.reading import Damaged, EmptyLog, NoStart, Problem, RunIdClash, read_decisions
from ledger.records import AnyRecord, Decision, Delivery, End, Error, Quota, Request, Start
from scoring.histogram import Histogram
from scoring.spill import BUCKETS, Spill

type Ints = NDArray[np.int64]

SUPERSEDED = "superseded"
_LATENCY_CAP_US = 1e12
_TOOL_SETS_KEPT = 32
_ERRORS_KEPT = 3
# Requests that only ask how many tokens a prompt has: nobody answers them as an agent, and they cost none.
_COUNTING_PATHS = ("/count_tokens", ":countTokens")


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


@dataclass(slots=True)
class RunTrace:
    """What the log says of one run. Everything but ``attempt`` concerns its first attempt alone."""

    index: int
    run_id: str
    source: str
    task_id: str | None = None
    seed: int | None = None
    repeat: int | None = None
    started: bool = False
    attempt: int = 1
    can_fire: bool = False
    agent_requests: int = 0
    has_calls: bool = False
    errors: dict[str, int] = field(default_factory=dict)
    quota: bool = False
    ended: str | None = None
    passed: bool | None = None
    tokens: int = 0
    usage_missing: bool = False
    first_request: str | None = None
    last_request: str | None = None


class Origin(NamedTuple):
    """What served a run: harness, its version, whether no capability file covers it, profile, our version."""

    harness: str | None
    harness_version: str | None
    untested: bool
    profile: str
    profile_sha256: str
    version: str


class Folded(NamedTuple):
    """The counts of all logs. Arrays have one entry per run, at ``RunTrace.index``."""

    runs: dict[str, RunTrace]
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
    origins: tuple[Origin, ...]
    tool_sets: tuple[str, ...]


class Fold:
    """Takes decision logs one by one; ``finish`` gives the counts. Use as a context manager."""

    def __init__(self) -> None:
        self.runs: dict[str, RunTrace] = {}
        # delivery: key of the payload's delivery, or 0; cell: 0 when not fired; skip: 0 when applied.
        self._calls = Spill(key="q", delivery="q", latency_us="d", run="i", cell="i", skip="i")
        self._deliveries = Spill(key="q")
        self._cells: dict[Cell | None, int] = {None: 0}
        self._skips: dict[str | None, int] = {None: 0}
        self._origins: dict[Origin, None] = {}
        self._tool_sets: dict[str, None] = {}

    def __enter__(self) -> Fold:
        return self

    def __exit__(self, *_: object) -> None:
        self._calls.__exit__(None, None, None)
        self._deliveries.__exit__(None, None, None)

    def add_log(self, path: Path, problems: list[Problem], *, lone: bool) -> None:
        """Takes in one log. ``lone``: nothing else says what the runs were, so an empty log is an error.

        Raises what ``read_decisions`` raises, and ``RunIdClash``.
        """
        here: dict[str, RunTrace] = {}
        try:
            for record in read_decisions(path, problems):
                run = here.get(record.run_id)
                if run is None:
                    run = here[record.run_id] = self._new_run(record.run_id, path)
                # By far the most records are decisions: they take the short way.
                if type(record) is Decision:
                    if run.attempt == 1:
                        self._decision(run, record)
                else:
                    self._add(run, record)
        except (EmptyLog, NoStart) as error:
            if lone:
                raise
            problems.append(Problem(str(path), None, str(error)))

    def _new_run(self, run_id: str, path: Path) -> RunTrace:
        known = self.runs.get(run_id)
        if known is not None:
            raise RunIdClash(
                f"{path} and {known.source} both hold a run {run_id}: two runs cannot share an id; score the "
                "logs apart, or give each run its own id"
            )
        run = self.runs[run_id] = RunTrace(len(self.runs), run_id, str(path))
        return run

    def _add(self, run: RunTrace, record: AnyRecord | Damaged) -> None:
        kind = type(record)
        if kind is Start:
            self._start(run, record)  # type: ignore[arg-type]
        if run.attempt != 1:
            return
        if kind is Delivery:
            self._delivery(run, record)  # type: ignore[arg-type]
        elif kind is Request:
            self._request(run, record)  # type: ignore[arg-type]
        elif kind in (Error, Damaged, Quota, End):
            _note(run, record)

    def _start(self, run: RunTrace, start: Start) -> None:
        run.attempt = start.attempt
        run.task_id, run.seed, run.repeat = start.task_id, start.seed, start.repeat
        run.started = run.started or start.attempt == 1
        run.can_fire = run.can_fire or can_fire(start.profile)
        origin = Origin(
            start.harness,
            start.harness_version,
            start.untested,
            str(start.profile.get("name", "")),
            start.profile_sha256,
            start.version,
        )
        self._origins[origin] = None

    def _decision(self, run: RunTrace, call: Decision) -> None:
        run.has_calls = True
        place = hash((run.index, call.conversation, call.call_id))
        delivery = cell = skip = 0
        if call.fired:
            what = Cell(call.kind, call.family, call.timing, call.mode, call.persistence)
            cell = self._cells.setdefault(what, len(self._cells))
        if call.payload_sha256 is not None:
            delivery = hash((place, call.call_digest, call.nth, call.payload_sha256)) or 1
        if call.skipped is not None:
            skip = self._skips.setdefault(call.skipped, len(self._skips))
        key = hash((place, call.call_digest, call.nth))
        self._calls.append(place % BUCKETS, key, delivery, call.latency_us, run.index, cell, skip)

    def _delivery(self, run: RunTrace, delivery: Delivery) -> None:
        if delivery.upstream_status >= 400:
            return
        place = hash((run.index, delivery.conversation, delivery.call_id))
        key = hash((place, delivery.call_digest, delivery.nth, delivery.payload_sha256)) or 1
        self._deliveries.append(place % BUCKETS, key)

    def _request(self, run: RunTrace, request: Request) -> None:
        if request.protocol is None or request.path.endswith(_COUNTING_PATHS):
            return
        used = (
            request.input_tokens,
            request.cache_read_tokens,
            request.cache_write_tokens,
            request.output_tokens,
        )
        run.tokens += sum(count for count in used if count is not None)
        if request.tools_digest is None:
            return
        run.agent_requests += 1
        run.first_request = run.first_request or request.ts
        run.last_request = request.ts
        if len(self._tool_sets) < _TOOL_SETS_KEPT:
            self._tool_sets[request.tools_digest] = None
        answered = request.status is not None and 200 <= request.status < 300
        if answered and request.output_tokens is None:
            run.usage_missing = True

    def finish(self) -> Folded:
        """Counts every call once. The fold takes nothing more after this."""
        sums = _Sums(self._cells, self._skips, len(self.runs))
        for calls, deliveries in zip(self._calls.read(), self._deliveries.read(), strict=True):
            if len(calls):
                sums.add(calls, deliveries["key"])
        return Folded(
            runs=self.runs,
            decided=sums.decided,
            delivered=sums.delivered,
            undelivered=sums.undelivered,
            conflicting=sums.conflicting,
            calls=sums.calls,
            slowed=sums.slowed,
            cells=sums.cell_counts(),
            skipped=sums.skip_counts(),
            dereferenced=sums.dereferenced,
            superseded=sums.superseded,
            latency_ns=sums.latency,
            origins=tuple(sorted(self._origins, key=repr)),
            tool_sets=tuple(sorted(self._tool_sets)),
        )


def _note(run: RunTrace, record: AnyRecord | Damaged) -> None:
    if isinstance(record, Error):
        _note_error(run, f"{record.where}: {record.reason}")
    elif isinstance(record, Damaged):
        _note_error(run, f"damaged {record.event} record on line {record.line}")
    elif isinstance(record, Quota):
        run.quota = True
    elif isinstance(record, End):
        run.ended = record.ended if record.ended is not None else run.ended
        run.passed = record.passed if record.passed is not None else run.passed


def _note_error(run: RunTrace, reason: str) -> None:
    # The first few say what is wrong; a run with a million errors must not hold a million texts.
    if reason in run.errors or len(run.errors) < _ERRORS_KEPT:
        run.errors[reason] = run.errors.get(reason, 0) + 1


def can_fire(profile: Mapping[str, Any]) -> bool:
    """Whether a resolved profile can fire anything: some rate above 0, or a forced fault."""
    if profile.get("max_faults") == 0:
        return False
    rates = [profile.get("rate"), *(profile.get("rates") or {}).values()]
    return bool(profile.get("force")) or any(isinstance(r, int | float) and r > 0 for r in rates)


class _Sums:
    """Adds up the buckets of a fold, vectorised."""

    def __init__(self, cells: dict[Cell | None, int], skips: dict[str | None, int], runs: int) -> None:
        self._cells = [cell for cell in cells if cell is not None]
        self._skips = [skip for skip in skips if skip is not None]
        self._runs = runs
        self._is_slow = np.array([False] + [cell.kind == "slow" for cell in self._cells])
        self._superseded_at = skips.get(SUPERSEDED, -1)
        self._dereferenced_at = skips.get("dereferenced", -1)
        self._by_cell = np.zeros((3, len(cells)), dtype=np.int64)
        self._by_skip = np.zeros(len(skips), dtype=np.int64)
        self.decided, self.delivered, self.undelivered, self.conflicting = np.zeros((4, runs), dtype=np.int64)
        self.calls = self.slowed = self.dereferenced = self.superseded = 0
        self.latency = Histogram()

    def add(self, records: NDArray[Any], deliveries: Ints) -> None:
        """``records``: one bucket's decision records; ``deliveries``: its delivery keys."""
        calls, superseded, conflicting = _once_each(records, self._superseded_at)
        cell, skip, run = calls["cell"], calls["skip"], calls["run"]
        slow = self._is_slow[cell]
        fired = (cell > 0) & ~slow
        applied = fired & (skip == 0)
        has_payload = calls["delivery"] != 0
        delivered = applied & has_payload & np.isin(calls["delivery"], deliveries)
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
        latency_ns = np.clip(calls["latency_us"][~slow], 0, _LATENCY_CAP_US) * 1000
        self.latency.add(np.rint(latency_ns).astype(np.int64))

    def cell_counts(self) -> dict[Cell, CellCounts]:
        counts = self._by_cell.T[1:].tolist()
        found = {cell: CellCounts(*row) for cell, row in zip(self._cells, counts, strict=True)}
        return {cell: found[cell] for cell in sorted(found, key=repr) if cell.kind != "slow"}

    def skip_counts(self) -> dict[str, int]:
        found = dict(zip(self._skips, self._by_skip.tolist()[1:], strict=True))
        return {skip: found[skip] for skip in sorted(found) if found[skip]}


def _once_each(
    records: NDArray[Any], superseded_at: int
) -> tuple[NDArray[Any], NDArray[np.bool_], NDArray[np.bool_]]:
    """One row per call out of one or more records of it: (calls, superseded, conflicting), row by row.

    The last record that is not ``superseded`` says what was done; if there is none, the last one.
    Conflicting: two records of one call name different payloads.
    """
    given_up = records["skip"] == superseded_at
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
