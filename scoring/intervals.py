"""Intervals for ratios of sums over tasks. The task, with all its seeds and repeats, is the sampling unit.

Three of them: ``neff_wilson`` for proportions (shown first: it holds at few tasks and at all-pass),
``cluster_bootstrap`` for any statistic of column sums, ``cluster_t`` for means. All are deterministic.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

type Floats = NDArray[np.float64]
type Statistic = Callable[[Floats], Floats]

LEVEL = 0.95
SEED = 20_260_101
RESAMPLES = 10_000

# A block of draws stays in the processor's cache.
_CHUNK_CELLS = 1 << 16
# From this many equal rows on, drawing their number at once is quicker than drawing them one by one.
_COMMON = 16


class Interval(NamedTuple):
    """A closed interval, ``low <= high``."""

    low: float
    high: float


class NeffWilson(NamedTuple):
    """``n_eff`` is the effective sample size, ``n_used`` the same after the (z/t)² correction."""

    interval: Interval
    n_eff: float
    n_used: float


class Bootstrap(NamedTuple):
    """``interval`` is null when every resample was dropped; ``dropped`` is the share without a value."""

    interval: Interval | None
    dropped: float


def z_quantile(level: float = LEVEL) -> float:
    """The standard normal quantile of a two-sided interval at ``level``."""
    return NormalDist().inv_cdf(0.5 + level / 2)


@lru_cache(maxsize=256)
def t_quantile(df: int, level: float = LEVEL) -> float:
    """Student's t quantile of a two-sided interval at ``level`` with ``df`` degrees of freedom.

    Inverts the finite series for integer degrees of freedom, Abramowitz & Stegun 26.7.3 and 26.7.4, by
    bisection in the angle atan(t/√df). Raises ``ValueError`` when ``df`` < 1.
    """
    if df < 1:
        raise ValueError(f"Student's t needs at least one degree of freedom, not {df}")
    low, high = 0.0, math.pi / 2
    while True:
        middle = (low + high) / 2
        if not low < middle < high:
            return math.tan(middle) * math.sqrt(df)
        if _central_t(middle, df) < level:
            low = middle
        else:
            high = middle


def t_two_sided(t: float, df: int) -> float:
    """P(|T| >= |t|) of Student's t with ``df`` degrees of freedom, by the same series."""
    return max(0.0, 1.0 - _central_t(math.atan(abs(t) / math.sqrt(df)), df))


