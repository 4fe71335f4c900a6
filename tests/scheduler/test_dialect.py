"""Dialects as data: families of calls, places in wordings, mistakes in a file."""

from __future__ import annotations

from typing import Any

import pytest

import configs
from scheduler.dialect import DialectError, Timeout, ToolRule, parse_dialect

SHELL = {"tools": {"Bash": {"family": "shell", "target": "command"}}}


def dialect(**data: Any) -> Any:
    return parse_dialect({"name": "x", "title": "X"} | data, "x.yaml")


@pytest.mark.parametrize(
    ("command", "family"),
    [
        ("rg -n foo src", "search"),
        ("grep -rn 'a|b && c; d' src | head -20", "search"),
        ('grep -rn "x > y" . 2>/dev/null | sort | uniq -c | wc -l', "search"),
        ("egrep x a 2>&1", "search"),
        ("git grep -n foo", "search"),
        ("find . -name '*.py' -not -path './.git/*' | head", "search"),
        ("fd -e py", "search"),
        ("  rg foo\n", "search"),
        ('rg "$HOME" a', "search"),
        ("ls", "list"),
        ("ls -la /tmp 2>/dev/null", "list"),
        ("tree -L 2 src", "list"),
        ("git ls-files | grep py", "list"),
        ("grep foo a && rm a", "shell"),
        ("cd src && grep foo a", "shell"),
        ("grep foo a; rm a", "shell"),
        ("grep foo a > found.txt", "shell"),
        ("grep foo a >> found.txt", "shell"),
        ("ls > /dev/nullx", "shell"),
        ("rg $(cat pattern)", "shell"),
        ('rg "$(cat pattern)"', "shell"),
        ("rg `cat pattern`", "shell"),
        ("grep foo a & rm a", "shell"),
        ("grep foo a || true", "shell"),
        ("ls\nrm a", "shell"),
        ("find . -name '*.pyc' -delete", "shell"),
        ("find . -exec rm {} +", "shell"),
        ("fd -e pyc -x rm", "shell"),
        ("find . | xargs rm", "shell"),
        ("tree -o out.txt", "shell"),
        ("lsof", "shell"),
        ("greps foo", "shell"),
        ("cat a | grep foo", "shell"),
        ("pytest -q", "shell"),
        ("", "shell"),
    ],
)
def test_a_command_that_only_searches_or_lists_is_of_that_family(command: str, family: str) -> None:
    for name, tool in (("claude-code", "Bash"), ("pi", "bash"), ("reference", "shell")):
        assert configs.dialect(name).family(tool, {"command": command}) == family


@pytest.mark.parametrize(
    "command",
    [
        "grep " + "a " * 300_000 + ";",
        "grep " + "'" * 200_001,
        'grep "' + "\\" * 200_001,
        "ls " + "2>/dev/null " * 30_000 + ";",
        "ls " + "| head " * 50_000 + ";",
        "find " + " -x" * 100_000 + ";",
        " " * 300_000 + "x",
    ],
)
def test_a_long_command_is_read_once(command: str) -> None:
    assert configs.dialect("pi").family("bash", {"command": command}) == "shell"


def test_a_command_can_be_a_list_of_words() -> None:
    generic = configs.dialect("generic")
    assert generic.family("shell", {"command": ["bash", "-lc", "rg foo | head"]}) == "search"
    assert generic.family("shell", {"command": ["ls", "-l"]}) == "list"
    assert generic.family("shell", {"command": ["rm", "x"]}) == "shell"
    assert generic.family("shell", {"command": 3}) == "shell"
    assert generic.family("shell", {}) == "shell"


def test_an_unlisted_tool_is_other_and_case_does_not_matter() -> None:
    generic = configs.dialect("generic")
    assert generic.family("Unheard_Of", {}) == "other"
    assert [generic.rule(name).family for name in ("Read", "READ", "read")] == ["read"] * 3
    assert configs.dialect("claude-code").rule("mcp__a__b").form == "mcp"
    assert configs.dialect("claude-code").rule("mcp").family == "other"


def test_a_tool_answers_in_its_own_form_its_familys_or_that_of_others() -> None:
    x = dialect(
        **SHELL,
        forms={"shell": {"keep": "tail"}, "other": {"keep": "head"}, "mine": {"notice": "cut"}},
    )
    assert x.form("Bash", "search").keep == "tail"
    assert x.form("Unlisted", "other").keep == "head"
    assert dialect().form("Unlisted", "other").notice is None
    named = dialect(tools={"T": {"family": "read", "form": "mine"}}, forms={"mine": {"notice": "cut"}})
    assert named.form("T", "read").notice == "cut"


RULE = ToolRule(family="shell", target="command", timeout=Timeout(argument="timeout", unit="ms"))


@pytest.mark.parametrize(
    ("value", "seconds"), [(90_000, 90), (500, 0.5), (None, 120), ("5", 120), (-1, 120), (True, 120)]
)
def test_a_time_limit_is_the_calls_own_or_the_tools(value: Any, seconds: float) -> None:
    assert RULE.timeout.seconds({"timeout": value}) == seconds


COUNTED = {"pattern": "(?P<body>x)", "counts": [{"group": "n", "is": "lines"}]}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"tolls": {}}, "unknown key 'tolls': did you mean 'tools'?"),
        ({"tools": {"T": {"family": "raed"}}}, "unknown family 'raed': did you mean 'read'?"),
        ({"tools": {"T": {"family": "read", "taget": "x"}}}, "unknown key 'taget': did you mean 'target'?"),
        ({"forms": {"read": {"number": "(?P<n>x)"}}}, "has no group 'pad'"),
        ({"forms": {"read": {"failed": ["("]}}}, "not a regular expression"),
        ({"forms": {"read": {"envelopes": [{"pattern": "x"}]}}}, "has no group 'body'"),
        ({"forms": {"r": {"envelopes": [COUNTED]}}}, "has no group 'n'"),
        ({"forms": {"read": {"notice": "of {totl}"}}}, "not a notice"),
        ({"forms": {"read": {"errors": {"post_effect_error": []}}}}, "no wording of post_effect_error"),
        ({"forms": {"r": {"errors": {"locked": [{"text": "x", "when": {"path": "("}}]}}}}, "not a regular"),
        ({"appended": [{"open": "<r>", "pattern": "("}]}, "not a regular expression"),
        ({"identify": {"flattened": {"open": "x", "end": "["}}}, "not a regular expression"),
        ({"tool_patterns": {"(": {"family": "read"}}}, "not a regular expression"),
        ({"title": None}, "title: "),
        ({"finishes": "("}, "not a regular expression"),
        ({"withhold": "swop"}, "Input should be 'rename' or 'swap'"),
        ({"withhold": "swap"}, "needs a tool with `harmless` arguments"),
        ({"withhold": "swap", "tools": {"T": {"family": "read", "harmless": {}}}}, "at least 1 item"),
        ({"tools": {"T": {"family": "read", "harmless": {"path": "x"}}}}, "without `withhold: swap`"),
        (
            {"withhold": "swap", "tools": {"T": {"family": "read", "raw": "x", "harmless": {"path": "x"}}}},
            "T takes a text",
        ),
    ],
)  # fmt: skip
def test_a_mistake_in_a_dialect_is_named(data: dict[str, Any], message: str) -> None:
    with pytest.raises(DialectError) as caught:
        dialect(**data)
    assert message in str(caught.value)
    assert str(caught.value).startswith("x.yaml: ")
