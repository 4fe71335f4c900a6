"""What each kind makes of a result, on the texts of the real programs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import configs
from scheduler.apply import DEFAULT_WAIT_S, Skipped, Wait, apply_after
from scheduler.call import FAMILIES
from scheduler.dialect import take_apart
from scheduler.faults import KINDS, Kind, Rewrite
from scheduler.faults.registry import register
from scheduler.profile import Profile
from scheduler.schedule import Draw, Limit
from tests.scheduler.calls import profile
from tests.scheduler.real_results import ALL, EMPTY, FAILED, Real

REFERRING = "Wasted call — file unchanged since your last Read. Refer to that earlier tool_result instead."


def outcome(
    kind: str | None,
    dialect: str,
    tool: str,
    text: str | None,
    *,
    arguments: dict[str, Any] | None = None,
    is_error: bool | None = None,
    earlier: Sequence[str] = (),
    limited: Limit | None = None,
    using: Profile | None = None,
    workspace: str | None = None,
    n: int = 0,
) -> Rewrite | Skipped | Wait:
    key = ("content", "default", "main", tool, "digest", str(n))
    drawn = Draw(key, 0.0, 1.0, True, kind, "transient", limited=limited)
    return apply_after(
        drawn,
        using or profile(),
        configs.dialect(dialect),
        7,
        tool,
        arguments or {},
        text,
        is_error,
        earlier,
        workspace=workspace,
    )


def rewritten(kind: str, dialect: str, tool: str, text: str | None, **more: Any) -> Rewrite:
    got = outcome(kind, dialect, tool, text, **more)
    assert isinstance(got, Rewrite), got
    return got


def test_every_kind_of_the_contract_is_there() -> None:
    text = {"read", "shell", "search", "list", "fetch"}
    assert {name: (kind.timing, kind.families) for name, kind in KINDS.items()} == {
        "empty": ("after", frozenset(FAMILIES)),
        "truncated": ("after", text),
        "wrong_data": ("after", text),
        "stale": ("after", {"read", "search", "list"}),
        "post_effect_error": ("after", frozenset(FAMILIES)),
        "timeout_after_effect": ("after", {"shell", "fetch", "other"}),
        "slow": ("after", frozenset(FAMILIES)),
        "permission_denied": ("before", frozenset(FAMILIES)),
        "not_found": ("before", {"read", "edit", "shell", "search", "list", "fetch", "other"}),
        "locked": ("before", {"read", "write", "edit", "shell", "other"}),
        "timeout": ("before", frozenset(FAMILIES)),
        "phantom_success": ("before", {"write", "edit", "shell"}),
    }


def test_a_kind_is_registered_once() -> None:
    with pytest.raises(ValueError, match="'empty' is registered twice"):
        register(KINDS["empty"])


def test_a_before_kind_answers_and_an_after_kind_rewrites() -> None:
    for kind in KINDS.values():
        assert (kind.answer is not None) is (kind.timing == "before")
        assert kind.rewrite is None or kind.timing == "after"
    with pytest.raises(ValueError, match="a before-kind has an answer"):
        register(Kind(name="new", summary="", timing="before", families=frozenset(), mode=lambda _form: None))
    assert "new" not in KINDS


# What is skipped.

AFTER = [kind for kind in KINDS.values() if kind.timing == "after"]


@pytest.mark.parametrize("kind", AFTER, ids=lambda kind: kind.name)
@pytest.mark.parametrize(("dialect", "tool", "text", "is_error"), FAILED)
def test_a_result_that_has_failed_is_left_alone(
    kind: Kind, dialect: str, tool: str, text: str, is_error: bool | None
) -> None:
    assert outcome(kind.name, dialect, tool, text, is_error=is_error) == Skipped("already_failed")


@pytest.mark.parametrize("kind", ["empty", "truncated", "wrong_data"])
@pytest.mark.parametrize(("dialect", "tool", "text"), EMPTY)
def test_a_result_without_content_is_left_alone(kind: str, dialect: str, tool: str, text: str) -> None:
    assert outcome(kind, dialect, tool, text) == Skipped("no_change")


@pytest.mark.parametrize("kind", AFTER, ids=lambda kind: kind.name)
def test_a_result_without_text_can_still_become_an_error(kind: Kind) -> None:
    got = outcome(kind.name, "claude-code", "Read", None)
    if kind.name in {"post_effect_error", "timeout_after_effect"}:
        assert isinstance(got, Rewrite)
        assert got.is_error is True
    elif kind.name == "slow":
        assert got == Wait(DEFAULT_WAIT_S)
    else:
        assert got == Skipped("no_text")


def test_already_failed_comes_before_no_text_and_a_limit_before_all() -> None:
    assert outcome("empty", "claude-code", "Read", None, is_error=True) == Skipped("already_failed")
    for limit in ("skip_first", "max_faults", "min_gap", "no_fit"):
        got = outcome("empty", "claude-code", "Read", None, is_error=True, limited=limit)
        assert got == Skipped(limit)


@pytest.mark.parametrize("kind", [None, "nothing", "locked"])
def test_only_what_was_drawn_is_applied(kind: str | None) -> None:
    with pytest.raises(ValueError, match="not an after-kind that fired"):
        outcome(kind, "claude-code", "Read", "1\tx")


def test_slow_waits_as_long_as_the_profile_says() -> None:
    using = profile(kinds={"slow": {"seconds": 0.25}})
    assert outcome("slow", "pi", "read", "x", using=using) == Wait(0.25)


# empty


@pytest.mark.parametrize(
    ("dialect", "tool", "shown"),
    [
        (
            "claude-code",
            "Read",
            "<system-reminder>Warning: the file exists but the contents are empty.</system-reminder>",
        ),
        ("claude-code", "Bash", "(Bash completed with no output)"),
        ("claude-code", "Edit", "(Edit completed with no output)"),
        ("claude-code", "Agent", "(Agent completed with no output)"),
        ("claude-code", "mcp__a__b", "(mcp__a__b completed with no output)"),
        ("claude-code", "Grep", "No matches found"),
        ("claude-code", "Glob", "No files found"),
        ("pi", "read", ""),
        ("pi", "bash", "(no output)"),
        ("pi", "grep", "No matches found"),
        ("pi", "find", "No files found matching pattern"),
        ("pi", "ls", "(empty directory)"),
        ("reference", "read", "(the file is empty)"),
        ("reference", "shell", "(no output)"),
        ("generic", "whatever", "(no output)"),
    ],
)
def test_empty_is_what_this_harness_shows_for_an_empty_result(dialect: str, tool: str, shown: str) -> None:
    assert rewritten("empty", dialect, tool, "1\tsome\n2\tcontent") == Rewrite(shown)


def test_a_shell_search_that_is_emptied_answers_as_a_shell() -> None:
    got = rewritten("empty", "claude-code", "Bash", "a:1:x", arguments={"command": "grep -rn x ."})
    assert got.text == "(Bash completed with no output)"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Found 2 files\na.py\nb.py", "No files found"),
        ("a.py:1:x\nb.py:2:x", "No matches found"),
        ("a.py:1:x\n\n[Showing results with pagination = limit: 1]", "No matches found"),
        (
            "a.py:3\n\nFound 3 total occurrences across 1 file.",
            "No matches found\n\nFound 0 total occurrences across 0 files.",
        ),
    ],
)
def test_an_emptied_result_keeps_the_shape_that_was_asked_for(text: str, shown: str) -> None:
    assert rewritten("empty", "claude-code", "Grep", text) == Rewrite(shown)


def test_an_emptied_back_reference_is_an_empty_file() -> None:
    assert "contents are empty" in rewritten("empty", "claude-code", "Read", REFERRING).text


# truncated


@pytest.mark.parametrize("real", ALL, ids=str)
@pytest.mark.parametrize("n", range(3))
def test_a_cut_result_is_a_shorter_one_of_the_same_shape(real: Real, n: int) -> None:
    got = rewritten("truncated", real.dialect, real.tool, real.text, arguments=dict(real.arguments), n=n)
    dialect = configs.dialect(real.dialect)
    form = dialect.form(real.tool, "other")
    first = real.arguments.get(form.first_line, 1) if form.first_line else 1
    again = take_apart(form, got.text, first)
    assert again.wrap(again.body) == got.text
    assert got.text.strip()
    assert len(again.body) < len(real.body)
    kept = again.body.rstrip("\n")
    if form.keep == "tail":
        assert real.body.rstrip("\n").endswith(kept)
    else:
        assert real.body.startswith(kept)
    assert got.mode == ("explicit" if again.is_cut else "implicit")
    assert got.is_error is None


def test_a_cut_read_of_pi_tells_real_numbers() -> None:
    lines = [f"row {n}" for n in range(1, 101)]
    using = profile(kinds={"truncated": {"lines": 10}})
    got = rewritten("truncated", "pi", "read", "\n".join(lines) + "\n", using=using)
    assert got.text == "\n".join(lines[:10]) + "\n\n[Showing lines 1-10 of 101. Use offset=11 to continue.]"
    later = rewritten(
        "truncated", "pi", "read", "\n".join(lines) + "\n", arguments={"offset": 201}, using=using
    )
    assert later.text.endswith("row 10\n\n[Showing lines 201-210 of 301. Use offset=211 to continue.]")


def test_a_cut_read_of_the_reference_agent_tells_real_numbers() -> None:
    using = profile(kinds={"truncated": {"lines": 2}})
    got = rewritten("truncated", "reference", "read", "a\nb\nc\nd\n", using=using)
    assert got.text == "a\nb\n[cut: lines 1-2 of 4 shown]"


def test_a_cut_glob_counts_what_it_left_out() -> None:
    using = profile(kinds={"truncated": {"lines": 2}})
    got = rewritten("truncated", "claude-code", "Glob", "a.py\nb.py\nc.py", using=using)
    assert got.text == (
        "a.py\nb.py\n(Showing 2 of 3 matching files; 1 more are not listed. Narrow the pattern or path to see"
        " the rest.)"
    )


def test_a_fixed_number_of_lines_that_is_there_anyway_changes_nothing() -> None:
    using = profile(kinds={"truncated": {"lines": 3}})
    assert outcome("truncated", "claude-code", "Read", "1\ta\n2\tb\n3\tc\n4\t", using=using) == Skipped(
        "no_change"
    )


def test_a_lone_line_is_cut_in_its_middle() -> None:
    assert rewritten("truncated", "claude-code", "Read", "1\t  abcdefgh\n2\t").text == "1\t  abcd"
    assert rewritten("truncated", "pi", "bash", "abcdefgh\n").text == "efgh"
    assert rewritten("truncated", "pi", "read", "abcdefgh").mode == "implicit"
    assert outcome("truncated", "pi", "read", "a") == Skipped("no_change")


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\n"), max_size=8), max_size=30))
def test_a_cut_result_is_never_empty(lines: list[str]) -> None:
    for dialect, tool in (("claude-code", "Bash"), ("pi", "read"), ("pi", "bash"), ("generic", "fetch")):
        got = outcome("truncated", dialect, tool, "\n".join(lines))
        if isinstance(got, Rewrite):
            assert got.text.strip()
            assert got.text != "\n".join(lines)


# wrong_data


@pytest.mark.parametrize("real", [real for real in ALL if set(real.body) != {"y"}], ids=str)
@pytest.mark.parametrize("n", range(3))
def test_wrong_data_keeps_the_shape(real: Real, n: int) -> None:
    got = rewritten("wrong_data", real.dialect, real.tool, real.text, arguments=dict(real.arguments), n=n)
    assert got.text != real.text
    assert got.text.count("\n") == real.text.count("\n")
    form = configs.dialect(real.dialect).form(real.tool, "other")
    again = take_apart(form, got.text)
    assert again.numbering == take_apart(form, real.text).numbering
    assert again.is_cut == real.cut
    assert got.is_error is None


def test_wrong_counts_add_up() -> None:
    text = "sub/x.py:12\nsub/y.py:1\n\nFound 13 total occurrences across 2 files."
    for n in range(20):
        got = rewritten("wrong_data", "claude-code", "Grep", text, n=n).text
        counts = [int(found) for found in re.findall(r":(\d+)$", got, re.MULTILINE)]
        assert f"Found {sum(counts)} total occurrences across 2 files." in got


@pytest.mark.parametrize("kind", ["truncated", "wrong_data"])
def test_a_back_reference_holds_no_data(kind: str) -> None:
    assert outcome(kind, "claude-code", "Read", REFERRING) == Skipped("no_change")


# stale


def test_stale_is_the_latest_earlier_result_that_differs() -> None:
    got = outcome("stale", "pi", "read", "new\n", earlier=["new\n", "newer than old\n", "old\n"])
    assert got == Rewrite("newer than old\n")


@pytest.mark.parametrize(
    "earlier",
    [[], ["same\n"], ["same\n", "same"], ["ENOENT: no such file or directory, access '/x'"][:0]],
)
def test_without_another_content_nothing_is_stale(earlier: list[str]) -> None:
    assert outcome("stale", "pi", "read", "same\n", earlier=earlier) == Skipped("no_change")


def test_what_failed_or_points_back_is_no_earlier_content() -> None:
    earlier = [REFERRING, "<tool_use_error>no</tool_use_error>", "1\told"]
    assert outcome("stale", "claude-code", "Read", "1\tnew", earlier=earlier) == Rewrite("1\told")


def test_behind_a_back_reference_stands_the_latest_content() -> None:
    got = outcome("stale", "claude-code", "Read", REFERRING, earlier=["1\tnow", "1\tbefore"])
    assert got == Rewrite("1\tbefore")
    assert outcome("stale", "claude-code", "Read", REFERRING, earlier=["1\tnow"]) == Skipped("no_change")


# errors


@pytest.mark.parametrize(
    ("dialect", "tool", "arguments", "pattern"),
    [
        ("claude-code", "Read", {"file_path": "/ws/a.py"}, r"E[A-Z]+: [a-z/ ]+, read '/ws/a\.py'"),
        ("claude-code", "Write", {"file_path": "/ws/a.py"}, r"E[A-Z]+: [a-z/ ]+, \w+ '/ws/a\.py'"),
        ("claude-code", "Bash", {"command": "cd x && make -j4"}, r"Exit code \d+\n(?:make: .*|[A-Z][a-z ]+)"),
        ("pi", "read", {"path": "a.py"}, r"E[A-Z]+: [a-z/ ]+, read"),
        ("pi", "bash", {"command": "pytest -q | tail -3"}, r"(?s).*\n\nCommand exited with code \d+"),
        ("pi", "grep", {"pattern": "x"}, r"ripgrep exited with code 2"),
        ("reference", "edit", {"path": "a.py"}, r"error: [A-Z][a-z/ ]+: a\.py"),
        ("generic", "write_file", {"file_path": "a.py"}, r"Error: a\.py: .+"),
        ("generic", "unheard_of", {}, r"Error: unheard_of failed: .+"),
    ],
)
def test_an_error_is_worded_as_this_harness_words_one(
    dialect: str, tool: str, arguments: dict[str, Any], pattern: str
) -> None:
    for n in range(12):
        got = rewritten("post_effect_error", dialect, tool, "fine", arguments=arguments, n=n)
        assert re.fullmatch(pattern, got.text), got.text
        assert got.is_error is True


@pytest.mark.parametrize(
    ("dialect", "tool", "arguments", "text"),
    [
        ("claude-code", "Bash", {}, "Exit code 143\nCommand timed out after 2m 0s"),
        ("claude-code", "Bash", {"timeout": 1000}, "Exit code 143\nCommand timed out after 1s"),
        ("claude-code", "Bash", {"timeout": 600000}, "Exit code 143\nCommand timed out after 10m 0s"),
        ("claude-code", "Bash", {"timeout": 3725000}, "Exit code 143\nCommand timed out after 1h 2m 5s"),
        ("claude-code", "Bash", {"timeout": "x"}, "Exit code 143\nCommand timed out after 2m 0s"),
        ("claude-code", "mcp__a__b", {}, "MCP error -32001: Request timed out"),
        ("pi", "bash", {"timeout": 2}, "Command timed out after 2 seconds"),
        ("pi", "bash", {"timeout": 0.5}, "Command timed out after 0.5 seconds"),
        ("reference", "shell", {}, "[timed out after 60 s]"),
        ("reference", "shell", {"timeout": True}, "[timed out after 60 s]"),
    ],
)
def test_a_time_out_names_the_calls_own_limit(
    dialect: str, tool: str, arguments: dict[str, Any], text: str
) -> None:
    assert rewritten("timeout_after_effect", dialect, tool, "fine", arguments=arguments) == Rewrite(
        text, True
    )


def test_several_wordings_are_all_used() -> None:
    arguments = {"file_path": "/ws/a"}
    texts = {
        rewritten("post_effect_error", "claude-code", "Read", "1\tx", arguments=arguments, n=n).text
        for n in range(60)
    }
    assert len(texts) == 3


def test_a_wording_whose_places_this_call_cannot_fill_is_not_used() -> None:
    for n in range(30):
        text = rewritten("post_effect_error", "pi", "grep", "x", arguments={"pattern": "{x}"}, n=n).text
        assert "{" not in text


@pytest.mark.parametrize("name", sorted(configs.dialects()))
def test_a_path_is_told_the_way_that_the_wording_says(name: str) -> None:
    """Absolute where the harness makes it so, whichever kind's text it is."""
    dialect = configs.dialect(name)
    for tool, rule in dialect.tools.items():
        if rule.target is None or rule.family == "shell":
            continue
        for kind in ("post_effect_error", "empty"):
            wordings = dialect.form(tool, rule.family).errors.get(kind, ())
            told = any("{absolute:target}" in wording.text for wording in wordings)
            texts = {
                rewritten(
                    kind, name, tool, "1\tx", arguments={rule.target: "src/a.py"}, workspace="/ws", n=n
                ).text
                for n in range(20)
            }
            assert any("/ws/src/a.py" in text for text in texts) or not told, (tool, texts)


