"""The reference agent as a program, against the scripted model, over a real socket."""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.adapter import Job
from harness.launch import Outcome
from harness.reference import Reference
from harness.reference_agent import INTERRUPTED, VERSION
from harness.script import Misstep, Policy, scripted
from harness.scripted_model import ThreadedScriptedModel
from harness.turns import ToolCall, Turn


def run(model: ThreadedScriptedModel, folder: Path, *, policy: str = "careful", **job: str) -> Outcome:
    """One launch in ``folder``/ws; ``job`` are fields of Job."""
    workspace = folder / "ws"
    workspace.mkdir(exist_ok=True)
    agent = Reference(policy)
    asked = Job(model.url + "/run/r-1", job.pop("prompt", "Do it."), workspace, folder / "home", **job)  # type: ignore[arg-type]
    return agent.launch(agent.find(), asked).run(60)


def test_acts_answers_and_ends(tmp_path: Path) -> None:
    script = scripted(
        Turn(
            "Now.",
            (ToolCall("write", {"path": "a.txt", "content": "one\n"}), ToolCall("read", {"path": "a.txt"})),
        ),
        ToolCall("edit", {"path": "a.txt", "old": "one", "new": "two"}),
        ToolCall("shell", {"command": "cat a.txt; exit 4"}),
        ToolCall("frobnicate", {"x": 1}),
        Turn("All is done."),
    )
    with ThreadedScriptedModel(script) as model:
        outcome = run(model, tmp_path, policy="naive", session="s-1", prompt="Please.")
        requests = model.agent_requests
    assert (outcome.exit_code, outcome.stdout, outcome.stderr) == (0, "All is done.\n", "")
    assert (tmp_path / "ws/a.txt").read_text() == "two\n"
    assert len(requests) == len(model.received) == 5
    last = requests[-1].conversation
    assert last is not None
    assert [(result.text, result.is_error) for result in last.results] == [
        ("wrote 4 bytes to a.txt", None),
        ("one\n", None),
        ("edited a.txt: 1 replacement", None),
        ("two\n[exit code 4]", True),
        ("error: no such tool: frobnicate", True),
    ]
    assert [result.call_id for result in last.results] == [call.call_id for call in last.calls]
    assert last.opening == ("Please.",)
    assert last.stream
    assert f"Workspace: {tmp_path}/ws\nPolicy: naive" in last.system
    first = requests[0]
    assert first.path == "/run/r-1/v1/messages"
    assert first.header("user-agent") == f"chaosproxy-reference/{VERSION}"
    assert {request.header("x-session-id") for request in requests} == {"s-1"}
    for earlier, later in itertools.pairwise(requests):
        assert later.json["messages"][: len(earlier.json["messages"])] == earlier.json["messages"]


@pytest.mark.parametrize(
    "misstep",
    [
        Misstep(times=2, status=529),
        Misstep(status=429, headers=(("retry-after", "0.1"),)),
        Misstep(times=2, cut_after_bytes=400),
        Misstep(cut_after_bytes=400, cut="end"),
        Misstep(raw=b"data: {nope\n\n", content_type="text/event-stream"),
        Misstep(raw=b'data: {"type":"error","error":{"type":"overloaded_error"}}\n\n'),
    ],
)
def test_asks_again_when_the_endpoint_fails(tmp_path: Path, misstep: Misstep) -> None:
    turn = Turn("I write it." + " word" * 40, (ToolCall("write", {"path": "a.txt", "content": "x"}),))
    with ThreadedScriptedModel(scripted(turn, "Done."), missteps=[misstep]) as model:
        outcome = run(model, tmp_path)
    assert outcome.exit_code == 0
    assert outcome.stdout == "Done.\n"
    assert len(model.agent_requests) == misstep.times + 2
    assert (tmp_path / "ws/a.txt").read_text() == "x"


@pytest.mark.parametrize(
    ("misstep", "requests", "named"),
    [
        (Misstep(times=9, status=500), 5, "status 500"),
        (Misstep(times=9, status=402), 1, "status 402"),
        (Misstep(times=9, status=529, headers=(("x-should-retry", "false"),)), 1, "status 529"),
        (Misstep(times=9, cut_after_bytes=0), 5, "ClientPayloadError"),
    ],
)
def test_gives_up_after_bounded_tries(tmp_path: Path, misstep: Misstep, requests: int, named: str) -> None:
    with ThreadedScriptedModel(scripted("Done."), missteps=[misstep]) as model:
        outcome = run(model, tmp_path)
    assert outcome.exit_code == 1
    assert outcome.stdout == ""
    assert "the endpoint failed" in outcome.stderr
    assert named in outcome.stderr
    assert len(model.received) == requests


