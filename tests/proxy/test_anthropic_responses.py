"""What a response says, streamed or whole, however its bytes are cut."""

from __future__ import annotations

import contextlib
import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.protocols.anthropic import AnthropicMessages
from proxy.protocols.wire import CallDone, Finished, Frame, ResponseEvent, Usage, UsageSeen, WireError
from tests.proxy.build import Answer, sse_event, streamed, whole

WIRE = AnthropicMessages()

NAMES = st.sampled_from(["Read", "Bash", "text_delta", "thinking_delta", "message_stop", "naïve 🙂"])
ARGUMENTS = st.one_of(
    st.sampled_from(
        [
            "{}",
            '{"file_path": "a.txt", "limit": 1.0}',
            '{"n":123456789012345678901234567890}',
            '{"s":"\\ud83d"}',
            '{"a":1,"a":2}',
            '{"broken": "',
            "not json at all",
            '{"x":"\\"type\\":\\"text_delta\\""}',
        ]
    ),
    st.dictionaries(st.text(max_size=4), st.text(max_size=12), max_size=3).map(
        lambda value: json.dumps(value, ensure_ascii=False)
    ),
)
CALLS = st.tuples(st.integers(0, 3).map("toolu_{}".format), NAMES, ARGUMENTS)
ANSWERS = st.builds(
    Answer, st.text(max_size=60), st.lists(CALLS, max_size=4), st.tuples(*[st.integers(0, 9999)] * 4)
)


def read(chunks: list[bytes], content_type: str) -> tuple[list[ResponseEvent], bytes]:
    reader = WIRE.reader(content_type)
    frames: list[Frame] = [frame for chunk in chunks for frame in reader.feed(chunk)] + reader.close()
    return [event for frame in frames for event in frame.events], b"".join(frame.raw for frame in frames)


def calls_of(events: list[ResponseEvent]) -> list[tuple[str, str, str]]:
    return [
        (event.call_id, event.tool, event.arguments.decode("utf-8", "surrogatepass"))
        for event in events
        if isinstance(event, CallDone)
    ]


@settings(max_examples=150)
@given(ANSWERS, st.lists(st.integers(0, 5000), max_size=12), st.sampled_from(["\n", "\r\n", "\r"]))
def test_a_stream_says_the_same_however_it_is_cut(answer: Answer, cuts: list[int], end: str) -> None:
    stream = streamed(answer)
    stream = stream.replace(b"\n", end.encode())
    places = sorted({0, len(stream), *(cut % (len(stream) + 1) for cut in cuts)})
    events, raw = read([stream[a:b] for a, b in pairwise(places)], "text/event-stream; charset=utf-8")
    assert raw == stream
    assert calls_of(events) == list(answer.calls)
    assert events[-1] == Finished(bool(answer.calls), "m")
    usage = [event.usage for event in events if isinstance(event, UsageSeen)]
    assert usage[-1] == Usage(*answer.usage)


@settings(max_examples=100)
@given(ANSWERS)
def test_a_whole_message_says_the_same_as_a_stream(answer: Answer) -> None:
    try:
        message = whole(answer)
        value = json.loads(message)
    except ValueError:
        return  # arguments that are no JSON cannot stand in a JSON message
    events, raw = read([message[:7], message[7:]], "application/json")
    assert raw == message
    inputs = [block["input"] for block in value["content"] if block["type"] == "tool_use"]
    assert [json.loads(arguments) for _, _, arguments in calls_of(events)] == inputs
    assert events[-1] == Finished(bool(answer.calls), "m")


def start(index: int, **block: Any) -> bytes:
    return sse_event("content_block_start", index=index, content_block=block)


def delta(index: int, piece: str) -> bytes:
    inner = {"type": "input_json_delta", "partial_json": piece}
    return sse_event("content_block_delta", index=index, delta=inner)


def test_blocks_that_are_mixed_up_are_put_together() -> None:
    stream = [
        start(0, type="tool_use", id="a", name="Read", input={}),
        start(1, type="tool_use", id="b", name="Bash", input={}),
        delta(1, '{"command":'),
        delta(0, '{"file_path":"x"}'),
        delta(1, '"ls"}'),
        sse_event("content_block_stop", index=1),
        sse_event("content_block_stop", index=0),
    ]
    events, _ = read(stream, "text/event-stream")
    assert calls_of(events) == [("b", "Bash", '{"command":"ls"}'), ("a", "Read", '{"file_path":"x"}')]


