"""Codex over a WebSocket, which its built-in provider uses at once: it sends only what is new, and names the
answer that it goes on from. The endpoint is the witness of what the model was shown."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from harness.adapter import Job
from harness.scripted_model import ThreadedScriptedModel
from harness.turns import ToolCall, Turn, Usage
from proxy.options import InjectorOptions
from proxy.runs import RunSettings
from scheduler.faults import KINDS
from scoring.verify import verify_log
from tests.e2e.stage import (
    SOCKETS,
    TIMEOUT_S,
    Played,
    Stage,
    call_turns,
    forced,
    read_log,
    result_of,
    serving,
)
from tests.e2e.tap import Tap

Staging = Callable[[str], Stage]
_BOTH = pytest.mark.parametrize("name", SOCKETS)
_BEFORE = [kind.name for kind in KINDS.values() if kind.timing == "before"]


def _messages(played: Played) -> list[bytes]:
    return [request.body for request in played.received if request.method == "WEBSOCKET"]


@_BOTH
def test_profile_off_leaves_every_message(stage: Staging, name: str) -> None:
    scene = stage(name)
    scene.write({"a.txt": "größer → 1\n" * 400})
    speech = scene.speech
    turns = call_turns(speech.runs("cat a.txt"), (speech.runs("echo one"), speech.runs("echo two")))
    with Tap() as tap:
        played = scene.play(turns, "off", base=tap.forward_to)
    assert played.outcome.exit_code == 0, played.outcome.stderr
    assert tap.asked() == _messages(played)
    first, *later = map(json.loads, tap.asked())
    assert first["generate"] is False
    assert all(message["previous_response_id"] for message in later)
    assert len(played.of("decision")) == 3
    assert not played.of("error")
    assert [record["protocol"] for record in played.of("request")] == ["openai-responses"] * 4
    assert all(record["bytes_in"] == record["bytes_out"] for record in played.of("request"))
    assert played.of("end")[0]["ended"] == "complete"
    assert verify_log(played.log).ok


@_BOTH
def test_each_before_kind_keeps_the_command_from_running(stage: Staging, name: str) -> None:
    scene = stage(name)
    speech = scene.speech
    calls = [speech.runs(f"echo {kind} > ran-{kind}.txt") for kind in _BEFORE]
    with Tap() as tap:
        played = scene.play(
            call_turns(*calls, speech.runs("echo done > ran.txt")),
            forced(*({"tool": speech.shell, "match": f"ran-{kind}", "kind": kind} for kind in _BEFORE)),
            base=tap.forward_to,
        )
    assert played.outcome.exit_code == 0, played.outcome.stderr
    assert [path.name for path in played.workspace.iterdir()] == ["ran.txt"]
    decisions = played.of("decision")
    assert [d["kind"] for d in decisions] == [*_BEFORE, None]
    assert [d["wire_name"] for d in decisions] == [*(f"exec_command__{kind}" for kind in _BEFORE), None]
    for kind, decision in zip(_BEFORE, decisions, strict=False):
        # The harness was told of a tool that it has not; the model never was.
        assert any(f'"exec_command__{kind}"'.encode() in message for message in tap.answered())
        assert not any(f"exec_command__{kind}".encode() in message for message in _messages(played))
        text = result_of(played.turns[-1], _BEFORE.index(kind)).text
        assert "unsupported call" not in text
        assert len(text.encode()) == decision["payload_bytes"]
    delivered = [(d["call_id"], d["first"]) for d in played.of("delivery")]
    assert delivered == [(d["call_id"], True) for d in decisions[:-1]]
    assert not played.of("error")
    assert verify_log(played.log).ok


@_BOTH
def test_the_messages_of_a_call_go_on_as_they_were(stage: Staging, name: str) -> None:
    """Held until it is known that the call may run, and in order."""
    scene = stage(name)
    speech = scene.speech
    calls = call_turns(speech.runs("echo one"), speech.runs("echo two"))
    rule = {"tool": speech.shell, "match": "never", "kind": "permission_denied"}
    taken: list[list[bytes]] = []
    for log, profile in (("held", forced(rule)), ("off", "off")):
        with Tap() as tap:
            scene.play(calls, profile, log=log, base=tap.forward_to)
        taken.append([json.dumps(_plain(json.loads(message))).encode() for message in tap.answered()])
    assert taken[0] == taken[1]


def _plain(event: dict[str, Any]) -> dict[str, Any]:
    """Without what hangs on the length of the request, which has the time of day in it."""
    if "response" in event:
        event["response"] = event["response"] | {"usage": None}
    return event


def _exec(script: str) -> ToolCall:
    return ToolCall("exec", {}, None, script)


@_BOTH
@pytest.mark.parametrize("kind", ["empty", "truncated", "post_effect_error"])
def test_a_model_whose_one_tool_runs_scripts(stage: Staging, name: str, kind: str) -> None:
    """gpt-5.6: its tools come with the second message, and what a script notifies under its result's id."""
    scene = stage(name)
    scene.write({"a.txt": "".join(f"line {n} of it\n" for n in range(30))})
    script = 'notify("a note"); const r = await tools.exec_command({cmd:"cat a.txt"}); text(r.output);'
    played = scene.play(
        call_turns(_exec(script), _exec('text("hello")')),
        forced({"tool": "exec", "nth": 1, "kind": kind}),
        model="gpt-5.6-sol",
    )
    assert played.outcome.exit_code == 0, played.outcome.stderr
    assert not played.of("error")
    sent = [json.loads(message) for message in _messages(played)]
    (outputs,) = [m["input"] for m in sent if len([i for i in m["input"] if "output" in i]) == 2]
    result, note = outputs
    assert note["output"] == "a note"
    assert "line 29 of it" not in json.dumps(result)
    first, second = played.of("decision")
    assert (first["kind"], first["skipped"], second["kind"]) == (kind, None, None)
    assert "hello" in json.dumps(sent[-1])


