"""Quantiles in fixed memory against numpy's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scoring.histogram import Histogram


@given(st.lists(st.integers(0, 10**15), min_size=1), st.sampled_from([0.0, 0.25, 0.5, 0.99, 1.0]))
def test_quantiles_are_numpys_to_four_digits(values: list[int], share: float) -> None:
    histogram = Histogram()
    for half in (values[::2], values[1::2]):
        histogram.add(np.array(half, dtype=np.int64))
    assert len(histogram) == len(values)
    assert histogram.maximum == max(values)
    assert histogram.quantile(share) == pytest.approx(np.quantile(values, share), rel=1e-3, abs=1e-9)


@given(st.lists(st.integers(0, 9_999), min_size=1))
def test_small_numbers_are_exact(values: list[int]) -> None:
    histogram = Histogram()
    histogram.add(np.array(values, dtype=np.int64))
    assert histogram.quantile(0.5) == pytest.approx(np.quantile(values, 0.5))


def test_empty() -> None:
    with pytest.raises(ValueError, match="empty"):
        Histogram().quantile(0.5)
