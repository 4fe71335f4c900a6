"""Numbers that a harness prints inside a result about that same result: they must agree with what is there.

The rules stand in the probe file, not in the dialect: what the dialect forgot to keep right is seen here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from pydantic import field_validator

from scheduler.form import Checked, checked_patterns


class CountRule(Checked):
    """``pattern`` finds the numbers: ``n``, or ``first`` and ``last``. They say how many lines match ``of``
    (``n`` less ``plus``).

    With ``consecutive`` the pattern is for lines instead, and their numbers ``n`` go up by one.
    """

    pattern: str
    of: str = r"\S"
    plus: int = 0
    consecutive: bool = False

    @field_validator("pattern", "of")
    @classmethod
    def _pattern(cls, value: str) -> str:
        return checked_patterns((value,))[0]


def wrong_counts(rules: Sequence[CountRule], text: str) -> Iterator[str]:
    """What does not add up in ``text``, in sentences."""
    for rule in rules:
        yield from _consecutive(rule, text) if rule.consecutive else _counted(rule, text)


def _consecutive(rule: CountRule, text: str) -> Iterator[str]:
    numbers = [int(found["n"]) for line in text.split("\n") if (found := re.match(rule.pattern, line))]
    for earlier, later in pairwise(numbers):
        if later != earlier + 1:
            yield f"line {earlier} is followed by line {later}"
            return


def _counted(rule: CountRule, text: str) -> Iterator[str]:
    found = re.search(rule.pattern, text)
    if found is None:
        return
    lines = sum(re.search(rule.of, line) is not None for line in text.split("\n"))
    numbers = found.groupdict()
    if "n" in numbers:
        said = int(numbers["n"].replace(",", "")) - rule.plus
    else:
        said = int(numbers["last"]) - int(numbers["first"]) + 1
    if said != lines:
        yield f"{found[0]!r} is said of {lines} lines"
