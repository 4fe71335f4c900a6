"""Profiles: what is refused, with which words; what a profile says of itself."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from scheduler.call import FAMILIES
from scheduler.profile import Profile, ProfileError, parse_profile
from tests.scheduler.calls import profile

READ = {"read": {"empty": 1}}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"weigths": {}}, "unknown key 'weigths': did you mean 'weights'?"),
        (
            {"persistence": {"permanant": 1}},
            "persistence: unknown key 'permanant': did you mean 'permanent'?",
        ),
        ({"kinds": {"truncated": {"line": 3}}}, "did you mean 'lines'?"),
        ({"force": [{"famly": "read", "nth": 1, "kind": "empty"}]}, "did you mean 'family'?"),
        ({"rates": {"raed": 0.1}}, "unknown family 'raed': did you mean 'read'?"),
        ({"weights": {"serach": {"empty": 1}}}, "unknown family 'serach': did you mean 'search'?"),
        ({"weights": {"read": {"emtpy": 1}}}, "unknown kind 'emtpy': did you mean 'empty'?"),
        ({"kinds": {"slwo": {"seconds": 1}}}, "unknown kind 'slwo': did you mean 'slow'?"),
        ({"force": [{"family": "read", "nth": 1, "kind": "stael"}]}, "did you mean 'stale'?"),
        ({"force": [{"family": "raed", "nth": 1, "kind": "empty"}]}, "did you mean 'read'?"),
        ({"identity": "contnet"}, "unknown identity 'contnet': did you mean 'content'?"),
        ({"weights": {"read": {"qqqq": 1}}}, "unknown kind 'qqqq': valid are empty, locked, not_found,"),
        ({"weights": {"write": {"truncated": 1}}}, "'truncated' does not fit family 'write': what fits is"),
        ({"force": [{"family": "edit", "nth": 1, "kind": "stale"}]}, "'stale' does not fit family 'edit'"),
        ({"weights": {"write": {"not_found": 1}}}, "'not_found' does not fit family 'write': what fits is"),
        ({"force": [{"family": "read", "nth": 1, "kind": "phantom_sucess"}]}, "mean 'phantom_success'?"),
        (
            {"force": [{"family": "read", "nth": 1, "kind": "phantom_success"}]},
            "kind 'phantom_success' does not fit family 'read': what fits is empty,",
        ),
        ({"kinds": {"timeout": {"seconds": 3}}}, "kind 'timeout' has no setting 'seconds': it has none"),
        ({"force": [{"nth": 1, "kind": "empty"}]}, "names either a family or a tool"),
        ({"force": [{"family": "read", "kind": "empty"}]}, "nth (1 is the first), match, or both"),
        ({"force": [{"family": "read", "match": "(", "kind": "empty"}]}, "not a regular expression"),
        ({"force": [{"family": "read", "nth": 0, "kind": "empty"}]}, "greater than or equal to 1"),
        ({"kinds": {"slow": {"lines": 3}}}, "kind 'slow' has no setting 'lines': it has seconds"),
        ({"kinds": {"empty": {"lines": 3}}}, "kind 'empty' has no setting 'lines': it has none"),
        ({"kinds": {"truncated": {"lines": 0}}}, "kinds.truncated.lines"),
        ({"rate": 1.5}, "rate: Input should be less than or equal to 1"),
        ({"rate": -0.1}, "rate: Input should be greater than or equal to 0"),
        ({"rate": True}, "rate: Input should be a valid number"),
        ({"rate": "0.1"}, "rate: Input should be a valid number"),
        ({"rate": math.nan}, "rate:"),
        ({"rates": {"read": 2}}, "rates.read:"),
        ({"weights": {"read": {"empty": -1}}}, "weights.read.empty:"),
        ({"weights": {"read": {"empty": math.inf}}}, "weights.read.empty:"),
        ({"persistence": {"transient": 0, "permanent": 0}}, "one of transient and permanent"),
        ({"persistence": {}}, "one of transient and permanent"),
        ({"max_faults": -1}, "max_faults:"),
        ({"skip_first": 1.5}, "skip_first:"),
    ],
)
def test_a_mistake_is_named_with_what_would_be_right(data: dict[str, Any], message: str) -> None:
    with pytest.raises(ProfileError) as caught:
        parse_profile({"name": "p", "rate": 0.1, "weights": READ} | data, "p.yaml")
    assert message in str(caught.value)
    assert str(caught.value).startswith("p.yaml: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("data", [None, [], "moderate", 3])
def test_a_profile_is_a_mapping(data: Any) -> None:
    with pytest.raises(ProfileError, match="a profile is a mapping"):
        parse_profile(data, "p.yaml")


@pytest.mark.parametrize("missing", ["name", "rate"])
def test_name_and_rate_are_needed(missing: str) -> None:
    data = {"name": "p", "rate": 0.1, "weights": READ}
    del data[missing]
    with pytest.raises(ProfileError, match=f"{missing}: Field required"):
        parse_profile(data, "p.yaml")


@pytest.mark.parametrize(
    "data",
    [
        {"rate": 0, "weights": READ},
        {"rate": 1},
        {"rate": 1, "weights": {"read": {"empty": 0}}},
        {"rate": 1, "rates": {"read": 0}, "weights": READ},
        {"rate": 1, "weights": READ, "max_faults": 0},
    ],
)
def test_a_profile_that_can_fire_nothing_is_refused_unless_it_is_off(data: dict[str, Any]) -> None:
    with pytest.raises(ProfileError, match="can fire nothing"):
        parse_profile({"name": "p"} | data, "p.yaml")
    assert not parse_profile({"name": "off"} | data, "p.yaml").can_fire


@pytest.mark.parametrize(
    "data",
    [
        {"rate": 0, "rates": {"read": 0.1}, "weights": READ},
        {"rate": 0, "force": [{"family": "read", "nth": 1, "kind": "empty"}]},
    ],
)
def test_one_family_or_one_rule_is_enough(data: dict[str, Any]) -> None:
    assert parse_profile({"name": "p"} | data, "p.yaml").can_fire


def test_live_kinds_are_those_that_can_fire_somewhere() -> None:
    got = profile(
        rates={"shell": 0},
        weights={"read": {"empty": 1, "stale": 0}, "shell": {"empty": 1}, "edit": {}},
    )
    assert got.live_kinds() == {"read": ("empty",)}
    assert {family: got.rate_of(family) for family in FAMILIES}["shell"] == 0
    assert got.weights_of("fetch") == {}


def test_a_resolved_profile_is_the_same_profile() -> None:
    got = profile(
        persistence={"transient": 3, "permanent": 1},
        kinds={"truncated": {"lines": 5}, "slow": {"seconds": 0.5}},
        force=[{"tool": "Bash", "match": "pytest", "nth": 2, "kind": "timeout_after_effect"}],
        min_gap=2,
        max_faults=7,
    )
    again = parse_profile(json.loads(json.dumps(got.resolved())), "the log")
    assert again == got
    assert again.sha256 == got.sha256
    assert again.sha256 != profile().sha256


@pytest.mark.parametrize(
    ("data", "counts"),
    [
        ({}, False),
        ({"skip_first": 1}, True),
        ({"max_faults": 3}, True),
        ({"min_gap": 1}, True),
        ({"force": [{"family": "read", "nth": 1, "kind": "empty"}]}, True),
    ],
)
def test_a_profile_knows_whether_it_looks_at_where_a_call_stands(data: dict[str, Any], counts: bool) -> None:
    assert profile(**data).counts is counts


def test_a_profile_cannot_be_changed() -> None:
    got: Profile = profile()
    with pytest.raises(ValueError, match="frozen"):
        got.rate = 0.9  # type: ignore[misc]


@pytest.mark.parametrize(
    ("given", "transient", "permanent"),
    [
        (None, 1, 0),
        ({"permanent": 1}, 0, 1),
        ({"transient": 2}, 2, 0),
        ({"transient": 1, "permanent": 3}, 1, 3),
    ],
)
def test_a_persistence_that_is_not_named_has_no_part(
    given: dict[str, float] | None, transient: float, permanent: float
) -> None:
    data = {"name": "p", "rate": 1, "weights": READ} | ({} if given is None else {"persistence": given})
    weights = parse_profile(data, "p.yaml").persistence
    assert (weights.transient, weights.permanent) == (transient, permanent)
