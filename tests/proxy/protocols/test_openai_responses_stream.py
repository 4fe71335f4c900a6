"""OpenAI Responses: what only its answers have, streamed, whole and on a socket."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings

from harness.turns import Answer
from harness.wire.openai_responses import ResponsesWire
from proxy.holding import Holder
from proxy.protocols.openai_responses import OpenAIResponses
from proxy.protocols.wire import (
    Asked,
    CallDone,
    Finished,
    Usage,
    UsageSeen,
    WireError,
)
from tests.proxy.build import dumps
from tests.proxy.protocols.kits import answers, frames_of

WIRE = OpenAIResponses()


def message(role: str, *texts: str) -> dict[str, Any]:
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text} for text in texts]}


def call(call_id: str, name: str = "exec_command", arguments: str = "{}", **more: Any) -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments} | more


def events(*given: dict[str, Any]) -> list[bytes]:
    return [b"event: " + event["type"].encode() + b"\ndata: " + dumps(event) + b"\n\n" for event in given]


def done(item: dict[str, Any], index: int | None = 0) -> dict[str, Any]:
    return {"type": "response.output_item.done", "item": item} | (
        {} if index is None else {"output_index": index}
    )


def completed(*output: dict[str, Any], kind: str = "response.completed", **more: Any) -> dict[str, Any]:
    return {"type": kind, "response": {"id": "resp_1", "model": "m", "output": list(output)} | more}


def heard(*given: dict[str, Any]) -> list[Any]:
    frames = frames_of(WIRE.reader("text/event-stream"), events(*given))
    return [event for frame in frames for event in frame.events]


def test_a_call_is_said_once() -> None:
    item = call("c1", arguments='{"cmd":"ls"}')
    expected = CallDone("c1", "exec_command", b'{"cmd":"ls"}', "0")
    assert heard(done(item), completed(item)) == [expected, Finished(True, "m", "resp_1")]
    # Where it is told only at the end, or without its number, it is the same call.
    assert heard(completed(item)) == [expected, Finished(True, "m", "resp_1")]
    assert heard(done(item, None), completed(item))[1:] == [Finished(True, "m", "resp_1")]
    assert len(heard(done(call("c1"), None), done(call("c2"), None), completed(call("c1"), call("c2")))) == 3


def test_arguments_that_are_told_before_their_item() -> None:
    told = {"type": "response.function_call_arguments.done", "output_index": 0, "arguments": '{"a":1}'}
    assert heard(told, done(call("c1", arguments="")))[0].arguments == b'{"a":1}'
    raw = {"type": "response.custom_tool_call_input.done", "output_index": 0, "input": "*** x"}
    item = {"type": "custom_tool_call", "call_id": "c1", "name": "apply_patch"}
    assert heard(raw, done(item))[0] == CallDone("c1", "apply_patch", b"*** x", "0")


def test_other_sorts_of_calls() -> None:
    shell = {"type": "local_shell_call", "call_id": "c1", "action": {"type": "exec", "command": ["ls"]}}
    found = heard(done(shell))[0]
    assert (found.tool, json.loads(found.arguments)) == ("local_shell", shell["action"])
    assert (
        heard(done({"type": "custom_tool_call", "call_id": "c1", "name": "x", "input": ""}))[0].arguments
        == b""
    )
    for kind in ("web_search_call", "tool_search_call", "computer_call", "mcp_call", "message", "reasoning"):
        assert heard(done({"type": kind, "id": "x", "call_id": "c1"})) == []


@pytest.mark.parametrize("kind", ["response.failed", "response.cancelled", "error"])
def test_a_response_that_failed_is_not_finished(kind: str) -> None:
    assert heard(completed(kind=kind)) == []


def test_a_response_that_was_cut_by_its_limit_is_finished() -> None:
    assert heard(completed(kind="response.incomplete")) == [Finished(False, "m", "resp_1")]


def test_each_token_is_counted_once() -> None:
    """https://platform.openai.com/docs/api-reference/responses/object: the counts of its example, and with
    some of the input out of the cache."""
    usage = {
        "input_tokens": 36,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 87,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 123,
    }
    assert heard(completed(usage=usage))[0] == UsageSeen(Usage(36, 0, None, 87))
    usage |= {
        "input_tokens_details": {"cached_tokens": 30},
        "output_tokens_details": {"reasoning_tokens": 64},
    }
    assert heard(completed(usage=usage))[0] == UsageSeen(Usage(6, 30, None, 87))


def test_a_compaction_asks_for_nothing() -> None:
    document = {
        "id": "resp_2",
        "object": "response.compaction",
        "output": [call("c1"), {"type": "compaction", "encrypted_content": "x"}],
        "usage": {"input_tokens": 5, "output_tokens": 7},
    }
    (frame,) = frames_of(WIRE.reader("application/json"), [dumps(document)])
    assert frame.events == (UsageSeen(Usage(5, None, None, 7)), Finished(False))
    assert frame.names == ()
    (frame,) = frames_of(WIRE.reader("application/json"), [dumps(document | {"object": "response"})])
    assert frame.events[0] == CallDone("c1", "exec_command", b"{}", "0")
    assert frame.events[-1] == Finished(True, None, "resp_2")


def test_all_three_copies_of_a_call_get_another_name() -> None:
    item = call("c1", id="fc_1")
    added = {"type": "response.output_item.added", "output_index": 1, "item": item | {"arguments": ""}}
    stream = events(added, done(item, 1), completed(message("assistant", "x"), item))
    frames = frames_of(WIRE.reader("text/event-stream"), stream)
    holder = Holder(lambda _tool: False)
    holder.rename("1", "exec_command__timeout")
    raw = b"".join(piece for frame in frames for piece in holder.take(frame))
    assert raw.count(b'"exec_command__timeout"') == 3
    assert raw.replace(b"exec_command__timeout", b"exec_command") == b"".join(stream)
    assert [frame.open_tools for frame in frames] == [("exec_command",), (), ()]


# -- the socket --


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        ({"type": "response.create", "input": []}, Asked("generate", "")),
        ({"type": "response.create", "generate": True}, Asked("generate", "")),
        ({"type": "response.create", "generate": False}, Asked("prepare", "")),
        ({"type": "response.create", "stream_id": "s1"}, Asked("generate", "s1")),
        ({"type": "response.steer"}, None),
        ({}, None),
    ],
)
def test_what_a_message_asks_for(sent: dict[str, Any], expected: Asked | None) -> None:
    socket = WIRE.socket
    assert socket is not None
    assert socket.asks(dumps(sent)) == expected
    assert socket.stream_of(dumps(sent)) == (expected.stream if expected else "")


@pytest.mark.parametrize("odd", [b"", b"[]", b"{", b"\xff", b"7"])
def test_messages_that_are_none(odd: bytes) -> None:
    socket = WIRE.socket
    assert socket is not None
    with pytest.raises(WireError):
        socket.asks(odd)


@settings(max_examples=50)
@given(answer=answers())
def test_messages_say_what_events_say(answer: Answer) -> None:
    endpoint, socket = ResponsesWire(), WIRE.socket
    assert socket is not None
    sent = list(endpoint.messages(answer))
    by_message = frames_of(socket.reader(), sent)
    by_event = frames_of(WIRE.reader("text/event-stream"), list(endpoint.streamed(answer)))
    assert [frame.raw for frame in by_message] == sent
    assert [frame.events for frame in by_message] == [frame.events for frame in by_event]
    assert [frame.open_tools for frame in by_message] == [frame.open_tools for frame in by_event]
    holder = Holder(lambda _tool: False)
    for frame in by_message:
        for found in frame.events:
            if isinstance(found, CallDone):
                holder.rename(found.ref, "x__y")
    for frame in by_message:
        named = json.loads(*holder.take(frame))
        if frame.names:
            items = [named.get("item"), *named.get("response", {}).get("output", [])]
            assert "x__y" in [item.get("name") for item in items if item]


def test_an_error_message_is_the_endpoints_own() -> None:
    socket = WIRE.socket
    assert socket is not None
    body = WIRE.error_body(400, "no")
    mine, theirs = socket.error_message(400, body, ""), ResponsesWire().error_message(400, "no")
    assert json.loads(mine) == json.loads(theirs)
    assert json.loads(socket.error_message(400, body, "s1")) == json.loads(theirs) | {"stream_id": "s1"}


@pytest.mark.parametrize(
    ("said", "status"),
    [
        ({"type": "error", "status": 429, "error": {}}, 429),
        ({"type": "error", "status_code": 400}, 400),
        ({"type": "error", "error": {"message": "x"}}, 500),
        ({"type": "error", "status": "429"}, 500),
        ({"type": "response.failed", "response": {"status": "failed"}}, 200),
        ({"type": "response.completed"}, None),
        ({"type": "response.output_text.delta", "delta": "error"}, None),
    ],
)
def test_answers_that_end_in_an_error(said: dict[str, Any], status: int | None) -> None:
    socket = WIRE.socket
    assert socket is not None
    assert socket.failure(dumps(said)) == status


def test_every_place_that_names_a_call_is_renamed() -> None:
    """https://platform.openai.com/docs/api-reference/responses-streaming/response/function_call_arguments/done
    says the name once more."""
    item = call("c1", arguments='{"cmd":"ls"}')
    told = {
        "type": "response.function_call_arguments.done",
        "output_index": 0,
        "name": "exec_command",
        "arguments": '{"cmd":"ls"}',
    }
    opened = {"type": "response.output_item.added", "output_index": 0, "item": item | {"arguments": ""}}
    given = events(opened, told, done(item), completed(item))
    holder = Holder(lambda _tool: True)
    passed: list[bytes] = []
    for frame in frames_of(WIRE.reader("text/event-stream"), given):
        if any(isinstance(event, CallDone) for event in frame.events):
            holder.rename("0", "exec_command__locked")
        passed += holder.take(frame)
    assert b"".join(passed) == b"".join(given).replace(b'"exec_command"', b'"exec_command__locked"')
