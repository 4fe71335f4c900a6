"""Responses of Anthropic Messages, streamed (…/messages-streaming) or as one JSON document.

A tool call is whole when its block stops; counts of tokens are cumulative.
"""

from __future__ import annotations

from typing import Any

import msgspec
import orjson

from proxy.protocols.history import decoded, length, offset_in, string_or_empty
from proxy.protocols.readers import (
    arguments_at,
    count_or_none,
    data_at,
    merged,
    name_at,
    object_of,
    text_or_none,
)
from proxy.protocols.sse import SseEvent, SseReader
from proxy.protocols.text import loads, without_lone_surrogates
from proxy.protocols.wire import (
    ArgumentsAt,
    CallDone,
    Finished,
    Frame,
    NameAt,
    ResponseEvent,
    Usage,
    UsageSeen,
)


def _usage(value: Any) -> Usage:
    names = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens")
    counts = (object_of(value).get(name) for name in names)
    return Usage(*(count_or_none(count) for count in counts))


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
        if not self._open and not self._names:
            return Frame(event.raw, events)
        passes = b'"type":"ping"' in event.data.replace(b" ", b"")
        tools = tuple(call.tool for call in self._open.values())
        return Frame(event.raw, events, self._names, tools, passes, self._arguments)

    def _read(self, event: SseEvent) -> tuple[ResponseEvent, ...]:
        data = event.data
        start = data[:160]
        if not event.says_something or (b'"content_block_delta"' in start and (
            b'"text_delta"' in start or b'"thinking_delta"' in start
        )):  # fmt: skip
            return ()
        value = object_of(loads(data, "an event of the response"))
        index = str(value.get("index", 0))
        match value.get("type"):
            case "message_start":
                message = object_of(value.get("message"))
                self._model = text_or_none(message.get("model"))
                self._usage = merged(self._usage, _usage(message.get("usage")))
                return (UsageSeen(self._usage),)
            case "content_block_start":
                block = object_of(value.get("content_block"))
                if block.get("type") == "tool_use":
                    self._names, self._arguments = _places(event, index)
                    self._open[index] = _Open(
                        index,
                        str(block.get("id", "")),
                        str(block.get("name", "")),
                        orjson.dumps(block.get("input") or {}),
                    )
            case "content_block_delta":
                opened = self._open.get(index)
                piece = text_or_none(object_of(value.get("delta")).get("partial_json"))
                if opened is not None and piece:
                    opened.pieces.append(piece)
                    self._arguments = _piece_at(event, index)
            case "content_block_stop":
                opened = self._open.pop(index, None)
                if opened is not None:
                    return (opened.done(),)
            case "message_delta":
                self._stop = text_or_none(object_of(value.get("delta")).get("stop_reason")) or self._stop
                self._usage = merged(self._usage, _usage(value.get("usage")))
                return (UsageSeen(self._usage),)
            case "message_stop":
                return (Finished(self._stop == "tool_use", self._model),)
        return ()


_Raw = msgspec.Raw
_NONE = msgspec.Raw()


def _places(event: SseEvent, ref: str) -> tuple[tuple[NameAt, ...], tuple[ArgumentsAt, ...]]:
    """Where a ``content_block_start`` event names its tool, and where it has arguments already. Data on
    several lines have no place in the raw bytes, and then there is none."""
    at = data_at(event)
    data = without_lone_surrogates(event.data)
    block = decoded(_block, decoded(_start, data).content_block)
    if at < 0:
        return (), ()
    names = (name_at(ref, block.name, data, at),) if length(block.name) else ()
    return names, () if _is_empty(block.input) else (_value_at(ref, block.input, data, at),)


def _is_empty(value: _Raw) -> bool:
    """Whether a block comes without arguments, as one does that streams them."""
    return not length(value) or not bytes(value)[1:-1].strip()


def _value_at(ref: str, value: _Raw, whole: bytes, at: int = 0) -> ArgumentsAt:
    return ArgumentsAt(ref, name_at(ref, value, whole, at).at, "value")


def _piece_at(event: SseEvent, ref: str) -> tuple[ArgumentsAt, ...]:
    at = data_at(event)
    data = without_lone_surrogates(event.data)
    piece = decoded(_piece, decoded(_delta, data).delta).partial_json
    return tuple(arguments_at(ref, piece, data, at, "piece")) if at >= 0 else ()


class _Response(msgspec.Struct):
    type: Any = None
    model: Any = None
    content: _Raw = _NONE
    usage: Any = None
    stop_reason: Any = None


class _Block(msgspec.Struct):
    type: Any = None
    id: _Raw = _NONE
    name: _Raw = _NONE
    input: _Raw = _NONE


class _Start(msgspec.Struct):
    content_block: _Raw = _NONE


class _Delta(msgspec.Struct):
    delta: _Raw = _NONE


class _Piece(msgspec.Struct):
    partial_json: _Raw = _NONE


_start = msgspec.json.Decoder(_Start)
_delta = msgspec.json.Decoder(_Delta)
_piece = msgspec.json.Decoder(_Piece)
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
