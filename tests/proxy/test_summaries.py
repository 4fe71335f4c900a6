"""Requests that ask the model to sum its history up, and what comes after them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.proxy.build import user
from tests.proxy.stage import Agent, Call, Stage, force, only, read

FILE = "line one\nline two 2\n"
GEMINI = {"user-agent": "GeminiCLI/0.61.0/gemini-2.5-pro (linux; x64)"}
SUM_UP = user("Sum it up.")


def _asked_to_sum_up(agent: Agent, *calls: Call, **fields: Any) -> Agent:
    """The same harness, which asks for a summary of all that there is."""
    other = Agent(agent.stage, agent.headers, [*agent.messages, SUM_UP], agent.fields | fields)
    other.ask(*calls)
    return other


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("calls", [(), (read("x", "b.txt", tool="read"),)])
def test_a_summary_that_comes_to_nothing_is_no_fork(
    tmp_path: Path, calls: tuple[Call, ...], restarted: bool
) -> None:
    """Qwen Code leaves its tools on offer, and goes on as it was when the summary is too long. What the model
    asks for all the same is not done."""
    stage = Stage(tmp_path, only("wrong_data"))
    agent = stage.pi()
    agent.turn(*read("t1", tool="read"), FILE)
    agent.turn(*read("t2", tool="read"), FILE)
    _asked_to_sum_up(agent, *calls)
    decided = len(stage.decisions())
    if restarted:
        stage.restart()
    first = agent.turn(*read("t3", tool="read"), FILE)
    assert first.results == stage.sent[-2].results
    agent.ask()
    found = [d for d in stage.decisions() if d["skipped"] is None]
    assert decided == 2
    assert [(d["call_id"], d["conversation"], d["occurrence"]) for d in found] == [
        ("t1", "c0", 0),
        ("t2", "c0", 1),
        ("t3", "c0", 2),
    ]
    assert not stage.records("error")


def test_a_call_that_is_made_and_answered_behind_such_a_question_makes_two_ways(tmp_path: Path) -> None:
    stage = Stage(tmp_path, only("wrong_data"))
    agent = stage.pi()
    agent.turn(*read("t1", tool="read"), FILE)
    asked = _asked_to_sum_up(agent, read("t2", tool="read"))
    asked.results(("t2", FILE)).ask()
    agent.turn(*read("b2", tool="read"), FILE)
    sent = agent.ask()
    found = {d["call_id"]: d for d in stage.decisions()}
    assert [found[name]["occurrence"] for name in ("t1", "t2", "b2")] == [0, 1, 1]
    assert found["t2"]["conversation"] != found["b2"]["conversation"]
    assert len(stage.decisions()) == 3
    assert FILE not in dict(sent.results).values()


def test_a_summary_of_what_stands_before_the_newest_prompt(tmp_path: Path) -> None:
    """Gemini CLI sums up in the middle of its work, without tools and without what it does just now; it goes
    on where it was."""
    stage = Stage(tmp_path, only("wrong_data"))
    agent = stage.pi()
    agent.turn(*read("t1", tool="read"), FILE)
    shown = agent.ask()["t1"]
    before = list(agent.messages)
    agent.messages.append(user("Go on."))
    agent.ask(read("t2", tool="read"))
    for more in ([SUM_UP], [SUM_UP, {"role": "assistant", "content": "S"}, user("Is that all?")]):
        look = Agent(stage, agent.headers, [*before, *more], agent.fields | {"tools": None})
        assert look.ask()["t1"] == shown
    agent.results(("t2", FILE)).ask()
    assert [(d["call_id"], d["conversation"], d["skipped"]) for d in stage.decisions()] == [
        ("t1", "c0", None),
        ("t2", "c0", None),
    ]
    assert {d["conversation"] for d in stage.records("delivery")} == {"c0"}


@pytest.mark.parametrize(
    "summary",
    [
        "<state_snapshot>\nS\n</state_snapshot>",
        "<scratchpad>\nWell.\n</scratchpad>\n\n<state_snapshot>\nS\n</state_snapshot>",
        "I was told to read a file.",
    ],
)
def test_what_gemini_cli_has_summed_up_goes_on(tmp_path: Path, summary: str) -> None:
    """Whatever the model thinks before its summary, or says in its place: the harness has it answer it."""
    stage = Stage(tmp_path, force({"tool": "read_file", "nth": 2, "kind": "wrong_data"}))
    said = {"role": "user", "parts": [{"text": "<session_context>…</session_context>"}, {"text": "Do it."}]}
    _gemini(stage, [said], _read("t1"))
    _gemini(stage, [said, *_done("t1")])
    anew: list[dict[str, Any]] = [
        {"role": "user", "parts": [said["parts"][0], {"text": summary}]},
        {"role": "model", "parts": [{"text": "Got it. Thanks for the additional context!"}]},
        {"role": "user", "parts": [{"text": "Go on."}]},
    ]
    _gemini(stage, anew, _read("t2"))
    left = _gemini(stage, [*anew, *_done("t2")])
    assert json.dumps(FILE) not in left
    found = [(d["call_id"], d["conversation"], d["occurrence"], d["kind"]) for d in stage.decisions()]
    assert found == [("t1", "c0", 0, None), ("t2", "c0", 1, "wrong_data")]


def test_a_summary_of_a_session_that_began_like_another(tmp_path: Path) -> None:
    """Gemini CLI writes the tool's name before every id when it asks without tools: but for the first prompt
    the history looks like none that went before."""
    stage = Stage(tmp_path, force({"tool": "read_file", "nth": 1, "kind": "wrong_data"}))
    said = {"role": "user", "parts": [{"text": "Do it."}]}
    _gemini(stage, [said], _read("t1"))
    shown = _gemini(stage, [said, *_done("t1")])
    _gemini(stage, [said], _read("s1"))
    _gemini(stage, [said, *_done("s1")])
    decided = len(stage.decisions())
    asked = {"role": "user", "parts": [{"text": "Generate the <state_snapshot>."}]}
    left = _gemini(stage, [said, *_done("t1", "read_file__"), asked], tools=None)
    assert _outputs(left) == _outputs(shown)
    assert len(stage.decisions()) == decided == 2


def _outputs(body: str) -> list[str]:
    parts = [part for content in json.loads(body)["contents"] for part in content["parts"]]
    return [part["functionResponse"]["response"]["output"] for part in parts if "functionResponse" in part]


def _read(call_id: str) -> dict[str, Any]:
    return {"functionCall": {"id": call_id, "name": "read_file", "args": {"file_path": "a.txt"}}}


def _done(call_id: str, before: str = "") -> list[dict[str, Any]]:
    call_id = before + call_id
    response = {"id": call_id, "name": "read_file", "response": {"output": FILE}}
    return [
        {"role": "model", "parts": [_read(call_id)]},
        {"role": "user", "parts": [{"functionResponse": response}]},
    ]


_TOOLS = [{"functionDeclarations": [{"name": "read_file"}]}]


def _gemini(stage: Stage, contents: list[dict[str, Any]], *parts: dict[str, Any], tools: Any = _TOOLS) -> str:
    """One request of Gemini CLI and its answer; gives back what went to the model."""
    raw = json.dumps({"contents": contents} | ({"tools": tools} if tools else {})).encode()
    exchange = stage.post(raw, GEMINI, path="/v1beta/models/gemini-2.5-pro:generateContent")
    said = list(parts) or [{"text": "Done."}]
    answer = {"candidates": [{"content": {"role": "model", "parts": said}, "finishReason": "STOP"}]}
    stage.injector.on_response_head(exchange, 200, {"content-type": "application/json"})
    stage.injector.on_response_chunk(exchange, json.dumps(answer).encode())
    stage.injector.on_response_end(exchange)
    return exchange.body.decode()
