"""The places of wordings, and what a shell command says of itself."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.commands import Step, first_step
from scheduler.dialect import Timeout, ToolRule
from scheduler.filling import can_fill, fill, fitting_wordings, words_of
from scheduler.form import Wording
from scheduler.uniform import PayloadStream

SHELL = ToolRule(family="shell", target="command", timeout=Timeout(argument="timeout", unit="ms"))
READ = ToolRule(family="read", target="path")


def filled(text: str, rule: ToolRule, arguments: dict[str, Any], workspace: str | None = None) -> str:
    tool = {"shell": "Bash", "read": "read"}[rule.family]
    return fill(Wording(text=text), words_of(tool, rule, arguments, workspace))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{tool}: {target}", "Bash: cd src && make -j4 all"),
        ("{program}: failed", "make: failed"),
        ("{seconds}|{duration}", "90|1m 30s"),
        ("{count} {flag} {list}", '3 true ["é"]'),
        ("{items:list} {items:two} {items:told} {items:count} {items:none}", "1 2 3 1 1"),
        ("{bytes:word} {bytes:none}", "2 0"),
        ("{given:told|(none)} {given:directory|(none)} {directory} {given:nothing}", "[1, 2, 3] (none) src "),
        ("{unknown} {}", "{unknown} {}"),
    ],
)
def test_a_wording_takes_the_calls_own_words(text: str, expected: str) -> None:
    arguments = {
        "command": "cd src && make -j4 all",
        "timeout": 90_000,
        "count": 3,
        "flag": True,
        "list": ["é"],
        "two": [{}, {}],
        "told": "[1, 2, 3]",
        "word": "é",
    }
    assert filled(text, SHELL, arguments) == expected
    words = words_of("Bash", SHELL, arguments)
    assert can_fill(Wording(text=text), words) is ("unknown" not in text)


@pytest.mark.parametrize(
    ("command", "program"),
    [
        ("pytest -q | tail -3", "tail"),
        ("A=1 /usr/bin/python3 x.py", "python3"),
        ("./run.sh;", "run.sh"),
        ("$(x)", "bash"),
        ("", "bash"),
    ],
)
def test_the_program_of_a_command_is_the_last_that_it_runs(command: str, program: str) -> None:
    assert filled("{program}", SHELL, {"command": command}) == program


def test_a_path_has_a_name_and_a_place() -> None:
    assert filled("{name}", READ, {"path": "/ws/src/"}) == "src"
    assert filled("{name} {target}", READ, {}) == "read read"
    assert filled("{absolute:target} {where}", READ, {"path": "./src/a.py"}, "/ws") == (
        "/ws/src/a.py /ws/src/a.py"
    )
    assert filled("{absolute:path}", READ, {"path": "/other/a.py"}, "/ws") == "/other/a.py"
    assert filled("{absolute:path} {where}", READ, {"path": "a.py"}) == "a.py a.py"
    assert filled("{where}", READ, {}, "/ws") == "/ws"
    assert filled("{where}", READ, {}) == "."
    assert filled("{host}", READ, {"path": "https://me:pw@example.org:8080/x?y"}) == "example.org"
    assert not can_fill(Wording(text="{host}"), words_of("read", READ, {"path": "/ws/a"}))
    assert not can_fill(Wording(text="{workspace}"), words_of("read", READ, {}))
    assert not can_fill(Wording(text="{session}"), words_of("read", READ, {}))
    assert fill(Wording(text="{session}"), words_of("read", READ, {}, None, "s1")) == "s1"
    assert fill(Wording(text="{remote}"), words_of("mcp__a__b", READ, {})) == "b"


def test_process_ids_and_digits_come_from_the_payload_stream() -> None:
    wording = Wording(text="{pid}.{hex12}")
    first = fill(wording, {}, PayloadStream(("a",), 7))
    assert first == fill(wording, {}, PayloadStream(("a",), 7))
    assert first != fill(wording, {}, PayloadStream(("b",), 7))
    pid, digits = first.split(".")
    assert 1000 <= int(pid) < 61_000
    assert len(digits) == 12
    assert 0 <= int(digits, 16) < 1 << 48


def test_wordings_whose_condition_holds_go_first() -> None:
    plain, all_of_them = Wording(text="one"), Wording(text="all", when={"replace_all": r"\Atrue\Z"})
    missing = Wording(text="{nothing}", when={"tool": "."})
    wordings = (plain, all_of_them, missing)
    for arguments, expected in (
        ({"replace_all": True}, all_of_them),
        ({"replace_all": False}, plain),
        ({}, plain),
    ):
        assert fitting_wordings(wordings, words_of("Edit", READ, arguments)) == [expected]
    assert plain.is_for_all
    assert not all_of_them.is_for_all
    assert not Wording(text="{path}").is_for_all
    assert Wording(text="{absolute:target} {items:edits} {bytes:content} {pid}").is_for_all
    assert not Wording(text="{absolute:path}").is_for_all


# What was seen of bash and dash: in a list the last entry's status is the command's, after && nothing runs.
@pytest.mark.parametrize(
    ("command", "step"),
    [
        ("pytest -q", Step("pytest", None, None)),
        ("  ./run.sh --all\n", Step("./run.sh", None, None)),
        ("cd src && make -j4", Step("make", None, "src")),
        ("cd src", Step(None, None, "src")),
        ("cd -", Step(None, None, None)),
        ("make; ./test", Step("./test", None, None)),
        ("echo x > out.txt", Step(None, "out.txt", None)),
        ("make > log.txt 2>&1", Step("make", "log.txt", None)),
        ("make 2>/dev/null", Step("make", None, None)),
        ("sort < in.txt", Step("sort", None, None)),
        ("FOO=1 BAR=2 git commit -m done", Step("git", None, None)),
        ("cat a | sort | uniq -c", Step("uniq", None, None)),
        ("python -c 'import x; print(1)'", Step("python", None, None)),
        ("grep -r 'a|b' src", Step("grep", None, None)),
        ("ls $HOME", Step("ls", None, None)),
        ("make && echo done", Step("make", None, None)),
    ],
)
def test_the_step_that_stops_a_command(command: str, step: Step) -> None:
    assert first_step(command) == step


@pytest.mark.parametrize(
    "command",
    [
        "",
        "a\nb",
        "a || b",
        "a & ",
        "a &",
        "(cd x; make)",
        "{ a; b; }",
        "for i in 1 2; do x; done",
        "if a; then b; fi",
        "cat <<EOF > f\nhi\nEOF",
        "echo $(date)",
        "echo `date`",
        "grep '|' a",
        "find . -exec rm {} \\;",
        "echo 'not closed",
        "a |& b",
        "a &&",
        "a | ",
        "$PROGRAM x",
        "'a b' c",
        "x " * 3000,
    ],
)
def test_a_command_that_is_not_plain_has_no_such_step(command: str) -> None:
    assert first_step(command) is None


@given(st.text(alphabet=st.sampled_from("ab ./|&;<>()'\"\\$`\n=-0"), max_size=40))
def test_any_command_is_looked_through(command: str) -> None:
    step = first_step(command)
    if step is not None and step.program is not None:
        assert step.program in command.replace("'", "").replace('"', "").replace("\\", "")
