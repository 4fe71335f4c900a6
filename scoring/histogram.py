"""Quantiles of whole numbers in fixed memory, exact to four significant digits."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

# Numbers below 10,000 have a place each; from there on every power of ten has 9,000 places.
_EXACT = 10_000
_PER_DECADE = 9_000
_DECADES = 14


class Histogram:
    """Counts of whole numbers from 0 to 10^18; ``maximum`` is exact, null when nothing was added."""

    def __init__(self) -> None:
        self._counts = np.zeros(_EXACT + _DECADES * _PER_DECADE, dtype=np.int64)
        self.maximum: int | None = None

    def __len__(self) -> int:
        return int(self._counts.sum())

    def add(self, values: NDArray[np.int64]) -> None:
        """Adds every value; what has more than four digits is rounded down to four."""
        if not len(values):
            return
        self.maximum = max(self.maximum or 0, int(values.max()))
        digits = np.maximum(np.log10(np.maximum(values, 1)).astype(np.int64) - 3, 0)
        leading = values // 10**digits
        # The logarithm can be off by one just at a power of ten.
        over, under = leading >= _EXACT, (leading < 1000) & (digits > 0)
        digits += over.astype(np.int64) - under
        leading = values // 10**digits
        np.add.at(self._counts, leading + digits * _PER_DECADE, 1)

    def quantile(self, share: float) -> float:
        """The linearly interpolated quantile (Hyndman & Fan's type 7). Raises ``ValueError`` when empty."""
        if not len(self):
            raise ValueError("an empty histogram has no quantile")
        reached = np.cumsum(self._counts)
        place = (int(reached[-1]) - 1) * share
        low, high = (
            _value(int(np.searchsorted(reached, math.floor(place) + up, side="right")))
            for up in (0, math.ceil(place) - math.floor(place))
        )
        return low + (place - math.floor(place)) * (high - low)


def _value(index: int) -> int:
    digits = max(0, (index - 1000) // _PER_DECADE)
    return int((index - digits * _PER_DECADE) * 10**digits)
