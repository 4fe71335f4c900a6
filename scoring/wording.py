"""How numbers and texts of logs are shown, in every output alike."""

from __future__ import annotations

from typing import NamedTuple

from scoring.intervals import Interval


class Section(NamedTuple):
    """A table: ``rows`` have as many cells as ``columns``; without columns, a label and its values.

    ``key`` names it in links and templates; the columns from ``left`` on stand right.
    """

    key: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
    left: int = 1


def printable(text: str) -> str:
    """Text from a log without line breaks or terminal codes: each becomes U+FFFD."""
    return "".join(char if char.isprintable() else "\ufffd" for char in text)


def share(value: float | None) -> str:
    """Three decimals, or ``null``."""
    return "null" if value is None else f"{value:.3f}"


def signed(value: float | None, digits: int = 3) -> str:
    """With its sign, or ``null``."""
    return "null" if value is None else f"{value:+,.{digits}f}"


def number(value: float | None, digits: int = 0) -> str:
    """With thousands marks, or ``null``."""
    return "null" if value is None else f"{value:,.{digits}f}"


def interval(value: Interval | None, digits: int = 3) -> str:
    """``[low, high]``, or ``null``."""
    return "null" if value is None else f"[{value.low:,.{digits}f}, {value.high:,.{digits}f}]"


def p_value(value: float | None) -> str:
    """Three decimals; below a thousandth the bound; or ``null``."""
    if value is None:
        return "null"
    return "<0.001" if value < 0.001 else f"{value:.3f}"


def counted(numerator: float | None, denominator: float | None) -> str:
    """``numerator/denominator``, or nothing."""
    return "" if not denominator else f"{numerator}/{denominator}"


def more_than(total: int, shown: int) -> str:
    """What is said under a list that was cut."""
    return f"{total - shown:,} more: see the JSON form." if total > shown else ""
