"""The draw against its formula, computed a second time by hand, and against its promises."""

from __future__ import annotations

import itertools
import json
import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import configs
from scheduler.call import Call, call_digest
from scheduler.profile import Profile, parse_profile
from scheduler.schedule import PayloadStream, Standing, draw, u
from tests.scheduler import by_hand
from tests.scheduler.calls import call, calls, drawn, profile

GOLDEN = json.loads(by_hand.GOLDEN.read_text("utf-8"))


def test_the_golden_file_is_what_the_formula_gives() -> None:
    assert GOLDEN["cases"] == by_hand.golden()["cases"]


@pytest.mark.parametrize("name", by_hand.PROFILES)
def test_the_scheduler_draws_what_the_golden_file_pins(name: str) -> None:
    missing = set(GOLDEN["profiles"][name]["missing"])
    data = {key: value for key, value in GOLDEN["profiles"][name].items() if key != "missing"}
    drawing = parse_profile(data, name)
    cases = [case for case in GOLDEN["cases"] if case["profile"] == name]
    assert len(cases) > 100
    for case in cases:
        canonical = case["canonical"].encode("utf-8")
        asked = Call(
            case["tool"],
            case["family"],
            call_digest(canonical),
            canonical,
            case["occurrence"],
            case["ordinal"],
        )
        kinds = [kind for kind in drawing.weights_of(case["family"]) if kind not in missing]
        got = draw(case["seed"], drawing, case["task_id"], case["role"], asked, kinds)
        pinned = case["drawn"]
        used = pinned["key"]
        if pinned["persistence"] == "permanent" and drawing.identity == "content":
            used = used[:-1]
        assert list(got.key) == used
        assert (got.u, got.fired, got.kind, got.persistence) == (
            pinned["u"],
            pinned["fired"],
            pinned["kind"],
            pinned["persistence"],
        )
        stream = PayloadStream(got.key, case["seed"])
        assert [stream.next() for _ in range(3)] == pinned["payload"]


@given(
    st.sampled_from(["fire", "kind", "persist", "payload"]),
    st.lists(st.text(st.characters(codec="utf-8"), max_size=20), max_size=6),
    st.integers(0, 2**64 - 1),
)
def test_u_is_the_formula(label: str, parts: list[str], seed: int) -> None:
    got = u(label.encode("ascii"), tuple(parts), seed)
    assert got == float(by_hand.number(label, parts, seed))
    assert 0 <= got < 1


def test_the_parts_of_a_key_cannot_run_into_each_other() -> None:
    assert u(b"fire", ("ab", "c"), 1) != u(b"fire", ("a", "bc"), 1)
    assert u(b"fire", ("a",), 1) != u(b"fire", ("a", ""), 1)


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_a_seed_is_a_64_bit_number(seed: int) -> None:
    with pytest.raises(ValueError, match="from 0 to 2"):
        drawn(profile(), call(), seed)


def test_the_shipped_profiles_nest_with_the_same_kinds() -> None:
    rising = [configs.load_profile(name) for name in ("off", "mild", "moderate", "severe")]
    fired = Counter[str]()
    for family, n in itertools.product(("read", "edit", "shell", "search", "fetch", "other"), range(300)):
        asked = call(family, n)  # type: ignore[arg-type]
        draws = [drawn(one, asked) for one in rising]
        for less, more in itertools.pairwise(draws):
            if less.fired:
                assert (more.fired, more.kind, more.persistence) == (True, less.kind, less.persistence)
        fired.update(one.name for one, got in zip(rising, draws, strict=True) if got.fired)
    assert fired["off"] == 0 < fired["mild"] < fired["moderate"] < fired["severe"]


def test_one_seed_repeats_and_another_differs() -> None:
    def faults(seed: int) -> list[tuple[bool, str | None]]:
        return [(got.fired, got.kind) for got in (drawn(profile(), asked, seed) for asked in calls(200))]

    assert faults(7) == faults(7)
    assert len({tuple(faults(seed)) for seed in range(20)}) == 20


