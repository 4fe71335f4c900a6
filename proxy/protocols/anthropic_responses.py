"""Responses of Anthropic Messages, streamed (…/messages-streaming) or as one JSON document.

A tool call is whole when its block stops; counts of tokens are cumulative.
"""

from __future__ import annotations

from typing import Any

import msgspec
import orjson

from proxy.protocols.history import decoded, length, offset_in, string_or_empty
from proxy.protocols.json_blocks import opens_with
from proxy.protocols.readers import (
    count_or_none,
    data_at,
    merged,
    name_at,
    object_of,
    text_or_none,
)
from proxy.protocols.sse import SseEvent, SseReader
from proxy.protocols.text import loads, text_of, without_lone_surrogates
from proxy.protocols.wire import (
    ArgumentsAt,
    CallDone,
    Finished,
    Frame,
    NameAt,
    ResponseEvent,
    Span,
    Usage,
    UsageSeen,
    WireError,
)

_Raw = msgspec.Raw
_NONE = msgspec.Raw()


class _Counts(msgspec.Struct):
    input_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    output_tokens: int | None = None


_counts = msgspec.json.Decoder(_Counts)


def _usage(raw: _Raw) -> Usage:
    if not opens_with(raw, b"{"):
        return Usage()
    try:
        found = _counts.decode(raw)
    except msgspec.ValidationError:
        # One of them is no whole number: it is not said.
        said = object_of(loads(bytes(raw), "the usage"))
        found = _Counts(*(count_or_none(said.get(name)) for name in _Counts.__struct_fields__))
    return Usage(
        found.input_tokens,
        found.cache_read_input_tokens,
        found.cache_creation_input_tokens,
        found.output_tokens,
    )


class _Open:
    """A tool_use block that is being streamed."""

    __slots__ = ("call_id", "given", "pieces", "ref", "tool")

    def __init__(self, ref: str, call_id: str, tool: str, given: bytes) -> None:
        self.ref = ref
        self.call_id = call_id
        self.tool = tool
        self.given = given
        self.pieces: list[str] = []

    def done(self) -> CallDone:
        arguments = "".join(self.pieces).encode("utf-8", "surrogatepass") or self.given
        return CallDone(self.call_id, self.tool, arguments, self.ref)


class StreamReader:
    """SSE. Only frames that can open or close a call, or carry usage, are decoded."""

    def __init__(self) -> None:
        self._sse = SseReader()
        self._open: dict[str, _Open] = {}
        self._tools: tuple[str, ...] = ()
        self._usage = Usage()
        self._model: str | None = None
        self._stop: str | None = None
        self._names: tuple[NameAt, ...] = ()
        self._arguments: tuple[ArgumentsAt, ...] = ()

    def feed(self, chunk: bytes) -> list[Frame]:
        return [self._frame(event) for event in self._sse.feed(chunk)]

    def close(self) -> list[Frame]:
        return [self._frame(event) for event in self._sse.close()]

    def _frame(self, event: SseEvent) -> Frame:
        self._names, self._arguments = (), ()
        events = self._read(event)
        if not self._tools and not self._names:
            return Frame(event.raw, events)
        passes = b"ping" in event.data and b'"type":"ping"' in event.data.replace(b" ", b"")
        return Frame(event.raw, events, self._names, self._tools, passes, self._arguments)

    def _read(self, event: SseEvent) -> tuple[ResponseEvent, ...]:
        data = event.data
        start = data[:160]
        if not event.says_something or (b'"content_block_delta"' in start and (
            b'"text_delta"' in start or b'"thinking_delta"' in start
        )):  # fmt: skip
            return ()
        if not self._open and data.startswith(_OF_A_BLOCK) and not _could_open_a_call(data):
            return ()
        data = without_lone_surrogates(data)
        value = _event_in(data)
        match value.type:
            case "content_block_delta":
                opened = self._open.get(str(value.index))
                if opened is not None:
                    self._piece(event, opened, _object(_delta, value.delta).partial_json, data)
            case "content_block_start":
                self._start(event, str(value.index), _object(_block, value.content_block), data)
            case "content_block_stop":
                opened = self._open.pop(str(value.index), None)
                if opened is not None:
                    self._tools = tuple(call.tool for call in self._open.values())
                    return (opened.done(),)
            case "message_start":
                head = _object(_head, value.message)
                self._model = text_or_none(head.model)
                self._usage = merged(self._usage, _usage(head.usage))
                return (UsageSeen(self._usage),)
            case "message_delta":
                self._stop = text_or_none(_object(_delta, value.delta).stop_reason) or self._stop
                self._usage = merged(self._usage, _usage(value.usage))
                return (UsageSeen(self._usage),)
            case "message_stop":
                return (Finished(self._stop == "tool_use", self._model),)
        return ()

    def _start(self, event: SseEvent, ref: str, block: _Block, data: bytes) -> None:
        """A block begins. Data on several lines have no place in the raw bytes, nor has what is in them."""
        if block.type != "tool_use":
            return
        is_empty = _is_empty(block.input)
        given = b"{}" if is_empty else orjson.dumps(loads(bytes(block.input), "the input of a call") or {})
        self._open[ref] = _Open(ref, _said(block.id), _said(block.name), given)
        self._tools = tuple(call.tool for call in self._open.values())
        at = data_at(event)
        if at >= 0:
            self._names = (name_at(ref, block.name, data, at),) if length(block.name) else ()
            self._arguments = () if is_empty else (_value_at(ref, block.input, data, at),)

    def _piece(self, event: SseEvent, opened: _Open, piece: _Raw, data: bytes) -> None:
        """A piece of a call's arguments; as the model wrote it, halves of pairs too."""
        if not opens_with(piece, b'"'):
            return
        inside = offset_in(piece, data)
        text = text_of(event.data[inside : inside + length(piece)])
        if text:
            opened.pieces.append(text)
            at = data_at(event)
            if at >= 0:
                place = Span(at + inside, at + inside + length(piece))
                self._arguments = (ArgumentsAt(opened.ref, place, "piece"),)


