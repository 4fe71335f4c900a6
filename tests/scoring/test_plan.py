"""Plans against closed forms, scipy's binomial, the scheduler's own draws, and simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats

from configs import load_profile
from scheduler.call import Call
from scheduler.faults import KINDS
from scheduler.profile import Profile, parse_profile
from scheduler.schedule import draw
from scoring.plan import BadPlan, faults_of_a_run, kind_rates, plan, sd_of_difference, tasks_for
from scoring.plan_text import plan_json, plan_text


def profile(**changes: object) -> Profile:
    data = {"name": "mine", "rate": 0.1, "weights": {"read": {"empty": 1, "truncated": 3}}}
    return parse_profile(data | changes, "test")


def test_without_limits_faults_are_binomial() -> None:
    found = plan(profile(), calls=20, tasks=10, repeats=3, mix={"read": 1})
    assert found.faults_per_run == pytest.approx(20 * 0.1)
    assert found.exposed_share == pytest.approx(1 - scipy.stats.binom.pmf(0, 20, 0.1))
    assert found.exposed_runs == pytest.approx(30 * found.exposed_share)
    assert {kind.kind: kind.faults for kind in found.kinds} == pytest.approx({"empty": 15, "truncated": 45})


def test_families_without_a_kind_draw_nothing() -> None:
    found = plan(profile(), calls=20, tasks=10, repeats=1, mix={"read": 1, "edit": 3})
    assert found.faults_per_call == pytest.approx(0.025)


@pytest.mark.parametrize("limits", [{"max_faults": 2}, {"skip_first": 5}, {"min_gap": 3}])
def test_limits_are_those_of_a_simulation(limits: dict[str, int]) -> None:
    mine = profile(rate=0.3, **limits)
    expected, exposed = faults_of_a_run(mine, 0.3, 15)
    rng = np.random.default_rng(1)
    counts = []
    for _ in range(4000):
        faults, since = 0, math.inf
        for call, fires in enumerate(rng.random(15) < 0.3):
            held = call < mine.skip_first or since < mine.min_gap
            held = held or (mine.max_faults is not None and faults >= mine.max_faults)
            if fires and not held:
                faults, since = faults + 1, 0
            else:
                since += 1
        counts.append(faults)
    assert expected == pytest.approx(np.mean(counts), abs=4 * np.std(counts) / math.sqrt(4000))
    assert exposed == pytest.approx(np.mean(np.array(counts) > 0), abs=0.03)


def test_the_schedule_draws_at_the_planned_rates() -> None:
    shipped = load_profile("severe")
    fitting = [kind.name for kind in KINDS.values() if "read" in kind.families]
    drawn = [
        draw(seed, shipped, "t", "main", Call("Read", "read", f"{call}", b"", 0, call), fitting)
        for seed in range(100)
        for call in range(40)
    ]
    rates = kind_rates(shipped, "read")
    for kind, rate in rates.items():
        seen = sum(one.kind == kind for one in drawn)
        assert seen == pytest.approx(4000 * rate, abs=4.5 * math.sqrt(4000 * rate))
    assert math.fsum(rates.values()) == pytest.approx(0.25)


def test_a_forced_fault_is_certain() -> None:
    forced = profile(rate=0.0, force=[{"family": "read", "nth": 3, "kind": "empty"}])
    assert faults_of_a_run(forced, 0.0, 5) == (1.0, 1.0)
    assert faults_of_a_run(forced, 0.0, 2) == (0.0, 0.0)


def test_off_exposes_nothing() -> None:
    found = plan(load_profile("off"), calls=20, tasks=10, repeats=3)
    assert (found.faults_per_run, found.exposed_share, found.kinds) == (0.0, 0.0, ())


@pytest.mark.parametrize(("p", "rho", "repeats"), [(0.5, 0.0, 1), (0.8, 0.5, 3), (0.9, 0.5, 5)])
def test_the_spread_of_a_difference_is_that_of_a_simulation(p: float, rho: float, repeats: int) -> None:
    rng = np.random.default_rng(2)
    size = (1 - rho) / rho if rho else 1e9
    hardness = rng.beta(p * size, (1 - p) * size, 50_000)
    a, b = (rng.binomial(repeats, hardness) / repeats for _ in range(2))
    assert np.std(b - a) == pytest.approx(sd_of_difference(p, rho, repeats), rel=0.02)


def test_the_smallest_difference_by_hand() -> None:
    found = plan(profile(), calls=20, tasks=10, repeats=1)
    cell = next(one for one in found.power if (one.pass_rate, one.correlation) == (0.5, 0.0))
    t = scipy.stats.t(9)
    assert cell.smallest_detectable == pytest.approx((t.ppf(0.975) + t.ppf(0.8)) * math.sqrt(0.5 / 10))
    assert cell.interval is not None
    assert cell.interval.low < 0.5 < cell.interval.high


def test_tasks_needed_are_just_enough() -> None:
    tasks = tasks_for(0.1, 3)
    sd = sd_of_difference(0.8, 0.5, 3)
    for n, enough in ((tasks, True), (tasks - 1, False)):
        t = scipy.stats.t(n - 1)
        assert bool((t.ppf(0.975) + t.ppf(0.8)) * sd / math.sqrt(n) <= 0.1) is enough


def test_one_task_shows_nothing() -> None:
    found = plan(profile(), calls=20, tasks=1, repeats=3)
    assert all(one.smallest_detectable is None and one.interval is None for one in found.power)


@pytest.mark.parametrize(
    ("design", "says"),
    [
        ({"calls": 0}, "calls is 0"),
        ({"mix": {"reed": 1}}, "unknown tool family 'reed'"),
        ({"mix": {"read": 0}}, "add up to 0"),
        ({"mix": {"read": -1}}, "not negative"),
    ],
)
def test_designs_that_cannot_be(design: dict[str, object], says: str) -> None:
    with pytest.raises(BadPlan, match=says):
        plan(profile(), **({"calls": 1, "tasks": 2, "repeats": 1} | design))  # type: ignore[arg-type]


def test_the_text_says_it_all() -> None:
    text = plan_text(plan(load_profile("moderate"), calls=20, tasks=10, repeats=3))
    for said in ("Expected exposure", "too few to say anything", "smallest difference", "tasks"):
        assert said in text
    assert plan_json(plan(load_profile("off"), calls=1, tasks=2, repeats=1)).startswith(b"{")
