"""Follows each delivered fault through the calls after it, one log at a time and in flat memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from ledger.reading import SlimDecision
from ledger.records import Delivery
from scoring.reactions import WINDOW, Reaction, Step, reaction, same_digest, same_target

# Faults of one run that wait for their delivery; more than that never come in one request.
_WAITING = 4096
_FOLLOWED_KEPT = 1000

type Targets = Callable[[str, str, str], str | None]


class Followed(NamedTuple):
    """One fault and what came after it; ``line`` is that of its decision, ``cell`` the number of its sort."""

    run_id: str
    line: int
    cell: int
    call_id: str
    tool: str
    reaction: Reaction


@dataclass(slots=True)
class _Fault:
    line: int
    cell: int
    call: SlimDecision


@dataclass(slots=True)
class _Following:
    """The calls of one conversation since its oldest fault that is still followed.

    ``faults``: each with the number of calls that stood before it; ``due``: with how many calls the oldest
    may have been followed far enough.
    """

    faults: list[tuple[int, _Fault]]
    calls: list[SlimDecision]
    due: int


class Watch:
    """The faults of one run that have not been judged yet; ``reactions`` counts those that have.

    Its keys are (number of the fault's cell, reaction). ``open`` holds, by conversation, those that wait for
    later calls; ``followed`` takes in the first that were judged, for the rows behind the numbers;
    ``targets`` says what a call was about, where that is known.
    """

    __slots__ = ("_followed", "_targets", "_waiting", "open", "reactions", "run_id")

    def __init__(self, run_id: str, targets: Targets | None, followed: list[Followed]) -> None:
        self.run_id = run_id
        self.reactions: dict[tuple[int, Reaction], int] = {}
        self._waiting: dict[int, _Fault] = {}
        self.open: dict[str, _Following] = {}
        self._targets = targets
        self._followed = followed

    def fired(self, key: int, call: SlimDecision, line: int, cell: int) -> None:
        """A fault was decided: it is followed from its delivery on, which has the same ``key``. A superseded
        one never was seen."""
        if call.skipped is not None:
            self._waiting.pop(key, None)
        elif call.payload_sha256 is not None:
            if len(self._waiting) >= _WAITING:
                del self._waiting[next(iter(self._waiting))]
            self._waiting[key] = _Fault(line, cell, call)

    def delivered(self, key: int, delivery: Delivery) -> None:
        """The model has seen the payload: what it asks for from now on comes after the fault."""
        fault = self._waiting.pop(key, None)
        if fault is None or fault.call.payload_sha256 != delivery.payload_sha256:
            return
        following = self.open.get(delivery.conversation)
        if following is None:
            self.open[delivery.conversation] = _Following([(0, fault)], [], WINDOW)
        else:
            following.faults.append((len(following.calls), fault))

    def called(self, call: SlimDecision) -> None:
        """A call came: it counts, once though logged twice, for every open fault of its conversation."""
        following = self.open.get(call.conversation)
        if following is None:
            return
        following.calls.append(call)
        if len(following.calls) >= following.due:
            self._close(call.conversation, following)

    def _close(self, conversation: str, following: _Following) -> None:
        """Judges the faults that have been followed far enough: the oldest first."""
        faults, calls = following.faults, following.calls
        while faults:
            before, fault = faults[0]
            seen = _each_once(fault, calls[before:])
            if len(seen) < WINDOW:
                following.due = len(calls) + WINDOW - len(seen)
                break
            self._judge(fault, seen)
            del faults[0]
        if not faults:
            del self.open[conversation]
        elif before := faults[0][0]:
            # Calls that no fault waits for any more are let go: a conversation may be long.
            del calls[:before]
            following.faults = [(number - before, fault) for number, fault in faults]
            following.due -= before

    def finish(self) -> None:
        """Judges what is still open: the log has ended."""
        for following in self.open.values():
            for before, fault in following.faults:
                self._judge(fault, _each_once(fault, following.calls[before:]))
        self.open.clear()
        self._waiting.clear()

    def _judge(self, fault: _Fault, seen: list[SlimDecision]) -> None:
        found = self._reaction(fault.call, seen)
        key = (fault.cell, found)
        self.reactions[key] = self.reactions.get(key, 0) + 1
        if len(self._followed) < _FOLLOWED_KEPT:
            call = fault.call
            self._followed.append(
                Followed(self.run_id, fault.line, fault.cell, call.call_id, call.tool, found)
            )

    def _reaction(self, call: SlimDecision, seen: list[SlimDecision]) -> Reaction:
        targets = self._targets
        if targets is None:
            return reaction(call, call.mode, seen, same_digest)
        steps = (
            Step(
                one.tool,
                one.family,
                one.call_digest,
                targets(self.run_id, one.conversation, one.call_digest),
                one.target_digest,
            )
            for one in (call, *seen)
        )
        return reaction(next(steps), call.mode, steps, same_target)


def _each_once(fault: _Fault, seen: list[SlimDecision]) -> list[SlimDecision]:
    """The calls after it, without what was logged twice: the same call id, arguments and number."""
    ids = {call.call_id for call in seen}
    ids.add(fault.call.call_id)
    if len(ids) == len(seen) + 1:
        return seen
    taken = {(fault.call.call_id, fault.call.call_digest, fault.call.nth)}
    found = []
    for call in seen:
        own = (call.call_id, call.call_digest, call.nth)
        if own not in taken:
            taken.add(own)
            found.append(call)
    return found
