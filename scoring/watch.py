"""Follows each delivered fault through the calls after it, one log at a time and in flat memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from ledger.reading import SlimDecision
from ledger.records import Delivery
from scoring.reactions import WINDOW, Reaction, Step, reaction

# Faults of one run that wait for their delivery; more than that never come in one request.
_WAITING = 4096

type _CallKey = tuple[str, str, str, int]
type Targets = Callable[[str, str, str], str | None]


class Followed(NamedTuple):
    """One fault and what came after it; ``line`` is that of its decision in the log."""

    run_id: str
    line: int
    call_id: str
    tool: str
    family: str
    kind: str | None
    timing: str | None
    mode: str | None
    persistence: str | None
    reaction: Reaction


class Sort(NamedTuple):
    """What sort of fault, for the behaviour tables."""

    kind: str | None
    timing: str | None
    mode: str | None
    persistence: str | None


@dataclass(slots=True)
class _Fault:
    line: int
    call: SlimDecision
    seen: list[SlimDecision] = field(default_factory=list)


class Watch:
    """The faults of one run that have not been judged yet; ``reactions`` counts those that have.

    ``keep`` takes in what was judged, for the rows behind the numbers.
    """

    __slots__ = ("_keep", "_open", "_targets", "_waiting", "reactions", "run_id")

    def __init__(self, run_id: str, targets: Targets, keep: Callable[[Followed], None]) -> None:
        self.run_id = run_id
        self.reactions: Counter[tuple[Sort, Reaction]] = Counter()
        self._waiting: dict[_CallKey, _Fault] = {}
        self._open: dict[str, list[_Fault]] = {}
        self._targets = targets
        self._keep = keep

    @property
    def is_idle(self) -> bool:
        """Whether no fault waits for later calls."""
        return not self._open

    def fired(self, call: SlimDecision, line: int) -> None:
        """A fault was decided: it is followed from its delivery on. A superseded one never was seen."""
        key = (call.conversation, call.call_id, call.call_digest, call.nth)
        if call.skipped is not None:
            self._waiting.pop(key, None)
        elif call.payload_sha256 is not None:
            if len(self._waiting) >= _WAITING:
                del self._waiting[next(iter(self._waiting))]
            self._waiting[key] = _Fault(line, call)

    def delivered(self, delivery: Delivery) -> None:
        """The model has seen the payload: what it asks for from now on comes after the fault."""
        key = (delivery.conversation, delivery.call_id, delivery.call_digest, delivery.nth)
        fault = self._waiting.pop(key, None)
        if fault is not None and fault.call.payload_sha256 == delivery.payload_sha256:
            self._open.setdefault(delivery.conversation, []).append(fault)

    def called(self, call: SlimDecision) -> None:
        """A call came: it counts, once though logged twice, for every open fault of its conversation."""
        faults = self._open.get(call.conversation)
        if faults is None:
            return
        for fault in faults:
            if not any(_is_same(call, other) for other in (fault.call, *fault.seen)):
                fault.seen.append(call)
        done = [fault for fault in faults if len(fault.seen) >= WINDOW]
        for fault in done:
            self._judge(fault)
            faults.remove(fault)
        if not faults:
            del self._open[call.conversation]

    def finish(self) -> None:
        """Judges what is still open: the log has ended."""
        for faults in self._open.values():
            for fault in faults:
                self._judge(fault)
        self._open.clear()
        self._waiting.clear()

    def _judge(self, fault: _Fault) -> None:
        call = fault.call
        found = reaction(self._step(call), call.mode, [self._step(step) for step in fault.seen])
        sort = Sort(call.kind, call.timing, call.mode, call.persistence)
        self.reactions[sort, found] += 1
        self._keep(
            Followed(self.run_id, fault.line, call.call_id, call.tool, call.family, *sort, reaction=found)
        )

    def _step(self, call: SlimDecision) -> Step:
        target = self._targets(self.run_id, call.conversation, call.call_digest)
        return Step(call.tool, call.family, call.call_digest, target)


def _is_same(one: SlimDecision, other: SlimDecision) -> bool:
    return (one.call_id, one.call_digest, one.nth) == (other.call_id, other.call_digest, other.nth)