def _central_t(angle: float, df: int) -> float:
    """P(|T| <= t) with t = √df·tan(angle)."""
    sine, cosine = math.sin(angle), math.cos(angle)
    if df == 1:
        return 2 * angle / math.pi
    steps = np.arange(1, (df - 1) // 2 if df % 2 else df // 2, dtype=np.float64)
    if df % 2:
        terms = np.cumprod(2 * steps / (2 * steps + 1) * cosine**2)
        return 2 / math.pi * (angle + sine * cosine * (1 + float(terms.sum())))
    terms = np.cumprod((2 * steps - 1) / (2 * steps) * cosine**2)
    return sine * (1 + float(terms.sum()))


def wilson(proportion: float, n: float, level: float = LEVEL) -> Interval:
    """Wilson's score interval; ``n`` > 0 need not be whole. E. B. Wilson, JASA 22 (1927) 209–212."""
    z = z_quantile(level)
    centre = proportion + z * z / (2 * n)
    half = z * math.sqrt(proportion * (1 - proportion) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    low = 0.0 if proportion == 0 else max(0.0, (centre - half) / scale)
    high = 1.0 if proportion == 1 else min(1.0, (centre + half) / scale)
    return Interval(low, high)


def neff_wilson(numerator: Floats, denominator: Floats, level: float = LEVEL) -> NeffWilson | None:
    """Wilson's interval with the sample size that the tasks are worth; arguments of shape (tasks,).

    Over the n tasks with denominator > 0: t = Σnum/Σden, L_i = (num_i − t·den_i)/mean(den),
    se² = ΣL_i²/(n(n−1)); n_eff = n if t is 0 or 1, else min(t(1−t)/se², Σden) (Σden if se is 0); times
    (z/t_{n−1})². Null for fewer than two tasks. The linearised variance and the degrees-of-freedom
    correction of the effective sample size follow Korn & Graubard, Survey Methodology 24 (1998) 193–201.
    """
    use = denominator > 0
    num, den = numerator[use], denominator[use]
    n = len(den)
    if n < 2:
        return None
    total = float(den.sum())
    t = float(num.sum()) / total
    return neff_wilson_of(t, _linearised_variance(num, den, t), n, total, level)


def neff_wilson_of(
    ratio: float, variance: float, tasks: int, total: float, level: float = LEVEL
) -> NeffWilson:
    """The same from what it depends on: the ratio, its linearised variance, the tasks and Σden."""
    if ratio in (0.0, 1.0):
        n_eff = float(tasks)
    else:
        n_eff = total if variance == 0 else min(ratio * (1 - ratio) / variance, total)
    n_used = n_eff * (z_quantile(level) / t_quantile(tasks - 1, level)) ** 2
    return NeffWilson(wilson(ratio, n_used, level), n_eff, n_used)


def _linearised_variance(num: Floats, den: Floats, ratio: float) -> float:
    """Taylor-linearised variance of Σnum/Σden over n >= 2 tasks; W. G. Cochran, Sampling Techniques, 6.3."""
    n = len(den)
    residuals = (num - ratio * den) / den.mean()
    return math.fsum((residuals**2).tolist()) / (n * (n - 1))


def cluster_t(numerator: Floats, denominator: Floats, level: float = LEVEL) -> Interval | None:
    """Student-t interval of Σnum/Σden (a mean cost, say) from the linearised variance over tasks.

    Tasks with neither numerator nor denominator are left out. Null for fewer than two tasks or when the
    denominators sum to zero. The low end is not below 0: costs are not negative.
    """
    found = cluster_t_signed(numerator, denominator, level)
    return None if found is None else Interval(max(0.0, found.low), found.high)


def cluster_t_signed(numerator: Floats, denominator: Floats, level: float = LEVEL) -> Interval | None:
    """As ``cluster_t`` for means that may be negative, such as what one arm costs more than the other."""
    use = (denominator != 0) | (numerator != 0)
    num, den = numerator[use], denominator[use]
    if len(den) < 2 or den.sum() == 0:
        return None
    ratio = math.fsum(num.tolist()) / float(den.sum())
    half = t_quantile(len(den) - 1, level) * math.sqrt(_linearised_variance(num, den, ratio))
    return Interval(ratio - half, ratio + half)


def cluster_bootstrap(
    columns: Floats,
    statistics: Mapping[str, Statistic],
    *,
    seed: int = SEED,
    resamples: int = RESAMPLES,
    level: float = LEVEL,
) -> dict[str, Bootstrap]:
    """Percentile bootstrap over tasks: ``columns`` has shape (tasks, k), one row of counts per task.

    Every statistic maps resampled column sums of shape (b, k) to shape (b,), nan where it has no value;
    all see the same resamples. Quantiles interpolate linearly (Hyndman & Fan's type 7).
    B. Efron, Annals of Statistics 7 (1979) 1–26, with whole clusters as the units.
    """
    values = {name: np.empty(resamples) for name in statistics}
    at = 0
    for totals in resampled_totals(columns, seed=seed, resamples=resamples):
        for name, statistic in statistics.items():
            values[name][at : at + len(totals)] = statistic(totals)
        at += len(totals)
    return {name: _percentiles(value, level) for name, value in values.items()}


def _percentiles(values: Floats, level: float) -> Bootstrap:
    defined = values[~np.isnan(values)]
    dropped = 1 - len(defined) / len(values)
    if not len(defined):
        return Bootstrap(None, dropped)
    low, high = np.quantile(defined, ((1 - level) / 2, (1 + level) / 2))
    return Bootstrap(Interval(float(low), float(high)), dropped)


def resampled_totals(columns: Floats, *, seed: int, resamples: int) -> Iterator[Floats]:
    """Column sums of ``resamples`` resamples of the rows, in blocks of shape (b, k).

    The order of the rows does not matter. Whole-number counts below 2^53 are summed exactly. How often each
    row of which there are many is drawn, and how often any of the others, is one multinomial draw; the
    others are then drawn one by one. The distribution of the sums is that of drawing n row numbers.
    """
    rows, counts = np.unique(columns, axis=0, return_counts=True)
    n = len(columns)
    common = counts >= _COMMON
    shares = np.append(counts[common], counts[~common].sum()) / n
    frequent, scattered = rows[common], np.repeat(rows[~common], counts[~common], axis=0)
    rng = np.random.default_rng(seed)
    for size in _blocks(resamples, max(len(shares), len(scattered))):
        drawn = rng.multinomial(n, shares, size=size)
        totals = drawn[:, :-1].astype(np.float64) @ frequent
        if len(scattered):
            totals += _scattered_totals(rng, scattered, drawn[:, -1])
        yield totals


def _scattered_totals(rng: np.random.Generator, rows: Floats, times: NDArray[np.int64]) -> Floats:
    """Sums of ``times[i]`` rows drawn with replacement, for each i."""
    n, size = len(rows), len(times)
    picked = rng.integers(0, n, size=int(times.sum()))
    picked += np.repeat(np.arange(size) * n, times)
    counted = np.bincount(picked, minlength=size * n).reshape(size, n)
    totals: Floats = counted.astype(np.float64) @ rows
    return totals


def _blocks(resamples: int, width: int) -> Iterator[int]:
    block = max(1, _CHUNK_CELLS // width)
    for start in range(0, resamples, block):
        yield min(block, resamples - start)
