"""Paired differences against scipy, R's p.adjust, Bloom's table and simulation."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from scoring.intervals import Floats, t_two_sided
from scoring.paired import detectable, holm, most_that_can_differ, paired_t, sign_flip

# Student's own: extra hours of sleep of ten patients under two drugs (R: `sleep`).
SLEEP_1 = np.array([0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0])
SLEEP_2 = np.array([1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4])


def mean(values: Floats, axis: int = -1) -> Floats:
    return np.asarray(np.mean(values, axis=axis))


def scipys_flip(values: Floats) -> float:
    found = scipy.stats.permutation_test(
        (values,), mean, permutation_type="samples", vectorized=True, n_resamples=np.inf
    )
    return float(found.pvalue)


def test_paired_t_is_rs_on_sleep() -> None:
    # As R prints it for t.test(extra ~ group, data = sleep, paired = TRUE)
    found = paired_t(SLEEP_2 - SLEEP_1)
    assert found.mean == pytest.approx(1.58)
    assert found.interval == pytest.approx((0.7001142, 2.4598858), abs=5e-8)
    assert found.p == pytest.approx(0.002833, abs=5e-7)


@given(st.lists(st.floats(-1, 1), min_size=2, max_size=40).filter(lambda x: np.std(x) > 1e-3))
def test_paired_t_is_scipys(values: list[float]) -> None:
    found = paired_t(np.array(values))
    theirs = scipy.stats.ttest_1samp(values, 0.0)
    low, high = theirs.confidence_interval(0.95)
    assert found.interval == pytest.approx((low, high), rel=1e-7, abs=1e-9)
    assert found.p == pytest.approx(theirs.pvalue, rel=1e-6, abs=1e-12)


@pytest.mark.parametrize("df", [1, 2, 3, 9, 10, 99])
@pytest.mark.parametrize("t", [0.0, 0.3, -2.2, 7.0])
def test_two_sided_p_is_scipys(t: float, df: int) -> None:
    assert t_two_sided(t, df) == pytest.approx(2 * scipy.stats.t.sf(abs(t), df), abs=1e-12)


def test_without_spread_there_is_no_t_interval() -> None:
    assert paired_t(np.zeros(10))[1:] == (0.0, None, None)
    assert paired_t(np.full(10, 0.1))[1:] == (0.0, None, None)
    assert paired_t(np.array([0.5]))[1:] == (None, None, None)
    with pytest.raises(ValueError, match="no task"):
        paired_t(np.array([]))


def test_sign_flip_is_scipys_on_sleep() -> None:
    found = sign_flip(SLEEP_2 - SLEEP_1)
    assert found.exact
    assert found.p == pytest.approx(scipys_flip(SLEEP_2 - SLEEP_1))


@settings(max_examples=60)
@given(st.lists(st.sampled_from([-1.0, -0.5, -0.25, 0.0, 0.25, 0.5, 0.75, 1.0]), min_size=2, max_size=11))
def test_exact_sign_flip_is_scipys(values: list[float]) -> None:
    assert sign_flip(np.array(values)).p == pytest.approx(scipys_flip(np.array(values)))


def test_drawn_sign_flip_is_near_the_exact_one() -> None:
    # 24 differences of one size: the sum is binomial, so the exact p is a closed form.
    values = np.array([1.0] * 17 + [-1.0] * 7)
    exact = scipy.stats.binomtest(17, 24).pvalue
    found = sign_flip(values)
    assert not found.exact
    assert found.p == pytest.approx(exact, abs=4 * np.sqrt(exact * (1 - exact) / 100_000))
    assert sign_flip(values) == found
    theirs = scipy.stats.permutation_test(
        (values,), mean, permutation_type="samples", n_resamples=20_000, rng=np.random.default_rng(1)
    )
    assert found.p == pytest.approx(theirs.pvalue, abs=0.01)


def test_sums_that_are_equal_but_for_their_last_digit_are_ties() -> None:
    # The sum is 0, so every pattern is at least as far out; in floating point it is not quite 0.
    assert sign_flip(np.array([-0.5, 1, 1 / 3, -0.5, 1 / 3, 1 / 3, -1])).p == 1.0


def test_sign_flip_of_nothing_is_one() -> None:
    assert sign_flip(np.zeros(5)).p == 1.0
    assert sign_flip(np.array([0.1, 0.2, -0.3])).p == 1.0


def test_holm_is_rs_p_adjust() -> None:
    # What p.adjust of R gives for these four with the method "holm".
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx((0.03, 0.06, 0.06, 0.02))
    assert holm([0.5, 0.9]) == (1.0, 1.0)
    assert holm([]) == ()


def test_detectable_is_blooms_multiplier() -> None:
    # Bloom (1995): 80 % power, two-sided 5 %: 2.80 for many degrees of freedom.
    many = detectable(1.0, 10_001)
    assert many is not None
    assert many * np.sqrt(10_001) == pytest.approx(2.80, abs=0.005)
    ten = detectable(0.4, 10)
    expected = (scipy.stats.t.ppf(0.975, 9) + scipy.stats.t.ppf(0.8, 9)) * 0.4 / np.sqrt(10)
    assert ten == pytest.approx(expected)
    assert detectable(1.0, 1) is None


@pytest.mark.parametrize("tasks", [10, 30, 100])
def test_the_power_at_what_is_detectable_is_80_percent(tasks: int) -> None:
    shift = detectable(1.0, tasks)
    assert shift is not None
    at = shift * np.sqrt(tasks)
    critical = scipy.stats.t.ppf(0.975, tasks - 1)
    power = 1 - scipy.stats.nct.cdf(critical, tasks - 1, at) + scipy.stats.nct.cdf(-critical, tasks - 1, at)
    assert power == pytest.approx(0.8, abs=0.02)


def test_what_can_differ_when_nothing_did() -> None:
    assert most_that_can_differ(10) == pytest.approx(0.2775328, abs=5e-8)