# As the API writes them: with no call open, only the start of one matters.
_OF_A_BLOCK = tuple(b'{"type":"content_block_%s"' % kind for kind in (b"start", b"delta", b"stop"))


def _could_open_a_call(data: bytes) -> bool:
    """Whether an event could be the start of a call: letters can also be written as escapes."""
    return b"tool_use" in data or b"\\u" in data


def _event_in(data: bytes) -> _Event:
    """An event of a stream; an empty one for what is no object."""
    try:
        return _event.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        if isinstance(loads(data, "an event of the response"), dict):
            raise WireError("an event of the response is not JSON") from None
        return _Event()


def _object[T](decoder: msgspec.json.Decoder[T], raw: _Raw) -> T:
    """What ``decoder`` makes of an object; of anything else, what it makes of an empty one."""
    return decoded(decoder, raw if opens_with(raw, b"{") else b"{}")


def _said(value: _Raw) -> str:
    return str(loads(bytes(value), "a name")) if length(value) else ""


def _is_empty(value: _Raw) -> bool:
    """Whether a block comes without arguments, as one does that streams them."""
    return not length(value) or not bytes(value)[1:-1].strip()


def _value_at(ref: str, value: _Raw, whole: bytes, at: int = 0) -> ArgumentsAt:
    return ArgumentsAt(ref, name_at(ref, value, whole, at).at, "value")


class _Event(msgspec.Struct):
    type: Any = None
    index: Any = 0
    message: _Raw = _NONE
    content_block: _Raw = _NONE
    delta: _Raw = _NONE
    usage: _Raw = _NONE


class _Head(msgspec.Struct):
    model: Any = None
    usage: _Raw = _NONE


class _Delta(msgspec.Struct):
    partial_json: _Raw = _NONE
    stop_reason: Any = None


class _Response(msgspec.Struct):
    type: Any = None
    model: Any = None
    content: _Raw = _NONE
    usage: _Raw = _NONE
    stop_reason: Any = None


class _Block(msgspec.Struct):
    type: Any = None
    id: _Raw = _NONE
    name: _Raw = _NONE
    input: _Raw = _NONE


_event = msgspec.json.Decoder(_Event)
_head = msgspec.json.Decoder(_Head)
_delta = msgspec.json.Decoder(_Delta)
_response = msgspec.json.Decoder(_Response)
_raws = msgspec.json.Decoder(list[_Raw])
_block = msgspec.json.Decoder(_Block)


def message_frame(given: bytes) -> Frame:
    raw = without_lone_surrogates(given)
    if not isinstance(loads(raw, "the response"), dict):
        return Frame(given, ())
    response = decoded(_response, raw)
    if response.type != "message":
        return Frame(given, ())
    events: list[ResponseEvent] = []
    names: list[NameAt] = []
    places: list[ArgumentsAt] = []
    content = response.content
    blocks = decoded(_raws, content) if bytes(content).startswith(b"[") else []
    for index, element in enumerate(blocks):
        block = decoded(_block, element) if bytes(element).startswith(b"{") else _Block()
        if block.type == "tool_use":
            # The arguments as the model spelled them: a number can have more digits than a double holds.
            at = offset_in(block.input, raw) if length(block.input) else 0
            arguments = given[at : at + length(block.input)] or b"{}"
            call_id, tool = string_or_empty(block.id), string_or_empty(block.name)
            events.append(CallDone(call_id, tool, arguments, str(index)))
            if length(block.name):
                names.append(name_at(str(index), block.name, raw))
            if length(block.input):
                places.append(_value_at(str(index), block.input, raw))
    events.append(UsageSeen(_usage(response.usage)))
    events.append(Finished(response.stop_reason == "tool_use", text_or_none(response.model)))
    return Frame(given, tuple(events), tuple(names), arguments=tuple(places))
