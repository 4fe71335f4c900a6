"""Anthropic Messages: https://docs.anthropic.com/en/api/messages and …/messages-streaming.

A tool call is a ``tool_use`` block of an assistant message; its result is a ``tool_result`` block of the user
message that follows, with a string or a list of blocks as content and an optional ``is_error``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import msgspec
import orjson

from proxy.protocols.anthropic_responses import JsonReader, StreamReader
from proxy.protocols.history import (
    SEPARATORS,
    all_items,
    cut,
    decoded,
    length,
    offset_in,
    string,
    string_or_empty,
    value_of,
)
from proxy.protocols.text import json_string, text_of, without_lone_surrogates
from proxy.protocols.wire import (
    KEEP,
    REMOVE,
    Edit,
    Item,
    ParsedRequest,
    Part,
    PartPlan,
    ResponseReader,
    SeenCall,
    SeenResult,
    Span,
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


class _Offer(msgspec.Struct):
    name: str = ""


_offers = msgspec.json.Decoder(list[_Offer])
_top = msgspec.json.Decoder(_Top)
_message = msgspec.json.Decoder(_Message)
_block = msgspec.json.Decoder(_Block)
_raws = msgspec.json.Decoder(list[_Raw])
_fields = msgspec.json.Decoder(dict[str, _Raw])


def _blocks(content: _Raw, at: int) -> list[tuple[Span, _Block]]:
    """The blocks of a raw content list whose ``[`` stands at ``at``, with their places."""
    whole = bytes(content)
    found: list[tuple[Span, _Block]] = []
    inside = 1
    for element in decoded(_raws, whole):
        while whole[inside] in SEPARATORS:
            inside += 1
        end = inside + length(element)
        found.append((Span(at + inside, at + end), decoded(_block, element)))
        inside = end
    return found


def _opens_with(raw: _Raw, char: bytes) -> bool:
    return bytes(memoryview(raw)[:1]) == char


def _flag(raw: _Raw) -> bool | None:
    return {b"true": True, b"false": False}.get(bytes(raw))


def _may_hold_tools(content: _Raw) -> bool:
    """Whether a content list can have a tool's block: an ASCII letter can also be written as an escape."""
    if not _opens_with(content, b"["):
        return False
    raw = bytes(content)
    return b'"tool_' in raw or b"\\u00" in raw


def _parse_item(at: Span, raw: _Raw) -> Item:
    message = decoded(_message, raw)
    calls: list[SeenCall] = []
    results: list[SeenResult] = []
    if _may_hold_tools(message.content):
        for span, block in _blocks(message.content, at.start + value_of(message.content, raw, b"content")):
            if block.type == "tool_use" and message.role == "assistant":
                calls.append(SeenCall(string_or_empty(block.id), string_or_empty(block.name), span))
            elif block.type == "tool_result":
                results.append(SeenResult(string_or_empty(block.tool_use_id), span, _flag(block.is_error)))
    return Item(at, message.role, tuple(calls), tuple(results))


def _parts(content: _Raw, at: int) -> tuple[Part, ...]:
    """The parts of a content that starts at ``at``: one for a string, one a block for a list."""
    if _opens_with(content, b'"'):
        return (Part(Span(at, at + length(content)), text_of(bytes(content))),)
    if _opens_with(content, b"["):
        return tuple(
            Part(span, text_of(bytes(block.text)) if block.type == "text" and length(block.text) else None)
            for span, block in _blocks(content, at)
        )
    return ()


def _essence(raw: _Raw | bytes, depth: int) -> bytes:
    """An object with its fields in the order of their names, the cache mark left out. All else counts: a
    field that nobody knows here can still be what makes two histories different."""
    fields = []
    for name, value in sorted(decoded(_fields, raw).items()):
        if name != "cache_control":
            # A message has blocks, a result in it has blocks, and that is as deep as it goes.
            inner = _content_essence(value, depth) if name == "content" and depth < 2 else bytes(value)
            fields.append(json_string(name) + b":" + inner)
    return b"{" + b",".join(fields) + b"}"


def _content_essence(content: _Raw, depth: int) -> bytes:
    """A string is one block of text."""
    if _opens_with(content, b'"'):
        return b'[{"text":' + bytes(content) + b',"type":"text"}]'
    if not _opens_with(content, b"["):
        return bytes(content)
    blocks = (
        _essence(element, depth + 1) if _opens_with(element, b"{") else bytes(element)
        for element in decoded(_raws, content)
    )
    return b"[" + b",".join(blocks) + b"]"


class AnthropicMessages:
    """The Messages API, JSON and SSE."""

    name = "anthropic"

    def kind_of(self, path: str) -> Literal["generate", "count"] | None:
        if path.endswith("/v1/messages"):
            return "generate"
        return "count" if path.endswith("/v1/messages/count_tokens") else None

    def parse_request(self, body: bytes, previous: ParsedRequest | None) -> ParsedRequest:
        try:
            found = cut(body, _top.decode, "messages", previous)
        except WireError:
            # Places are the same in what is parsed instead; what leaves is spliced from the body that came.
            body, given = without_lone_surrogates(body), body
            if body is given:
                raise
            found = cut(body, _top.decode, "messages", previous)
        new = [_parse_item(at, raw) for at, raw in found.new]
        items = all_items(previous, found.shared, new)
        if found.top is None and previous is not None:
            return replace(
                previous, body=body, base=found.base, end=found.end, items=items, shared=found.shared
            )
        top: _Top = found.top
        return ParsedRequest(
            body=body,
            base=found.base,
            end=found.end,
            items=items,
            shared=found.shared,
            tools=bytes(top.tools),
            system=bytes(top.system),
            model=string(top.model) if _opens_with(top.model, b'"') else None,
            stream=bytes(top.stream) == b"true",
        )

    def essence(self, item: bytes) -> bytes:
        return _essence(item, 0)

    def call_arguments(self, request: ParsedRequest, call: SeenCall) -> bytes:
        return bytes(decoded(_block, request.slice(call.at)).input) or b"{}"

    def result_parts(self, request: ParsedRequest, result: SeenResult) -> tuple[Part, ...]:
        raw = request.slice(result.at)
        content = decoded(_block, raw).content
        if not length(content):
            return ()
        return _parts(content, result.at.start + offset_in(content, raw))

    def texts(self, request: ParsedRequest, item: Item) -> tuple[Part, ...]:
        raw = request.slice(item.at)
        content = decoded(_message, raw).content
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
            inner = decoded(_block, raw).text
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
        block = decoded(_block, raw)
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
        texts = {i: entry for i, entry in enumerate(plan) if isinstance(entry, str)}
        if REMOVE not in plan and len(plan) == len(parts) and all(parts[i].text is not None for i in texts):
            return [self._part_edit(request, parts[i], entry) for i, entry in texts.items()]
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

    def edit_call(
        self, request: ParsedRequest, call: SeenCall, tool: str, arguments: bytes | None
    ) -> list[Edit]:
        raw = request.slice(call.at)
        block = decoded(_block, raw)
        at = request.base + call.at.start
        news = [(block.name, json_string(tool))]
        if arguments is not None:
            news.append((block.input, arguments))
        return [
            Edit(at + offset_in(old, raw), at + offset_in(old, raw) + length(old), new)
            for old, new in news
            if length(old)
        ]

    def offered(self, tools: bytes) -> frozenset[str]:
        return frozenset(tool.name for tool in _offers.decode(tools)) if tools else frozenset()

    def opening(self, request: ParsedRequest) -> str:
        texts: list[str] = []
        if request.system:
            texts += (part.text for part in _parts(_Raw(request.system), 0) if part.text)
        for item in request.items[:2]:
            if item.role != "assistant":
                texts += (part.text for part in self.texts(request, item) if part.text)
        return "\n".join(texts)

    def reader(self, content_type: str) -> ResponseReader:
        return StreamReader() if "event-stream" in content_type else JsonReader()

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