def test_what_comes_before_a_call_does_not_change_it() -> None:
    row = list(calls(300))
    shuffled = row.copy()
    random.Random(3).shuffle(shuffled)
    together = {asked: drawn(profile(), asked) for asked in row}
    assert {asked: drawn(profile(), asked) for asked in shuffled} == together


@pytest.mark.parametrize("part", ["task_id", "role", "tool", "digest", "occurrence"])
def test_every_part_of_the_key_matters(part: str) -> None:
    def faults(change: bool) -> list[bool]:
        found = []
        for asked in calls(100):
            task, role = "default", "main"
            if change and part == "task_id":
                task = "other"
            elif change and part == "role":
                role = "sub"
            elif change:
                new: dict[str, Any] = {"tool": "View", "digest": call_digest(asked.canonical + b" ")}
                asked = asked._replace(**{part: new.get(part, 1)})
            found.append(draw(7, profile(), task, role, asked, ("empty", "truncated")).fired)
        return found

    assert faults(True) != faults(False)


def test_under_ordinal_identity_only_the_place_in_the_family_counts() -> None:
    ordinal = profile(identity="ordinal")
    for n in range(50):
        one = call("read", n, tool="Read", ordinal=4, occurrence=2)
        two = call("read", n + 1000, tool="view_file", ordinal=4)
        assert drawn(ordinal, one) == drawn(ordinal, two)
    assert len({drawn(ordinal, call(ordinal=k)).u for k in range(50)}) == 50


@pytest.mark.parametrize("seed", [1, 7, 99])
@pytest.mark.parametrize("rate", [0.03, 0.1, 0.25])
def test_calls_fail_at_the_rate(seed: int, rate: float) -> None:
    count = 8000
    fired = sum(drawn(profile(rate=rate), asked, seed).fired for asked in calls(count))
    assert stats.chisquare([fired, count - fired], [rate * count, (1 - rate) * count]).pvalue > 0.001


@pytest.mark.parametrize("seed", [1, 7, 99])
def test_kinds_come_by_their_weights(seed: int) -> None:
    weights = {"empty": 1.0, "truncated": 3.0, "wrong_data": 2.0, "stale": 0.5}
    weighted = profile(rate=1, weights={"read": weights})
    seen = Counter(drawn(weighted, asked, seed).kind for asked in calls(6000))
    expected = [6000 * weight / sum(weights.values()) for weight in weights.values()]
    assert stats.chisquare([seen[kind] for kind in weights], expected).pvalue > 0.001


@pytest.mark.parametrize("seed", [1, 7, 99])
def test_persistence_comes_by_its_weights(seed: int) -> None:
    mixed = profile(persistence={"transient": 3, "permanent": 1})
    stays = sum(drawn(mixed, asked, seed).persistence == "permanent" for asked in calls(6000))
    assert stats.chisquare([stays, 6000 - stays], [1500, 4500]).pvalue > 0.001


def test_u_is_uniform() -> None:
    values = [u(b"fire", ("content", str(n)), 5) for n in range(20000)]
    assert stats.kstest(values, "uniform").pvalue > 0.001


def test_taking_a_kind_away_moves_only_the_calls_that_had_it() -> None:
    always = profile(rate=1)
    for asked in calls(500):
        before = draw(7, always, "default", "main", asked, ("empty", "truncated", "wrong_data"))
        after = draw(7, always, "default", "main", asked, ("empty", "truncated"))
        assert after.kind == before.kind if before.kind != "wrong_data" else after.kind != "wrong_data"
        assert replace(after, kind=before.kind) == before


def test_a_rate_never_changes_which_kind_fires() -> None:
    for asked in calls(300):
        low, high = drawn(profile(rate=0.2), asked), drawn(profile(rate=0.9), asked)
        if low.fired:
            assert (high.kind, high.key, high.u) == (low.kind, low.key, low.u)


def test_a_permanent_call_gets_the_same_at_every_repetition() -> None:
    stays = profile(persistence={"transient": 0, "permanent": 1})
    for n in range(100):
        repeated = [drawn(stays, call(n=n, occurrence=k)) for k in range(5)]
        assert len({(got.key, got.u, got.fired, got.kind) for got in repeated}) == 1
        assert len(repeated[0].key) == 5


