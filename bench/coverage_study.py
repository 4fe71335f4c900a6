"""Measured coverage of the intervals: ``make coverage-study``, a few minutes on one core.

Tasks have pass rates from a beta distribution, runs of one task pass or fail by that rate, so that runs of a
task are correlated. For each cell of the study: how often the 95 % interval holds the true pass rate, exactly
for n_eff-Wilson and simulated for both intervals; and exactly under other models of such runs.
"""

from __future__ import annotations

import argparse
import itertools
import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from bench.coverage_exact import MODELS, beta_binomial, coverage
from scoring.intervals import Floats, Interval, cluster_bootstrap, neff_wilson
from scoring.rates import Ratio, value_of

TASKS = (10, 30, 100)
REPEATS = (1, 3, 5)
PASS_RATES = (0.5, 0.9, 0.98)
CORRELATIONS = (0.0, 0.5)
WANTED = 0.92


class Cell(NamedTuple):
    """One design: how many tasks and runs a task, the true pass rate, the correlation within a task."""

    tasks: int
    repeats: int
    pass_rate: float
    correlation: float


class Coverage(NamedTuple):
    """Shares of ``samples`` samples whose interval held the truth; ``exact``: what ``wilson`` tends to."""

    cell: Cell
    exact: float
    wilson: float
    bootstrap: float
    samples: int

    @property
    def holds(self) -> bool:
        """n_eff-Wilson covers at least 0.92 less two Monte-Carlo standard errors of this many samples."""
        return self.exact >= WANTED - 2 * math.sqrt(WANTED * (1 - WANTED) / self.samples)

    @property
    def errors_off(self) -> float:
        """How many standard errors the simulated coverage is from the exact one."""
        return (self.wilson - self.exact) / math.sqrt(self.exact * (1 - self.exact) / self.samples)


def cells() -> Iterator[Cell]:
    """Every cell of the study."""
    for cell in itertools.product(TASKS, REPEATS, PASS_RATES, CORRELATIONS):
        yield Cell(*cell)


def sample(cell: Cell, rng: np.random.Generator) -> Floats:
    """Passes and runs of each task, shape (tasks, 2); beta-binomial, whose correlation is 1 / (a + b + 1)."""
    rates = np.full(cell.tasks, cell.pass_rate)
    if cell.correlation:
        size = (1 - cell.correlation) / cell.correlation
        rates = rng.beta(cell.pass_rate * size, (1 - cell.pass_rate) * size, cell.tasks)
    passed = rng.binomial(cell.repeats, rates)
    return np.column_stack([passed, np.full(cell.tasks, cell.repeats)]).astype(np.float64)


def measure(cell: Cell, samples: int, resamples: int, seed: int) -> Coverage:
    """Draws ``samples`` data sets and counts the intervals that hold the true pass rate."""
    rng = np.random.default_rng([seed, *map(int, np.multiply(cell, 100))])
    held = np.zeros(2)
    for number in range(samples):
        columns = sample(cell, rng)
        wilson = neff_wilson(columns[:, 0], columns[:, 1])
        drawn = cluster_bootstrap(
            columns, {"it": lambda sums: value_of(Ratio(*sums.T))}, seed=number, resamples=resamples
        )
        both = (wilson.interval if wilson is not None else None, drawn["it"].interval)
        held += [_holds(interval, cell.pass_rate) for interval in both]
    return Coverage(cell, coverage(beta_binomial, *cell), *(held / samples).tolist(), samples)


def _holds(interval: Interval | None, truth: float) -> bool:
    return interval is not None and interval.low <= truth <= interval.high


def table(found: list[Coverage]) -> str:
    """The study as a table for docs/statistics.md: n_eff-Wilson, exact, then the bootstrap in brackets."""
    by_cell = {one.cell: one for one in found}
    columns = list(itertools.product(PASS_RATES, CORRELATIONS))
    lines = [
        "| tasks × runs | " + " | ".join(f"p {p:g}, ρ {rho:g}" for p, rho in columns) + " |",
        "|---" * (len(columns) + 1) + "|",
    ]
    for tasks, repeats in itertools.product(TASKS, REPEATS):
        row = [by_cell[Cell(tasks, repeats, *column)] for column in columns]
        shown = " | ".join(f"{one.exact:.3f} ({one.bootstrap:.3f})" for one in row)
        lines.append(f"| {tasks} × {repeats} | {shown} |")
    return "\n".join(lines)


def main() -> int:
    """Prints the table; 1 when n_eff-Wilson covers too little in some cell."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=5000, help="data sets for each cell")
    parser.add_argument("--resamples", type=int, default=500, help="bootstrap resamples of each data set")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    found = [measure(cell, options.samples, options.resamples, options.seed) for cell in cells()]
    print(table(found))
    short = [one for one in found if not one.holds]
    for one in short:
        print(f"too little: {one}")
    furthest = max(found, key=lambda one: abs(one.errors_off))
    print(f"furthest from the exact coverage by {furthest.errors_off:+.1f} standard errors: {furthest}")
    print(least_by_model())
    return 1 if short else 0


def least_by_model() -> str:
    """For each model of correlated runs: in how many cells less than 0.92 is covered, and the three worst."""
    lines = ["| model of a task's runs | cells below .92 | least covered |", "|---|---|---|"]
    for name, model in MODELS.items():
        by_cell = sorted((coverage(model, *cell), cell) for cell in cells())
        below = sum(held < WANTED for held, _ in by_cell)
        worst = ", ".join(
            f"{held:.3f} ({cell.tasks} × {cell.repeats}, p {cell.pass_rate:g}, ρ {cell.correlation:g})"
            for held, cell in by_cell[:3]
        )
        lines.append(f"| {name} | {below} of {len(by_cell)} | {worst} |")
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(main())
