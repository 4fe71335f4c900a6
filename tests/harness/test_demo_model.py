"""The rule-based model: it solves every task, and the two manners differ where results lie."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from harness.demo_model import Manner, demo_policy
from harness.reference import Reference
from harness.reference_agent import system_text
from harness.reference_tools import TOOLS, Toolbox
from harness.rules.goals import assignment_in
from harness.rules.hands import Edit, Hands, Read, Seen, Shell, Write
from harness.script import Policy
from harness.scripted_model import ThreadedScriptedModel
from harness.task import Task, prepare, shipped_tasks, verdict
from harness.trial import Trial, run_trial
from harness.turns import Conversation, PastTurn, ToolCall, ToolOffer, ToolResult, Turn

TASKS = {task.id: task for task in shipped_tasks()}
Lie = Callable[[ToolCall, ToolResult], ToolResult]


def solve(
    task: Task, manner: Manner, folder: Path, policy: Policy | None = None
) -> tuple[Trial, list[ToolCall]]:
    with ThreadedScriptedModel(policy or demo_policy()) as model:
        trial = run_trial(task, Reference(manner), model.url, folder)
        view = model.agent_requests[-1].conversation
    assert view is not None
    return trial, list(view.calls)


@pytest.mark.parametrize("manner", ["careful", "naive"])
@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_both_manners_solve_every_task(task: Task, manner: Manner, tmp_path: Path) -> None:
    trial, calls = solve(task, manner, tmp_path / "t")
    assert trial.passed, trial.verdict.output
    assert trial.clean_exit
    assert trial.outcome.stdout.startswith("Done: ")
    commands = [str(call.arguments.get("command", "")) for call in calls]
    assert any(task.test_command.search(command) for command in commands) == (manner == "careful")


def lying(lies: dict[int, Lie]) -> Policy:
    """The demo model behind something that rewrites the n-th results, the same way in every request."""
    honest = demo_policy()

    def policy(view: Conversation) -> Turn:
        turns, number = [], 0
        for past in view.turns:
            results = []
            for result in past.results:
                call = next(call for call in past.calls if call.call_id == result.call_id)
                results.append(lies[number](call, result) if number in lies else result)
                number += 1
            turns.append(replace(past, results=tuple(results)))
        return honest(replace(view, turns=tuple(turns)))

    return policy


def emptied(call: ToolCall, result: ToolResult) -> ToolResult:
    return replace(result, text="(no output)" if call.tool == "shell" else "(the file is empty)")


def cut(_: ToolCall, result: ToolResult) -> ToolResult:
    return replace(result, text="\n".join(result.text.split("\n")[:4]) + "\n[cut: lines 1-4 of 40 shown]")


def shortened(_: ToolCall, result: ToolResult) -> ToolResult:
    return replace(result, text="\n".join(result.text.split("\n")[:4]) + "\n")


def failed(_: ToolCall, result: ToolResult) -> ToolResult:
    return replace(result, text="error: Input/output error: it", is_error=True)


def drifted(_: ToolCall, result: ToolResult) -> ToolResult:
    return replace(result, text=result.text.translate(str.maketrans("0123456789", "1234567890")))


async def converse(policy: Policy, task: Task, workspace: Path) -> Conversation:
    """The whole conversation, with the real tools but without a program or a socket between."""
    prepare(task, workspace)
    tools = tuple(ToolOffer(tool["name"], tuple(tool["input_schema"]["properties"])) for tool in TOOLS)
    talk = view(*tools, texts=(task.prompt,), system=system_text(workspace, "careful"))
    toolbox = Toolbox(workspace)
    for number in range(100):
        turn = policy(talk)
        if not turn.calls:
            return talk
        (call,) = turn.calls
        output = await toolbox.call(call.tool, call.arguments)
        answered = replace(call, call_id=f"c{number}")
        result = ToolResult(f"c{number}", output.text, output.is_error or None)
        talk = replace(talk, turns=(*talk.turns, PastTurn(turn.text, (answered,), (result,), ())))
    pytest.fail("it never ended")


@pytest.mark.parametrize("lie", [emptied, cut, shortened, failed, drifted])
@pytest.mark.parametrize("number", [0, 1, 3])
@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
async def test_careful_gets_through_one_lie_anywhere(
    task: Task, number: int, lie: Lie, tmp_path: Path
) -> None:
    await converse(lying({number: lie}), task, tmp_path)
    checked = verdict(task, tmp_path)
    assert checked.passed, checked.output


@pytest.mark.parametrize("lie", [emptied, failed, drifted])
@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
async def test_careful_gets_through_lies_about_every_third_result(
    task: Task, lie: Lie, tmp_path: Path
) -> None:
    await converse(lying(dict.fromkeys(range(1, 200, 3), lie)), task, tmp_path)
    checked = verdict(task, tmp_path)
    assert checked.passed, checked.output


def stubborn(lie: Lie, text: str) -> Policy:
    """The demo model behind something that lies about every call whose arguments are exactly ``text``."""
    honest = demo_policy()

    def policy(view: Conversation) -> Turn:
        turns = []
        for past in view.turns:
            told = (lie(c, r) if text in c.arguments.values() else r for c, r in _pairs(past))
            turns.append(replace(past, results=tuple(told)))
        return honest(replace(view, turns=tuple(turns)))

    return policy


def _pairs(past: PastTurn) -> list[tuple[ToolCall, ToolResult]]:
    return [(call, result) for call in past.calls if (result := past.result_of(call)) is not None]


@pytest.mark.parametrize("lie", [emptied, failed, shortened])
@pytest.mark.parametrize(
    "text", ["settings.py", "LIMITS.md", "cat settings.py", "python -B test_settings.py"]
)
async def test_careful_works_around_a_call_that_never_tells_the_truth(
    text: str, lie: Lie, tmp_path: Path
) -> None:
    talk = await converse(stubborn(lie, text), TASKS["limits"], tmp_path)
    assert verdict(TASKS["limits"], tmp_path).passed
    assert len(talk.calls) < 60


@pytest.mark.parametrize("lie", [emptied, shortened, drifted])
def test_naive_believes_what_it_reads_and_says_that_it_is_done(lie: Lie, tmp_path: Path) -> None:
    trial, _ = solve(TASKS["limits"], "naive", tmp_path / "t", lying({0: lie}))
    assert not trial.passed
    assert trial.outcome.stdout.startswith("Done: ")


def test_careful_says_so_when_it_cannot_finish(tmp_path: Path) -> None:
    trial, _ = solve(TASKS["pager"], "careful", tmp_path / "t", lying(dict.fromkeys(range(200), emptied)))
    assert not trial.passed
    assert trial.clean_exit
    assert "could not finish" in trial.outcome.stdout


def test_an_edit_that_worked_and_was_told_as_failed_is_not_made_twice(tmp_path: Path) -> None:
    trial, calls = solve(TASKS["pager"], "careful", tmp_path / "t", lying({1: failed}))
    assert trial.passed
    assert [call.tool for call in calls].count("edit") == 1
    _, naive_calls = solve(TASKS["pager"], "naive", tmp_path / "u", lying({1: failed}))
    assert [call.tool for call in naive_calls].count("edit") == 2


def view(
    *tools: ToolOffer, texts: tuple[str, ...] = (), system: str = "", turns: tuple[PastTurn, ...] = ()
) -> Conversation:
    return Conversation("anthropic", "m", system, texts, turns, tools, True, 0)


CLAUDE = view(
    ToolOffer("Read", ("file_path", "offset", "limit")),
    ToolOffer("Write", ("file_path", "content")),
    ToolOffer("Edit", ("file_path", "old_string", "new_string", "replace_all")),
    ToolOffer("Bash", ("command", "timeout")),
    texts=("<system-reminder>\n# Environment\n - Primary working directory: /w s/x\n</system-reminder>",),
)
PI = view(
    ToolOffer("read", ("path", "offset", "limit")),
    ToolOffer("write", ("path", "content")),
    ToolOffer("edit", ("path", "edits")),
    ToolOffer("bash", ("command", "timeout")),
    system="…\n<cwd>\n/w\n</cwd>",
)


def test_acts_become_calls_of_the_tools_on_offer() -> None:
    acts = (Read("a/b"), Write("c", "x"), Edit("d", "1", "2"), Shell("ls"))
    assert [(c.tool, c.arguments) for c in map(Hands(CLAUDE).call, acts)] == [
        ("Read", {"file_path": "/w s/x/a/b"}),
        ("Write", {"file_path": "/w s/x/c", "content": "x"}),
        ("Edit", {"file_path": "/w s/x/d", "old_string": "1", "new_string": "2"}),
        ("Bash", {"command": "ls"}),
    ]
    assert [(c.tool, c.arguments) for c in map(Hands(PI).call, acts)] == [
        ("read", {"path": "a/b"}),
        ("write", {"path": "c", "content": "x"}),
        ("edit", {"path": "d", "edits": [{"oldText": "1", "newText": "2"}]}),
        ("bash", {"command": "ls"}),
    ]


REMINDER = "\n\n<system-reminder>\n<total_tokens>14979660 tokens left</total_tokens>\n</system-reminder>"


@pytest.mark.parametrize(
    ("conversation", "act", "text", "seen"),
    [
        (CLAUDE, Read("a"), "1\tline one\n2\tline two\n3\t", Seen("line one\nline two\n")),
        (CLAUDE, Read("a"), "1\tline one\n2\tline two\n3" + REMINDER, Seen("line one\nline two\n")),
        (CLAUDE, Read("a"), "1\tno newline at end" + REMINDER, Seen("no newline at end")),
        (
            CLAUDE,
            Read("a"),
            "<system-reminder>Warning: the file exists but the contents are empty.</system-reminder>"
            + REMINDER,
            Seen(""),
        ),
        (
            CLAUDE,
            Read("a"),
            "Wasted call — file unchanged since your last Read. Refer to that earlier tool_result instead.",
            Seen("", partial=True),
        ),
        (CLAUDE, Shell("x"), "Exit code 3\nout\nerr" + REMINDER, Seen("Exit code 3\nout\nerr", failed=True)),
        (CLAUDE, Shell("x"), "(Bash completed with no output)", Seen("")),
        (
            PI,
            Read("a"),
            "x\n\n[2 more lines in file. Use offset=3 to continue.]",
            Seen("x\n\n[2 more lines in file. Use offset=3 to continue.]", partial=True),
        ),
        (PI, Read("a"), "", Seen("")),
        (
            PI,
            Shell("x"),
            "out\n\n\nCommand exited with code 3",
            Seen("out\n\n\nCommand exited with code 3", failed=True),
        ),
        (PI, Shell("x"), "(no output)", Seen("")),
    ],
)
def test_understands_what_the_harnesses_answer(
    conversation: Conversation, act: Read | Shell, text: str, seen: Seen
) -> None:
    assert Hands(conversation).seen(act, ToolResult("c", text, None)) == seen


def test_an_error_flag_is_believed() -> None:
    assert Hands(PI).seen(Read("a"), ToolResult("c", "anything", True)).failed
    assert Hands(PI).seen(Read("a"), None).failed


def test_ends_at_once_when_there_is_nothing_it_can_do() -> None:
    idle = demo_policy()(replace(CLAUDE, opening=("Tell me a joke.",)))
    assert (idle.calls, idle.text) == ((), "I see nothing here that I know how to do.")
    lame = demo_policy()(view(ToolOffer("Read", ("file_path",)), texts=(TASKS["pager"].prompt,)))
    assert lame.calls == ()


def test_the_system_text_sets_the_manner() -> None:
    told = replace(PI, opening=(TASKS["tax"].prompt,), system="Policy: naive")
    done = PastTurn("", (ToolCall("read", {"path": "TAX.md"}, "1"),), (ToolResult("1", "", False),), ())
    again = replace(told, turns=(done,))
    assert demo_policy("careful")(again).text.startswith("Done")
    assert demo_policy("careful")(replace(again, system="")).calls


def test_calls_of_others_are_passed_over() -> None:
    asked = replace(PI, opening=(TASKS["pager"].prompt,))
    foreign = PastTurn(
        "", (ToolCall("bash", {"command": "ls"}, "1"),), (ToolResult("1", "x", False),), ("on",)
    )
    comment = PastTurn("No response requested.", (), (), ("Go on.",))
    assert demo_policy()(replace(asked, turns=(foreign, comment))) == demo_policy()(asked)


def test_assignments_are_found_among_other_texts() -> None:
    found = assignment_in(("<system-reminder>\nRun `x` …</system-reminder>", TASKS["limits"].prompt))
    assert found is not None
    assert len(found.goals) == 2
    assert found.check == "python -B test_settings.py"
    assert assignment_in(("nothing", "")) is None
