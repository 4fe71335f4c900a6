"""Responses with the history at the endpoint: by ``previous_response_id`` over HTTP, and over a socket."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.turns import ToolCall
from tests.proxy.build import dumps
from tests.proxy.kept import (
    CODEX,
    OPENING,
    TOOLS,
    WAYS,
    Harness,
    Way,
    output,
    outputs_of,
    printed,
    runs,
    says,
    user,
)
from tests.proxy.stage import Stage, force, only, profile

every_way = pytest.mark.parametrize("way", WAYS)
kept_ways = pytest.mark.parametrize("way", ["kept", "socket"])
TRUE = printed("one\ntwo\n")
EMPTY = printed("")


def stage(folder: Path, kind: str = "empty", **more: Any) -> Stage:
    return Stage(folder, only(kind, "shell", **more))


@every_way
@pytest.mark.parametrize("headers", [CODEX | {"thread-id": "t-1"}, {"user-agent": "other"}, CODEX])
def test_the_payload_is_what_the_model_is_shown(tmp_path: Path, way: Way, headers: dict[str, str]) -> None:
    scene = stage(tmp_path, force=[{"tool": "exec_command", "nth": 2, "kind": "truncated"}])
    harness = Harness(scene, way, headers)
    harness.ask(says(runs("cat a", "c1")))
    harness.answers(("c1", TRUE))
    harness.ask(says(runs("cat b", "c2"), runs("cat a", "c3")))
    harness.answers(("c3", TRUE), ("c2", printed("a\nb\nc\nd\ne\nf\n")))
    harness.ask(says())
    assert not scene.records("error")
    shown = dict(outputs_of(harness.shown()))
    if headers["user-agent"] != "other":
        assert shown["c1"] == shown["c3"] == EMPTY
    assert "one" not in json.dumps(harness.shown())
    first, second, third = scene.decisions()
    assert [(d["call_id"], d["kind"], d["ordinal"], d["occurrence"]) for d in (first, second, third)] == [
        ("c1", "empty", 0, 0),
        ("c2", "truncated", 1, 0),
        ("c3", "empty", 2, 1),
    ]
    assert {d["conversation"] for d in scene.decisions()} == {"c0"}
    delivered = [(d["call_id"], d["first"]) for d in scene.records("delivery")]
    # Every resend carries it; where the endpoint keeps it, there is none.
    again = [("c1", False)] if way == "whole" else []
    assert sorted(delivered) == sorted([("c1", True), *again, ("c2", True), ("c3", True)])


@kept_ways
def test_a_resend_carries_the_same(tmp_path: Path, way: Way) -> None:
    scene = stage(tmp_path)
    harness = Harness(scene, way)
    harness.ask(says(runs("cat a", "c1")))
    harness.answers(("c1", TRUE))
    first = harness.ask(says(), lost=True)
    again = harness.ask(says())
    assert first == again
    assert dict(outputs_of(harness.shown())) == {"c1": EMPTY}
    assert len(scene.decisions()) == 1
    # The whole history, too: a new connection, or an endpoint that has forgotten it.
    if harness.socket is not None:
        harness.reconnect()
    harness.items.append(user("go on"))
    whole = harness.ask(says(), body=harness.body(whole=True))
    assert dict(outputs_of(json.loads(whole)["input"])) == {"c1": EMPTY}
    assert [d["call_id"] for d in scene.decisions()] == ["c1"]
    assert not scene.records("error")
    # And from there on in parts again.
    harness.ask(says(runs("cat a", "c2")))
    harness.answers(("c2", TRUE))
    harness.ask(says())
    assert dict(outputs_of(harness.shown())) == {"c1": EMPTY, "c2": EMPTY}
    assert scene.decisions()[-1]["occurrence"] == 1


@kept_ways
def test_a_restart_goes_on_from_what_was_answered_before(tmp_path: Path, way: Way) -> None:
    scene = stage(tmp_path)
    harness = Harness(scene, way)
    harness.ask(says(runs("cat a", "c1")))
    harness.answers(("c1", TRUE))
    scene.restart()
    harness.socket = None
    harness.ask(says(runs("cat a", "c2")))
    harness.answers(("c2", TRUE))
    harness.ask(says())
    assert dict(outputs_of(harness.shown())) == {"c1": EMPTY, "c2": EMPTY}
    assert [(d["ordinal"], d["occurrence"]) for d in scene.decisions()] == [(0, 0), (1, 1)]
    assert not scene.records("error")


@every_way
@pytest.mark.parametrize("kind", ["permission_denied", "phantom_success"])
def test_a_call_that_never_runs(tmp_path: Path, way: Way, kind: str) -> None:
    scene = stage(tmp_path, kind)
    harness = Harness(scene, way)
    harness.ask(says(runs("cat a", "c1"), ToolCall("apply_patch", {}, "c2", "*** Begin Patch")))
    assert [call["name"] for call in harness.calls()] == [f"exec_command__{kind}", "apply_patch"]
    harness.answers(("c1", None), ("c2", "Exit code: 0\nWall time: 0 seconds\nOutput:\nSuccess."))
    harness.ask(says())
    text = json.dumps(harness.shown())
    assert f"__{kind}" not in text
    assert "unsupported call" not in text
    (decision,) = [d for d in scene.decisions() if d["call_id"] == "c1"]
    assert (decision["kind"], decision["wire_name"]) == (kind, f"exec_command__{kind}")
    assert [d["call_id"] for d in scene.records("delivery")] == ["c1"]
    assert not scene.records("error")


@kept_ways
@pytest.mark.parametrize("said", ["resp_of_another_proxy", "conv_1"])
def test_a_history_that_was_never_seen_is_no_clean_run(tmp_path: Path, way: Way, said: str) -> None:
    scene = stage(tmp_path)
    harness = Harness(scene, way)
    harness.endpoint.kept[said] = []
    harness.items = [output("c1", TRUE)]
    sent = harness.body(previous_response_id=said)
    assert harness.ask(says(), body=sent) is sent
    (error,) = scene.records("error")
    assert "history that the endpoint keeps" in error["reason"]
    assert not scene.decisions()


def test_a_stored_conversation_is_no_clean_run(tmp_path: Path) -> None:
    scene = stage(tmp_path)
    body = dumps(
        {"model": "m", "conversation": {"id": "conv_1"}, "input": [output("c1", "x")], "tools": TOOLS}
    )
    assert Harness(scene, "kept").post(body).body is body
    assert "stored conversation" in scene.records("error")[0]["reason"]


@kept_ways
@pytest.mark.parametrize("tools", [TOOLS, []], ids=["tools", "no tools"])
@pytest.mark.parametrize("opening", [OPENING[:1], []], ids=["rules", "nothing"])
def test_what_only_makes_ready_is_gone_on_from(
    tmp_path: Path, way: Way, tools: list[Any], opening: list[Any]
) -> None:
    """Codex says its rules first, or nothing at all, and where it works only in the request after it."""
    scene = stage(tmp_path)
    harness = Harness(scene, way, items=list(opening), tools=tools)
    harness.ask(None if way == "socket" else says())
    harness.tools = TOOLS
    harness.items += [*OPENING[1:], user("Do it.")]
    harness.ask(says(runs("cat /ws/a", "c1")))
    harness.answers(("c1", TRUE))
    harness.ask(says(runs("cat a", "c2")))
    assert dict(outputs_of(harness.shown())) == {"c1": EMPTY}
    assert not scene.records("error")
    (conversation,) = scene.memory.conversations("default")
    assert conversation.workspace == "/ws"


def test_what_makes_ready_delivers_nothing_and_the_answer_to_it_does(tmp_path: Path) -> None:
    """A resumed session hands its history over before it asks."""
    scene = stage(tmp_path)
    harness = Harness(scene, "socket")
    harness.ask(says(runs("cat a", "c1")))
    harness.answers(("c1", TRUE))
    harness.reconnect()
    harness.answer_id = None
    left = harness.ask(None)
    assert dict(outputs_of(json.loads(left)["input"])) == {"c1": EMPTY}
    assert not scene.records("delivery")
    harness.items.append(user("go on"))
    harness.ask(says())
    (delivery,) = scene.records("delivery")
    assert (delivery["call_id"], delivery["first"]) == ("c1", True)
    harness.items.append(user("and on"))
    harness.ask(says())
    assert len(scene.records("delivery")) == 1
    requests = scene.records("request")
    assert [r["faults"] for r in requests] == [0, 1, 1, 0]
    # Nor is it a request of the agent.
    assert [r["tools_digest"] is None for r in requests] == [False, True, False, False]


@kept_ways
def test_an_answer_that_was_gone_on_from_twice_is_two_conversations(tmp_path: Path, way: Way) -> None:
    scene = stage(tmp_path)
    harness = Harness(scene, way, {"user-agent": "other", "x": "y"})
    harness.ask(says(runs("cat a", "c1")))
    harness.answers(("c1", TRUE))
    harness.ask(says(runs("cat b", "c2")))
    root, items, sent = harness.answer_id, list(harness.items), harness.sent
    harness.answers(("c2", TRUE))
    harness.ask(says(runs("cat b", "c3")))
    harness.answers(("c3", TRUE))
    harness.ask(says())
    harness.answer_id, harness.items, harness.sent = root, items, sent
    harness.answers(("c2", TRUE))
    harness.ask(says(runs("cat b", "c4")))
    harness.answers(("c4", TRUE))
    harness.ask(says())
    found = [(d["conversation"], d["call_id"], d["occurrence"]) for d in scene.decisions()]
    assert found == [
        ("c0", "c1", 0),
        ("c0", "c2", 0),
        ("c0", "c3", 1),
        ("c1", "c2", 0),
        ("c1", "c4", 1),
    ]


@kept_ways
def test_an_answer_that_was_lost_is_orphaned(tmp_path: Path, way: Way) -> None:
    scene = stage(tmp_path)
    harness = Harness(scene, way)
    harness.ask(says(runs("cat a", "c1")))
    harness.answers(("c1", TRUE))
    before, sent, items = harness.answer_id, harness.sent, list(harness.items)
    harness.ask(says(runs("cat b", "lost")))
    harness.answer_id, harness.sent, harness.items = before, sent, items
    harness.ask(says(runs("cat b", "c2")))
    harness.answers(("c2", TRUE))
    harness.ask(says())
    found = [(d["call_id"], d["skipped"], d["occurrence"]) for d in scene.decisions()]
    assert sorted(found) == [("c1", None, 0), ("c2", None, 0), ("lost", "orphaned", 0)]


@kept_ways
def test_stale_knows_what_was_printed_before(tmp_path: Path, way: Way) -> None:
    scene = Stage(tmp_path, force({"tool": "exec_command", "nth": 2, "kind": "stale"}))
    harness = Harness(scene, way)
    for call_id, text in (("c1", "first"), ("c2", "second")):
        harness.ask(says(runs("cat a", call_id)))
        harness.answers((call_id, printed(text)))
    harness.ask(says())
    decision = scene.decisions()[1]
    if decision["kind"] == "stale" and decision["skipped"] is None:
        assert "first" in dict(outputs_of(harness.shown()))["c2"]
    assert "second" not in json.dumps(harness.shown()) or decision["skipped"]


@every_way
@pytest.mark.parametrize("kind", ["empty", "post_effect_error"])
def test_a_note_of_the_harness_is_no_result(tmp_path: Path, way: Way, kind: str) -> None:
    """Codex 0.171 with gpt-5.6: what a script notifies comes behind its result, under the id of the call."""
    scene = stage(tmp_path, kind)
    harness = Harness(scene, way)
    script = 'notify("a note"); const r = await tools.exec_command({cmd:"cat a"}); text(r.output);'
    custom = {"type": "custom_tool_call_output"}
    head = {"type": "input_text", "text": "Script completed\nWall time 0.0 seconds\nOutput:\n"}
    result = output("c1", [head, {"type": "input_text", "text": "one"}], **custom)
    note = output("c1", "a note", name="exec", **custom)
    harness.ask(says(ToolCall("exec", {}, "c1", script)))
    harness.answers(result, note)
    for _ in range(2):
        harness.ask(says())
        first, second = [item for item in harness.shown() if item["type"].endswith("_output")]
        assert first != result
        assert first["call_id"] == "c1"
        assert second == note
        harness.items.append(user("go on"))
    assert [d["kind"] for d in scene.decisions()] == [kind]


def test_the_items_that_are_referred_to(tmp_path: Path) -> None:
    """``item_reference``: the call is at the endpoint, its result is here."""
    scene = stage(tmp_path)
    harness = Harness(scene, "whole")
    harness.ask(says(runs("cat a", "c1")))
    harness.items[-1] = {"type": "item_reference", "id": harness.items[-1]["id"]}
    harness.items[-2] = {"type": "item_reference", "id": harness.items[-2]["id"]}
    harness.items.append(output("c1", TRUE))
    for _ in range(2):
        harness.ask(says())
        assert dict(outputs_of(harness.shown())) == {"c1": EMPTY}
    (decision,) = scene.decisions()
    assert (decision["tool"], decision["call_id"]) == ("exec_command", "c1")


@pytest.mark.parametrize("headers", [CODEX, {"user-agent": "other"}])
@pytest.mark.parametrize("kind", ["compaction", "context_compaction"])
def test_what_the_endpoint_sums_up_is_the_same_conversation(
    tmp_path: Path, kind: str, headers: dict[str, str]
) -> None:
    scene = stage(tmp_path)
    harness = Harness(scene, "whole", headers)
    harness.ask(says(runs("cat a", "c1")))
    harness.answers(("c1", TRUE))
    harness.items.append({"type": "compaction_trigger"})
    harness.ask(says())
    harness.items = [*OPENING, {"type": kind, "encrypted_content": "x"}, user("go on")]
    harness.ask(says(runs("cat a", "c2")))
    harness.answers(("c2", TRUE))
    harness.ask(says())
    found = [(d["conversation"], d["call_id"], d["occurrence"]) for d in scene.decisions()]
    assert found == [("c0", "c1", 0), ("c0", "c2", 1)]


def test_nothing_fires_nothing_changes(tmp_path: Path) -> None:
    for way in WAYS:
        scene = Stage(tmp_path / way, profile(name="off"))
        harness = Harness(scene, way)
        for call_id in ("c1", "c2"):
            sent = harness.body()
            assert harness.ask(says(runs("cat a", call_id)), body=sent) is sent
            harness.answers((call_id, TRUE))
        assert all(len(messages) <= 1 for got in harness.got for messages in got)
        assert all(r["bytes_in"] == r["bytes_out"] for r in scene.records("request"))


@every_way
def test_a_subagent_that_is_told_what_its_parent_knows(tmp_path: Path, way: Way) -> None:
    """Codex hands a new thread the parent's whole history: what failed there has failed for it, too."""
    scene = stage(tmp_path)
    parent = Harness(scene, way)
    parent.ask(says(runs("cat a", "c1")))
    parent.answers(("c1", TRUE))
    parent.ask(says(runs("cat a", "c2"), runs("cat b", "c3")))
    headers = CODEX | {"thread-id": "t-2", "session-id": "t-1", "x-codex-parent-thread-id": "t-1"}
    child = Harness(scene, way, headers, endpoint=parent.endpoint)
    if way == "socket":
        child.items, child.tools = [], []
        child.ask(None)
        child.tools = TOOLS
    child.items = [*child.items, *parent.items, output("c2", TRUE), output("c3", "aborted")]
    child.items.append(user("You are a child."))
    child.ask(says(runs("cat a", "c4")))
    child.answers(("c4", TRUE))
    child.ask(says())
    parent.answers(("c2", TRUE), ("c3", TRUE))
    parent.ask(says())
    assert "one" not in json.dumps([child.shown(), *parent.endpoint.shown])
    found = [
        (d["conversation"], d["role"], d["call_id"], d["kind"], d["skipped"], d["occurrence"])
        for d in scene.decisions()
    ]
    assert found == [
        ("c0", "main", "c1", "empty", None, 0),
        ("c1", "sub", "c2", "empty", None, 1),
        ("c1", "sub", "c3", "empty", "superseded", 0),
        ("c1", "sub", "c4", "empty", None, 2),
        ("c0", "main", "c2", "empty", None, 1),
        ("c0", "main", "c3", "empty", None, 0),
    ]
    assert not scene.records("error")


def test_an_answer_id_that_two_conversations_have(tmp_path: Path) -> None:
    """Each goes on from its own."""
    scene = stage(tmp_path)
    agents = [Harness(scene, "kept", CODEX | {"thread-id": name}) for name in ("t-1", "t-2")]
    for number, agent in enumerate(agents):
        agent.items.append(user(f"task {number}"))
        agent.ask(says(runs(f"cat {number}", f"c{number}")))
    assert agents[0].answer_id == agents[1].answer_id
    for number, agent in enumerate(agents):
        agent.answers((f"c{number}", TRUE))
        agent.ask(says())
        assert dict(outputs_of(agent.shown())) == {f"c{number}": EMPTY}
    assert [(d["conversation"], d["call_id"]) for d in scene.decisions()] == [("c0", "c0"), ("c1", "c1")]
