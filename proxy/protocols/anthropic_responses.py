"""Responses of Anthropic Messages, streamed (…/messages-streaming) or as one JSON document.

A tool call is whole when its block stops; counts of tokens are cumulative.
"""

from __future__ import annotations

from typing import Any

import msgspec
import orjson

from proxy.protocols.history import decoded, length, offset_in, string_or_empty
from proxy.protocols.readers import count_or_none, merged, object_of, text_or_none
from proxy.protocols.sse import SseEvent, SseReader
from proxy.protocols.text import loads, without_lone_surrogates
from proxy.protocols.wire import CallDone, Finished, Frame, NameAt, ResponseEvent, Span, Usage, UsageSeen


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

    def feed(self, chunk: bytes) -> list[Frame]:
        return [self._frame(event) for event in self._sse.feed(chunk)]

    def close(self) -> list[Frame]:
        return [self._frame(event) for event in self._sse.close()]

    def _frame(self, event: SseEvent) -> Frame:
        self._names = ()
        events = self._read(event)
        if not self._open and not self._names:
            return Frame(event.raw, events)
        passes = b'"type":"ping"' in event.data.replace(b" ", b"")
        return Frame(event.raw, events, self._names, tuple(call.tool for call in self._open.values()), passes)

    def _read(self, event: SseEvent) -> tuple[ResponseEvent, ...]:
        data = event.data
        start = data[:160]
        if not data or (b'"content_block_delta"' in start and (
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
                    self._names = _name_at(event, index)
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


def _name_at(event: SseEvent, ref: str) -> tuple[NameAt, ...]:
    """Where a ``content_block_start`` event names its tool. Data on several lines have no place in the raw
    bytes, and then there is none."""
    at = event.raw.find(event.data)
    data = without_lone_surrogates(event.data)
    name = decoded(_block, decoded(_start, data).content_block).name
    if at < 0 or not length(name):
        return ()
    start = at + offset_in(name, data)
    return (NameAt(ref, Span(start, start + length(name))),)


_Raw = msgspec.Raw
_NONE = msgspec.Raw()


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


_start = msgspec.json.Decoder(_Start)
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
                start = offset_in(block.name, raw)
                names.append(NameAt(str(index), Span(start, start + length(block.name))))
    events.append(UsageSeen(_usage(response.usage)))
    events.append(Finished(response.stop_reason == "tool_use", text_or_none(response.model)))
    return Frame(given, tuple(events), tuple(names))
