"""Exact coverage of n_eff-Wilson for tasks with the same number of runs each: no simulation, no error of one.

The interval depends on the passes x_i of the tasks through Σx and Σx² alone. Their joint distribution over n
independent tasks is the n-fold convolution of that of (x, x²), which a Fourier transform gives at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
import scipy.stats

from scoring.intervals import Floats, neff_wilson_of

type Model = Callable[[int, float, float], Floats]

# Sums less likely than this are left out; what they add up to is far below the third digit.
_UNLIKELY = 1e-12
_NODES = 150


def beta_binomial(runs: int, pass_rate: float, correlation: float) -> Floats:
    """P(x passes of a task), shape (runs + 1,): tasks have pass rates from a beta distribution."""
    if not correlation:
        return _binomial(runs, pass_rate)
    size = (1 - correlation) / correlation
    x = np.arange(runs + 1)
    found: Floats = scipy.stats.betabinom.pmf(x, runs, pass_rate * size, (1 - pass_rate) * size)
    return found


def all_or_nothing(runs: int, pass_rate: float, correlation: float) -> Floats:
    """With probability ρ one draw decides all runs of a task; else each is drawn by itself."""
    lump = np.zeros(runs + 1)
    lump[0], lump[-1] = 1 - pass_rate, pass_rate
    return correlation * lump + (1 - correlation) * _binomial(runs, pass_rate)


def copies(runs: int, pass_rate: float, correlation: float) -> Floats:
    """Each run copies its task's one draw with probability √ρ; else it is drawn by itself."""
    share = math.sqrt(correlation)
    own = (1 - share) * pass_rate
    return pass_rate * _binomial(runs, share + own) + (1 - pass_rate) * _binomial(runs, own)


def threshold(runs: int, pass_rate: float, correlation: float) -> Floats:
    """A run passes when the task's normal ability and the run's normal luck, correlated ρ, are enough."""
    if not correlation:
        return _binomial(runs, pass_rate)
    nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES)
    limit = scipy.stats.norm.ppf(pass_rate)
    rates = scipy.stats.norm.cdf((limit - math.sqrt(correlation) * nodes) / math.sqrt(1 - correlation))
    x = np.arange(runs + 1)[:, np.newaxis]
    found: Floats = scipy.stats.binom.pmf(x, runs, rates) @ (weights / weights.sum())
    return found


MODELS: dict[str, Model] = {
    "beta-binomial": beta_binomial,
    "threshold": threshold,
    "copies": copies,
    "all or nothing": all_or_nothing,
}


def _binomial(runs: int, rate: float) -> Floats:
    found: Floats = scipy.stats.binom.pmf(np.arange(runs + 1), runs, rate)
    return found


def coverage(model: Model, tasks: int, runs: int, pass_rate: float, correlation: float) -> float:
    """P(the 95 % interval of ``tasks`` tasks with ``runs`` runs each holds ``pass_rate``)."""
    joint = _sums(model(runs, pass_rate, correlation), tasks)
    held = 0.0
    for passed, squares in np.argwhere(joint > _UNLIKELY).tolist():
        if _holds(tasks, runs, passed, squares, pass_rate):
            held += float(joint[passed, squares])
    return held


def _sums(of_a_task: Floats, tasks: int) -> Floats:
    """The joint distribution of (Σx, Σx²) over ``tasks`` tasks, indexed by both."""
    runs = len(of_a_task) - 1
    one = np.zeros((tasks * runs + 1, tasks * runs**2 + 1))
    for x, probability in enumerate(of_a_task):
        one[x, x * x] = probability
    found: Floats = np.fft.irfft2(np.fft.rfft2(one) ** tasks, s=one.shape)
    return found


@lru_cache(maxsize=1 << 20)
def _holds(tasks: int, runs: int, passed: int, squares: int, pass_rate: float) -> bool:
    total = tasks * runs
    # ΣL² with L_i = (x_i − t·runs)/runs, times n(n − 1) below; whole numbers, so that equal tasks give 0.
    spread = tasks * squares - passed * passed
    variance = spread / (tasks * runs**2) / (tasks * (tasks - 1))
    interval = neff_wilson_of(passed / total, variance, tasks, total).interval
    return interval.low <= pass_rate <= interval.high
