"""The exact coverage is what all outcomes, gone through one by one, say; and a model keeps its word."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from bench.coverage_exact import MODELS, Model, coverage
from bench.coverage_study import Cell, cells, measure, table
from scoring.intervals import neff_wilson

EVERY = pytest.mark.parametrize("model", MODELS.values(), ids=list(MODELS))


@EVERY
@pytest.mark.parametrize(("runs", "pass_rate", "correlation"), [(1, 0.9, 0.5), (5, 0.98, 0.0), (3, 0.5, 0.5)])
def test_a_model_has_the_pass_rate_and_the_correlation_that_were_asked_for(
    model: Model, runs: int, pass_rate: float, correlation: float
) -> None:
    chances = model(runs, pass_rate, correlation)
    passes = np.arange(runs + 1)
    mean = float(chances @ passes)
    assert chances.sum() == pytest.approx(1)
    assert mean == pytest.approx(runs * pass_rate)
    if runs > 1 and model is not MODELS["threshold"]:  # there it is the correlation of what is not seen
        variance = float(chances @ passes**2) - mean**2
        alone = runs * pass_rate * (1 - pass_rate)
        assert (variance / alone - 1) / (runs - 1) == pytest.approx(correlation, abs=1e-9)


def test_the_threshold_model_of_even_chances_has_sheppards_correlation() -> None:
    # W. F. Sheppard: two halves of a normal pair with correlation ρ agree with 1/2 + asin(ρ)/π.
    chances = MODELS["threshold"](2, 0.5, 0.5)
    assert chances[2] + chances[0] == pytest.approx(0.5 + math.asin(0.5) / math.pi, abs=1e-6)


@EVERY
def test_exact_coverage_is_that_of_all_outcomes(model: Model) -> None:
    tasks, runs, pass_rate = 4, 3, 0.9
    chances = model(runs, pass_rate, 0.5)
    expected = 0.0
    for outcome in itertools.product(range(runs + 1), repeat=tasks):
        found = neff_wilson(np.array(outcome, dtype=float), np.full(tasks, float(runs)))
        assert found is not None
        if found.interval.low <= pass_rate <= found.interval.high:
            expected += math.prod(chances[x] for x in outcome)
    assert coverage(model, tasks, runs, pass_rate, 0.5) == pytest.approx(expected, abs=1e-9)


def test_simulated_coverage_is_near_the_exact_one() -> None:
    found = measure(Cell(10, 3, 0.9, 0.5), samples=400, resamples=20, seed=1)
    assert abs(found.errors_off) < 4


def test_the_table_has_every_cell() -> None:
    found = [measure(cell, samples=2, resamples=2, seed=1) for cell in cells()]
    assert len(found) == 54
    assert table(found).count(" (") == 54
