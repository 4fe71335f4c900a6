"""Paired differences over tasks: the t interval, the sign-flip test, Holm's correction, what could be seen.

Every function takes one difference per task, shape (tasks,): the task, with all its seeds and repeats, is the
sampling unit here, too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from scoring.intervals import LEVEL, SEED, Floats, Interval, t_quantile, t_two_sided, wilson

POWER = 0.80
FLIPS = 100_000
# 2^18 sign patterns take a few milliseconds; beyond that they are drawn.
_EXACT_UP_TO = 18
_SAME = 1e-9


class PairedT(NamedTuple):
    """``interval`` is null for fewer than two tasks, or when all differences are equal; ``p`` likewise."""

    mean: float
    sd: float | None
    interval: Interval | None
    p: float | None


class SignFlip(NamedTuple):
    """``p`` is two-sided; ``exact``: all sign patterns were looked at, else ``patterns`` were drawn."""

    p: float
    exact: bool
    patterns: int


def paired_t(differences: Floats, level: float = LEVEL) -> PairedT:
    """Student's t interval of the mean difference. Student, Biometrika 6 (1908) 1–25.

    Raises ``ValueError`` without a difference.
    """
    n = len(differences)
    if not n:
        raise ValueError("no task, no difference")
    mean = math.fsum(differences.tolist()) / n
    if n < 2:
        return PairedT(mean, None, None, None)
    sd = math.sqrt(math.fsum(((differences - mean) ** 2).tolist()) / (n - 1))
    if sd <= _SAME * max(1.0, abs(mean)):
        return PairedT(mean, 0.0, None, None)
    error = sd / math.sqrt(n)
    half = t_quantile(n - 1, level) * error
    return PairedT(mean, sd, Interval(mean - half, mean + half), t_two_sided(mean / error, n - 1))


def sign_flip(differences: Floats, *, seed: int = SEED, patterns: int = FLIPS) -> SignFlip:
    """The share of sign patterns whose mean is at least as far from 0 as the observed one.

    All patterns where at most 18 differences are not 0, which takes in the identity; else ``patterns`` drawn
    ones with the observed one added (B. Phipson and G. K. Smyth, Stat. Appl. Genet. Mol. Biol. 9 (2010) 39).
    R. A. Fisher, The Design of Experiments (1935), section 21.
    """
    moving = np.abs(differences[differences != 0])
    moving.sort()
    observed = abs(math.fsum(differences.tolist()))
    reached = observed - _SAME * max(1.0, float(moving.sum()))
    if len(moving) <= _EXACT_UP_TO:
        sums = np.zeros(1)
        for size in moving:
            sums = np.concatenate((sums + size, sums - size))
        return SignFlip(float(np.mean(np.abs(sums) >= reached)), True, len(sums))
    rng = np.random.default_rng(seed)
    found = 0
    block = max(1, (1 << 22) // len(moving))
    for start in range(0, patterns, block):
        size = min(block, patterns - start)
        signs = rng.integers(0, 2, size=(size, len(moving)), dtype=np.int8)
        # Σ±x = 2·Σ(chosen x) − Σx
        sums = 2 * (signs @ moving) - moving.sum()
        found += int(np.count_nonzero(np.abs(sums) >= reached))
    return SignFlip((found + 1) / (patterns + 1), False, patterns)


def holm(p_values: Sequence[float]) -> tuple[float, ...]:
    """Adjusted p values, in the order given. S. Holm, Scand. J. Statist. 6 (1979) 65–70."""
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for rank, index in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = largest
    return tuple(adjusted)


def detectable(sd: float, tasks: int, *, level: float = LEVEL, power: float = POWER) -> float | None:
    """The smallest true mean difference that a two-sided test at 1 − ``level`` finds with ``power``.

    (t_{level} + t_{power}) · sd / √tasks with tasks − 1 degrees of freedom: H. S. Bloom, Evaluation Review 19
    (1995) 547–556. Null for fewer than two tasks.
    """
    if tasks < 2:
        return None
    # t_quantile is two-sided: the one-sided quantile of the power is that of the level 2·power − 1.
    multiplier = t_quantile(tasks - 1, level) + t_quantile(tasks - 1, 2 * power - 1)
    return multiplier * sd / math.sqrt(tasks)


def most_that_can_differ(tasks: int, level: float = LEVEL) -> float:
    """Where no task differed: the largest share of tasks that may differ all the same (Wilson, 0 of n)."""
    return wilson(0.0, tasks, level).high
