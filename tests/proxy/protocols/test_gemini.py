"""Gemini: what only this wire has."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.protocols.gemini import Gemini
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
    WireError,
    splice,
)
from tests.proxy.build import dumps
from tests.proxy.protocols.kits import frames_of

WIRE = Gemini()
TOOLS = [{"functionDeclarations": [{"name": "read_file"}, {"name": "run_shell_command"}]}]
PICTURE = {"inlineData": {"mimeType": "image/png", "data": "AAAA"}}


def request_of(*contents: dict[str, Any], **more: Any) -> ParsedRequest:
    return WIRE.parse_request(dumps({"contents": list(contents), "tools": TOOLS} | more), None)


def model(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"role": "model", "parts": list(parts)}


def user(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "parts": list(parts)}


def call(name: str, call_id: str | None = None, **args: Any) -> dict[str, Any]:
    return {"functionCall": ({"id": call_id} if call_id else {}) | {"args": args, "name": name}}


def answer(name: str, response: Any, call_id: str | None = None, **more: Any) -> dict[str, Any]:
    found = {"name": name, "response": response} | ({"id": call_id} if call_id else {}) | more
    return {"functionResponse": found}


def edited(
    request: ParsedRequest, item: int, plan: list[PartPlan], is_error: bool | None = None, nth: int = 0
) -> Any:
    result = request.items[item].results[nth]
    parts = WIRE.result_parts(request, result)
    raw = splice(request.body, WIRE.edit_result(request, result, parts, plan, is_error))
    return json.loads(raw)["contents"][item]["parts"]


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/v1beta/models/gemini-2.5-pro:generateContent", "generate"),
        ("/v1beta/models/gemini-2.5-pro:streamGenerateContent", "generate"),
        ("/v1/projects/p/locations/l/publishers/google/models/g:streamGenerateContent", "generate"),
        ("/v1beta/models/gemini-2.5-pro:countTokens", "count"),
        ("/v1beta/models/gemini-2.5-pro:embedContent", None),
        ("/v1beta/models", None),
    ],
)
def test_paths(path: str, kind: str | None) -> None:
    assert WIRE.kind_of(path) == kind


# -- requests --


def places(request: ParsedRequest) -> list[list[Place | None]]:
    return [[result.answers for result in item.results] for item in request.items]


def test_ids_are_taken_where_they_are() -> None:
    request = request_of(
        user({"text": "go"}),
        model(call("read_file", "a"), call("read_file", "b")),
        user(answer("read_file", {"output": "2"}, "b"), answer("read_file", {"output": "1"}, "a")),
    )
    assert [result.call_id for result in request.items[2].results] == ["b", "a"]
    assert places(request)[2] == [None, None]


def test_without_ids_a_response_belongs_to_a_call_by_name_and_order() -> None:
    request = request_of(
        user({"text": "go"}),
        model(call("read_file", n=1), call("run_shell_command"), call("read_file", n=2)),
        user(*(answer(name, {"output": "x"}) for name in ("run_shell_command", "read_file", "read_file"))),
    )
    assert places(request)[2] == [Place(1, 1), Place(1, 0), Place(1, 2)]


def test_a_resumed_session_answers_everything_twice() -> None:
    """As Gemini CLI 0.61 sends it: the whole set of responses once more, in the same content."""
    one, two = answer("read_file", {"output": "1"}), answer("run_shell_command", {"output": "2"})
    calls = model(call("read_file"), call("run_shell_command"))
    assert places(request_of(calls, user(one, two, one, two)))[1] == [Place(0, 0), Place(0, 1)] * 2
    assert places(request_of(calls, user(one, two), user(one, two)))[1:] == [[Place(0, 0), Place(0, 1)]] * 2


def test_responses_spread_over_contents_and_of_another_name() -> None:
    calls = model(call("read_file"), call("read_file"))
    request = request_of(calls, user(answer("read_file", {})), user({"text": "x"}), user(answer("other", {})))
    assert places(request)[1:] == [[Place(0, 0)], [], [Place(0, 1)]]
    assert places(request_of(user(answer("read_file", {"output": "x"})))) == [[None]]


def test_a_response_belongs_to_the_last_answer_with_calls() -> None:
    first, second = model(call("read_file")), model({"text": "a"}, call("read_file"))
    reply = user(answer("read_file", {"output": "x"}))
    assert places(request_of(first, reply, second, reply)) == [[], [Place(0, 0)], [], [Place(2, 0)]]


@pytest.mark.parametrize(
    ("response", "text", "failed"),
    [
        ({"output": "x"}, "x", None),
        ({"error": "x"}, "x", True),
        ({"output": "x", "error": ""}, "x", None),
        ({"result": "x"}, "x", None),
        ({"output": {"rows": [1, 2]}}, '{"output":{"rows":[1,2]}}', None),
        ({"error": {"message": "x"}}, '{"error":{"message":"x"}}', True),
        ({"a": "x", "b": "y"}, '{"a":"x","b":"y"}', None),
        ({}, "{}", None),
    ],
)
def test_what_a_response_says(response: Any, text: str, failed: bool | None) -> None:
    request = request_of(model(call("f", "a")), user(answer("f", response, "a")))
    (result,) = request.items[1].results
    assert result.is_error == failed
    assert [part.text for part in WIRE.result_parts(request, result)] == [text]


@pytest.mark.parametrize(
    ("response", "is_error", "expected"),
    [
        ({"output": "x"}, None, {"output": "NEW"}),
        ({"output": "x"}, True, {"error": "NEW"}),
        ({"output": "x"}, False, {"output": "NEW"}),
        ({"error": "x"}, None, {"error": "NEW"}),
        ({"error": "x"}, False, {"output": "NEW"}),
        ({"error": "x"}, True, {"error": "NEW"}),
        ({"output": "x", "more": 1.0}, True, {"error": "NEW", "more": 1.0}),
        ({"result": "x"}, None, {"result": "NEW"}),
        ({"result": "x"}, True, {"error": "NEW"}),
        ({"output": "x", "error": ""}, True, {"output": "NEW", "error": ""}),
        ({"output": {"rows": []}}, None, {"output": "NEW"}),
        ({"output": {"rows": []}}, True, {"error": "NEW"}),
        ({"error": {"message": "x"}}, None, {"error": "NEW"}),
        ({"error": {"message": "x"}}, False, {"output": "NEW"}),
    ],
)
def test_a_flag_is_the_name_that_the_text_stands_under(
    response: Any, is_error: bool | None, expected: Any
) -> None:
    request = request_of(model(call("f", "a")), user(answer("f", response, "a", scheduling="IDLE")))
    assert edited(request, 1, ["NEW"], is_error) == [answer("f", expected, "a", scheduling="IDLE")]


def test_a_name_that_is_spelled_otherwise() -> None:
    raw = b'{"contents":[{"parts":[{"functionResponse":{"response":{"\\u006futput" :\n "x"}}}]}]}'
    request = WIRE.parse_request(raw, None)
    (result,) = request.items[0].results
    parts = WIRE.result_parts(request, result)
    new = splice(raw, WIRE.edit_result(request, result, parts, ["NEW"], True))
    assert new == raw.replace(b'"\\u006futput" :\n "x"', b'"error" :\n "NEW"')


def test_pictures_behind_a_response() -> None:
    """As Gemini CLI 0.61 answers a read of a picture."""
    said = answer("read_file", {"output": "Binary content provided (1 item(s))."}, "a")
    other = answer("read_file", {"output": "text"}, "b")
    request = request_of(
        model(call("read_file", "a"), call("read_file", "b")),
        user(said, PICTURE, PICTURE, other, {"text": "note"}),
    )
    one, two = request.items[1].results
    assert [part.text is None for part in WIRE.result_parts(request, one)] == [False, True, True]
    assert len(WIRE.result_parts(request, two)) == 1
    new = answer("read_file", {"output": "NEW"}, "a")
    note = {"text": "note"}
    assert edited(request, 1, ["NEW", REMOVE, REMOVE]) == [new, other, note]
    assert edited(request, 1, ["NEW", KEEP, REMOVE]) == [new, PICTURE, other, note]
    assert edited(request, 1, ["NEW", REMOVE, KEEP]) == [new, PICTURE, other, note]
    assert edited(request, 1, [KEEP, KEEP, KEEP]) == [said, PICTURE, PICTURE, other, note]
    assert edited(request, 1, ["NEW"], nth=1)[3] == answer("read_file", {"output": "NEW"}, "b")
    # A text is no part of a result, and what follows it is not either.
    request = request_of(model(call("read_file", "a")), user(said, note, PICTURE))
    assert len(WIRE.result_parts(request, request.items[1].results[0])) == 1


def test_pictures_in_a_response() -> None:
    said = answer("read_file", {"output": "x"}, "a", parts=[PICTURE, PICTURE])
    request = request_of(model(call("read_file", "a")), user(said, PICTURE))
    new = answer("read_file", {"output": "NEW"}, "a", parts=[])
    assert edited(request, 1, ["NEW", REMOVE, REMOVE, REMOVE]) == [new]
    kept = answer("read_file", {"output": "NEW"}, "a", parts=[PICTURE])
    assert edited(request, 1, ["NEW", KEEP, REMOVE, KEEP]) == [kept, PICTURE]


def test_a_response_that_is_nothing_but_a_picture() -> None:
    bare = {"functionResponse": {"name": "f", "id": "a", "parts": [PICTURE]}}
    request = request_of(model(call("f", "a")), user(bare, PICTURE))
    (part, new) = (edited(request, 1, ["NEW", REMOVE]), answer("f", {"output": "NEW"}, "a", parts=[]))
    assert part == [new]
    assert edited(request, 1, [KEEP, KEEP, "NEW"]) == [
        answer("f", {"output": "NEW"}, "a", parts=[PICTURE]),
        PICTURE,
    ]


def test_both_ways_to_spell_a_field() -> None:
    request = request_of(
        model({"function_call": {"id": "a", "name": "f", "args": {"x": 1}}}),
        user(
            {"function_response": {"id": "a", "name": "f", "response": {"output": "old"}}},
            {"inline_data": {}},
        ),
        system_instruction={"parts": [{"text": "Be brief."}]},
        tools=[{"function_declarations": [{"name": "f"}]}],
    )
    assert (request.items[0].calls[0].call_id, request.items[1].results[0].call_id) == ("a", "a")
    assert edited(request, 1, ["NEW", REMOVE]) == [
        {"function_response": {"id": "a", "name": "f", "response": {"output": "NEW"}}}
    ]
    assert WIRE.offered(request.tools) == {"f"}
    assert WIRE.opening(request) == "Be brief."


@pytest.mark.parametrize("wrapper", ["generateContentRequest", "request"])
def test_requests_that_are_wrapped(wrapper: str) -> None:
    inner = {"contents": [model(call("f", "a")), user(answer("f", {"output": "old"}, "a"))], "tools": TOOLS}
    body = dumps({"model": "m", wrapper: inner, "user_prompt_id": "x"})
    request = WIRE.parse_request(body, None)
    assert request.has_tools
    (result,) = request.items[1].results
    parts = WIRE.result_parts(request, result)
    new = splice(body, WIRE.edit_result(request, result, parts, ["NEW"], None))
    assert new == body.replace(b'"old"', b'"NEW"')
    inner["contents"] = [*inner["contents"], model({"text": "ok"})]
    longer = dumps({"model": "m", wrapper: inner, "user_prompt_id": "x"})
    assert WIRE.parse_request(longer, request).items == WIRE.parse_request(longer, None).items


@pytest.mark.parametrize(
    ("tools", "expected"),
    [
        ([{"googleSearch": {}}], False),
        ([{"functionDeclarations": []}], False),
        ([], False),
        ([{"googleSearch": {}}, {"functionDeclarations": [{"name": "f"}]}], True),
    ],
)
def test_tools_that_run_at_the_endpoint_are_none_of_the_harness(tools: Any, expected: bool) -> None:
    assert request_of(user({"text": "x"}), tools=tools).has_tools == expected


def test_thoughts_are_no_texts_and_no_part_of_the_essence() -> None:
    request = request_of(user({"text": "a"}, {"text": "hm", "thought": True}, {"text": "b"}))
    assert [part.text for part in WIRE.texts(request, request.items[0])] == ["a", "b"]
    signed = {"thoughtSignature": "skip_thought_signature_validator"}
    one, other = model(call("f", "a")), model(call("f", "a") | signed)
    assert WIRE.essence(dumps(one)) == WIRE.essence(dumps(other))
    assert WIRE.essence(dumps(one)) != WIRE.essence(dumps(model(call("f", "b"))))
    assert WIRE.essence(dumps(user({"text": "a"}))) != WIRE.essence(dumps(model({"text": "a"})))


def test_a_response_gets_the_name_of_its_call_back() -> None:
    request = request_of(
        model(call("f__timeout", "a"), call("g", "b")),
        user(
            answer("f__timeout", {"error": "Tool not found"}, "a"), PICTURE, answer("g", {"output": "x"}, "b")
        ),
    )
    edits = WIRE.edit_result_tool(request, request.items[1].results[0], "f")
    assert splice(request.body, edits) == request.body.replace(
        b'"functionResponse":{"name":"f__timeout"', b'"functionResponse":{"name":"f"'
    )


# -- responses --


def chunk(*parts: dict[str, Any], reason: str | None = None, **more: Any) -> bytes:
    candidate: dict[str, Any] = {"content": {"parts": list(parts), "role": "model"}}
    if reason:
        candidate["finishReason"] = reason
    return dumps({"candidates": [candidate], "modelVersion": "g"} | more)


def heard(*chunks: bytes) -> list[Any]:
    streamed = [b"data: " + found + b"\r\n\r\n" for found in chunks]
    by_event = frames_of(WIRE.reader("text/event-stream"), streamed)
    listed = b"[" + b"\n,\n".join(chunks) + b"\n]\n"
    by_element = frames_of(WIRE.reader("application/json; charset=UTF-8"), [listed[:9], listed[9:]])
    events = [event for frame in by_event for event in frame.events]
    assert [event for frame in by_element for event in frame.events] == events
    assert b"".join(frame.raw for frame in by_element) == listed
    return events


def test_calls_come_whole() -> None:
    events = heard(
        chunk({"text": "Let me"}, {"text": "think", "thought": True}),
        chunk(call("f", "a", n=1), call("g")),
        chunk(call("g", x=[1.50]), reason="STOP"),
    )
    assert events == [
        CallDone("a", "f", b'{"n":1}', "0"),
        CallDone("", "g", b"{}", "1"),
        CallDone("", "g", b'{"x":[1.5]}', "2"),
        Finished(True, "g"),
    ]


def test_arguments_stay_as_the_model_spelled_them() -> None:
    said = b'{"functionCall":{"name":"f","args":{ "n":1.50, "s":"\\ud83d" }}}'
    raw = b'{"candidates":[{"content":{"parts":[' + said + b"]}}]}"
    (found,) = heard(raw)
    assert found.arguments == b'{ "n":1.50, "s":"\\ud83d" }'


def test_a_call_without_arguments() -> None:
    (found,) = heard(b'{"candidates":[{"content":{"parts":[{"functionCall":{"name":"f"}}]}}]}')
    assert found == CallDone("", "f", b"{}", "0")


def test_each_token_is_counted_once() -> None:
    """https://ai.google.dev/api/generate-content#UsageMetadata: the prompt includes the cached part; the
    total is prompt, candidates, thoughts and what tools at the endpoint brought in."""
    counts = {
        "promptTokenCount": 1000,
        "cachedContentTokenCount": 300,
        "candidatesTokenCount": 50,
        "thoughtsTokenCount": 200,
        "toolUsePromptTokenCount": 40,
    }
    total = 1000 + 50 + 200 + 40
    events = heard(
        chunk({"text": "a"}, usageMetadata={"promptTokenCount": 1000, "totalTokenCount": 1000}),
        chunk({"text": "b"}, reason="STOP", usageMetadata=counts | {"totalTokenCount": total}),
    )
    (first, last) = (event.usage for event in events if isinstance(event, UsageSeen))
    assert first == Usage(1000, None, None, None)
    assert last == Usage(740, 300, None, 250)
    assert sum(count or 0 for count in last) == total


@pytest.mark.parametrize("reason", ["STOP", "MAX_TOKENS", "MALFORMED_FUNCTION_CALL", "SAFETY"])
def test_a_reason_ends_the_response(reason: str) -> None:
    assert heard(chunk({"text": "x"}), chunk(reason=reason), chunk({"text": ""}, reason=reason)) == [
        Finished(False, "g")
    ]


def test_a_prompt_that_was_blocked() -> None:
    assert heard(b'{"promptFeedback":{"blockReason":"SAFETY"}}') == [Finished(False)]


def test_a_response_in_a_wrapper() -> None:
    wrapped = b'{"response":' + chunk(call("f", "a"), reason="STOP") + b',"traceId":"x"}'
    assert heard(wrapped) == [CallDone("a", "f", b"{}", "0"), Finished(True, "g")]


def test_arguments_in_parts_are_an_error_rather_than_a_miss() -> None:
    parts = {"functionCall": {"name": "f", "partialArgs": [{"jsonPath": "$.x"}], "willContinue": True}}
    for stream in (b"data: " + chunk(parts) + b"\n\n",):
        with pytest.raises(WireError, match="parts"):
            frames_of(WIRE.reader("text/event-stream"), [stream])


def test_a_list_that_is_cut_off_gives_what_was_whole() -> None:
    frames = frames_of(
        WIRE.reader("application/json"), [b"[" + chunk(call("f", "a")) + b",\n" + chunk()[:20]]
    )
    assert [event for frame in frames for event in frame.events] == [CallDone("a", "f", b"{}", "0")]
