"""Which kinds can be done to which tools, and the table that says it in the log."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import configs
from scheduler.call import FAMILIES
from scheduler.dialect import Dialect, parse_dialect
from scheduler.faults import KINDS
from scheduler.fitting import fitting_by, fitting_kinds, gaps_for, gaps_of
from tests.scheduler.calls import kinds_of, profile

NAMES = sorted(configs.dialects())
PROFILES = list(configs.profile_names())
ALL_KINDS = configs.load_profile("moderate")
AFTER = {kind.name for kind in KINDS.values() if kind.timing == "after"}


def speaking(**forms: Any) -> Dialect:
    """A dialect with one tool of each family and the wordings of ``forms``."""
    words = {
        name: {"errors": {kind: [{"text": text}] for kind, text in kinds.items()}}
        for name, kinds in forms.items()
    }
    tools = {family.title(): {"family": family, "target": "path"} for family in FAMILIES}
    return parse_dialect({"name": "x", "title": "X", "tools": tools, "forms": words}, "x.yaml")


def test_an_after_kind_fits_its_families_whatever_the_dialect_says() -> None:
    mute = speaking()
    for family in FAMILIES:
        assert set(fitting_kinds(mute, family.title(), family)) == set(kinds_of(family)) & AFTER


def test_a_before_kind_fits_a_tool_that_has_words_for_it() -> None:
    x = speaking(read={"locked": "{target} is locked"}, other={"timeout": "late"}, edit={"timeout": "{path}"})
    assert "locked" in fitting_kinds(x, "Read", "read")
    assert "timeout" not in fitting_kinds(x, "Read", "read")
    assert "timeout" in fitting_kinds(x, "Write", "write")  # answers in the form of the others
    assert "timeout" not in fitting_kinds(x, "Edit", "edit")  # not every call has a path
    assert "locked" not in fitting_kinds(x, "Read", "read", gaps={"locked"})
    assert "empty" not in fitting_kinds(x, "Read", "read", gaps={"empty"})


def test_words_of_a_kind_that_is_not_the_familys_do_not_make_it_fit() -> None:
    assert "phantom_success" not in fitting_kinds(speaking(read={"phantom_success": "done"}), "Read", "read")


def test_a_shell_call_that_searches_is_answered_by_the_shell() -> None:
    x = speaking(shell={"timeout": "late"}, search={"permission_denied": "no"})
    assert {"timeout"} == set(fitting_kinds(x, "Shell", "search")) - AFTER
    assert {"permission_denied"} == set(fitting_kinds(x, "Search", "search")) - AFTER


def tools_of(dialect: Dialect) -> list[str]:
    listed = list(dialect.tools)
    return [
        *listed,
        *(tool.upper() for tool in listed),
        *(tool.lower() for tool in listed),
        *("mcp__a__b", "mcp__", "MCP__A", "unheard_of", "*", "", "/mcp__.+/", "/", "//"),
    ]


def families_of(dialect: Dialect, tool: str) -> list[str]:
    family = dialect.rule(tool).family
    return [family, "search", "list"] if family == "shell" else [family]


def same_draws(dialect: Dialect, using: Any, table: Any, known: dict[str, list[str]]) -> None:
    for tool in tools_of(dialect):
        for family in families_of(dialect, tool):
            live = {kind for kind, weight in using.weights_of(family).items() if weight}
            live |= {rule.kind for rule in using.force}
            meant = set(fitting_kinds(dialect, tool, family, known.get(tool, ())))
            assert set(fitting_by(table, tool, family)) & live == meant & live, (tool, family)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("using", PROFILES)
def test_the_table_says_what_the_dialect_says(name: str, using: str) -> None:
    dialect, drawing = configs.dialect(name), configs.load_profile(using)
    table = gaps_of(dialect, drawing)
    same_draws(dialect, drawing, table, {})
    again = json.loads(json.dumps(table))
    assert again == table
    assert list(again) == list(table)


def test_the_kinds_of_force_rules_are_in_the_table() -> None:
    forcing = profile(rate=0, force=[{"tool": "WebFetch", "nth": 1, "kind": "locked"}])
    table = gaps_of(configs.dialect("claude-code"), forcing)
    same_draws(configs.dialect("claude-code"), forcing, table, {})
    assert table == {"*": [], "/mcp__.+/": [], "Monitor": ["locked"]}


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
def test_known_gaps_are_in_the_table(name: str, data: st.DataObject) -> None:
    dialect = configs.dialect(name)
    tools = st.sampled_from([*dialect.tools, "mcp__a__b", "new_tool"])
    kinds = st.lists(st.sampled_from(sorted(KINDS)), max_size=4, unique=True)
    known = data.draw(st.dictionaries(tools, kinds, max_size=5))
    table = gaps_of(dialect, ALL_KINDS, known)
    for tool in [*dialect.tools, *known, "mcp__a__b", "unheard_of"]:
        for family in families_of(dialect, tool):
            live = {kind for kind, weight in ALL_KINDS.weights_of(family).items() if weight}
            meant = set(fitting_kinds(dialect, tool, family, known.get(tool, ())))
            assert set(fitting_by(table, tool, family)) & live == meant & live


def test_off_and_an_empty_table_keep_nothing_away() -> None:
    for name in NAMES:
        assert gaps_of(configs.dialect(name), configs.load_profile("off")) == {}
    assert set(fitting_by({}, "Read", "read")) == set(kinds_of("read"))
    assert gaps_for({}, "Read") == ()


def test_tools_that_are_like_the_others_have_no_entry() -> None:
    table = gaps_of(configs.dialect("claude-code"), configs.load_profile("only-locked"))
    assert table["*"] == []
    assert "Read" not in table
    assert "TodoWrite" not in table
    assert table.get("Monitor") == ["locked"]


def test_a_tool_without_harmless_arguments_cannot_be_withheld_by_swapping_them() -> None:
    said = {"errors": {"locked": [{"text": "busy"}]}}
    tools = {"run": {"family": "shell", "harmless": {"command": ":"}}, "see": {"family": "read"}}
    forms = {"shell": said, "read": said}
    dialect = parse_dialect(
        {"name": "x", "title": "X", "withhold": "swap", "tools": tools, "forms": forms}, "x.yaml"
    )
    assert "locked" in fitting_kinds(dialect, "run", "shell")
    assert "locked" not in fitting_kinds(dialect, "see", "read")
    assert "post_effect_error" in fitting_kinds(dialect, "see", "read")
    table = gaps_of(dialect, ALL_KINDS)
    assert "locked" in fitting_by(table, "run", "shell")
    assert "locked" not in fitting_by(table, "see", "read")
