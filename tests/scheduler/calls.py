"""Calls and profiles for tests of the schedule."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from scheduler.call import Call, Family, call_digest
from scheduler.faults import KINDS
from scheduler.profile import Profile, parse_profile
from scheduler.schedule import Draw, Standing, draw


def call(
    family: Family = "read",
    n: int = 0,
    *,
    tool: str = "Read",
    occurrence: int = 0,
    ordinal: int = 0,
) -> Call:
    """The ``n``-th of a row of different calls."""
    canonical = b'{"n":%d}' % n
    return Call(tool, family, call_digest(canonical), canonical, occurrence, ordinal)


def calls(count: int, family: Family = "read") -> Iterator[Call]:
    """``count`` calls that differ in their arguments."""
    return (call(family, n, ordinal=n) for n in range(count))


def profile(**data: Any) -> Profile:
    """A profile; weights for read unless given."""
    weights: Mapping[str, Mapping[str, float]] = {"read": {"empty": 1, "truncated": 2, "wrong_data": 1}}
    return parse_profile({"name": "test", "rate": 0.5, "weights": weights} | data, "test")


def kinds_of(family: str) -> list[str]:
    """The kinds that can be done to calls of ``family`` when the tool has words for all of them."""
    return [kind.name for kind in KINDS.values() if family in kind.families]


def drawn(profile: Profile, call: Call, seed: int = 7, standing: Standing = Standing()) -> Draw:  # noqa: B008
    """The draw of ``call`` in the default task, main conversation."""
    return draw(seed, profile, "default", "main", call, kinds_of(call.family), standing)
