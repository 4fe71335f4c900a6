"""What stands in the place of the results of calls that never ran."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import configs
from scheduler.apply import apply_before, lacks_target
from scheduler.dialect import has_failed
from scheduler.faults import KINDS, Rewrite
from scheduler.fitting import fitting_kinds
from scheduler.schedule import Draw, Limit

BEFORE = [kind.name for kind in KINDS.values() if kind.timing == "before"]
NAMES = sorted(configs.dialects())
TOOLS = [
    (name, tool) for name in NAMES for tool in [*configs.dialect(name).tools, "mcp__some__tool", "unheard_of"]
]


def answer(
    kind: str | None,
    dialect: str,
    tool: str,
    arguments: dict[str, Any],
    *,
    n: int = 0,
    limited: Limit | None = None,
    workspace: str | None = "/ws",
    session: str | None = None,
) -> Rewrite:
    drawn = Draw(
        ("content", "t", "main", tool, "d", str(n)), 0.0, 1.0, True, kind, "transient", limited=limited
    )
    return apply_before(
        drawn, configs.dialect(dialect), 7, tool, arguments, workspace=workspace, session=session
    )


def answers(kind: str, dialect: str, tool: str, arguments: dict[str, Any], **more: Any) -> set[str]:
    return {answer(kind, dialect, tool, arguments, n=n, **more).text for n in range(40)}


def arguments_of(dialect: str, tool: str) -> dict[str, Any]:
    """Such as this tool could be called with."""
    rule = configs.dialect(dialect).rule(tool)
    if rule.target is None:
        return {}
    target = {"shell": "pytest -q tests", "fetch": "https://example.org/page", "search": "TODO"}.get(
        rule.family
    )
    return {rule.target: target or "/ws/src/a.py"}


@pytest.mark.parametrize("kind", [None, "nothing", "empty", "slow"])
def test_only_a_before_kind_that_fired_is_answered(kind: str | None) -> None:
    with pytest.raises(ValueError, match="not a before-kind that fired"):
        answer(kind, "claude-code", "Read", {})


@pytest.mark.parametrize("limit", ["no_fit", "skip_first", "max_faults", "min_gap"])
def test_what_a_limit_holds_back_is_not_answered(limit: Limit) -> None:
    with pytest.raises(ValueError, match=f"locked on Read is held back by {limit}"):
        answer("locked", "claude-code", "Read", {}, limited=limit)


def test_a_kind_that_the_tool_has_no_words_for_is_not_answered() -> None:
    assert "locked" not in fitting_kinds(configs.dialect("claude-code"), "WebFetch", "fetch")
    with pytest.raises(ValueError, match="no wording of locked for the tool WebFetch"):
        answer("locked", "claude-code", "WebFetch", {})


# The programs' own words, as they were seen: with a file that is not there, one without permission, a program
# that is not there, cannot be run or is being written, a lock of git, a time-out, a list without its table.
CLAUDE_CODE_GIT = """Exit code 128
fatal: Unable to create '/ws/.git/index.lock': File exists.

