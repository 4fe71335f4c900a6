"""Folds decision logs into counts: what each run did in its first attempt, and what became of its faults.

Counts are kept per run; calls and deliveries go through a ``Spill``, so that a call that was logged twice
counts once and memory does not grow with the number of calls.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ledger.problems import Damaged, EmptyLog, NoStart, Problem, RunIdClash
from ledger.reading import SlimDecision, read_blocks
from ledger.reading_memory import Arguments
from ledger.records import Delivery, End, Error, Quota, Request, Start
from scoring.reactions import target_of
from scoring.spill import Spill
from scoring.sums import Cell, Counted, Sums
from scoring.traces import RunTrace
from scoring.watch import Followed, Targets, Watch

_TOOL_SETS_KEPT = 32
# Requests that only ask how many tokens a prompt has: nobody answers them as an agent, and they cost none.
_COUNTING_PATHS = ("/count_tokens", ":countTokens")


class Origin(NamedTuple):
    """What served a run: harness, its version, whether no capability file covers it, profile, our version."""

    harness: str | None
    harness_version: str | None
    untested: bool
    profile: str
    profile_sha256: str
    version: str


class Folded(NamedTuple):
    """What all logs say. The arrays of ``counted`` have one entry per run, at ``RunTrace.index``.

    ``cells``: the sorts of faults by the number that reactions have; ``followed``: the first thousand
    delivered faults with what came after them.
    """

    runs: dict[str, RunTrace]
    cells: tuple[Cell | None, ...]
    counted: Counted
    origins: tuple[Origin, ...]
    tool_sets: tuple[str, ...]
    followed: tuple[Followed, ...]


class Fold:
    """Takes decision logs one by one; ``finish`` gives the counts. Use as a context manager.

    ``replayed`` says, for (run_id, attempt), until when (RFC 3339) it did what a journal had already.
    """

    def __init__(self, replayed: Mapping[tuple[str, int], str] | None = None) -> None:
        self.runs: dict[str, RunTrace] = {}
        # delivery: key of the payload's delivery, or 0; cell: 0 when not fired; skip: 0 when applied.
        self._calls = Spill(key="q", delivery="q", latency_us="d", run="i", cell="i", skip="i")
        self._deliveries = Spill(key="q", delivery="q")
        self._cells: dict[Cell | None, int] = {None: 0}
        self._skips: dict[str | None, int] = {None: 0}
        # By (run, attempt): who asks may be known later than that the attempt began.
        self._origins: dict[tuple[int, int], Origin] = {}
        self._same_origins: dict[Origin, Origin] = {}
        self._tool_sets: dict[str, None] = {}
        self._followed: list[Followed] = []
        self._replayed = replayed or {}

    def __enter__(self) -> Fold:
        return self

    def __exit__(self, *_: object) -> None:
        self._calls.__exit__(None, None, None)
        self._deliveries.__exit__(None, None, None)

    def add_log(self, path: Path, problems: list[Problem], *, lone: bool, memory: Path | None = None) -> None:
        """Takes in one log. ``lone``: nothing else says what the runs were, so an empty log is an error.

        ``memory`` is the memory.db beside it, which says what the calls were about.
        Raises what ``read_blocks`` raises, and ``RunIdClash``.
        """
        here: dict[str, RunTrace] = {}
        with Arguments(memory) as arguments:

            def target(run_id: str, conversation: str, call_digest: str) -> str | None:
                return target_of(arguments.of(run_id, conversation, call_digest))

            targets = target if arguments else None
            try:
                for first, records in read_blocks(path, problems):
                    for line, record in enumerate(records, first):
                        run = here.get(record.run_id)
                        if run is None:
                            run = here[record.run_id] = self._new_run(record.run_id, path, targets)
                        # By far the most records are decisions: they take the short way.
                        if type(record) is SlimDecision:
                            if run.attempt == 1:
                                self._decision(run, record, line)
                        else:
                            self._add(run, record, line)
                    self._calls.settle()
                    self._deliveries.settle()
            except (EmptyLog, NoStart) as error:
                if lone:
                    raise
                problems.append(Problem(str(path), None, str(error)))
            for run in here.values():
                run.watch.finish()

    def _new_run(self, run_id: str, path: Path, targets: Targets | None) -> RunTrace:
        known = self.runs.get(run_id)
        if known is not None:
            raise RunIdClash(
                f"{path} and {known.source} both hold a run {run_id}: two runs cannot share an id; score the "
                "logs apart, or give each run its own id"
            )
        watch = Watch(run_id, targets, self._followed)
        run = self.runs[run_id] = RunTrace(len(self.runs), run_id, str(path), watch)
        return run

    def _add(self, run: RunTrace, record: Any, line: int) -> None:
        kind = type(record)
        if kind is Start:
            self._start(run, record, line)
        if run.attempt != 1:
            if kind is Request:
                self._replay(run, record)
            return
        if kind is Delivery:
            self._delivery(run, record)
        elif kind is Request:
            self._request(run, record)
        elif kind in (Error, Damaged, Quota, End):
            run.note(record, line)

    def _start(self, run: RunTrace, start: Start, line: int) -> None:
        run.begin(start, line)
        origin = Origin(
            start.harness,
            start.harness_version,
            start.untested,
            str(start.profile.get("name", "")),
            start.profile_sha256,
            start.version,
        )
        self._origins[run.index, start.attempt] = self._same_origins.setdefault(origin, origin)

    def _decision(self, run: RunTrace, call: SlimDecision, line: int) -> None:
        run.has_calls = True
        key = hash((run.index, call.conversation, call.call_id, call.call_digest, call.nth))
        if run.watch.open:
            run.watch.called(call)
        if not call.fired and call.payload_sha256 is None and call.skipped is None:
            self._calls.rows.append((key, 0, call.latency_us, run.index, 0, 0))
            return
        delivery = cell = skip = 0
        if call.fired:
            cell = self._cell(call)
            if call.kind != "slow":
                run.watch.fired(key, call, line, cell)
        if call.payload_sha256 is not None:
            delivery = hash((key, call.payload_sha256)) or 1
        if call.skipped is not None:
            skip = self._skips.setdefault(call.skipped, len(self._skips))
        self._calls.rows.append((key, delivery, call.latency_us, run.index, cell, skip))

    def _cell(self, call: SlimDecision) -> int:
        what = (call.kind, call.family, call.timing, call.mode, call.persistence)
        # A named tuple equals the plain one, which is quicker to make.
        known = self._cells.get(what)  # type: ignore[call-overload]
        if known is not None:
            return int(known)
        return self._cells.setdefault(Cell(*what), len(self._cells))

    def _delivery(self, run: RunTrace, delivery: Delivery) -> None:
        if delivery.upstream_status >= 400:
            return
        key = hash((run.index, delivery.conversation, delivery.call_id, delivery.call_digest, delivery.nth))
        run.watch.delivered(key, delivery)
        self._deliveries.rows.append((key, hash((key, delivery.payload_sha256)) or 1))

    def _request(self, run: RunTrace, request: Request) -> None:
        if request.protocol is None or request.path.endswith(_COUNTING_PATHS):
            return
        run.tokens += tokens_of(request)
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

    def _replay(self, run: RunTrace, request: Request) -> None:
        """Adds up what a resumed attempt spent until it was where the journal already had been."""
        until = self._replayed.get((run.run_id, run.attempt))
        # RFC 3339 in UTC with microseconds sorts as text.
        if until is not None and request.ts <= until and not request.path.endswith(_COUNTING_PATHS):
            run.replayed_tokens[run.attempt] = run.replayed_tokens.get(run.attempt, 0) + tokens_of(request)

    def finish(self) -> Folded:
        """Counts every call once. The fold takes nothing more after this."""
        sums = Sums(self._cells, self._skips, len(self.runs))
        for calls, deliveries in zip(self._calls.read(), self._deliveries.read(), strict=True):
            if len(calls):
                sums.add(calls, deliveries["delivery"])
        return Folded(
            runs=self.runs,
            cells=tuple(self._cells),
            counted=sums.counted(),
            origins=tuple(sorted(set(self._origins.values()), key=repr)),
            tool_sets=tuple(sorted(self._tool_sets)),
            followed=tuple(self._followed),
        )


def tokens_of(request: Request) -> int:
    """Uncached input + cache read + cache write + output, each once; what is not reported counts as 0."""
    used = (
        request.input_tokens,
        request.cache_read_tokens,
        request.cache_write_tokens,
        request.output_tokens,
    )
    return sum(count for count in used if count is not None)
