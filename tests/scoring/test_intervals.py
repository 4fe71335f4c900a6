"""Intervals against R, scipy, closed forms and exhaustive enumeration; never against our own output."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from scoring import intervals
from scoring.intervals import (
    Floats,
    cluster_bootstrap,
    cluster_t,
    neff_wilson,
    resampled_totals,
    t_quantile,
    wilson,
    z_quantile,
)

# scipy's and R's documentation examples.
X = np.array([10, 12, 12.5, 12.5, 13.9, 15, 21, 22, 23, 34, 50, 81, 89, 121, 134, 213])
CITY_U = np.array([138.0, 93, 61, 179, 48, 37, 29, 23, 30, 2])
CITY_X = np.array([143.0, 104, 69, 260, 75, 63, 50, 48, 111, 50])
CLUSTERS = np.array([[3.0, 3], [2, 3], [0, 2], [3, 3], [1, 1]])
NINE_OF_TEN = np.array([[1.0, 1]] * 9 + [[0, 1]])


def ratio(totals: Floats) -> Floats:
    with np.errstate(invalid="ignore"):
        return totals[:, 0] / totals[:, 1]


def resampled_ratios(columns: Floats, seed: int = 1, resamples: int = 10_000) -> Floats:
    return np.concatenate([ratio(t) for t in resampled_totals(columns, seed=seed, resamples=resamples)])


@pytest.fixture(params=[1, 2, 1000], ids=["all at once", "some at once", "one by one"])
def _either_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intervals, "_COMMON", request.param)


@pytest.mark.parametrize("df", [1, 2, 3, 4, 5, 9, 10, 29, 30, 99, 1000, 99_999])
@pytest.mark.parametrize("level", [0.5, 0.9, 0.95, 0.99])
def test_t_quantile_is_scipys(df: int, level: float) -> None:
    assert t_quantile(df, level) == pytest.approx(scipy.stats.t.ppf(0.5 + level / 2, df), rel=1e-9)


def test_quantiles_of_tables() -> None:
    assert t_quantile(1) == pytest.approx(12.7062, abs=5e-5)
    assert z_quantile() == pytest.approx(1.959964, abs=5e-7)
    with pytest.raises(ValueError, match="degree of freedom"):
        t_quantile(0)


def test_wilson_against_r() -> None:
    assert wilson(0.3, 10) == pytest.approx((0.1077913, 0.6032219), abs=5e-8)
    assert wilson(1.0, 10) == pytest.approx((0.7224672, 1.0), abs=5e-8)
    assert wilson(0.0, 10) == pytest.approx((0.0, 0.2775328), abs=5e-8)


@given(st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_is_scipys(counts: tuple[int, int]) -> None:
    passed, n = counts
    theirs = scipy.stats.binomtest(passed, n).proportion_ci(0.95, method="wilson")
    assert wilson(passed / n, n) == pytest.approx((theirs.low, theirs.high), abs=1e-9)


def test_neff_wilson_with_one_run_per_task() -> None:
    nine = neff_wilson(NINE_OF_TEN[:, 0], NINE_OF_TEN[:, 1])
    ten = neff_wilson(np.ones(10), np.ones(10))
    assert nine is not None
    assert ten is not None
    assert nine.interval == pytest.approx((0.523, 0.987), abs=5e-4)
    assert ten.interval == pytest.approx((0.661, 1), abs=5e-4)


def test_neff_wilson_with_clusters() -> None:
    found = neff_wilson(CLUSTERS[:, 0], CLUSTERS[:, 1])
    assert found is not None
    assert found.n_eff == pytest.approx(6.17, abs=5e-3)
    assert found.n_used == pytest.approx(3.08, abs=5e-3)
    assert found.interval == pytest.approx((0.260, 0.962), abs=5e-4)


def test_neff_wilson_leaves_out_empty_tasks_and_needs_two() -> None:
    with_empty = np.vstack([CLUSTERS, [0, 0]])
    assert neff_wilson(*with_empty.T) == neff_wilson(*CLUSTERS.T)
    assert neff_wilson(np.array([3.0, 0]), np.array([4.0, 0])) is None
    assert neff_wilson(np.array([]), np.array([])) is None


def test_neff_is_all_runs_when_tasks_agree_exactly() -> None:
    found = neff_wilson(np.array([1.0, 1, 1]), np.array([3.0, 3, 3]))
    assert found is not None
    assert found.n_eff == 9


@given(st.lists(st.integers(1, 9).flatmap(lambda d: st.tuples(st.integers(0, d), st.just(d))), min_size=2))
def test_neff_wilson_stays_in_the_unit_interval_and_holds_the_value(rows: list[tuple[int, int]]) -> None:
    num, den = np.array(rows, dtype=float).T
    found = neff_wilson(num, den)
    assert found is not None
    assert 0 <= found.interval.low <= num.sum() / den.sum() <= found.interval.high <= 1
    assert 0 < found.n_used <= found.n_eff <= max(den.sum(), len(den))


@pytest.mark.usefixtures("_either_way")
def test_bootstrap_of_the_mean_is_scipys_and_rs() -> None:
    columns = np.column_stack([X, np.ones(len(X))])
    ours = cluster_bootstrap(columns, {"mean": ratio})["mean"].interval
    theirs = scipy.stats.bootstrap(
        (X,), np.mean, n_resamples=10_000, method="percentile", rng=np.random.default_rng(3)
    ).confidence_interval
    assert ours == pytest.approx((theirs.low, theirs.high), abs=1.5)
    assert ours == pytest.approx((28.86, 84.21), abs=1.5)


@pytest.mark.usefixtures("_either_way")
def test_bootstrap_of_a_ratio_is_rs_city() -> None:
    columns = np.column_stack([CITY_X, CITY_U])
    assert CITY_X.sum() / CITY_U.sum() == pytest.approx(1.5203, abs=5e-5)
    ours = cluster_bootstrap(columns, {"ratio": ratio})["ratio"].interval
    assert ours is not None
    assert ours.low == pytest.approx(1.25, abs=0.02)
    assert ours.high == pytest.approx(2.11, abs=0.06)


@pytest.mark.usefixtures("_either_way")
def test_bootstrap_of_clusters_is_the_exhaustive_one() -> None:
    every = np.array([CLUSTERS[list(picked)].sum(axis=0) for picked in itertools.product(range(5), repeat=5)])
    exact = ratio(every)
    assert len(exact) == 3125
    assert exact.mean() == pytest.approx(0.743102, abs=5e-7)
    assert exact.std() == pytest.approx(0.162884, abs=5e-7)
    assert np.quantile(exact, (0.025, 0.975)) == pytest.approx((0.4, 1.0))
    ours = resampled_ratios(CLUSTERS)
    assert ours.mean() == pytest.approx(0.743102, abs=5 * 0.162884 / 100)
    assert ours.std() == pytest.approx(0.162884, abs=0.006)
    assert cluster_bootstrap(CLUSTERS, {"p": ratio})["p"].interval == pytest.approx((0.4, 1.0))


def test_common_and_rare_rows_together_are_the_exhaustive_bootstrap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that are drawn at once and rows that are drawn one by one: the joint distribution of both sums."""
    monkeypatch.setattr(intervals, "_COMMON", 2)
    rows = np.array([[3.0, 3], [3, 3], [3, 3], [0, 2], [1, 1]])
    every = [tuple(rows[list(picked)].sum(axis=0)) for picked in itertools.product(range(5), repeat=5)]
    cells = sorted(set(every))
    expected = np.array([every.count(cell) for cell in cells]) * 50_000 / len(every)
    found = [tuple(total) for block in resampled_totals(rows, seed=2, resamples=50_000) for total in block]
    assert set(found) <= set(cells)
    counted = np.array([found.count(cell) for cell in cells])
    assert scipy.stats.chisquare(counted, expected).pvalue > 1e-4


