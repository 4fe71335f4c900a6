"""OpenAI Chat Completions: what only this wire has."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.protocols.openai_chat import OpenAIChat
from proxy.protocols.wire import (
    KEEP,
    REMOVE,
    CallDone,
    Finished,
    ParsedRequest,
    PartPlan,
    Place,
    Usage,
    UsageSeen,
    splice,
)
from tests.proxy.build import dumps
from tests.proxy.protocols.kits import frames_of

WIRE = OpenAIChat()
MARK = {"cache_control": {"type": "ephemeral"}}


def request_of(*messages: dict[str, Any], **more: Any) -> ParsedRequest:
    return WIRE.parse_request(dumps({"model": "m", "messages": list(messages)} | more), None)


def asked(call_id: str, tool: str, arguments: Any) -> dict[str, Any]:
    function = {"name": tool, "arguments": arguments}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": call_id, "type": "function", "function": function}],
    }


def tool(call_id: str, content: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def text(value: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": value} | more


def event(choices: list[Any], **more: Any) -> bytes:
    return b"data: " + dumps({"object": "chat.completion.chunk", "choices": choices} | more) + b"\n\n"


def delta(*calls: dict[str, Any], reason: str | None = None, **more: Any) -> dict[str, Any]:
    inner = ({"tool_calls": list(calls)} if calls else {}) | more
    return {"index": 0, "delta": inner, "finish_reason": reason}


def piece(index: int | None, call_id: str | None = None, name: str | None = None, arguments: str = "") -> Any:
    function = ({"name": name} if name is not None else {}) | {"arguments": arguments}
    head = {} if index is None else {"index": index}
    return head | ({"id": call_id} if call_id is not None else {}) | {"function": function}


def heard(*chunks: bytes) -> list[Any]:
    return [found for frame in frames_of(WIRE.reader("text/event-stream"), chunks) for found in frame.events]


@pytest.mark.parametrize(
    "path",
    [
        "/v1/chat/completions",
        "/chat/completions",
        "/openai/deployments/m/chat/completions",
        "/api/v1/chat/completions",
    ],
)
def test_paths(path: str) -> None:
    assert WIRE.kind_of(path) == "generate"


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions/abc", "/v1/responses"])
def test_other_paths(path: str) -> None:
    assert WIRE.kind_of(path) is None


@pytest.mark.parametrize(
    ("content", "plan", "expected"),
    [
        ("old", ["NEW"], "NEW"),
        ("old", [""], ""),
        # Qwen Code answers with a list of one part.
        ([text("old")], ["NEW"], [text("NEW")]),
        ([text("old", **MARK)], ["NEW"], [text("NEW", **MARK)]),
        ([text("a"), text("b")], ["NEW", REMOVE], [text("NEW")]),
        ([text("a"), text("b")], [KEEP, "NEW"], [text("a"), text("NEW")]),
        # A list with nothing in it is refused by the endpoint, an empty text is not.
        ([text("old")], [""], ""),
        ([text("old")], [REMOVE], ""),
        ([{"type": "image_url", "image_url": {"url": "data:"}}], ["NEW"], [text("NEW")]),
        ([{"type": "image_url", "image_url": {"url": "data:"}}], [KEEP, "NEW"],
         [{"type": "image_url", "image_url": {"url": "data:"}}, text("NEW")]),
        (None, ["NEW"], "NEW"),
    ],
)  # fmt: skip
def test_the_content_of_a_result(content: Any, plan: list[PartPlan], expected: Any) -> None:
    request = request_of(asked("a", "read", "{}"), tool("a", content))
    (result,) = request.items[1].results
    parts = WIRE.result_parts(request, result)
    edited = json.loads(splice(request.body, WIRE.edit_result(request, result, parts, plan, True)))
    assert edited["messages"][1] == tool("a", expected)
    assert edited["messages"][0] == asked("a", "read", "{}")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ('{ "path":\t"a" }', b'{ "path":\t"a" }'),
        ("not json", b"not json"),
        ("", b"{}"),
        ('{"a":"ü\\u00e5"}', '{"a":"ü\\u00e5"}'.encode()),
        ({"path": "a"}, b'{"path":"a"}'),
    ],
)
def test_arguments_are_what_stands_in_the_string(arguments: Any, expected: bytes) -> None:
    request = request_of(asked("a", "read", arguments))
    assert WIRE.call_arguments(request, request.items[0].calls[0]) == expected


def test_calls_of_tools_that_take_raw_text() -> None:
    call = {"id": "a", "type": "custom", "custom": {"name": "patch", "input": "*** x"}}
    request = request_of({"role": "assistant", "tool_calls": [call]}, tool("a", "done"))
    (seen,) = request.items[0].calls
    assert (seen.call_id, seen.tool, WIRE.call_arguments(request, seen)) == ("a", "patch", b"*** x")
    edits = WIRE.edit_call(request, seen, "other", b"*** y")
    edited = json.loads(splice(request.body, edits))["messages"][0]["tool_calls"][0]
    assert edited == {"id": "a", "type": "custom", "custom": {"name": "other", "input": "*** y"}}
    tools = [{"type": "custom", "custom": {"name": "patch"}}, {"type": "function", "function": {"name": "f"}}]
    assert WIRE.offered(dumps(tools)) == {"patch", "f"}


def test_calls_from_before_there_were_tools() -> None:
    function = {"name": "read", "arguments": '{"path":"a"}'}
    request = request_of(
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": None, "function_call": function},
        {"role": "function", "name": "read", "content": "text"},
        functions=[{"name": "read"}],
    )
    assert request.has_tools
    assert WIRE.offered(request.tools) == {"read"}
    (call,) = request.items[1].calls
    (result,) = request.items[2].results
    assert (call.call_id, call.tool, result.call_id, result.answers) == ("", "read", "", Place(1, 0))
    assert WIRE.call_arguments(request, call) == b'{"path":"a"}'
    renamed = splice(request.body, WIRE.edit_call(request, call, "x", None))
    assert json.loads(renamed)["messages"][1]["function_call"]["name"] == "x"


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ({"role": "user", "content": "x"}, {"role": "user", "content": [text("x")]}, True),
        ({"role": "user", "content": "x"}, {"role": "user", "content": [text("x", cache_control={})]}, True),
        ({"role": "user", "content": "x"}, {"role": "user", "content": [text("x"), text("")]}, False),
        ({"role": "user", "content": "x"}, {"role": "assistant", "content": "x"}, False),
        (tool("a", "x"), tool("b", "x"), False),
        (tool("a", "x"), tool("a", [text("x")]), True),
        (asked("a", "read", "{}"), asked("a", "read", '{"x":1}'), False),
    ],
)
def test_essence(one: Any, other: Any, alike: bool) -> None:
    assert (WIRE.essence(dumps(one)) == WIRE.essence(dumps(other))) == alike


def test_the_opening_is_all_that_stands_before_the_first_answer() -> None:
    request = request_of(
        {"role": "system", "content": "one"},
        {"role": "developer", "content": [text("two")]},
        {"role": "user", "content": "three"},
        asked("a", "read", "{}"),
        {"role": "user", "content": "four"},
    )
    assert WIRE.opening(request) == "one\ntwo\nthree"


# -- responses --


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        # https://discuss.ai.google.dev/t/98760: an answer of gpt-5, whose completion includes its reasoning.
        (
            {
                "prompt_tokens": 1486,
                "completion_tokens": 651,
                "total_tokens": 2137,
                "prompt_tokens_details": {"cached_tokens": 1408, "audio_tokens": 0},
                "completion_tokens_details": {"reasoning_tokens": 512},
            },
            Usage(78, 1408, None, 651),
        ),
        # The same page: an endpoint that counts its thinking in the total alone.
        ({"completion_tokens": 102, "prompt_tokens": 758, "total_tokens": 1725}, Usage(758, None, None, 967)),
        ({"prompt_tokens": 5, "completion_tokens": 7}, Usage(5, None, None, 7)),
        (
            {
                "prompt_tokens": 100,
                "completion_tokens": 1,
                "prompt_tokens_details": {"cached_tokens": 30, "cache_write_tokens": 20},
            },
            Usage(50, 30, 20, 1),
        ),
        ({"prompt_tokens": True, "completion_tokens": "7"}, Usage()),
    ],
)
def test_each_token_is_counted_once(usage: Any, expected: Usage) -> None:
    events = heard(event([], usage=usage), b"data: [DONE]\n\n")
    assert [found.usage for found in events if isinstance(found, UsageSeen)] == [expected]
    document = dumps({"choices": [], "usage": usage})
    (frame,) = frames_of(WIRE.reader("application/json"), [document])
    assert frame.events[0] == UsageSeen(expected)


def test_a_stream_that_does_not_say_its_usage() -> None:
    events = heard(event([delta(reason="stop", content="")], usage=None), b"data: [DONE]\n\n")
    assert events == [Finished(False)]


def test_pieces_of_parallel_calls_that_are_mixed_up() -> None:
    events = heard(
        event([delta(piece(0, "a", "read"), piece(1, "b", "bash"))]),
        event([delta(piece(1, None, None, '{"x":'))]),
        event([delta(piece(0, None, None, "{}"), piece(1, None, None, "1}"))]),
        event([delta(reason="tool_calls")]),
        b"data: [DONE]\n\n",
    )
    assert events == [
        CallDone("a", "read", b"{}", "0.0"),
        CallDone("b", "bash", b'{"x":1}', "0.1"),
        Finished(True),
    ]


def test_an_endpoint_that_gives_every_call_the_same_number() -> None:
    events = heard(
        event([delta(piece(0, "a", "read", '{"p":1}'))]),
        event([delta(piece(0, "b", "read", '{"p":2}'), piece(0, "c", "bash", "{}"))]),
        event([delta(reason="stop")]),
    )
    calls = [found for found in events if isinstance(found, CallDone)]
    assert [(call.call_id, call.tool, call.arguments) for call in calls] == [
        ("a", "read", b'{"p":1}'),
        ("b", "read", b'{"p":2}'),
        ("c", "bash", b"{}"),
    ]
    # It stopped, it says, but the harness has calls to run.
    assert events[-1] == Finished(True)
    assert len({call.ref for call in calls}) == 3


def test_calls_without_numbers_and_with_names_repeated() -> None:
    stream = [
        event([delta(piece(None, "a", "read", '{"p"'))]),
        event([delta(piece(None, "a", "read", ":1}"))]),
        event([delta(reason="tool_calls")]),
    ]
    assert heard(*stream)[0] == CallDone("a", "read", b'{"p":1}', "0.0")
    frames = frames_of(WIRE.reader("text/event-stream"), stream)
    assert [len(frame.names) for frame in frames if frame.raw] == [1, 1, 0]


def test_an_old_function_call_in_a_stream() -> None:
    call = {"function_call": {"name": "read", "arguments": ""}}
    more = {"function_call": {"arguments": '{"p":1}'}}
    frames = frames_of(
        WIRE.reader("text/event-stream"),
        [
            event([delta(**call)]),
            event([delta(**more)]),
            event([delta(reason="function_call")]),
            b"data: [DONE]\n\n",
        ],
    )
    events = [found for frame in frames for found in frame.events]
    assert events == [CallDone("", "read", b'{"p":1}', "0.legacy"), Finished(True)]
    (name,) = frames[0].names
    assert frames[0].raw[name.at.start : name.at.end] == b'"read"'


def test_a_response_without_its_end_mark_is_whole_when_it_had_a_reason_to_end() -> None:
    opened = event([delta(piece(0, "a", "read", "{}"))])
    assert heard(opened) == []
    assert heard(opened, event([delta(reason="tool_calls")]))[-1] == Finished(True)
    assert heard(opened, b"data: [DONE]\n\n")[-1] == Finished(True)


def test_comments_pass_while_a_call_is_open() -> None:
    reader = WIRE.reader("text/event-stream")
    frames = reader.feed(event([delta(piece(0, "a", "read"))]) + b": still here\n\n")
    assert [(frame.passes, frame.open_tools) for frame in frames] == [(False, ("read",)), (True, ("read",))]


def test_an_error_in_the_stream_is_no_end() -> None:
    assert heard(b'data: {"error":{"message":"overloaded","code":503}}\n\n') == []
