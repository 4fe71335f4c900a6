"""Anthropic Messages: https://docs.anthropic.com/en/api/messages and …/messages-streaming.

A tool call is a ``tool_use`` block of an assistant message; its result is a ``tool_result`` block of the user
message that follows, with a string or a list of blocks as content and an optional ``is_error``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import msgspec
import orjson
from msgspec.structs import replace

from proxy.protocols.anthropic_responses import StreamReader, message_frame
from proxy.protocols.history import (
    SEPARATORS,
    decoded,
    length,
    offset_in,
    string,
    string_or_empty,
    value_of,
)
from proxy.protocols.json_blocks import (
    Spelling,
    content_edits,
    content_essence,
    elements,
    opens_with,
    ordered,
    parts_of,
    removal,
    take_apart,
    text_edit,
    value_edit,
)
from proxy.protocols.readers import WholeReader, list_of, object_of, text_or_none
from proxy.protocols.text import json_string
from proxy.protocols.wire import (
    REMOVE,
    Edit,
    Flag,
    Item,
    ParsedRequest,
    Part,
    PartPlan,
    ResponseReader,
    SeenCall,
    SeenResult,
    SocketFormat,
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
_block_list = msgspec.json.Decoder(list[_Block])
_SPELLING = Spelling(frozenset({"text"}), b'{"type":"text","text":', b"[]")


def _blocks(content: _Raw | bytes, at: int) -> list[tuple[Span, _Block]]:
    """The blocks of a raw content list whose ``[`` stands at ``at``, with their places."""
    whole = bytes(content)
    blocks = decoded(_block_list, whole)
    if len(blocks) == 1:
        # Nearly all that the user's side says is one block: it is all that stands between the brackets.
        start, end = 1, len(whole) - 1
        while whole[start] in SEPARATORS:
            start += 1
        while whole[end - 1] in SEPARATORS:
            end -= 1
        return [(Span(at + start, at + end), blocks[0])]
    return [(span, block) for (span, _), block in zip(elements(whole, at), blocks, strict=True)]


def _flag(raw: _Raw) -> bool | None:
    return {b"true": True, b"false": False}.get(bytes(raw))


def _may_hold_tools(content: _Raw | bytes) -> bool:
    """Whether a content list can have a tool's block: an ASCII letter can also be written as an escape."""
    raw = bytes(content)
    return raw.startswith(b"[") and (b'"tool_' in raw or b"\\u00" in raw)


_USUAL = tuple((role, b'{"role":"%s","content":' % role.encode()) for role in ("user", "assistant"))


def _parse_item(at: Span, raw: _Raw) -> Item:
    whole = bytes(raw)
    for role, opening in _USUAL:
        if whole.startswith(opening) and whole.endswith(b"]}"):
            content = whole[len(opening) : -1]
            if _may_hold_tools(content):
                # When this is one list, it is all there is of the message.
                with contextlib.suppress(WireError):
                    return _item(at, role, _blocks(content, at.start + len(opening)))
            elif content.startswith((b"[", b'"')) and b'"role"' not in content:
                return Item(at, role, (), ())
    message = decoded(_message, raw)
    if not _may_hold_tools(message.content):
        return Item(at, message.role, (), ())
    start = at.start + value_of(message.content, raw, b"content")
    return _item(at, message.role, _blocks(message.content, start))


def _item(at: Span, role: str, blocks: Sequence[tuple[Span, _Block]]) -> Item:
    calls: list[SeenCall] = []
    results: list[SeenResult] = []
    for span, block in blocks:
        if block.type == "tool_use" and role == "assistant":
            calls.append(SeenCall(string_or_empty(block.id), string_or_empty(block.name), span))
        elif block.type == "tool_result":
            results.append(SeenResult(string_or_empty(block.tool_use_id), span, _flag(block.is_error)))
    return Item(at, role, tuple(calls), tuple(results))


def _essence(raw: _Raw | bytes, depth: int) -> bytes:
    """An object without its cache mark. All else counts: a field that nobody knows here can still be what
    makes two histories different."""

    def inner(name: str, value: _Raw) -> bytes:
        # A message has blocks, a result in it has blocks, and that is as deep as it goes.
        if name != "content" or depth >= 2:
            return bytes(value)
        return content_essence(value, b"text", lambda block: _essence(block, depth + 1))

    return ordered(raw, ("cache_control",), inner)


class AnthropicMessages:
    """The Messages API, JSON and SSE."""

    name = "anthropic"

    def kind_of(self, path: str) -> Literal["generate", "count"] | None:
        if path.endswith("/v1/messages"):
            return "generate"
        return "count" if path.endswith("/v1/messages/count_tokens") else None

    def parse_request(self, body: bytes, previous: ParsedRequest | None) -> ParsedRequest:
        body, found, items = take_apart(
            body, _top.decode, "messages", previous, lambda at, raw, _: _parse_item(at, raw)
        )
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
            model=string(top.model) if opens_with(top.model, b'"') else None,
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
        return parts_of(content, result.at.start + offset_in(content, raw), _SPELLING)

    def texts(self, request: ParsedRequest, item: Item) -> tuple[Part, ...]:
        raw = request.slice(item.at)
        content = decoded(_message, raw).content
        if not length(content):
            return ()
        parts = parts_of(content, item.at.start + offset_in(content, raw), _SPELLING)
        return tuple(part for part in parts if part.text is not None)

    def edit_text(self, request: ParsedRequest, part: Part, text: str) -> Edit:
        return text_edit(request, part, text)

    def edit_result(
        self,
        request: ParsedRequest,
        result: SeenResult,
        parts: Sequence[Part],
        plan: Sequence[PartPlan],
        is_error: Flag,
    ) -> list[Edit]:
        raw = request.slice(result.at)
        block = decoded(_block, raw)
        at = request.base + result.at.start
        edits: list[Edit] = []
        if not parts and not length(block.content):
            content = b"".join(b',"content":' + json_string(text) for text in plan if isinstance(text, str))
            edits.append(Edit(at + len(raw) - 1, at + len(raw) - 1, content))
        else:
            inside = offset_in(block.content, raw) if length(block.content) else 0
            edits += content_edits(request, block.content, at + inside, parts, plan, _SPELLING)
        return edits + _edit_flag(raw, block, at, is_error)

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

    def edit_result_tool(self, request: ParsedRequest, result: SeenResult, tool: str) -> list[Edit]:
        return []

    def offered(self, tools: bytes) -> frozenset[str]:
        return frozenset(tool.name for tool in _offers.decode(tools)) if tools else frozenset()

    def opening(self, request: ParsedRequest) -> str:
        texts: list[str] = []
        if request.system:
            texts += (part.text for part in parts_of(request.system, 0, _SPELLING) if part.text)
        for item in request.items[:2]:
            if item.role != "assistant":
                texts += (part.text for part in self.texts(request, item) if part.text)
        return "\n".join(texts)

    def said(self, document: Any) -> Iterator[str]:
        answer = object_of(document)
        blocks = [*list_of(answer.get("content")), answer.get("content_block"), answer.get("delta")]
        for block in map(object_of, blocks):
            if block.get("type") in ("text", "text_delta"):
                yield text_or_none(block.get("text")) or ""

    def reader(self, content_type: str) -> ResponseReader:
        return StreamReader() if "event-stream" in content_type else WholeReader(message_frame)

    @property
    def socket(self) -> SocketFormat | None:
        return None

    def error_body(self, status: int, message: str) -> bytes:
        kind = {400: "invalid_request_error", 402: "billing_error", 413: "request_too_large"}.get(
            status, "api_error"
        )
        return orjson.dumps({"type": "error", "error": {"type": kind, "message": message}})


def _edit_flag(raw: bytes, block: _Block, at: int, is_error: Flag) -> list[Edit]:
    """Sets ``is_error``, or takes it out; a false that was not said stays unsaid."""
    if is_error is REMOVE:
        return [removal(raw, at, b"is_error", block.is_error)] if length(block.is_error) else []
    if is_error is None or bool(_flag(block.is_error)) == is_error:
        return []
    new = b"true" if is_error else b"false"
    return value_edit(raw, at, b"is_error", block.is_error, new)
