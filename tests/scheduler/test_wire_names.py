"""The names under which withheld calls go to the harness."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.faults import KINDS
from scheduler.wire_names import WireName, split_wire_name, tool_of_wire_name, wire_name

BEFORE = [kind.name for kind in KINDS.values() if kind.timing == "before"]
KIND = st.sampled_from(BEFORE)
TOOL = st.text(alphabet=st.sampled_from("aBz09_-."), min_size=1, max_size=80) | st.sampled_from(
    ["Read", "Bash", "mcp__tickets__create", "container.exec", "x" * 64, "Read__timeout", "_", "__", "locked"]
)


def test_the_names_that_are_published() -> None:
    assert wire_name("Read", "timeout", ["Read", "Bash"]) == "Read__timeout"
    assert wire_name("x" * 64, "permission_denied", []) == "x" * 45 + "__permission_denied"
    assert wire_name("mcp__a__b", "locked", []) == "mcp__a__b__locked"


def test_a_name_that_is_offered_is_not_taken() -> None:
    offered = ["Read", "Read__timeout"]
    assert wire_name("Read", "timeout", offered) == "Read___timeout"
    assert wire_name("Read", "timeout", [*offered, "READ___TIMEOUT"]) == "Read____timeout"


def test_where_no_name_is_left_there_is_an_error() -> None:
    assert wire_name("Read", "locked", [], limit=9) == "R__locked"
    with pytest.raises(ValueError, match="no name of at most 9 characters is left for locked on Read"):
        wire_name("Read", "locked", ["r__locked"], limit=9)
    with pytest.raises(ValueError, match="no name of at most 8 characters"):
        wire_name("Read", "locked", [], limit=8)


@given(TOOL, KIND, st.lists(TOOL, max_size=6), st.integers(24, 128))
def test_a_name_is_short_new_and_can_be_taken_apart(
    tool: str, kind: str, offered: list[str], limit: int
) -> None:
    name = wire_name(tool, kind, offered, limit)
    assert len(name) <= limit
    assert name.endswith(f"__{kind}")
    assert name.casefold() not in {other.casefold() for other in offered}
    assert name == wire_name(tool, kind, [*offered, *offered], limit)
    start = name.removesuffix(kind).rstrip("_")
    assert tool.startswith(start)
    split = split_wire_name(name)
    if start:
        assert split == WireName(start, kind)


@given(TOOL, KIND, st.lists(TOOL, max_size=6), st.integers(24, 128))
def test_the_tool_is_found_again_among_those_that_are_offered(
    tool: str, kind: str, others: list[str], limit: int
) -> None:
    offered = [*others, tool]
    name = wire_name(tool, kind, offered, limit)
    found = tool_of_wire_name(name, offered, limit)
    same = {other for other in offered if wire_name(other, kind, offered, limit) == name}
    assert found == (WireName(tool, kind) if same == {tool} else None)


@given(TOOL, st.lists(KIND, min_size=1, max_size=4), TOOL)
def test_names_on_the_wire_can_be_offered_themselves(tool: str, kinds: list[str], other: str) -> None:
    offered = [tool, other]
    for kind in kinds:
        offered.append(wire_name(tool, kind, offered))
    assert len({name.casefold() for name in offered[2:]}) == len(kinds)


@pytest.mark.parametrize(
    "name",
    [
        "Read",
        "Read_timeout",
        "__timeout",
        "Read__timeouts",
        "Read__empty",
        "Read__timeout_after_effect",
        "",
        "Read__",
    ],
)
def test_a_name_that_is_none_of_ours(name: str) -> None:
    assert split_wire_name(name) is None
    assert tool_of_wire_name(name, ["Read"]) is None


def test_a_name_of_ours_on_a_tool_that_is_not_offered() -> None:
    assert split_wire_name("Read__timeout") == WireName("Read", "timeout")
    assert split_wire_name("mcp__a__timeout__locked") == WireName("mcp__a__timeout", "locked")
    assert split_wire_name("a__timeout__timeout") == WireName("a__timeout", "timeout")
    assert tool_of_wire_name("Read__timeout", ["Write"]) is None
    assert tool_of_wire_name("Read__timeout", ["Read", "Read__timeout"]) is None