def test_an_agent_that_is_told_what_its_parent_knows(stage: Staging) -> None:
    """A spawned agent has a socket of its own, and its parent's whole history as the harness has it."""
    scene = stage("codex-built-in")
    scene.write({"a.txt": "".join(f"line {n} of it\n" for n in range(30))})
    look = 'const r = await tools.exec_command({cmd:"cat a.txt"}); text(r.output);'
    wait = 'const r = await tools.exec_command({cmd:"sleep 4; echo slept"}); text(r.output);'
    spawn = ToolCall("spawn_agent", {"message": "Look at it too.", "task_name": "look"})
    played = scene.play(
        call_turns(_exec(look), spawn, _exec(wait)),
        forced({"tool": "exec", "nth": 1, "kind": "empty"}),
        model="gpt-5.6-sol",
    )
    assert played.outcome.exit_code == 0, played.outcome.stderr
    assert not played.of("error")
    threads = {request.header("thread-id") for request in played.received}
    assert len(threads) == 2
    told = [
        request.body
        for request in played.received
        if request.header("x-codex-parent-thread-id") and b"_output" in request.body
    ]
    assert told
    assert not any(b"line 29 of it" in request.body for request in played.received)
    assert any(d["conversation"] == "c1" and not d["first"] for d in played.of("delivery"))


@_BOTH
def test_a_session_that_is_resumed(stage: Staging, name: str) -> None:
    """On a new connection, where it says everything again: before it asks, so that the endpoint is ready."""
    scene = stage(name)
    scene.write({"a.txt": "one\ntwo\n"})
    speech = scene.speech
    first = Turn("Next.", (speech.runs("cat a.txt"),), step=0)
    second = Turn("Next.", (speech.runs("cat a.txt"),), step=1)
    folder = scene.folder / "log"
    profile = forced({"tool": speech.shell, "nth": 1, "kind": "empty"})
    with (
        ThreadedScriptedModel(lambda view: _next(view, first, second)) as model,
        serving(folder, profile, 7, model.url) as (server, _),
    ):
        url = f"http://127.0.0.1:{server.port}"
        began = scene.start(url, "Do the task.")
        resumed = scene.start(url, "Do more.", resume="last")
        received = list(model.received)
    assert (began.exit_code, resumed.exit_code) == (0, 0), resumed.stderr
    played = Played(
        resumed, received, folder / "decisions.jsonl", scene.workspace, read_log(folder / "decisions.jsonl")
    )
    assert not played.of("error")
    assert [d["occurrence"] for d in played.of("decision")] == [0, 1]
    assert {d["conversation"] for d in played.of("decision")} == {"c0"}
    last = played.turns[-1]
    assert "two" not in result_of(last, 0).text
    assert "two" in result_of(last, 1).text
    deliveries = played.of("delivery")
    assert [d["first"] for d in deliveries].count(True) == 1
    assert verify_log(played.log).ok


@_BOTH
def test_killed_in_the_middle_of_a_command_and_resumed(stage: Staging, name: str) -> None:
    """Its result is the harness's own word; what the model was told before, it is told again."""
    scene = stage(name)
    scene.write({"a.txt": "one\ntwo\n"})
    speech = scene.speech
    calls = call_turns(
        speech.runs("cat a.txt"), speech.runs("touch begun; sleep 60; cat a.txt"), speech.runs("cat a.txt")
    )
    kinds = ("permission_denied", "post_effect_error", "permission_denied")
    rules = [{"tool": speech.shell, "nth": n, "kind": kind} for n, kind in enumerate(kinds, 1)]
    folder = scene.folder / "log"
    with (
        ThreadedScriptedModel(scene.script(calls)) as model,
        serving(folder, forced(*rules), 7, model.url) as (server, _),
    ):
        url = f"http://127.0.0.1:{server.port}"
        job = Job(url, "Do the task.", scene.workspace, scene.home)
        running = scene.adapter.launch(scene.program, job).start()
        while not (scene.workspace / "begun").exists():
            assert not running.ended
            time.sleep(0.02)
        running.kill()
        running.wait(TIMEOUT_S)
        outcome = scene.start(url, "Go on.", resume="last")
        received = list(model.received)
    records = read_log(folder / "decisions.jsonl")
    played = Played(outcome, received, folder / "decisions.jsonl", scene.workspace, records)
    assert outcome.exit_code == 0, outcome.stderr
    assert not played.of("error")
    last = played.turns[-1]
    first, second, third = (result_of(last, number).text for number in range(3))
    assert "ermission denied" in first
    assert second == "aborted"
    assert "ermission denied" in third
    assert all(b"exec_command__" not in message for message in _messages(played))
    found = [(d["kind"], d["skipped"], d["ordinal"]) for d in played.of("decision")]
    assert found == [
        ("permission_denied", None, 0),
        ("post_effect_error", "superseded", 1),
        ("permission_denied", None, 2),
    ]
    assert [d["first"] for d in played.of("delivery")] == [True, False, True]
    assert verify_log(played.log).ok