def test_a_transient_call_is_drawn_afresh_at_every_repetition() -> None:
    passes = profile(persistence={"transient": 1, "permanent": 0})
    repeated = [drawn(passes, call(n=1, occurrence=k)) for k in range(400)]
    assert len({got.u for got in repeated}) == 400
    fired = sum(got.fired for got in repeated)
    assert stats.chisquare([fired, 400 - fired], [200, 200]).pvalue > 0.001


def test_the_share_of_permanent_calls_does_not_hang_on_the_repetition() -> None:
    mixed = profile(persistence={"transient": 1, "permanent": 1})
    for n in range(100):
        assert len({drawn(mixed, call(n=n, occurrence=k)).persistence for k in range(4)}) == 1


def test_without_a_kind_nothing_fires() -> None:
    got = drawn(profile(rate=1), call("write"))
    assert (got.fired, got.kind, got.limited) == (False, None, None)
    assert draw(7, profile(rate=1), "default", "main", call(), ()).fired is False


def standing(**data: Any) -> Standing:
    return Standing(**data)


@pytest.mark.parametrize(
    ("limits", "where", "limited"),
    [
        ({"skip_first": 3}, standing(calls_before=2), "skip_first"),
        ({"skip_first": 3}, standing(calls_before=3), None),
        ({"max_faults": 2}, standing(calls_before=9, faults_before=2), "max_faults"),
        ({"max_faults": 2}, standing(calls_before=9, faults_before=1), None),
        ({"min_gap": 2}, standing(calls_before=9, faults_before=1, calls_since_fault=1), "min_gap"),
        ({"min_gap": 2}, standing(calls_before=9, faults_before=1, calls_since_fault=2), None),
        ({"min_gap": 2}, standing(calls_before=9), None),
    ],
)
def test_limits_hold_a_fault_back_and_say_so(
    limits: dict[str, int], where: Standing, limited: str | None
) -> None:
    got = drawn(profile(rate=1, **limits), call(), standing=where)
    assert (got.fired, got.limited, got.standing) == (True, limited, where)


def forced(*rules: dict[str, Any], **data: Any) -> Profile:
    return profile(rate=0, force=list(rules), **data)


def test_a_rule_forces_the_nth_call_of_a_family() -> None:
    rules = forced({"family": "read", "nth": 3, "kind": "empty"})
    hit = [drawn(rules, call(n=n), standing=standing(rule_hits=(n,))).fired for n in range(5)]
    assert hit == [False, False, True, False, False]


def test_a_rule_forces_the_calls_whose_arguments_match() -> None:
    rules = forced({"tool": "Read", "match": '"n":4', "kind": "truncated"})
    assert [n for n in range(10) if drawn(rules, call(n=n)).fired] == [4]
    assert not drawn(rules, call(n=4, tool="View")).fired


def test_a_forced_fault_is_transient_and_stands_above_rate_and_limits() -> None:
    rules = forced({"family": "read", "nth": 1, "kind": "empty"}, max_faults=0, skip_first=9)
    got = drawn(rules, call(occurrence=3))
    assert (got.fired, got.kind, got.forced, got.persistence, got.limited) == (
        True,
        "empty",
        True,
        "transient",
        None,
    )
    assert got.u == float(by_hand.number("fire", got.key, 7))
    assert len(got.key) == 6


def test_a_kind_forced_on_a_call_that_it_does_not_fit_is_named() -> None:
    rules = forced({"tool": "Write", "nth": 1, "kind": "truncated"})
    got = drawn(rules, call("write", tool="Write"))
    assert (got.fired, got.kind, got.limited) == (True, "truncated", "no_fit")


def test_the_first_rule_that_speaks_of_a_call_wins() -> None:
    rules = forced(
        {"family": "read", "nth": 2, "kind": "empty"}, {"tool": "Read", "match": "n", "kind": "truncated"}
    )
    assert drawn(rules, call(), standing=standing(rule_hits=(0, 0))).kind == "truncated"
    assert drawn(rules, call(), standing=standing(rule_hits=(1, 1))).kind == "empty"