Another git process seems to be running in this repository, e.g.
an editor opened by 'git commit'. Please make sure all processes
are terminated then try again. If it still fails, a git process
may have crashed in this repository earlier:
remove the file manually to continue."""
BACK = "(file state is current in your context — no need to Read it back)"
SEEN: list[tuple[str, str, dict[str, Any], str, str]] = [
    (
        "claude-code", "Read", {"file_path": "/ws/missing.txt"}, "not_found",
        "File does not exist. Note: your current working directory is /ws.",
    ),
    ("claude-code", "Read", {"file_path": "/ws/no.txt"}, "permission_denied",
     "EACCES: permission denied, open '/ws/no.txt'"),
    (
        "claude-code", "Edit", {"file_path": "/ws/missing.txt"}, "not_found",
        "<tool_use_error>File does not exist. Note: your current working directory is /ws.</tool_use_error>",
    ),
    ("claude-code", "Bash", {"command": "nosuch --x"}, "not_found",
     "Exit code 127\n/bin/bash: line 1: nosuch: command not found"),
    ("claude-code", "Bash", {"command": "FOO=1 nosuch"}, "not_found",
     "Exit code 127\n/bin/bash: line 1: nosuch: command not found"),
    ("claude-code", "Bash", {"command": "echo x | nosuch"}, "not_found",
     "Exit code 127\n/bin/bash: line 1: nosuch: command not found"),
    ("claude-code", "Bash", {"command": "./nosuch"}, "not_found",
     "Exit code 127\n/bin/bash: line 1: ./nosuch: No such file or directory"),
    ("claude-code", "Bash", {"command": "cd nodir && ls"}, "not_found",
     "Exit code 1\n/bin/bash: line 1: cd: nodir: No such file or directory"),
    ("claude-code", "Bash", {"command": "touch s; ./s"}, "permission_denied",
     "Exit code 126\n/bin/bash: line 1: ./s: Permission denied"),
    ("claude-code", "Bash", {"command": "sleep 0.3; ./sl 1"}, "locked",
     "Exit code 126\n/bin/bash: line 1: ./sl: Text file busy"),
    ("claude-code", "Bash", {"command": "git add a.txt"}, "locked", CLAUDE_CODE_GIT),
    ("claude-code", "Bash", {"command": "sleep 9", "timeout": 1000}, "timeout",
     "Exit code 143\nCommand timed out after 1s"),
    ("claude-code", "Bash", {"command": "true"}, "phantom_success", "(Bash completed with no output)"),
    (
        "claude-code", "Write", {"file_path": "/ws/n.txt"}, "phantom_success",
        f"File created successfully at: /ws/n.txt {BACK}",
    ),
    (
        "claude-code", "Edit", {"file_path": "/ws/a.txt"}, "phantom_success",
        f"The file /ws/a.txt has been updated successfully. {BACK}",
    ),
    (
        "claude-code", "Edit", {"file_path": "/ws/a.txt", "replace_all": True}, "phantom_success",
        f"The file /ws/a.txt has been updated. All occurrences were successfully replaced. {BACK}",
    ),
    (
        "claude-code", "Grep", {"pattern": "x", "path": "/ws/nope"}, "not_found",
        "Path does not exist: /ws/nope. Note: your current working directory is /ws.",
    ),
    (
        "claude-code", "Glob", {"pattern": "*", "path": "/ws/nope"}, "not_found",
        "Directory does not exist: /ws/nope. Note: your current working directory is /ws.",
    ),
    (
        "claude-code", "Grep", {"pattern": "x", "path": "/ws/no.txt"}, "permission_denied",
        "Refusing to search /ws/no.txt: it could not be opened (EACCES) — it is unreadable, or is being"
        " replaced concurrently.",
    ),
    ("pi", "read", {"path": "missing.txt"}, "not_found",
     "ENOENT: no such file or directory, access '/ws/missing.txt'"),
    ("pi", "read", {"path": "no.txt"}, "permission_denied", "EACCES: permission denied, access '/ws/no.txt'"),
    ("pi", "write", {"path": "ro/x.txt"}, "permission_denied",
     "EACCES: permission denied, open '/ws/ro/x.txt'"),
    ("pi", "write", {"path": "new.txt"}, "phantom_success", "Successfully wrote to new.txt"),
    ("pi", "edit", {"path": "missing.txt"}, "not_found",
     "Could not edit file: missing.txt. Error code: ENOENT."),
    ("pi", "edit", {"path": "a.txt", "edits": [{"oldText": "x", "newText": "y"}]}, "phantom_success",
     "Successfully replaced 1 block(s) in a.txt."),
    ("pi", "bash", {"command": "nosuch --x"}, "not_found",
     "/bin/bash: line 1: nosuch: command not found\n\n\nCommand exited with code 127"),
    ("pi", "bash", {"command": "./nosuch"}, "not_found",
     "/bin/bash: line 1: ./nosuch: No such file or directory\n\n\nCommand exited with code 127"),
    ("pi", "bash", {"command": "touch s; ./s"}, "permission_denied",
     "/bin/bash: line 1: ./s: Permission denied\n\n\nCommand exited with code 126"),
    ("pi", "bash", {"command": "./sl 1"}, "locked",
     "/bin/bash: line 1: ./sl: Text file busy\n\n\nCommand exited with code 126"),
    ("pi", "bash", {"command": "if x; then y; fi"}, "permission_denied", "spawn /bin/bash EACCES"),
    ("pi", "bash", {"command": "sleep 9", "timeout": 2}, "timeout", "Command timed out after 2 seconds"),
    ("pi", "bash", {"command": "true"}, "phantom_success", "(no output)"),
    ("pi", "grep", {"pattern": "x", "path": "/ws/nope"}, "not_found", "Path not found: /ws/nope"),
    ("pi", "grep", {"pattern": "x", "path": "no.txt"}, "permission_denied",
     "/ws/no.txt: Permission denied (os error 13)"),
    ("pi", "find", {"pattern": "x", "path": "/ws/nope"}, "not_found",
     "[fd error]: Search path '/ws/nope' is not a directory.\n[fd error]: No valid search paths given."),
    ("pi", "ls", {"path": "/ws/nope"}, "not_found", "Path not found: /ws/nope"),
    ("opencode", "todowrite", {"todos": []}, "not_found", "no such table: todo"),
    ("reference", "shell", {"command": "nosuch"}, "not_found",
     "/bin/sh: 1: nosuch: not found\n[exit code 127]"),
    ("reference", "shell", {"command": "cd nodir"}, "not_found",
     "/bin/sh: 1: cd: can't cd to nodir\n[exit code 2]"),
    ("reference", "shell", {"command": "echo a > s"}, "permission_denied",
     "/bin/sh: 1: cannot create s: Permission denied\n[exit code 2]"),
    ("reference", "shell", {"command": "./sl 1"}, "locked",
     "/bin/sh: 1: ./sl: Text file busy\n[exit code 126]"),
]  # fmt: skip


@pytest.mark.parametrize(("dialect", "tool", "arguments", "kind", "text"), SEEN)
def test_it_can_be_what_the_program_itself_was_seen_to_say(
    dialect: str, tool: str, arguments: dict[str, Any], kind: str, text: str
) -> None:
    assert text in answers(kind, dialect, tool, arguments)


def test_a_query_that_opencode_could_not_make_names_the_session() -> None:
    """As it was seen to word a lock on its own database; an id in the same form where none is known."""
    query = 'Failed query: delete from "todo" where "todo"."session_id" = ?\nparams: '
    name = "ses_dd52b631cffeIpGYJCQLrCfm9M"
    assert answers("locked", "opencode", "todowrite", {}, session=name) == {query + name}
    made_up = answers("locked", "opencode", "todowrite", {})
    assert len(made_up) > 1
    assert all(re.fullmatch(re.escape(query) + r"ses_[0-9a-f]{12}[0-9A-Za-z]{14}", text) for text in made_up)


@pytest.mark.parametrize(
    ("tool", "kind", "flag"),
    [
        ("Read", "not_found", True),
        ("Bash", "timeout", True),
        ("Bash", "phantom_success", False),
        ("Write", "phantom_success", None),
        ("Edit", "phantom_success", None),
    ],
)
def test_the_error_flag_is_as_claude_code_sets_it(tool: str, kind: str, flag: bool | None) -> None:
    assert {answer(kind, "claude-code", tool, {}, n=n).is_error for n in range(20)} == {flag}


def test_an_edit_of_several_blocks_says_how_many() -> None:
    edits: Any = [{"oldText": "a", "newText": "b"}] * 3
    for told in (edits, '[{"oldText":"a"},{"oldText":"b"},{"oldText":"c"}]'):
        got = answer("phantom_success", "pi", "edit", {"path": "a", "edits": told})
        assert got == Rewrite("Successfully replaced 3 block(s) in a.", False)
    assert answer("phantom_success", "reference", "write", {"path": "a", "content": "né\n"}).text == (
        "wrote 4 bytes to a"
    )


def test_a_cell_of_a_notebook() -> None:
    base = {"notebook_path": "/ws/n.ipynb", "cell_id": "c1", "new_source": "x = 1"}
    for mode, text in (
        (None, "Updated cell c1 with x = 1"),
        ("replace", "Updated cell c1 with x = 1"),
        ("insert", "Inserted cell c1 with x = 1"),
        ("delete", "Deleted cell c1"),
    ):
        arguments = base if mode is None else base | {"edit_mode": mode}
        assert text in answers("phantom_success", "claude-code", "NotebookEdit", arguments)


@pytest.mark.parametrize(
    ("command", "locks"),
    [
        ("git add -A && git commit -m 'x'", True),
        ("git -c user.name=x commit -m x", False),
        ("git log --oneline", False),
        ("git status", False),
        ("cd sub && git add a", False),
        ("git -C sub add a", False),
        ("grep 'git add' notes.txt", False),
    ],
)
def test_a_lock_of_git_is_told_of_commands_that_take_one(command: str, locks: bool) -> None:
    for dialect, tool in (
        ("claude-code", "Bash"),
        ("pi", "bash"),
        ("reference", "shell"),
        ("generic", "bash"),
    ):
        texts = answers("locked", dialect, tool, {"command": command})
        assert any("index.lock" in text for text in texts) is locks
        assert not any(
            "index.lock" in text
            for text in answers("locked", dialect, tool, {"command": command}, workspace=None)
        )


@pytest.mark.parametrize(("dialect", "tool"), TOOLS)
def test_an_answer_is_whole_plausible_and_tells_nothing(dialect: str, tool: str) -> None:
    harness = configs.dialect(dialect)
    for arguments in (arguments_of(dialect, tool), {}):
        for kind in fitting_kinds(harness, tool, harness.family(tool, arguments)):
            if kind not in BEFORE:
                continue
            for workspace in ("/ws", None):
                for n in range(8):
                    got = answer(kind, dialect, tool, arguments, n=n, workspace=workspace)
                    assert got.text.strip()
                    assert not re.search(r"\{\w+(?::\w+)?\}", got.text), got.text
                    assert not re.search(
                        r"inject|chaos|simulat|fault|fake|proxy|withh|__", got.text.replace(tool, "")
                    )
                    says_failed = has_failed(harness.own_form(tool), got.text, got.is_error)
                    # OpenCode shows no exit codes: what its shell says of a failure is told by reading alone.
                    if (dialect, harness.rule(tool).family) != ("opencode", "shell"):
                        assert says_failed is (kind != "phantom_success"), got


@pytest.mark.parametrize(("dialect", "tool"), [(d, t) for d, t in TOOLS if t in configs.dialect(d).tools])
def test_a_file_is_named_in_every_answer_about_it(dialect: str, tool: str) -> None:
    """But for texts that only speak of a rule, or of the read itself, as the programs do."""
    harness = configs.dialect(dialect)
    rule = harness.rule(tool)
    if rule.family not in {"read", "write", "edit", "list"} or rule.target is None:
        return
    if tool in {"apply_patch", "read_many_files"}:
        return  # about a patch, or about several files: the programs name none
    arguments = {rule.target: "src/own.py", "path": "src/own.py"}
    unnamed = (
        r"<tool_use_error>|File does not exist\. |ETIMEDOUT: connection timed out, \w+\Z|.* timed out after"
        r"|Wrote file successfully\.|Edit applied successfully\."
    )
    for kind in fitting_kinds(harness, tool, rule.family):
        if kind in BEFORE:
            texts = answers(kind, dialect, tool, arguments)
            assert all("src/own.py" in text or re.match(unnamed, text) for text in texts), texts


def test_every_family_of_every_harness_has_words_for_what_can_be_done_to_it() -> None:
    """Where the table has a cell, some tool of that family can say it."""
    for kind in BEFORE:
        for family in KINDS[kind].families:
            assert any(
                kind in fitting_kinds(configs.dialect(name), tool, family)
                for name, tool in TOOLS
                if configs.dialect(name).rule(tool).family == family
            ), (kind, family)


def test_a_call_without_its_target_is_refused_by_the_harness_itself() -> None:
    claude = configs.dialect("claude-code")
    assert lacks_target(claude, "Read", {})
    assert not lacks_target(claude, "Read", {"file_path": "a"})
    assert not lacks_target(claude, "TodoWrite", {})


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
def test_whatever_the_arguments_are_there_is_an_answer(name: str, data: st.DataObject) -> None:
    harness = configs.dialect(name)
    tool = data.draw(st.sampled_from([*harness.tools, "mcp__a__b", "unheard_of"]))
    rule = harness.rule(tool)
    names = [rule.target or "x", "path", "replace_all", "edits", "content", "timeout", "edit_mode"]
    arguments = data.draw(st.dictionaries(st.sampled_from(names), VALUES))
    kinds = [kind for kind in fitting_kinds(harness, tool, harness.family(tool, arguments)) if kind in BEFORE]
    if kinds:
        kind = data.draw(st.sampled_from(kinds))
        n = data.draw(st.integers(0, 50))
        got = answer(kind, name, tool, arguments, n=n)
        assert got == answer(kind, name, tool, arguments, n=n)
        assert got.text