def test_arguments_that_came_whole_with_the_start() -> None:
    stream = [
        start(0, type="tool_use", id="a", name="R", input={"p": 1}),
        sse_event("content_block_stop", index=0),
    ]
    events, _ = read(stream, "text/event-stream")
    assert calls_of(events) == [("a", "R", '{"p":1}')]


def test_a_call_that_is_not_finished_is_no_call() -> None:
    events, _ = read([start(0, type="tool_use", id="a", name="R", input={}), delta(0, "{")], "event-stream")
    assert calls_of(events) == []
    assert not [e for e in events if isinstance(e, Finished)]


def test_server_tools_are_not_the_harness_s() -> None:
    stream = [
        start(0, type="server_tool_use", id="a", name="web_search", input={}),
        sse_event("content_block_stop", index=0),
    ]
    assert calls_of(read(stream, "text/event-stream")[0]) == []


def test_a_tool_can_be_named_like_an_event() -> None:
    stream = [
        start(0, type="tool_use", id="a", name="text_delta", input={}),
        delta(0, "{}"),
        sse_event("content_block_stop", index=0),
    ]
    assert calls_of(read(stream, "text/event-stream")[0]) == [("a", "text_delta", "{}")]


def test_half_a_surrogate_pair_is_no_reason_to_stop_reading() -> None:
    lone = b'data: {"type":"content_block_delta","index":0,"delta":{"type":"signature","x":"\\ud83d"}}\n\n'
    stream = [
        lone,
        start(0, type="tool_use", id="a", name="R", input={}),
        sse_event("content_block_stop", index=0),
    ]
    assert calls_of(read(stream, "text/event-stream")[0]) == [("a", "R", "{}")]


@pytest.mark.parametrize(
    "data",
    [
        b"[]",
        b"7",
        b"null",
        b'{"type":"something_new","index":[1]}',
        b'{"no":"type"}',
        b'{"type":"content_block_stop","index":3}',
        b'{"type":"content_block_delta","index":3,"delta":{}}',
    ],
)
def test_what_is_not_known_is_let_pass(data: bytes) -> None:
    events, raw = read([b"data: " + data + b"\n\n", sse_event("message_stop")], "text/event-stream")
    assert events == [Finished(False)]
    assert raw.startswith(b"data: " + data)


@pytest.mark.parametrize(
    "data",
    [
        b"{",
        b'{"type":"message_start","message":"x"}',
        b'{"type":"message_start","message":{"usage":[]}}',
        b'{"type":"content_block_start","index":{},"content_block":{"type":"tool_use"}}',
        b'{"type":"content_block_start","content_block":[1]}',
        b'{"type":"message_delta","delta":5,"usage":7}',
        b'{"type":"content_block_stop","index":[]}',
        b'{"type":"content_block_delta","index":{}}',
        b'{"type":"message_delta","delta":{"stop_reason":[]},"usage":{"input_tokens":"x"}}',
    ],
)
def test_what_is_misshapen_is_let_pass_or_refused_with_a_reason(data: bytes) -> None:
    with contextlib.suppress(WireError):
        read([b"data: " + data + b"\n\n"], "text/event-stream")


@pytest.mark.parametrize(
    "odd", [b"[]", b"null", b'{"type":"message","content":[1,{"type":"tool_use","input":[]}],"usage":3}']
)
def test_odd_whole_responses(odd: bytes) -> None:
    read([odd], "application/json")


def test_a_response_that_is_no_json_is_refused() -> None:
    with pytest.raises(WireError, match="not JSON"):
        read([b"<html>"], "application/json")


def test_an_empty_response_says_nothing() -> None:
    assert read([], "application/json") == ([], b"")
    assert read([], "text/event-stream") == ([], b"")


def test_cumulative_usage_counts_once() -> None:
    stream = [
        sse_event("message_start", message={"model": "m", "usage": {"input_tokens": 10, "output_tokens": 1}}),
        sse_event("message_delta", delta={}, usage={"output_tokens": 5}),
        sse_event(
            "message_delta",
            delta={"stop_reason": "end_turn"},
            usage={"output_tokens": 9, "input_tokens": None},
        ),
        sse_event("message_stop"),
    ]
    events, _ = read(stream, "text/event-stream")
    assert [e.usage for e in events if isinstance(e, UsageSeen)][-1] == Usage(10, None, None, 9)
