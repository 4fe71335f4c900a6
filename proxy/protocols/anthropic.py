"""Anthropic Messages: https://docs.anthropic.com/en/api/messages and …/messages-streaming.

A tool call is a ``tool_use`` block of an assistant message; its result is a ``tool_result`` block of the user
message that follows, with a string or a list of blocks as content and an optional ``is_error``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec
import orjson

from proxy.protocols.history import SEPARATORS, all_items, cut, length, offset_in, string, value_of
from proxy.protocols.sse import SseEvent, SseReader
from proxy.protocols.text import json_string, text_of
from proxy.protocols.wire import (
    KEEP,
    REMOVE,
    CallDone,
    Edit,
    Finished,
    Frame,
    Item,
    ParsedRequest,
    Part,
    PartPlan,
    ResponseEvent,
    ResponseReader,
    SeenCall,
    SeenResult,
    Span,
    Usage,
    UsageSeen,
    WireError,
)

_Raw = msgspec.Raw
_NONE = msgspec.Raw()


class _Top(msgspec.Struct):
    messages: _Raw = _NONE
    tools: _Raw = _NONE
    system: _Raw = _NONE
    model: _Raw = _NONE
    stream: _Raw = _NONE


class _Message(msgspec.Struct):
    role: str = ""
    content: _Raw = _NONE


class _Block(msgspec.Struct):
    type: str = ""
    id: _Raw = _NONE
    name: _Raw = _NONE
    input: _Raw = _NONE
    tool_use_id: _Raw = _NONE
    content: _Raw = _NONE
    is_error: _Raw = _NONE
    text: _Raw = _NONE
    thinking: _Raw = _NONE
    signature: _Raw = _NONE
    source: _Raw = _NONE
    data: _Raw = _NONE


_top = msgspec.json.Decoder(_Top)
_message = msgspec.json.Decoder(_Message)
_block = msgspec.json.Decoder(_Block)
_raws = msgspec.json.Decoder(list[_Raw])


def _blocks(content: _Raw, at: int) -> list[tuple[Span, _Block]]:
    """The blocks of a raw content list whose ``[`` stands at ``at``, with their places."""
    whole = bytes(content)
    found: list[tuple[Span, _Block]] = []
    inside = 1
    for element in _raws.decode(whole):
        while whole[inside] in SEPARATORS:
            inside += 1
        end = inside + length(element)
        found.append((Span(at + inside, at + end), _block.decode(element)))
        inside = end
    return found


def _opens_with(raw: _Raw, char: bytes) -> bool:
    return bytes(memoryview(raw)[:1]) == char


def _flag(raw: _Raw) -> bool | None:
    return {b"true": True, b"false": False}.get(bytes(raw))


def _parse_item(at: Span, raw: _Raw) -> Item:
    message = _message.decode(raw)
    calls: list[SeenCall] = []
    results: list[SeenResult] = []
    if _opens_with(message.content, b"[") and b'"tool_' in bytes(message.content):
        for span, block in _blocks(message.content, at.start + value_of(message.content, raw, b"content")):
            if block.type == "tool_use" and message.role == "assistant":
                calls.append(SeenCall(string(block.id), string(block.name), span))
            elif block.type == "tool_result":
                results.append(SeenResult(string(block.tool_use_id), span, _flag(block.is_error)))
    return Item(at, message.role, tuple(calls), tuple(results))


def _parts(content: _Raw, at: int) -> tuple[Part, ...]:
    """The parts of a content that starts at ``at``: one for a string, one a block for a list."""
    if _opens_with(content, b'"'):
        return (Part(Span(at, at + length(content)), text_of(bytes(content))),)
    if _opens_with(content, b"["):
        return tuple(
            Part(span, text_of(bytes(block.text)) if block.type == "text" else None)
            for span, block in _blocks(content, at)
        )
    return ()


# What an item is, whatever a turn does to it: the fields in a fixed order, cache marks left out.
_FIELDS = (
    "id", "name", "input", "tool_use_id", "is_error", "text", "thinking", "signature", "source", "data",
)  # fmt: skip


def _content_essence(content: _Raw, out: list[bytes]) -> None:
    if _opens_with(content, b'"'):
        out += (b"\x00text\x00", bytes(content))
    elif _opens_with(content, b"["):
        for element in _raws.decode(content):
            block = _block.decode(element)
            out.append(b"\x00" + block.type.encode() + b"\x00")
            out += (bytes(getattr(block, name)) for name in _FIELDS)
            if length(block.content):
                _content_essence(block.content, out)
    else:
        out.append(bytes(content))


class AnthropicMessages:
    """The Messages API, JSON and SSE."""

    name = "anthropic"

    def kind_of(self, path: str) -> Literal["generate", "count"] | None:
        if path.endswith("/messages"):
            return "generate"
        return "count" if path.endswith("/messages/count_tokens") else None

    def parse_request(self, body: bytes, previous: ParsedRequest | None) -> ParsedRequest:
        found = cut(body, _top.decode, "messages", previous)
        if not _opens_with(found.history, b"["):
            raise WireError("messages is not a list")
        try:
            new = [_parse_item(at, raw) for at, raw in found.new]
        except msgspec.DecodeError as error:
            raise WireError(f"unexpected shape in messages: {error}") from None
        top: _Top = found.top
        return ParsedRequest(
            body=body,
            base=found.base,
            items=all_items(previous, found.shared, new),
            shared=found.shared,
            tools=found.tools,
            system=bytes(top.system),
            model=string(top.model) if _opens_with(top.model, b'"') else None,
            stream=bytes(top.stream) == b"true",
        )

    def essence(self, item: bytes) -> bytes:
        message = _message.decode(item)
        out = [message.role.encode()]
        _content_essence(message.content, out)
        return b"".join(out)

    def call_arguments(self, request: ParsedRequest, call: SeenCall) -> bytes:
        return bytes(_block.decode(request.slice(call.at)).input) or b"{}"

    def result_parts(self, request: ParsedRequest, result: SeenResult) -> tuple[Part, ...]:
        raw = request.slice(result.at)
        content = _block.decode(raw).content
        if not length(content):
            return ()
        return _parts(content, result.at.start + offset_in(content, raw))

    def texts(self, request: ParsedRequest, item: Item) -> tuple[Part, ...]:
        raw = request.slice(item.at)
        content = _message.decode(raw).content
        if not length(content):
            return ()
        parts = _parts(content, item.at.start + offset_in(content, raw))
        return tuple(part for part in parts if part.text is not None)

    def edit_text(self, request: ParsedRequest, part: Part, text: str) -> Edit:
        return self._part_edit(request, part, text)

    def _part_edit(self, request: ParsedRequest, part: Part, text: str) -> Edit:
        """Only the string itself is replaced; a block keeps its other fields (cache_control among them)."""
        raw = request.slice(part.at)
        start, end = 0, len(raw)
        if raw[:1] != b'"':
            inner = _block.decode(raw).text
            start = offset_in(inner, raw)
            end = start + length(inner)
        at = request.base + part.at.start
        return Edit(at + start, at + end, json_string(text))

    def edit_result(
        self,
        request: ParsedRequest,
        result: SeenResult,
        parts: Sequence[Part],
        plan: Sequence[PartPlan],
        is_error: bool | None,
    ) -> list[Edit]:
        raw = request.slice(result.at)
        block = _block.decode(raw)
        at = request.base + result.at.start
        edits: list[Edit] = []
        if not parts and not length(block.content):
            content = b"".join(b',"content":' + json_string(text) for text in plan if isinstance(text, str))
            edits.append(Edit(at + len(raw) - 1, at + len(raw) - 1, content))
        elif _opens_with(block.content, b'"'):
            edits += [
                self._part_edit(request, part, entry)
                for part, entry in zip(parts, plan, strict=True)
                if isinstance(entry, str)
            ]
        else:
            edits += self._edit_blocks(request, parts, plan, at + offset_in(block.content, raw), block)
        return edits + _edit_flag(raw, block, at, is_error)

    def _edit_blocks(
        self,
        request: ParsedRequest,
        parts: Sequence[Part],
        plan: Sequence[PartPlan],
        at: int,
        block: _Block,
    ) -> list[Edit]:
        # An empty text block is refused by the API; an empty list of blocks is not.
        plan = [REMOVE if entry == "" else entry for entry in plan]
        if REMOVE not in plan and len(plan) == len(parts):
            return [
                self._part_edit(request, part, entry)
                for part, entry in zip(parts, plan, strict=True)
                if isinstance(entry, str)
            ]
        kept: list[bytes] = []
        for i, entry in enumerate(plan):
            if entry is REMOVE:
                continue
            raw = request.slice(parts[i].at) if i < len(parts) else b""
            if entry is KEEP:
                kept.append(raw)
            elif raw and parts[i].text is not None:
                edit = self._part_edit(request, parts[i], str(entry))
                start = request.base + parts[i].at.start
                kept.append(raw[: edit.start - start] + edit.new + raw[edit.end - start :])
            else:
                kept.append(b'{"type":"text","text":' + json_string(str(entry)) + b"}")
        return [Edit(at, at + length(block.content), b"[" + b",".join(kept) + b"]")]

    def opening(self, request: ParsedRequest) -> str:
        texts: list[str] = []
        if request.system:
            texts += (part.text for part in _parts(_Raw(request.system), 0) if part.text)
        for item in request.items[:2]:
            if item.role != "assistant":
                texts += (part.text for part in self.texts(request, item) if part.text)
        return "\n".join(texts)

    def reader(self, content_type: str) -> ResponseReader:
        return _StreamReader() if "event-stream" in content_type else _JsonReader()

    def error_body(self, status: int, message: str) -> bytes:
        kind = {400: "invalid_request_error", 402: "billing_error", 413: "request_too_large"}.get(
            status, "api_error"
        )
        return orjson.dumps({"type": "error", "error": {"type": kind, "message": message}})


def _edit_flag(raw: bytes, block: _Block, at: int, is_error: bool | None) -> list[Edit]:
    """Sets ``is_error``; a false that was not said stays unsaid."""
    if is_error is None or bool(_flag(block.is_error)) == is_error:
        return []
    new = b"true" if is_error else b"false"
    if length(block.is_error):
        start = at + offset_in(block.is_error, raw)
        return [Edit(start, start + length(block.is_error), new)]
    end = at + len(raw) - 1
    return [Edit(end, end, b',"is_error":' + new)]


def _usage(value: Any) -> Usage:
    if not isinstance(value, dict):
        return Usage()
    names = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens")
    counts = (value.get(name) for name in names)
    return Usage(*(count if isinstance(count, int) else None for count in counts))


def _merged(old: Usage, new: Usage) -> Usage:
    """Streamed counts are cumulative: a later count stands for the whole, one not said again stays."""
    return Usage(*(b if b is not None else a for a, b in zip(old, new, strict=True)))


class _Open:
    """A tool_use block that is being streamed."""

    __slots__ = ("call_id", "given", "pieces", "tool")

    def __init__(self, call_id: str, tool: str, given: bytes) -> None:
        self.call_id = call_id
        self.tool = tool
        self.given = given
        self.pieces: list[str] = []

    def done(self) -> CallDone:
        return CallDone(
            self.call_id, self.tool, "".join(self.pieces).encode("utf-8", "surrogatepass") or self.given
        )


class _StreamReader:
    """SSE. Only frames that can open or close a call, or carry usage, are decoded."""

    def __init__(self) -> None:
        self._sse = SseReader()
        self._open: dict[int, _Open] = {}
        self._usage = Usage()
        self._model: str | None = None
        self._stop: str | None = None

    def feed(self, chunk: bytes) -> list[Frame]:
        return [Frame(event.raw, self._read(event)) for event in self._sse.feed(chunk)]

    def close(self) -> list[Frame]:
        return [Frame(event.raw, self._read(event)) for event in self._sse.close()]

    def _read(self, event: SseEvent) -> tuple[ResponseEvent, ...]:
        data = event.data
        if not data or b'"text_delta"' in data[:160] or b'"thinking_delta"' in data[:160]:
            return ()
        try:
            value = orjson.loads(data)
        except orjson.JSONDecodeError as error:
            raise WireError(f"an event of the response is not JSON: {error}") from None
        if not isinstance(value, dict):
            return ()
        match value.get("type"):
            case "message_start":
                message = value.get("message") or {}
                self._model = message.get("model")
                self._usage = _merged(self._usage, _usage(message.get("usage")))
                return (UsageSeen(self._usage),)
            case "content_block_start":
                block = value.get("content_block") or {}
                if block.get("type") == "tool_use":
                    given = orjson.dumps(block.get("input") or {})
                    self._open[value.get("index", 0)] = _Open(
                        str(block.get("id", "")), str(block.get("name", "")), given
                    )
            case "content_block_delta":
                opened = self._open.get(value.get("index", 0))
                if opened is not None:
                    opened.pieces.append(str((value.get("delta") or {}).get("partial_json", "")))
            case "content_block_stop":
                opened = self._open.pop(value.get("index", 0), None)
                if opened is not None:
                    return (opened.done(),)
            case "message_delta":
                self._stop = (value.get("delta") or {}).get("stop_reason") or self._stop
                self._usage = _merged(self._usage, _usage(value.get("usage")))
                return (UsageSeen(self._usage),)
            case "message_stop":
                return (Finished(self._stop == "tool_use", self._model),)
        return ()


class _JsonReader:
    """A response that comes as one JSON document."""

    def __init__(self) -> None:
        self._chunks: list[bytes] = []

    def feed(self, chunk: bytes) -> list[Frame]:
        self._chunks.append(chunk)
        return []

    def close(self) -> list[Frame]:
        raw = b"".join(self._chunks)
        self._chunks = []
        if not raw:
            return []
        try:
            value = orjson.loads(raw)
        except orjson.JSONDecodeError as error:
            raise WireError(f"the response is not JSON: {error}") from None
        return [Frame(raw, tuple(_message_events(value)))]


def _message_events(value: Any) -> list[ResponseEvent]:
    if not isinstance(value, dict) or value.get("type") != "message":
        return []
    events: list[ResponseEvent] = []
    content = value.get("content")
    for block in content if isinstance(content, list) else ():
        if isinstance(block, dict) and block.get("type") == "tool_use":
            arguments = orjson.dumps(block.get("input") or {})
            events.append(CallDone(str(block.get("id", "")), str(block.get("name", "")), arguments))
    events.append(UsageSeen(_usage(value.get("usage"))))
    events.append(Finished(value.get("stop_reason") == "tool_use", value.get("model")))
    return events
