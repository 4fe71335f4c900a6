"""Figures: what was measured, its target, and how it is shown."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

Unit = Literal["x", "ms", "s"]


class Spread(NamedTuple):
    """Median, first and third quartile, and how many measurements they were taken from."""

    median: float
    low: float
    high: float
    n: int


def spread(values: Sequence[float]) -> Spread:
    """The spread of ``values``, of which there must be at least one."""
    if len(values) == 1:
        return Spread(values[0], values[0], values[0], 1)
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return Spread(median, low, high, len(values))


def quantile(values: Sequence[float], q: float) -> float:
    """The value at rank ``q`` (0 to 1) of ``values``, the nearest one that was measured."""
    ordered = sorted(values)
    return ordered[min(int(q * len(ordered)), len(ordered) - 1)]


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table. ``target`` is the largest good median, None where nothing was promised.

    ``unit`` ``x`` is a ratio of two things measured side by side in this run; ``absolute`` says, in words,
    what the two were.
    """

    measure: str
    case: str
    what: str
    value: Spread
    target: float | None
    absolute: str
    unit: Unit = "x"

    @property
    def met(self) -> bool | None:
        """Whether the median is within the target; None without one."""
        return None if self.target is None else self.value.median <= self.target


def shown(value: float, unit: Unit) -> str:
    """A number with its unit, as short as it can be read."""
    digits = 3 if value < 0.1 else 2 if value < 100 else 0
    return f"{value:.{digits}f}" if unit == "x" else f"{value:.{digits}f} {unit}"
