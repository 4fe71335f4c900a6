"""Responses: what holds for every wire format, whatever it looks like."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.turns import Answer, ToolCall, Turn, Usage
from proxy.holding import Holder
from proxy.protocols.last_words import last_words
from proxy.protocols.wire import (
    CallDone,
    Finished,
    Frame,
    UsageSeen,
    WireError,
)
from proxy.protocols.wire import (
    Usage as Counts,
)
from scheduler.dialect import Dialect
from tests.proxy.protocols.kits import (
    ANTHROPIC,
    GEMINI,
    KITS,
    STREAMS,
    Kit,
    answers,
    frames_of,
)
from tests.proxy.protocols.kits import (
    answer as reply,
)
from tests.proxy.test_history import ODD

every_wire = pytest.mark.parametrize("kit", KITS.values(), ids=KITS.keys())
every_stream = pytest.mark.parametrize("kit", STREAMS.values(), ids=STREAMS.keys())
DIALECT = Dialect(name="t", title="T")
SSE = "text/event-stream; charset=utf-8"


def loads(raw: bytes) -> Any:
    return json.loads(raw.decode("utf-8", "surrogatepass"))


def events_of(frames: Sequence[Frame]) -> list[Any]:
    return [event for frame in frames for event in frame.events]


def calls_in(frames: Sequence[Frame]) -> list[CallDone]:
    return [event for event in events_of(frames) if isinstance(event, CallDone)]


def last_usage(frames: Sequence[Frame]) -> Counts:
    return [event.usage for event in events_of(frames) if isinstance(event, UsageSeen)][-1]


def spelled_calls(answer: Answer) -> list[tuple[str | None, str, Any]]:
    return [(call.call_id, call.tool, json.loads(call.raw_arguments or "{}")) for call in answer.turn.calls]


def heard_calls(frames: Sequence[Frame]) -> list[tuple[str, str, Any]]:
    return [(call.call_id, call.tool, loads(call.arguments)) for call in calls_in(frames)]


def counted(kit: Kit, usage: Usage) -> Counts:
    """Where the wire has no count of its own for what is put into the cache, it stands with the input."""
    if kit is ANTHROPIC:
        return Counts(
            usage.input_tokens, usage.cache_read_tokens, usage.cache_write_tokens, usage.output_tokens
        )
    reads = usage.cache_read_tokens or (None if kit.wire.name == "gemini" else 0)
    return Counts(usage.input_tokens + usage.cache_write_tokens, reads, None, usage.output_tokens)


@every_stream
@settings(max_examples=80)
@given(
    answer=answers(),
    cuts=st.lists(st.integers(0, 10**6), max_size=8),
    end=st.sampled_from(["\n", "\r\n", "\r"]),
)
def test_any_split_of_a_stream_says_the_same(kit: Kit, answer: Answer, cuts: list[int], end: str) -> None:
    kind = kit.endpoint.stream_type
    stream = b"".join(kit.endpoint.streamed(answer))
    if kind.startswith("text"):
        stream = stream.replace(b"\r\n", b"\n").replace(b"\n", end.encode())
    whole = frames_of(kit.wire.reader(kind), [stream])
    places = sorted({0, len(stream), *(cut % (len(stream) + 1) for cut in cuts)})
    split = frames_of(kit.wire.reader(kind), [stream[a:b] for a, b in pairwise(places)])
    assert [frame for frame in split if frame.raw] == [frame for frame in whole if frame.raw]
    assert events_of(split) == events_of(whole)
    assert b"".join(frame.raw for frame in split) == stream
    assert heard_calls(whole) == spelled_calls(answer)
    assert last_usage(whole) == counted(kit, answer.usage)
    finished = [event for event in events_of(whole) if isinstance(event, Finished)]
    assert [event.asked_for_tools for event in finished] == [bool(answer.turn.calls)]
    assert finished[0].model == "m"
    assert len({call.ref for call in calls_in(whole)}) == len(answer.turn.calls)


@every_wire
@settings(max_examples=60)
@given(answer=answers())
def test_a_document_says_the_same_as_a_stream(kit: Kit, answer: Answer) -> None:
    document = kit.endpoint.whole(answer)
    frames = frames_of(kit.wire.reader("application/json"), [document[:7], document[7:]])
    assert b"".join(frame.raw for frame in frames) == document
    streamed = frames_of(kit.wire.reader(SSE), list(kit.endpoint.streamed(answer)))
    assert heard_calls(frames) == heard_calls(streamed)
    assert last_usage(frames) == last_usage(streamed)
    assert events_of(frames)[-1] == events_of(streamed)[-1]


@every_stream
@settings(max_examples=60)
@given(answer=answers(), streamed=st.booleans())
def test_what_the_model_says_is_read_off_the_frames(kit: Kit, answer: Answer, streamed: bool) -> None:
    kind = kit.endpoint.stream_type if streamed else "application/json"
    came = list(kit.endpoint.streamed(answer)) if streamed else [kit.endpoint.whole(answer)]
    raws = [frame.raw for frame in frames_of(kit.wire.reader(kind), came)]
    assert last_words(kit.wire, kind, raws) == answer.turn.text


def renamed_answer(answer: Answer, names: dict[int, str]) -> Answer:
    calls = tuple(
        replace(call, tool=names.get(number, call.tool)) for number, call in enumerate(answer.turn.calls)
    )
    return replace(answer, turn=replace(answer.turn, calls=calls))


@every_stream
@settings(max_examples=60)
@given(answer=answers(), data=st.data(), streamed=st.booleans())
def test_a_call_renamed_everywhere_is_as_if_the_model_had_named_it_so(
    kit: Kit, answer: Answer, data: st.DataObject, streamed: bool
) -> None:
    def spelled(given: Answer) -> list[bytes]:
        return list(kit.endpoint.streamed(given)) if streamed else [kit.endpoint.whole(given)]

    names = {
        number: f"{call.tool}__locked"
        for number, call in enumerate(answer.turn.calls)
        if data.draw(st.booleans())
    }
    kind = kit.endpoint.stream_type if streamed else "application/json"
    frames = frames_of(kit.wire.reader(kind), spelled(answer))
    holder = Holder(lambda _tool: False)
    for number, call in enumerate(calls_in(frames)):
        if number in names:
            holder.rename(call.ref, names[number])
    passed = [piece for frame in frames for piece in holder.take(frame)]
    assert b"".join(passed) == b"".join(spelled(renamed_answer(answer, names)))


HARMLESS = '{"command": ":"}'


@every_stream
@settings(max_examples=60)
@given(answer=answers(), data=st.data(), streamed=st.booleans())
def test_a_call_whose_arguments_are_swapped_has_the_new_ones_wherever_it_is_said(
    kit: Kit, answer: Answer, data: st.DataObject, streamed: bool
) -> None:
    kind = kit.endpoint.stream_type if streamed else "application/json"
    came = list(kit.endpoint.streamed(answer)) if streamed else [kit.endpoint.whole(answer)]
    frames = frames_of(kit.wire.reader(kind), came)
    holder = Holder(lambda _tool: True)
    swapped: set[int] = set()
    passed: list[bytes] = []
    number = 0
    for frame in frames:
        for event in frame.events:
            if isinstance(event, CallDone):
                if loads(event.arguments) and data.draw(st.booleans()):
                    assert holder.can_swap(event.ref, [frame], event.arguments)
                    holder.swap(event.ref, HARMLESS)
                    swapped.add(number)
                number += 1
        passed += holder.take(frame)
    passed += holder.release()
    left = b"".join(passed)
    heard = heard_calls(frames_of(kit.wire.reader(kind), [left]))
    wanted = [
        (call_id, tool, json.loads(HARMLESS) if number in swapped else arguments)
        for number, (call_id, tool, arguments) in enumerate(heard_calls(frames))
    ]
    assert heard == wanted
    if not swapped:
        assert left == b"".join(came)
    # Not in any other place of the response either, such as the response as a whole at the end of a stream.
    for number, call in enumerate(answer.turn.calls):
        spelled = json.dumps(call.raw_arguments, ensure_ascii=False).encode()
        if number in swapped and not any(
            other.raw_arguments == call.raw_arguments
            for place, other in enumerate(answer.turn.calls)
            if place not in swapped
        ):
            assert spelled not in left


@every_stream
def test_a_call_of_which_a_part_has_gone_on_is_not_swapped(kit: Kit) -> None:
    long = json.dumps({"command": "make " * 40})
    turn = Turn("", (ToolCall("bash", {}, "call_0", long),))
    frames = frames_of(kit.wire.reader(kit.endpoint.stream_type), list(kit.endpoint.streamed(reply(turn))))
    done = next(i for i, frame in enumerate(frames) if calls_in([frame]))
    (call,) = calls_in(frames)
    assert Holder(lambda _tool: False).can_swap(call.ref, frames[: done + 1], call.arguments)
    said = [i for i, frame in enumerate(frames[: done + 1]) if frame.arguments]
    if len(said) > 1:
        behind = [frame for i, frame in enumerate(frames[: done + 1]) if i != said[0]]
        assert not Holder(lambda _tool: False).can_swap(call.ref, behind, call.arguments)


@every_stream
@settings(max_examples=60)
@given(answer=answers())
def test_a_call_is_open_from_its_first_frame_until_it_is_whole(kit: Kit, answer: Answer) -> None:
    frames = frames_of(kit.wire.reader(kit.endpoint.stream_type), list(kit.endpoint.streamed(answer)))
    named: set[str] = set()
    whole: set[str] = set()
    for frame in frames:
        named |= {place.ref for place in frame.names}
        whole |= {event.ref for event in frame.events if isinstance(event, CallDone)}
        assert len(frame.open_tools) == len(named - whole)
        for place in frame.names:
            assert loads(frame.raw[place.at.start : place.at.end]) in ("read", "bash", "edit")
    assert named == whole == {call.ref for call in calls_in(frames)}


@every_stream
@settings(max_examples=60)
@given(answer=answers(), data=st.data())
def test_what_is_held_goes_on_under_another_name_and_nothing_before_it_is_known(
    kit: Kit, answer: Answer, data: st.DataObject
) -> None:
    held = {tool for tool in ("read", "bash", "edit") if data.draw(st.booleans())}
    names = {
        number: f"{call.tool}__locked" for number, call in enumerate(answer.turn.calls) if call.tool in held
    }
    stream = list(kit.endpoint.streamed(answer))
    holder = Holder(lambda tool: tool in held)
    passed, number = [], 0
    for frame in frames_of(kit.wire.reader(kit.endpoint.stream_type), stream):
        for event in frame.events:
            if isinstance(event, CallDone):
                if number in names:
                    assert holder.can_rename(event.ref, [frame])
                    holder.rename(event.ref, names[number])
                number += 1
        passed += holder.take(frame)
    passed += holder.release()
    assert b"".join(passed) == b"".join(kit.endpoint.streamed(renamed_answer(answer, names)))


@every_stream
@settings(max_examples=60)
@given(answer=answers(), keep=st.integers(0, 10**6))
def test_a_stream_that_is_cut_loses_no_byte(kit: Kit, answer: Answer, keep: int) -> None:
    stream = b"".join(kit.endpoint.streamed(answer))
    cut = stream[: keep % len(stream)]
    frames = frames_of(kit.wire.reader(kit.endpoint.stream_type), [cut])
    assert b"".join(frame.raw for frame in frames) == cut
    heard = heard_calls(frames)
    assert heard == spelled_calls(answer)[: len(heard)]


@every_stream
@settings(max_examples=100)
@given(event=ODD, streamed=st.booleans())
def test_what_is_not_known_is_let_pass_or_refused(kit: Kit, event: bytes, streamed: bool) -> None:
    kind = kit.endpoint.stream_type if streamed else "application/json"
    raw = (
        b"data: " + event.replace(b"\r", b" ").replace(b"\n", b" ") + b"\n\n"
        if kind.startswith("text")
        else event
    )
    try:
        frames = frames_of(kit.wire.reader(kind), [raw])
    except WireError:
        return
    assert b"".join(frame.raw for frame in frames) == raw


@every_stream
def test_an_empty_response_says_nothing(kit: Kit) -> None:
    assert frames_of(kit.wire.reader("application/json"), []) == []
    assert frames_of(kit.wire.reader(SSE), [b""]) == []


@every_wire
@pytest.mark.parametrize("raw", [b"<html>no</html>", b'{"a":', b"["])
def test_a_response_that_is_no_json_is_refused(kit: Kit, raw: bytes) -> None:
    if kit is GEMINI and raw == b"[":
        return  # the beginning of a stream that was cut
    with pytest.raises(WireError, match="JSON"):
        frames_of(kit.wire.reader("application/json"), [raw])
    with pytest.raises(WireError, match="JSON"):
        frames_of(kit.wire.reader(SSE), [b"data: " + raw + b"\n\n"])


@every_wire
def test_errors_have_the_protocols_own_shape(kit: Kit) -> None:
    mine = json.loads(kit.wire.error_body(400, "no"))
    theirs = json.loads(kit.endpoint.error(400, "no"))
    assert mine == theirs


@every_wire
@settings(max_examples=20)
@given(answer=answers())
def test_a_gateway_may_end_any_stream_as_openai_does(kit: Kit, answer: Answer) -> None:
    stream = [*kit.endpoint.streamed(answer), b"data: [DONE]\n\n"]
    frames = frames_of(kit.wire.reader(SSE), stream)
    assert b"".join(frame.raw for frame in frames) == b"".join(stream)
    assert events_of(frames) == events_of(frames_of(kit.wire.reader(SSE), stream[:-1]))
