"""OpenAI Chat Completions: https://platform.openai.com/docs/api-reference/chat.

A tool call stands in ``tool_calls`` of an assistant message, its arguments as JSON inside a string. Its
result is a message of its own: the role ``tool``, the call's id, and a string or a list of parts. Nothing but
the text says that a call failed. Before there were tools, a message had one ``function_call`` without an id,
answered by a message with the role ``function``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from proxy.protocols.history import decoded, length, offset_in, string_or_empty, value_of
from proxy.protocols.json_blocks import (
    NONE,
    Raw,
    Spelling,
    answered_call,
    content_edits,
    content_essence,
    elements,
    opens_with,
    ordered,
    parts_of,
    plain_text,
    renaming,
    take_apart,
    text_edit,
    value_edit,
)
from proxy.protocols.openai_chat_stream import ChatStreamReader, completion_frame
from proxy.protocols.openai_shapes import error_body
from proxy.protocols.readers import (
    EACH,
    WholeReader,
    list_of,
    object_of,
    spelled_arguments,
    text_or_none,
    values_at,
)
from proxy.protocols.text import json_string
from proxy.protocols.wire import (
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
)

_OPENING_ITEMS = 8
# A list without any part is refused; an empty text is not.
_SPELLING = Spelling(frozenset({"text"}), b'{"type":"text","text":', b'""')


class _Top(msgspec.Struct):
    messages: Raw = NONE
    tools: Raw = NONE
    functions: Raw = NONE
    model: Raw = NONE
    stream: Raw = NONE


class _Message(msgspec.Struct):
    role: Any = ""
    content: Raw = NONE
    tool_calls: Raw = NONE
    function_call: Raw = NONE
    tool_call_id: Raw = NONE
    name: Raw = NONE


class _Call(msgspec.Struct):
    """A call, or the function of one: both have a name in it somewhere."""

    id: Raw = NONE
    function: Raw = NONE
    custom: Raw = NONE
    name: Raw = NONE
    arguments: Raw = NONE
    input: Raw = NONE


_top = msgspec.json.Decoder(_Top)
_message = msgspec.json.Decoder(_Message)
_call = msgspec.json.Decoder(_Call)


def _role(message: _Message) -> str:
    return message.role if isinstance(message.role, str) else ""


def _said(raw: Raw | bytes) -> _Call:
    """The part of a call with its name and arguments."""
    call = decoded(_call, raw)
    inner = call.function if opens_with(call.function, b"{") else call.custom
    return decoded(_call, inner) if opens_with(inner, b"{") else call


def _parse_item(at: Span, raw: Raw, before: Sequence[Item]) -> Item:
    message = decoded(_message, raw)
    role = _role(message)
    calls: list[SeenCall] = []
    results: list[SeenResult] = []
    if role == "assistant":
        if opens_with(message.tool_calls, b"["):
            start = at.start + value_of(message.tool_calls, raw, b"tool_calls")
            calls += (_seen_call(span, call) for span, call in elements(message.tool_calls, start))
        if opens_with(message.function_call, b"{"):
            start = at.start + offset_in(message.function_call, raw)
            span = Span(start, start + length(message.function_call))
            calls.append(_seen_call(span, message.function_call))
    elif role == "tool":
        results.append(SeenResult(plain_text(message.tool_call_id) or "", at, None))
    elif role == "function":
        place = answered_call(before, plain_text(message.name) or "", ())
        results.append(SeenResult("", at, None, place))
    return Item(at, role, tuple(calls), tuple(results))


def _seen_call(at: Span, raw: Raw) -> SeenCall:
    call_id = decoded(_call, raw).id
    return SeenCall(plain_text(call_id) or "", plain_text(_said(raw).name) or "", at)


def _message_essence(name: str, value: Raw) -> bytes:
    return content_essence(value, b"text", _part_essence) if name == "content" else bytes(value)


def _part_essence(raw: Raw) -> bytes:
    return ordered(raw, ("cache_control",), lambda _, value: bytes(value))


class OpenAIChat:
    """Chat Completions, JSON and SSE."""

    name = "openai-chat"

    def kind_of(self, path: str) -> Literal["generate", "count"] | None:
        return "generate" if path.endswith("/chat/completions") else None

    def parse_request(self, body: bytes, previous: ParsedRequest | None) -> ParsedRequest:
        body, found, items = take_apart(body, _top.decode, "messages", previous, _parse_item)
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
            tools=bytes(top.tools) or bytes(top.functions),
            system=b"",
            model=plain_text(top.model),
            stream=bytes(top.stream) == b"true",
        )

    def essence(self, item: bytes) -> bytes:
        return ordered(item, ("cache_control",), _message_essence)

    def call_arguments(self, request: ParsedRequest, call: SeenCall) -> bytes:
        said = _said(request.slice(call.at))
        given = said.arguments if length(said.arguments) else said.input
        text = plain_text(given)
        return bytes(given) or b"{}" if text is None else spelled_arguments(text)

    def result_parts(self, request: ParsedRequest, result: SeenResult) -> tuple[Part, ...]:
        return self._content_parts(request, result.at)

    def texts(self, request: ParsedRequest, item: Item) -> tuple[Part, ...]:
        if item.results:
            return ()
        return tuple(part for part in self._content_parts(request, item.at) if part.text is not None)

    def _content_parts(self, request: ParsedRequest, at: Span) -> tuple[Part, ...]:
        raw = request.slice(at)
        content = decoded(_message, raw).content
        if not length(content):
            return ()
        return parts_of(content, at.start + offset_in(content, raw), _SPELLING)

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
        """The wire has no flag for an error: ``is_error`` changes nothing."""
        raw = request.slice(result.at)
        content = decoded(_message, raw).content
        at = request.base + result.at.start
        if opens_with(content, b'"') or opens_with(content, b"["):
            return content_edits(request, content, at + offset_in(content, raw), parts, plan, _SPELLING)
        texts = [json_string(text) for text in plan if isinstance(text, str)]
        return [edit for text in texts[:1] for edit in value_edit(raw, at, b"content", content, text)]

    def edit_call(
        self, request: ParsedRequest, call: SeenCall, tool: str, arguments: bytes | None
    ) -> list[Edit]:
        raw = request.slice(call.at)
        said = _said(raw)
        at = request.base + call.at.start
        news = [(said.name, tool)]
        if arguments is not None:
            given = said.arguments if length(said.arguments) else said.input
            news.append((given, arguments.decode("utf-8", "surrogatepass")))
        return [
            Edit(at + offset_in(old, raw), at + offset_in(old, raw) + length(old), json_string(new))
            for old, new in news
            if length(old)
        ]

    def edit_result_tool(self, request: ParsedRequest, result: SeenResult, tool: str) -> list[Edit]:
        raw = request.slice(result.at)
        return renaming(raw, request.base + result.at.start, decoded(_message, raw).name, tool)

    def offered(self, tools: bytes) -> frozenset[str]:
        found = [
            name for kind in ("function", "custom") for _, name in values_at(tools, (EACH, kind, "name"))
        ]
        found += (name for _, name in values_at(tools, (EACH, "name")))
        return frozenset(map(string_or_empty, found))

    def opening(self, request: ParsedRequest) -> str:
        texts: list[str] = []
        for item in request.items[:_OPENING_ITEMS]:
            if item.role == "assistant":
                break
            texts += (part.text for part in self.texts(request, item) if part.text)
        return "\n".join(texts)

    def said(self, document: Any) -> Iterator[str]:
        for choice in map(object_of, list_of(object_of(document).get("choices"))):
            for part in (object_of(choice.get("message")), object_of(choice.get("delta"))):
                yield text_or_none(part.get("content")) or ""

    def reader(self, content_type: str) -> ResponseReader:
        return ChatStreamReader() if "event-stream" in content_type else WholeReader(completion_frame)

    def error_body(self, status: int, message: str) -> bytes:
        return error_body(status, message)

    @property
    def socket(self) -> SocketFormat | None:
        return None
