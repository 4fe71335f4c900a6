"""One result as a real program prints it, and what it is made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Real:
    """A result that succeeded: ``body`` is the tool's own content, ``cut`` whether it says it is a part."""

    dialect: str
    tool: str
    text: str
    body: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    cut: bool = False
    first: int = 1

    def __str__(self) -> str:
        return f"{self.dialect}-{self.tool}-{self.text[:24]!r}"


def rows(first: int, last: int) -> str:
    """Lines of a long file."""
    return "\n".join(f"row {n} of the big file" for n in range(first, last + 1))