@pytest.mark.parametrize(("arguments", "place"), [({}, "(root)"), ({"directory": "/ws/sub"}, "/ws/sub")])
def test_qwen_code_says_where_a_command_ran(arguments: dict[str, Any], place: str) -> None:
    command = {"command": "cd elsewhere && make"} | arguments
    for kind in ("post_effect_error", "empty"):
        text = rewritten(kind, "qwen-code", "run_shell_command", "odd", arguments=command).text
        assert f"\nDirectory: {place}\n" in text


@pytest.mark.parametrize("name", sorted(configs.dialects()))
def test_no_payload_gives_itself_away(name: str) -> None:
    dialect = configs.dialect(name)
    for tool in [*dialect.tools, "mcp__some__tool", "unheard_of"]:
        target = dialect.rule(tool).target
        arguments = {target: "/ws/a.py"} if target else {}
        for kind in ("post_effect_error", "timeout_after_effect", "empty"):
            for n in range(6):
                got = outcome(kind, name, tool, "1\tsome content", arguments=arguments, n=n)
                assert isinstance(got, Rewrite)
                told = got.text.lower()
                assert not re.search(r"inject|chaos|simulat|fault|fake|proxy|{\w+}", told), told
                assert not re.search(r"not (?:run|executed|started)|was refused|denied|no such", told), told


@pytest.mark.parametrize("name", sorted(configs.dialects()))
def test_an_error_of_ours_is_one_that_we_know_as_failed(name: str) -> None:
    dialect = configs.dialect(name)
    for tool in dialect.tools:
        for kind in ("post_effect_error", "timeout_after_effect"):
            if (name, dialect.rule(tool).family, kind) == ("opencode", "shell", "post_effect_error"):
                continue  # it does not say how a command ended
            got = rewritten(kind, name, tool, "1\tsome content")
            assert outcome(kind, name, tool, got.text, is_error=got.is_error) == Skipped("already_failed")
