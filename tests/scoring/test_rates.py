"""The headline's rule and the registered scores on counts that can be checked by hand."""

from __future__ import annotations

import numpy as np
import pytest

from scoring.rates import METRICS, Gap, Ratio, Tally, estimate_all, headline, value_of


def tally(**counts: list[float]) -> Tally:
    size = len(next(iter(counts.values())))
    return Tally(**{name: np.array(counts.get(name, [0.0] * size), dtype=float) for name in Tally._fields})


TWO_TASKS = tally(
    runs=[4, 4],
    known=[4, 4],
    judged=[4, 4],
    complete=[3, 2],
    passed=[2, 1],
    quota_cut=[1, 0],
    restart_cut=[0, 1],
    error=[0, 1],
)


def test_registered_scores_by_hand() -> None:
    values = {name: estimate.value for name, estimate in estimate_all(TWO_TASKS).items()}
    assert values == {
        "strict": 3 / 8,
        "observed": 3 / 5,
        "completion_rate": 5 / 8,
        "truncation_rate": 2 / 8,
        "error_rate": 1 / 8,
        "truncation_exposure": 3 / 5 - 3 / 8,
        "exposure": None,
        "recovery_ratio": None,
        "rsr": None,
    }


def test_every_score_documents_its_formula() -> None:
    assert all(metric.compute.__doc__ for metric in METRICS.values())


def test_values_without_a_denominator_are_nan() -> None:
    one, none = (
        Ratio(np.array([1.0, 0.0]), np.array([2.0, 0.0])),
        Ratio(np.array([0.0, 0]), np.array([0.0, 0])),
    )
    assert value_of(one).tolist() == pytest.approx([0.5, np.nan], nan_ok=True)
    assert np.isnan(value_of(Gap(one, none))).all()


def head(**changes: float | None) -> tuple[float | None, str | None, str]:
    given: dict[str, float | None] = {
        "strict": 0.5,
        "observed": 0.7,
        "truncation_rate": 0.0,
        "error_rate": 0.0,
    }
    found = headline(**(given | {"unjudged_rate": 0.0, "threshold": 0.1} | changes))  # type: ignore[arg-type]
    return found.value, found.basis, found.reason


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, (0.7, "observed", "truncation and errors within the 10% threshold")),
        ({"truncation_rate": 0.1}, (0.7, "observed", "truncation and errors within the 10% threshold")),
        ({"truncation_rate": 0.11}, (0.5, "strict", "truncation above the 10% threshold")),
        ({"error_rate": 0.2}, (0.5, "strict", "errors above the 10% threshold")),
        (
            {"error_rate": 0.2, "truncation_rate": 0.2},
            (0.5, "strict", "truncation and errors above the 10% threshold"),
        ),
        ({"unjudged_rate": 0.2}, (0.5, "strict", "unjudged runs above the 10% threshold")),
        ({"error_rate": 0.2, "threshold": 0.125}, (0.5, "strict", "errors above the 12.5% threshold")),
        ({"strict": None, "observed": None}, (None, None, "no run could be judged")),
        ({"observed": None, "threshold": 1.0}, (None, "observed", "no run was complete")),
    ],
)
def test_headline(changes: dict[str, float | None], expected: tuple[float | None, str | None, str]) -> None:
    assert head(**changes) == expected
