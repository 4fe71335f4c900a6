"""One task on several real harnesses: with ordinal identity the k-th call of a family fails alike on all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from configs import gaps_in_common, load_profile, read_capability
from harness.turns import ToolCall
from proxy.options import InjectorOptions
from scheduler.profile import parse_profile
from scoring.verify import verify_log
from tests.e2e.stage import Played, Speech, Stage, call_turns

_HARNESSES = {"claude-code": "2.1.289", "pi": "1.0.3", "codex": "0.171.0", "opencode": "1.18.33"}
_PARTS = range(9)


class Fate(NamedTuple):
    """What the schedule says of the k-th call of a family."""

    u: float
    fired: bool
    kind: str | None
    persistence: str


def _task(speech: Speech) -> list[ToolCall]:
    """The same work, in the words of each: one that has no tool for it reads by commands."""
    return [
        call
        for n in _PARTS
        for call in (
            speech.reads(f"part{n}.txt"),
            speech.runs(f"wc -l part{n}.txt; echo counted {n}"),
            speech.runs(f"grep -n value part{n}.txt"),
            speech.runs(f"ls -l part{n}.txt"),
        )
    ]


def _fates(played: Played) -> dict[tuple[str, int], Fate]:
    found = {}
    for record in played.of("decision"):
        place = record["family"], record["ordinal"]
        assert place not in found, "a call was counted twice"
        found[place] = Fate(*(record[field] for field in Fate._fields))
    return found


@pytest.mark.timeout(600)
def test_the_kth_call_fails_alike_on_every_harness(stage: Callable[[str], Stage]) -> None:
    shared = gaps_in_common(read_capability(f"{name}@{version}") for name, version in _HARNESSES.items())
    data: dict[str, Any] = load_profile("severe").resolved() | {"identity": "ordinal"}
    profile = parse_profile(data, "test")
    by_harness = {}
    for name in _HARNESSES:
        scene = stage(name)
        scene.write({f"part{n}.txt": f"content of part {n}\nvalue = {n}\n" for n in _PARTS})
        played = scene.play(
            call_turns(*_task(scene.speech)), profile, seed=23, options=InjectorOptions(shared_gaps=shared)
        )
        assert played.outcome.exit_code == 0, played.outcome.stderr[-2000:]
        assert not played.of("error")
        assert verify_log(played.log).ok
        by_harness[name] = _fates(played)

    for fates in by_harness.values():
        assert len(fates) == 4 * len(_PARTS)
        assert sum(fate.fired for fate in fates.values()) >= 5
    drawn: dict[tuple[str, int], set[Fate]] = {}
    for fates in by_harness.values():
        for place, fate in fates.items():
            drawn.setdefault(place, set()).add(fate)
    assert {place: fates for place, fates in drawn.items() if len(fates) > 1} == {}
    # Who reads by commands has more commands and no reads; everything else stands at the same places.
    places = {name: set(fates) for name, fates in by_harness.items()}
    assert places["claude-code"] == places["pi"] == places["opencode"]
    assert len(places["codex"] & places["pi"]) == 3 * len(_PARTS)
