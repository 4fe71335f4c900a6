"""The shipped profiles, and how a profile is found."""

from __future__ import annotations

from pathlib import Path

import pytest

import configs
from configs import ConfigError
from scheduler.faults import KINDS
from scheduler.profile import ProfileError

RATES = {"off": 0, "mild": 0.03, "moderate": 0.10, "severe": 0.25}


def test_the_rates_are_those_that_are_published() -> None:
    assert {name: configs.load_profile(name).rate for name in RATES} == RATES


def test_every_profile_is_named_as_its_file_and_says_what_it_is() -> None:
    for name in configs.profile_names():
        profile = configs.load_profile(name)
        assert profile.name == name
        assert profile.description.endswith(".")


def test_there_is_one_profile_for_each_kind() -> None:
    only = {name.removeprefix("only-") for name in configs.profile_names() if name.startswith("only-")}
    assert only == set(KINDS)
    assert set(configs.profile_names()) == set(RATES) | {f"only-{kind}" for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS)
def test_a_profile_for_one_kind_fires_it_on_every_call_that_it_fits(kind: str) -> None:
    profile = configs.load_profile(f"only-{kind}")
    assert (profile.rate, profile.rates, profile.counts) == (1, {}, False)
    assert profile.live_kinds() == dict.fromkeys(profile.weights, (kind,))
    assert set(profile.weights) == KINDS[kind].families


def test_mild_moderate_and_severe_differ_in_their_rate_alone() -> None:
    data = [configs.load_profile(name).resolved() for name in ("mild", "moderate", "severe")]
    for one in data:
        for name in ("name", "description", "rate"):
            del one[name]
    assert data[0] == data[1] == data[2]
    profile = configs.load_profile("moderate")
    assert not profile.counts
    assert profile.persistence.permanent > 0
    assert "slow" not in {kind for kinds in profile.live_kinds().values() for kind in kinds}


def test_every_family_can_fail_under_them_and_with_every_kind_but_slow() -> None:
    live = configs.load_profile("moderate").live_kinds()
    for kind in KINDS.values():
        for family in kind.families if kind.name != "slow" else ():
            assert kind.name in live[family]  # type: ignore[index]


def test_off_can_fire_nothing() -> None:
    assert not configs.load_profile("off").can_fire


def test_an_unknown_name_names_the_nearest() -> None:
    with pytest.raises(ProfileError, match=r"unknown profile 'modrate': did you mean 'moderate'\?"):
        configs.load_profile("modrate")


def test_a_profile_can_be_a_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("name: mine\nrate: 0.5\nweights: {read: {empty: 1}}\n")
    assert configs.load_profile(str(path)).rate == 0.5


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("name: mine\nrate: [", ConfigError, "not YAML"),
        ("name: mine\nname: twice\nrate: 1", ConfigError, "not YAML"),
        ("just words", ProfileError, "a profile is a mapping"),
        ("name: mine\nrate: 0.5\nweight: {}", ProfileError, "did you mean 'weights'"),
        ("name: mine\nrate: 0.5", ProfileError, "can fire nothing"),
        (None, ConfigError, "cannot read the profile"),
        (b"\xff\xfe", ConfigError, "cannot read the profile"),
    ],
)
def test_a_file_that_is_no_profile_is_named_with_its_fault(
    tmp_path: Path, text: str | bytes | None, error: type[Exception], message: str
) -> None:
    path = tmp_path / "mine.yaml"
    if text is not None:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(error, match=message) as caught:
        configs.load_profile(str(path))
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
