"""Requests: what holds for every wire format, whatever it looks like."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.protocols.wire import (
    ParsedRequest,
    SeenCall,
    SeenResult,
    WireError,
    splice,
)
from proxy.rewriting import own_output, plan_text
from scheduler.dialect import Dialect
from tests.proxy.build import dumps
from tests.proxy.protocols.kits import (
    GEMINI,
    KITS,
    STREAMS,
    Call,
    Kit,
    Round,
    rounds,
)
from tests.proxy.test_history import ODD, arrays

every_wire = pytest.mark.parametrize("kit", KITS.values(), ids=KITS.keys())
every_stream = pytest.mark.parametrize("kit", STREAMS.values(), ids=STREAMS.keys())
DIALECT = Dialect(name="t", title="T")
SSE = "text/event-stream; charset=utf-8"


def calls_of(request: ParsedRequest) -> list[SeenCall]:
    return [call for item in request.items for call in item.calls]


def results_of(request: ParsedRequest) -> list[SeenResult]:
    return [result for item in request.items for result in item.results]


def call_of(request: ParsedRequest, result: SeenResult) -> SeenCall:
    if result.answers is not None:
        return request.items[result.answers.item].calls[result.answers.call]
    return next(call for call in calls_of(request) if call.call_id == result.call_id)


def loads(raw: bytes) -> Any:
    return json.loads(raw.decode("utf-8", "surrogatepass"))


def expected_pairs(made: Sequence[Round]) -> list[tuple[str, str, str]]:
    return [
        (turn.calls[number].tool, turn.calls[number].arguments, text)
        for turn in made
        for text, number in zip(turn.results, turn.order, strict=True)
    ]


@every_wire
@settings(max_examples=60)
@given(made=rounds())
def test_every_result_belongs_to_its_call(kit: Kit, made: list[Round]) -> None:
    request = kit.wire.parse_request(kit.body(made), None)
    found = []
    for result in results_of(request):
        call = call_of(request, result)
        (part,) = kit.wire.result_parts(request, result)
        found.append((call.tool, loads(kit.wire.call_arguments(request, call)), part.text))
    assert found == [(tool, loads(args.encode()), text) for tool, args, text in expected_pairs(made)]
    assert [call.call_id for call in calls_of(request)] == [c.call_id for turn in made for c in turn.calls]
    assert request.has_tools
    assert kit.wire.offered(request.tools) >= {"read", "bash", "edit"}
    # What the model said is told from the rest by its role, and calls are the model's.
    assert all(item.role == "assistant" for item in request.items if item.calls)
    assert all(item.role != "assistant" for item in request.items if item.results)


def by_tool_in_order(turn: Round) -> tuple[int, ...]:
    """An order of results in which those of one tool come as it was called."""
    tools = [turn.calls[number].tool for number in turn.order]
    left = {tool: iter(sorted(n for n in turn.order if turn.calls[n].tool == tool)) for tool in tools}
    return tuple(next(left[tool]) for tool in tools)


@settings(max_examples=60)
@given(made=rounds(), again=st.booleans())
def test_responses_without_ids_belong_to_calls_by_name_and_order(made: list[Round], again: bool) -> None:
    """A harness answers calls of one tool in their order; a resumed session can send all of it twice."""
    in_order = [turn._replace(order=by_tool_in_order(turn)) for turn in made]
    body = loads(GEMINI.body(in_order, ids=False))
    if again:
        for content in body["contents"]:
            responses = [part for part in content["parts"] if "functionResponse" in part]
            content["parts"] = responses + content["parts"]
    request = GEMINI.wire.parse_request(dumps(body), None)
    calls = [call for turn in in_order for call in turn.calls]
    assert [call.tool for call in calls_of(request)] == [call.tool for call in calls]
    found = []
    for item in request.items:
        pairs = []
        for result in item.results:
            assert result.call_id == ""
            call = call_of(request, result)
            (part,) = GEMINI.wire.result_parts(request, result)
            pairs.append((call.tool, loads(GEMINI.wire.call_arguments(request, call)), part.text))
        half = len(pairs) // 2 if again else len(pairs)
        if again:
            assert pairs[:half] == pairs[half:]
        found += pairs[:half]
    assert found == [(tool, loads(args.encode()), text) for tool, args, text in expected_pairs(in_order)]


def facts(request: ParsedRequest | str) -> object:
    if isinstance(request, str):
        return request
    return (
        request.base,
        request.end,
        request.items,
        request.tools,
        request.system,
        request.model,
        request.stream,
        request.continues,
    )


def parse(kit: Kit, body: bytes, previous: ParsedRequest | None = None) -> ParsedRequest | str:
    try:
        return kit.wire.parse_request(body, previous)
    except WireError:
        return "refused"


@every_wire
@settings(max_examples=60)
@given(made=rounds(), cut=st.integers(0, 4), more=st.booleans())
def test_a_longer_history_is_parsed_like_a_new_one(kit: Kit, made: list[Round], cut: int, more: bool) -> None:
    first = kit.wire.parse_request(kit.body(made[:cut]), None)
    body = kit.body(made, metadata={"turn": 2}) if more else kit.body(made)
    after = kit.wire.parse_request(body, first)
    assert facts(after) == facts(kit.wire.parse_request(body, None))
    assert after.shared == len(first.items)
    assert [after.slice(item.at) for item in after.items[: after.shared]] == [
        first.slice(item.at) for item in first.items
    ]


ITEMS = {
    "messages": [
        {"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "read", "arguments": "{}"}}]},
        {"role": "assistant", "content": None, "function_call": {"name": "read", "arguments": ""}},
        {"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "x"}]},
        {"role": "function", "name": "read", "content": "x"},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "x"}]},
    ],
    "input": [
        {"role": "user", "content": "hi"},
        {"type": "additional_tools", "tools": [{"type": "namespace", "name": "f", "tools": []}]},
        {"type": "custom_tool_call", "call_id": "a", "name": "patch", "input": "*** x"},
        {"type": "local_shell_call", "call_id": "b", "action": {"type": "exec", "command": ["ls"]}},
        {"type": "custom_tool_call_output", "call_id": "a", "output": [{"type": "input_text", "text": "x"}]},
        {"type": "shell_call_output", "call_id": "b", "output": [{"stdout": "x", "stderr": ""}]},
        {"type": "reasoning", "summary": []},
    ],
    "contents": [
        {"role": "model", "parts": [{"functionCall": {"name": "read", "args": {}}}]},
        {"role": "user", "parts": [{"functionResponse": {"name": "read", "response": {"output": "x"}}}]},
        {"role": "user", "parts": [{"functionResponse": {"response": 3}}, {"inlineData": {}}]},
    ],
}


@every_wire
@settings(max_examples=80)
@given(data=st.data())
def test_what_is_odd_is_parsed_alike_or_refused_alike(kit: Kit, data: st.DataObject) -> None:
    """Whatever was sent before: what a body is taken apart into is a function of the body alone."""
    item = st.one_of(st.sampled_from([dumps(item) for item in ITEMS[kit.array]]), ODD)
    elements = data.draw(st.lists(item, max_size=4))
    cut = data.draw(st.integers(0, len(elements)))

    def history(parts: list[bytes]) -> bytes:
        return data.draw(st.one_of(st.just(b"[" + b",".join(parts) + b"]"), arrays(item, 2), ODD))

    bodies = [kit.around(history(parts)) for parts in (elements[:cut], elements, elements[:1])]
    previous = parse(kit, bodies[0])
    for body in bodies[1:]:
        alone = parse(kit, body)
        if not isinstance(previous, str):
            assert facts(parse(kit, body, previous)) == facts(alone)
        previous = alone
        if isinstance(alone, ParsedRequest):
            touch_all(kit, alone)


def touch_all(kit: Kit, request: ParsedRequest) -> None:
    """Nothing but a ``WireError`` comes out of any method, and every edit leaves valid JSON."""
    try:
        for item in request.items:
            kit.wire.essence(request.slice(item.at))
            for part in kit.wire.texts(request, item):
                loads(splice(request.body, [kit.wire.edit_text(request, part, "new")]))
        for call in calls_of(request):
            kit.wire.call_arguments(request, call)
            loads(splice(request.body, kit.wire.edit_call(request, call, "read", b"{}")))
        for result in results_of(request):
            parts = kit.wire.result_parts(request, result)
            plan = plan_text(own_output(DIALECT, parts), parts, "new", keep_images=False)
            loads(splice(request.body, kit.wire.edit_result(request, result, parts, plan, True)))
        kit.wire.opening(request)
        kit.wire.offered(request.tools)
    except WireError:
        pass


@every_wire
@settings(max_examples=60)
@given(made=rounds(), data=st.data())
def test_edits_touch_their_spans_alone(kit: Kit, made: list[Round], data: st.DataObject) -> None:
    body = kit.body(made)
    request = kit.wire.parse_request(body, None)
    assert splice(body, []) is body
    chosen = [result for result in results_of(request) if data.draw(st.booleans())]
    payload = data.draw(st.sampled_from(["", "payload", 'a"\n🙂']))
    edits, spans = [], []
    for result in chosen:
        parts = kit.wire.result_parts(request, result)
        found = kit.wire.edit_result(request, result, parts, [payload], None)
        start, end = request.base + result.at.start, request.base + result.at.end
        assert all(start <= edit.start <= edit.end <= end for edit in found)
        edits += found
        spans.append((start, end))
    edited = splice(body, edits)
    again = kit.wire.parse_request(edited, None)
    for result, old in zip(results_of(again), results_of(request), strict=True):
        (part,) = kit.wire.result_parts(again, result)
        (before,) = kit.wire.result_parts(request, old)
        assert part.text == (payload if old in chosen else before.text)
    # Every call still has its result, in the same places.
    assert [(r.call_id, r.answers) for r in results_of(again)] == [
        (r.call_id, r.answers) for r in results_of(request)
    ]
    assert [(c.call_id, c.tool) for c in calls_of(again)] == [(c.call_id, c.tool) for c in calls_of(request)]
    outside, at = b"", 0
    for start, end in spans:
        outside, at = outside + body[at:start], end
    assert b"".join(edited_outside(edited, again, request, chosen)) == outside + body[at:]


def edited_outside(
    edited: bytes, again: ParsedRequest, request: ParsedRequest, chosen: list[SeenResult]
) -> list[bytes]:
    pieces, at = [], 0
    for result, old in zip(results_of(again), results_of(request), strict=True):
        if old in chosen:
            pieces.append(edited[at : again.base + result.at.start])
            at = again.base + result.at.end
    return [*pieces, edited[at:]]


@every_wire
@settings(max_examples=40)
@given(
    made=rounds(), payload=st.sampled_from(["", "payload", "a\nb"]), is_error=st.sampled_from([None, True])
)
def test_rewriting_twice_is_rewriting_once(
    kit: Kit, made: list[Round], payload: str, is_error: bool | None
) -> None:
    def once(body: bytes) -> bytes:
        request = kit.wire.parse_request(body, None)
        edits = []
        for result in results_of(request):
            parts = kit.wire.result_parts(request, result)
            plan = plan_text(own_output(DIALECT, parts), parts, payload, keep_images=False)
            edits += kit.wire.edit_result(request, result, parts, plan, is_error)
        return splice(body, edits)

    first = once(kit.body(made))
    assert once(first) == first


@every_wire
@settings(max_examples=40)
@given(made=rounds(), data=st.data())
def test_a_call_gets_its_name_and_arguments_back(kit: Kit, made: list[Round], data: st.DataObject) -> None:
    """What the harness made of a call that no tool has, against what the model asked for."""
    hidden = [
        turn._replace(calls=tuple(Call(c.call_id, f"{c.tool}__timeout", '{"lost":1}') for c in turn.calls))
        for turn in made
    ]
    request = kit.wire.parse_request(kit.body(hidden), None)
    calls = [call for turn in made for call in turn.calls]
    edits = []
    for seen, call in zip(calls_of(request), calls, strict=True):
        edits += kit.wire.edit_call(request, seen, call.tool, call.arguments.encode())
    for result in results_of(request):
        tool = call_of(request, result).tool.removesuffix("__timeout")
        edits += kit.wire.edit_result_tool(request, result, tool)
    assert loads(splice(request.body, edits)) == loads(kit.body(made))
    names = [kit.wire.edit_call(request, seen, seen.tool, None) for seen in calls_of(request)]
    assert splice(request.body, [edit for found in names for edit in found]) == request.body


@every_wire
@given(made=rounds())
@settings(max_examples=40)
def test_essence_ignores_the_order_of_fields_and_nothing_else(kit: Kit, made: list[Round]) -> None:
    history = kit.history(made, True)
    essences = [kit.wire.essence(dumps(item)) for item in history]

    def turned(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: turned(value[key]) for key in reversed(value)}
        return [turned(item) for item in value] if isinstance(value, list) else value

    for item, essence in zip(history, essences, strict=True):
        spelled = dumps(item)
        # What is inside a call is taken as it is spelled: a harness spells it alike in every turn.
        if not any(name in spelled for name in (b'"tool_use"', b'"tool_calls"', b'"functionCall"')):
            assert kit.wire.essence(dumps(turned(item))) == essence
    plain = {dumps(item) for item in history}
    assert len(set(essences)) == len(plain)


@every_wire
@given(made=rounds())
@settings(max_examples=30)
def test_texts_are_what_people_said(kit: Kit, made: list[Round]) -> None:
    request = kit.wire.parse_request(kit.body(made), None)
    said = [
        part.text
        for item in request.items
        if item.role not in ("assistant", "system")
        for part in kit.wire.texts(request, item)
    ]
    assert said == ["go", *(turn.said for turn in made)]
    assert "go" in kit.wire.opening(request)
    (part,) = kit.wire.texts(request, next(item for item in request.items if item.role == "user"))
    edited = kit.wire.parse_request(splice(request.body, [kit.wire.edit_text(request, part, "stop")]), None)
    assert "stop" in kit.wire.opening(edited)


@every_wire
def test_bodies_that_are_no_requests_are_refused_with_a_reason(kit: Kit) -> None:
    deep = b"[" * 20_000 + b"]" * 20_000
    for body in (b"", b"{", b"[]", b"7", kit.around(b"7"), kit.around(b'{"a":1}'), kit.around(deep), deep):
        with pytest.raises(WireError):
            kit.wire.parse_request(body, None)


@every_wire
def test_a_result_without_content_gets_one(kit: Kit) -> None:
    names = {"messages": "content", "input": "output", "contents": "response"}
    made = [Round("", (Call("a", "read", "{}"),), ("x",), (0,), "next")]
    body = loads(kit.body(made))

    def strip(value: Any) -> Any:
        if isinstance(value, list):
            return [strip(item) for item in value]
        if not isinstance(value, dict):
            return value
        is_result = value.keys() & {"tool_use_id", "tool_call_id", "response", "output"}
        return {k: strip(v) for k, v in value.items() if not (is_result and k == names[kit.array])}

    body[kit.array] = strip(body[kit.array])
    request = kit.wire.parse_request(dumps(body), None)
    (result,) = results_of(request)
    parts = kit.wire.result_parts(request, result)
    assert parts == ()
    edited = splice(request.body, kit.wire.edit_result(request, result, parts, ["new"], None))
    again = kit.wire.parse_request(edited, None)
    (part,) = kit.wire.result_parts(again, results_of(again)[0])
    assert part.text == "new"
