"""What a walk through a request comes to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
from msgspec import field

from ledger.memory import CallRow
from ledger.records import Decision
from proxy.observer import Answered


class Doubt(NamedTuple):
    """Something that makes the run invalid: ``where`` and ``reason`` of its ``error`` record."""

    where: str
    reason: str


class Findings(msgspec.Struct, eq=False):
    """What a walk came to: records for the log, rows for the memory, what is not known any more, and how long
    to hold the request."""

    decisions: list[Decision] = field(default_factory=list)
    added: list[CallRow] = field(default_factory=list)
    changed: list[CallRow] = field(default_factory=list)
    answered: list[Answered] = field(default_factory=list)
    doubts: list[Doubt] = field(default_factory=list)
    wait_s: float = 0.0


def no_call(call_ids: Sequence[str]) -> Doubt:
    """Results of calls that are neither in their request nor in any answer that was seen."""
    named = ", ".join(call_ids[:3]) + (", …" if len(call_ids) > 3 else "")
    return Doubt(
        "request",
        f"a result is here whose call is neither in the request nor in any answer that was seen ({named}):"
        " nothing was decided on it",
    )


def lost_arguments(tool: str) -> Doubt:
    """A call that has harmless arguments and that nothing remembers was withheld, it seems."""
    return Doubt(
        "withheld",
        f"a call of {tool} has the arguments of one that was kept from running, and nothing is remembered of"
        " it: what the model asked for and what it was told is lost",
    )