@pytest.mark.usefixtures("_either_way")
def test_bootstrap_with_one_run_per_task_is_binomial() -> None:
    found = np.bincount(np.rint(resampled_ratios(NINE_OF_TEN) * 10).astype(int), minlength=11)
    expected = 10_000 * scipy.stats.binom.pmf(np.arange(11), 10, 0.9)
    few = slice(0, 6)
    pooled = [found[few].sum(), *found[6:]], [expected[few].sum(), *expected[6:]]
    assert scipy.stats.chisquare(*pooled).pvalue > 1e-4
    assert cluster_bootstrap(NINE_OF_TEN, {"p": ratio})["p"].interval == pytest.approx((0.7, 1.0))


def test_resamples_without_a_denominator_are_dropped_and_counted() -> None:
    found = cluster_bootstrap(np.array([[1.0, 1], [0, 0]]), {"p": ratio})["p"]
    assert found.dropped == pytest.approx(0.25, abs=0.02)
    assert found.interval == (1.0, 1.0)
    nothing = cluster_bootstrap(np.zeros((3, 2)), {"p": ratio})["p"]
    assert nothing.interval is None
    assert nothing.dropped == 1.0


@given(st.permutations(range(5)), st.sampled_from([1, 2, 1000]))
def test_the_order_of_tasks_changes_no_digit(order: list[int], common: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(intervals, "_COMMON", common)
        one = cluster_bootstrap(CLUSTERS, {"p": ratio}, resamples=200)
        other = cluster_bootstrap(CLUSTERS[order], {"p": ratio}, resamples=200)
    assert one == other


def test_the_seed_decides() -> None:
    columns = np.column_stack([X, np.ones(len(X))])
    first, again = (cluster_bootstrap(columns, {"m": ratio}, seed=5) for _ in range(2))
    assert first == again
    assert first != cluster_bootstrap(columns, {"m": ratio}, seed=6)


def test_blocks_do_not_change_the_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intervals, "_CHUNK_CELLS", 64)
    totals = list(resampled_totals(CLUSTERS, seed=1, resamples=101))
    assert sum(map(len, totals)) == 101
    assert all(len(block) <= 64 for block in totals)


def test_cluster_t_with_one_run_per_task_is_the_students_interval() -> None:
    theirs = scipy.stats.ttest_1samp(X, 0).confidence_interval(0.95)
    assert cluster_t(X, np.ones(len(X))) == pytest.approx((theirs.low, theirs.high))


def test_cluster_t_counts_the_cost_of_tasks_without_a_pass() -> None:
    tokens, passes = np.array([100.0, 200, 300]), np.array([1.0, 0, 2])
    # By hand: ratio 200, residuals -100, 200, -100, se² = 60,000 / 6; t of 2 degrees of freedom 4.302653.
    assert cluster_t(tokens, passes) == pytest.approx((0.0, 200 + 4.302653 * 100))
    assert cluster_t(tokens, np.zeros(3)) is None
    assert cluster_t(tokens[:1], passes[:1]) is None