def test_arguments_that_are_no_json_are_told_to_the_model(tmp_path: Path) -> None:
    script = scripted(ToolCall("read", {}, None, '{"path": "a'), ToolCall("read", {}, None, ""), "Done.")
    with ThreadedScriptedModel(script) as model:
        assert run(model, tmp_path).exit_code == 0
    last = model.agent_requests[-1].conversation
    assert last is not None
    assert [result.text for result in last.results] == ["error: path must be given, as a string"] * 2
    assert last.calls[0].arguments == {"unreadable": '{"path": "a'}


def test_a_model_that_is_never_done_is_stopped(tmp_path: Path) -> None:
    def endless(_: object) -> Turn:
        return Turn(calls=(ToolCall("shell", {"command": "true"}),))

    with ThreadedScriptedModel(endless) as model:
        agent = Reference()
        (tmp_path / "ws").mkdir()
        launch = agent.launch(agent.find(), Job(model.url, "Go.", tmp_path / "ws", tmp_path / "home"))
        launch = type(launch)((*launch.argv, "--max-turns=3"), launch.env, launch.cwd)
        outcome = launch.run(60)
    assert outcome.exit_code == 1
    assert "after 3 turns" in outcome.stderr
    assert len(model.agent_requests) == 3


def test_bad_usage_is_told(tmp_path: Path) -> None:
    with ThreadedScriptedModel(scripted("Done.")) as model:
        outcome = run(model, tmp_path, resume="none")
        assert outcome.exit_code == 2
        assert "no session none" in outcome.stderr
        assert model.received == []


def test_goes_on_with_a_session_that_was_killed_in_a_tool(tmp_path: Path) -> None:
    first = scripted(
        ToolCall("shell", {"command": "echo one > one.txt"}), ToolCall("shell", {"command": "sleep 300"})
    )
    workspace, home = tmp_path / "ws", tmp_path / "home"
    workspace.mkdir()
    agent = Reference()
    with ThreadedScriptedModel(first) as model:
        job = Job(model.url, "Do it.", workspace, home, session="s-7")
        running = agent.launch(agent.find(), job).start()
        _wait_for(lambda: _sleepers(home) > 0)
        running.kill()
        assert running.wait(10).exit_code == -9
    assert _sleepers(home) == 0
    with ThreadedScriptedModel(_summary()) as model:
        outcome = run(model, tmp_path, resume="s-7", prompt="Go on.")
    assert outcome.stdout == "2 calls so far.\n"
    (request,) = model.agent_requests
    assert request.header("x-session-id") == "s-7"
    view = request.conversation
    assert view is not None
    assert [(result.text, result.is_error) for result in view.results] == [
        ("(no output)", None),
        (INTERRUPTED, True),
    ]
    assert view.user_texts == ("Do it.", "Go on.")


def _summary() -> Policy:
    return lambda view: Turn(f"{len(view.calls)} calls so far.")


def _wait_for(happened: Callable[[], bool]) -> None:
    for _ in range(400):
        if happened():
            return
        time.sleep(0.05)
    pytest.fail("it never happened")


def _sleepers(home: Path) -> int:
    """Live processes of the launch that run sleep."""
    count = 0
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            mine = f"HOME={home}".encode() in (entry / "environ").read_bytes()
            count += mine and (entry / "cmdline").read_bytes().startswith(b"sleep\0")
    return count


def test_the_shell_does_not_see_how_the_agent_is_found(tmp_path: Path) -> None:
    with ThreadedScriptedModel(
        scripted(ToolCall("shell", {"command": "echo [$PYTHONPATH]"}), "Done.")
    ) as model:
        assert run(model, tmp_path).exit_code == 0
    view = model.agent_requests[-1].conversation
    assert view is not None
    assert view.results[0].text == "[]\n"
    assert not any(key.startswith("ANTHROPIC") for key in os.environ if key in view.system)
