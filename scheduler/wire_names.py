"""The names under which withheld calls go to the harness: names that no tool has."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import NamedTuple

from scheduler.faults import KINDS

# What most providers allow (OpenAI, Gemini: 64; Anthropic: 128).
NAME_LIMIT = 64


class WireName(NamedTuple):
    """A name that came back, taken apart: the start of the tool's name, and the kind."""

    tool: str
    kind: str


def wire_name(tool: str, kind: str, offered: Collection[str], limit: int = NAME_LIMIT) -> str:
    """``<tool>__<kind>`` with the tool's name shortened to ``limit`` characters, the suffix never.

    Never a name of ``offered`` (the request's tools), in whatever case: then it has one more underscore,
    and so on. The same arguments always give the same name.

    Raises ``ValueError`` when no name is left.
    """
    taken = {name.casefold() for name in offered}
    for name in _names(tool, kind, limit):
        if name.casefold() not in taken:
            return name
    raise ValueError(f"no name of at most {limit} characters is left for {kind} on {tool}")


def _names(tool: str, kind: str, limit: int) -> Iterator[str]:
    for underscores in range(2, limit - len(kind)):
        suffix = "_" * underscores + kind
        yield tool[: limit - len(suffix)] + suffix


def split_wire_name(name: str) -> WireName | None:
    """Tool and kind of a name that ``wire_name`` could have made, when nothing is remembered of it.

    The tool's name may be the start of it only, and has none of the underscores at its end.
    """
    if "__" not in name:
        return None  # nearly every name
    match = _pattern().fullmatch(name)
    return None if match is None else WireName(match["tool"], match["kind"])


def tool_of_wire_name(name: str, offered: Collection[str], limit: int = NAME_LIMIT) -> WireName | None:
    """The one tool of ``offered`` whose call could have been renamed to ``name``; None: none, or several."""
    found = split_wire_name(name)
    if found is None:
        return None
    kind = found.kind
    tools = {
        tool
        for tool in offered
        if tool.startswith(found.tool) and wire_name(tool, kind, offered, limit) == name
    }
    return WireName(tools.pop(), kind) if len(tools) == 1 else None


def _pattern() -> re.Pattern[str]:
    kinds = "|".join(kind.name for kind in KINDS.values() if kind.timing == "before")
    return re.compile(rf"(?s:(?P<tool>.+?))_{{2,}}(?P<kind>{kinds})")
