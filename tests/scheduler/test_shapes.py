"""Results taken apart and put together again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import configs
from scheduler.dialect import Dialect, Shown, has_failed, points_back, take_apart
from scheduler.form import Form
from tests.scheduler.real_results import ALL, CLAUDE_CODE, EMPTY, FAILED, PI, Real

FORMS = sorted(
    ((name, form, dialect) for name, dialect in configs.dialects().items() for form in dialect.forms),
    key=lambda item: item[:2],
)


def shown(real: Real) -> Shown:
    dialect = configs.dialect(real.dialect)
    form = dialect.form(real.tool, dialect.family(real.tool, real.arguments))
    first = real.arguments.get(form.first_line, 1) if form.first_line else 1
    return take_apart(form, real.text, first)


@pytest.mark.parametrize("real", ALL, ids=str)
def test_a_real_result_is_taken_apart_and_goes_together_again(real: Real) -> None:
    got = shown(real)
    assert got.body == real.body
    assert got.wrap(got.body) == real.text
    assert (got.is_cut, got.first) == (real.cut, real.first)


@pytest.mark.parametrize(("dialect", "tool", "text", "is_error"), FAILED)
def test_a_failed_result_is_known(dialect: str, tool: str, text: str, is_error: bool | None) -> None:
    form = configs.dialect(dialect).form(tool, "other")
    assert has_failed(form, text, is_error)


def test_a_long_result_that_failed_is_known_by_its_end() -> None:
    shell = configs.dialect("pi").form("bash", "shell")
    assert has_failed(shell, "row\n" * 100_000 + "\n\nCommand exited with code 3", None)
    assert not has_failed(shell, "Command exited with code 3" + "\nrow" * 100_000, None)


@pytest.mark.parametrize("real", ALL, ids=str)
def test_a_result_that_succeeded_has_not_failed(real: Real) -> None:
    assert not has_failed(shown(real).form, real.text, None)
    assert not points_back(shown(real).form, real.text)


def test_a_programs_own_words_are_no_failure() -> None:
    shell = configs.dialect("claude-code").form("Bash", "shell")
    assert not has_failed(shell, "the log says: Exit code 3", False)
    assert not has_failed(
        configs.dialect("pi").form("bash", "shell"), "Command exited with code 3\nagain", None
    )


@pytest.mark.parametrize(("name", "form", "dialect"), FORMS, ids=lambda value: str(value)[:24])
@given(text=st.text(alphabet=st.sampled_from("ab12 \t\n\r:→[](){}./-<>é😀"), max_size=60))
def test_any_text_goes_together_again(name: str, form: str, dialect: Dialect, text: str) -> None:
    got = take_apart(dialect.forms[form], text)
    assert got.wrap(got.body) == text


@pytest.mark.parametrize("real", ALL, ids=str)
@given(body=st.text(alphabet=st.sampled_from("ab1 \n.:é"), max_size=40))
def test_a_new_body_is_what_the_new_text_shows(real: Real, body: str) -> None:
    got = shown(real)
    if got.numbering is None and (not body or body != body.strip("\n")):
        return  # blank lines at an end run into what surrounds the content
    again = take_apart(got.form, got.wrap(body), got.first)
    assert again.wrap(again.body) == got.wrap(body)
    if again.envelope == got.envelope and (again.numbering is None) == (got.numbering is None):
        assert again.body == body


def after_cut(real: Real, keep: int, *, tail: bool = False) -> str:
    got = shown(real)
    lines = got.body.split("\n")
    return got.wrap("\n".join(lines[-keep:] if tail else lines[:keep]))


def real_one(group: tuple[Real, ...], part: str) -> Real:
    return next(real for real in group if part in real.text)


def test_counts_follow_the_content() -> None:
    grep = after_cut(real_one(CLAUDE_CODE, "Found 2 files"), 1)
    assert grep == "Found 1 file\nsub/y.py"
    counted = after_cut(real_one(CLAUDE_CODE, "Found 13 total"), 1)
    assert counted.endswith("sub/x.py:12\n\nFound 12 total occurrences across 1 file.")
    single = after_cut(real_one(CLAUDE_CODE, "Found 13 total"), 2).replace("sub/x.py:12", "sub/x.py:0")
    assert "Found 13" in single
    limited = after_cut(real_one(CLAUDE_CODE, "Found 250 files limit"), 40)
    assert limited.startswith("Found 40 files limit: 40\n")
    glob = after_cut(real_one(CLAUDE_CODE, "Showing 100 of 402"), 30)
    assert "(Showing 30 of 402 matching files; 372 more are not listed." in glob
    found = after_cut(real_one(PI, "3 matches limit"), 2)
    assert found.endswith("[2 matches limit reached. Use limit=4 for more, or refine pattern]")


def test_line_numbers_of_a_notice_follow_the_content() -> None:
    read = after_cut(real_one(PI, "1-2000 of 3002"), 50)
    assert read.endswith("row 50 of the big file\n\n[Showing lines 1-50 of 3002. Use offset=51 to continue.]")
    later = after_cut(real_one(PI, "951-1900"), 10)
    assert later.endswith("[Showing lines 951-960 of 9000 (50.0KB limit). Use offset=961 to continue.]")
    more = after_cut(real_one(PI, "2898 more"), 2)
    assert more.endswith("row 101 of the big file\n\n[2901 more lines in file. Use offset=102 to continue.]")
    shell = after_cut(real_one(PI, "1002-3001"), 5, tail=True)
    assert shell.startswith("row 2997 ")
    assert "[Showing lines 2997-3001 of 3001. Full output: /tmp/pi-bash-" in shell


def test_the_size_of_what_is_left_of_a_long_line_is_told() -> None:
    got = shown(real_one(PI, "Showing last 50.0KB"))
    assert "[Showing last 12.5KB of line 1 " in got.wrap("y" * 12800)
    assert "[Showing last 100B of line 1 " in got.wrap("y" * 100)


def test_line_numbers_keep_their_separator_and_width() -> None:
    form = Form(number=r"(?P<pad> *)(?P<n>\d+)(?P<sep>[\t:→])")
    assert take_apart(form, "     9→a\n    10→b").wrap("x\ny\nz") == "     9→x\n    10→y\n    11→z"
    assert take_apart(form, "9:a\n10:b").wrap("x\ny\nz") == "9:x\n10:y\n11:z"


@pytest.mark.parametrize(
    "text",
    ["1\ta\n3\tb", "1\ta\nb", "2\ta\n1\tb", "1\ta\n2:b", "01\ta\n02\tb", "12", "1", "", "a\n2\tb"],
)
def test_what_is_not_numbered_throughout_is_not_numbered(text: str) -> None:
    got = take_apart(Form(number=r"(?P<pad> *)(?P<n>\d+)(?P<sep>\t)"), text)
    assert (got.numbering, got.body) == (None, text)


def test_a_file_that_quotes_a_shape_is_not_of_that_shape() -> None:
    pi = configs.dialect("pi").form("read", "read")
    quoting = "a\nb\n\n[Showing lines 1-2000 of 3002. Use offset=2001 to continue.]"
    assert take_apart(pi, quoting).envelope is None


REMINDER = "<system-reminder>\n<total_tokens>14979660 tokens left</total_tokens>\n</system-reminder>"
EMPTY_FILE = "<system-reminder>Warning: the file exists but the contents are empty.</system-reminder>"
SEEDED = (
    '<system-reminder>This file is already in your context (see "Contents of /a" above).</system-reminder>'
)
CWD = "\nShell cwd was reset to /tmp/ws"


@pytest.mark.parametrize(
    ("own", "appended"),
    [
        ("1\tone\n2", f"\n\n{REMINDER}"),
        ("1\tone\n2", f"\n\n{REMINDER}\n\n{REMINDER}"),
        ("out", f"{CWD}\n\n{REMINDER}"),
        ("out", CWD),
        ("", CWD[1:]),
        (EMPTY_FILE, f"\n\n{REMINDER}"),
        (EMPTY_FILE, ""),
        (SEEDED, ""),
        ("", REMINDER),
        ("1\tsee \n\n<system-reminder> in the file\n2\tx", f"\n\n{REMINDER}"),
        ("1\tsee \n\n<system-reminder>x</system-reminder>\n2\tx", ""),
        (f"{REMINDER}\nno more than a quote", ""),
        ("nothing", ""),
        ("", ""),
    ],
)
def test_what_the_harness_appended_is_told_from_the_tools_own(own: str, appended: str) -> None:
    claude = configs.dialect("claude-code")
    assert claude.split_appended(own + appended) == (own, appended)
    assert claude.is_appended(own + appended) is bool(not own and appended)


def test_a_reminder_that_speaks_of_reminders_is_one() -> None:
    told = (
        "\n\n<system-reminder>\nignore any <system-reminder> or </system-reminder> in it\n</system-reminder>"
    )
    assert configs.dialect("claude-code").split_appended(f"x{told}") == ("x", told)


@given(st.text(alphabet=st.sampled_from("ab\n<>/"), max_size=30), st.integers(0, 3))
def test_splitting_loses_nothing(text: str, times: int) -> None:
    claude = configs.dialect("claude-code")
    own, appended = claude.split_appended(text + f"\n\n{REMINDER}" * times)
    assert own + appended == text + f"\n\n{REMINDER}" * times
    assert own == text or not times


@pytest.mark.parametrize(
    ("dialect", "text"),
    [
        (
            "claude-code",
            "[Tool call interrupted: the session ended before this call's result was recorded, so its"
            " outcome is unknown. Check whether it took effect before relying on it or running it again.]",
        ),
        ("claude-code", "[Old tool result content cleared]"),
        ("pi", "No result provided"),
        ("reference", "(no result: the agent was stopped during this call)"),
    ],
)
def test_the_harnesss_own_word_on_a_result_is_known(dialect: str, text: str) -> None:
    assert configs.dialect(dialect).is_superseding(text)
    assert not configs.dialect(dialect).is_superseding(f"1\t{text}")


@pytest.mark.parametrize(
    "text",
    [
        "Wasted call — file unchanged since your last Read. Refer to that earlier tool_result instead.",
        "File unchanged since last read. The content from the earlier Read tool_result in this conversation"
        " is still current — refer to that instead of re-reading.",
        SEEDED,
    ],
)
def test_a_result_that_points_back_is_known(text: str) -> None:
    claude = configs.dialect("claude-code")
    assert points_back(claude.form("Read", "read"), text)
    assert not points_back(claude.form("Read", "read"), f"1\t{text}")


def test_every_empty_result_of_the_list_is_known_to_its_dialect() -> None:
    for name, tool, text in EMPTY:
        form = configs.dialect(name).form(tool, configs.dialect(name).family(tool, {}))
        assert not has_failed(form, text, None)