@pytest.mark.parametrize("name", [*SOCKETS, "codex"])
def test_a_result_that_is_first_seen_in_a_compaction_is_decided_there(stage: Staging, name: str) -> None:
    """The endpoint sums up for the built-in provider, the model for another; both go on counting."""
    scene = stage(name)
    scene.write({"a.txt": "one\ntwo\n"})
    calls = call_turns(*(scene.speech.runs("cat a.txt") for _ in range(5)))
    turns = [
        replace(turn, usage=Usage(50_000 if number == 2 else 3_000, 50)) for number, turn in enumerate(calls)
    ]
    folder = scene.folder / "log"
    rules = [{"tool": "exec_command", "nth": nth, "kind": "empty"} for nth in (1, 3)]
    with (
        ThreadedScriptedModel(scene.script(turns)) as model,
        serving(folder, forced(*rules), 7, model.url) as (server, _),
    ):
        job = Job(f"http://127.0.0.1:{server.port}", "Do the task.", scene.workspace, scene.home)
        launch = scene.adapter.launch(scene.program, job)
        (config, text), *others = launch.files
        early = (config, f"model_auto_compact_token_limit = 20000\n{text}")
        outcome = replace(launch, files=(early, *others)).run(TIMEOUT_S)
        received = list(model.received)
    assert outcome.exit_code == 0, outcome.stderr
    records = read_log(folder / "decisions.jsonl")
    played = Played(outcome, received, folder / "decisions.jsonl", scene.workspace, records)
    views = [request.conversation for request in received]
    (compaction,) = [view for view in views if view is not None and view.side == "compaction"]
    assert len(compaction.results) == 3
    assert ["two" in found.text for found in compaction.results] == [False, True, False]
    assert not played.of("error")
    assert [(d["kind"], d["occurrence"]) for d in played.of("decision")] == [
        ("empty", 0),
        (None, 1),
        ("empty", 2),
        (None, 3),
        (None, 4),
    ]
    # A model that is to sum up is told everything again.
    assert [d["first"] for d in played.of("delivery")].count(True) == 2
    assert verify_log(played.log).ok


def _next(view: Any, first: Turn, second: Turn) -> Turn:
    """One command for each thing that the user says."""
    done = len(view.calls)
    asked = sum("Do " in text for text in view.user_texts if len(text) < 20)
    if done < min(asked, 2):
        return (first, second)[done]
    return Turn("Done.")


@_BOTH
def test_past_its_budget_it_stops_at_once(stage: Staging, name: str) -> None:
    scene = stage(name)
    folder = scene.folder / "log"
    turn = Turn("Next.", (scene.speech.runs("echo one"),), Usage(60, 50), step=0)
    profile = forced({"tool": "exec_command", "match": "never", "kind": "empty"})
    with (
        ThreadedScriptedModel(scene.script([turn])) as model,
        serving(folder, profile, 7, model.url) as (server, injector),
    ):
        budget = RunSettings("r1", "t1", 7, profile, token_budget=100)
        server.do(lambda: injector.register(budget))
        outcome = scene.start(f"http://127.0.0.1:{server.port}/run/r1")
        agents = list(model.agent_requests)
        assert injector.runs.get("r1").quota == "ours"
    assert outcome.exit_code == 1
    assert not outcome.timed_out
    assert len(agents) <= 1
    records = read_log(folder / "decisions.jsonl")
    assert len([r for r in records if r["event"] == "quota"]) == 1
    assert not [r for r in records if r["event"] == "error"]
    # It does not try again for long, nor over HTTP.
    assert len([r for r in records if r["event"] == "request" and r["bytes_out"] == 0]) <= 2


@_BOTH
def test_an_injector_that_crashes_is_no_clean_run(stage: Staging, name: str) -> None:
    scene = stage(name)
    scene.write({"a.txt": "one\n"})
    played = scene.play(
        call_turns(scene.speech.runs("cat a.txt")),
        forced({"tool": "exec_command", "nth": 1, "kind": "empty"}),
        options=InjectorOptions(crash_at="request"),
    )
    assert played.outcome.exit_code == 0
    assert "one" in result_of(played.turns[-1], 0).text
    assert played.of("error")
    assert not played.of("decision")
