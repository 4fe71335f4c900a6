"""Gemini: https://ai.google.dev/api/generate-content and https://ai.google.dev/gemini-api/docs/function-calling.

The history is ``contents``. A call is a ``functionCall`` part of what the role ``model`` said; its result is
a ``functionResponse`` part of the content that follows, where all calls of an answer are answered together.
Ids may be absent: then a response belongs to a call by name and order. What a tool said stands in an object,
under ``output``, or under ``error`` when it failed; pictures stand beside it, in the response or as the next
parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

import msgspec
import orjson
from msgspec.structs import replace

from proxy.protocols.gemini_stream import GeminiDocumentReader, GeminiEventReader
from proxy.protocols.history import decoded, length, offset_in
from proxy.protocols.json_blocks import (
    NONE,
    Raw,
    answered_call,
    elements,
    fields,
    opens_with,
    ordered,
    plain_text,
    raws,
    take_apart,
    text_edit,
    value_edit,
)
from proxy.protocols.readers import EACH, list_of, object_of, text_or_none, values_at
from proxy.protocols.text import json_string
from proxy.protocols.wire import (
    KEEP,
    REMOVE,
    Edit,
    Flag,
    Item,
    ParsedRequest,
    Part,
    PartPlan,
    Place,
    ResponseReader,
    SeenCall,
    SeenResult,
    SocketFormat,
    Span,
)

_OPENING_ITEMS = 4
_STATUS = {400: "INVALID_ARGUMENT", 402: "FAILED_PRECONDITION", 429: "RESOURCE_EXHAUSTED"}
_SIGNATURES = ("thoughtSignature", "thought_signature")


class _Top(msgspec.Struct, rename={"system": "systemInstruction", "counted": "generateContentRequest"}):
    """``counted`` and ``request`` hold the request itself where it is wrapped: in some countTokens, and where
    Google's own tools log in."""

    contents: Raw = NONE
    tools: Raw = NONE
    system: Raw = NONE
    system_instruction: Raw = NONE
    counted: Raw = NONE
    request: Raw = NONE


class _Content(msgspec.Struct):
    role: Any = ""
    parts: Raw = NONE


class _Part(msgspec.Struct, rename={"call": "functionCall", "response": "functionResponse"}):
    """Both ways to spell a field's name are read (https://protobuf.dev/programming-guides/json)."""

    call: Raw = NONE
    response: Raw = NONE
    function_call: Raw = NONE
    function_response: Raw = NONE
    text: Raw = NONE
    thought: Raw = NONE
    inlineData: Raw = NONE
    inline_data: Raw = NONE
    fileData: Raw = NONE
    file_data: Raw = NONE

    @property
    def is_media(self) -> bool:
        """Whether it is a picture or the like, which can belong to a result before it."""
        return any(map(length, (self.inlineData, self.inline_data, self.fileData, self.file_data)))


class _Call(msgspec.Struct):
    """A call or a response."""

    id: Raw = NONE
    name: Raw = NONE
    args: Raw = NONE
    response: Raw = NONE
    parts: Raw = NONE


_top = msgspec.json.Decoder(_Top)
_content = msgspec.json.Decoder(_Content)
_part = msgspec.json.Decoder(_Part)
_call = msgspec.json.Decoder(_Call)


def _call_in(part: _Part) -> Raw:
    return part.call if length(part.call) else part.function_call


def _response_in(part: _Part) -> Raw:
    return part.response if length(part.response) else part.function_response


def _id(found: _Call) -> str:
    """The id that the model knows: when Gemini CLI has its loop detection look at the last turns, it writes
    the tool's name before every id."""
    return (plain_text(found.id) or "").removeprefix(f"{plain_text(found.name)}__")


def _names(found: _Call, tool: str) -> list[tuple[Raw, bytes]]:
    """The places that name the tool of a call or response, and what makes them name ``tool``: its name, and
    an id that the harness made out of it."""
    name, call_id = plain_text(found.name), plain_text(found.id)
    news = [(found.name, json_string(tool))] if name is not None else []
    if name and call_id is not None and call_id.startswith(name):
        news.append((found.id, json_string(tool + call_id[len(name) :])))
    return news


def _parts_of(content: _Content, raw: Raw | bytes, at: int) -> list[tuple[Span, Raw, _Part]]:
    if not opens_with(content.parts, b"["):
        return []
    start = at + offset_in(content.parts, raw)
    return [(span, element, decoded(_part, element)) for span, element in elements(content.parts, start)]


def _parse_item(at: Span, raw: Raw, before: Sequence[Item]) -> Item:
    content = decoded(_content, raw)
    role = content.role if isinstance(content.role, str) else ""
    calls: list[SeenCall] = []
    results: list[SeenResult] = []
    places: list[Place] = []
    open_result = False
    for span, element, part in _parts_of(content, raw, at.start):
        call, response = _call_in(part), _response_in(part)
        if role == "model" and length(call):
            start = span.start + offset_in(call, element)
            found = decoded(_call, call)
            seen = Span(start, start + length(call))
            calls.append(SeenCall(_id(found), plain_text(found.name) or "", seen))
        elif length(response):
            found = decoded(_call, response)
            call_id = _id(found)
            place = None
            if not call_id:
                place = answered_call(before, plain_text(found.name) or "", places)
                places += [place] if place is not None else []
            results.append(SeenResult(call_id, span, _said(found.response).failed, place))
        elif part.is_media and open_result:
            # A picture that a tool gave follows its response.
            results[-1] = results[-1]._replace(at=Span(results[-1].at.start, span.end))
        open_result = bool(length(response)) or (open_result and part.is_media)
    return Item(at, "assistant" if role == "model" else role, tuple(calls), tuple(results))


class _Said(NamedTuple):
    """What a response says: the value, under ``key`` when it is one text, else all of it."""

    key: str | None
    value: Raw
    failed: bool | None


def _said(response: Raw) -> _Said:
    if not opens_with(response, b"{"):
        return _Said(None, response, None)
    found = fields(response)
    failed = True if "error" in found and "output" not in found else None
    for key in ("output", "error", *(found if len(found) == 1 else ())):
        if key in found and opens_with(found[key], b'"'):
            return _Said(key, found[key], failed)
    return _Said(None, response, failed)


class _Result(NamedTuple):
    """A result taken apart: its ``functionResponse``, where that stands (from the history's first byte), what
    is said in it, pictures in it, and pictures behind it, each with the end of what stands before."""

    raw: bytes
    at: int
    response: _Call
    said: _Said
    inside: list[Span]
    behind: list[tuple[int, Span]]


def _result(request: ParsedRequest, result: SeenResult) -> _Result:
    # Some parts of a content, without the brackets around them.
    whole = b"[" + request.slice(result.at) + b"]"
    found = elements(whole, result.at.start - 1)
    span, first = found[0]
    inner = _response_in(decoded(_part, first))
    at, raw = span.start + offset_in(inner, first), bytes(inner)
    response = decoded(_call, raw)
    inside: list[Span] = []
    if opens_with(response.parts, b"["):
        inside = [span for span, _ in elements(response.parts, at + offset_in(response.parts, raw))]
    behind = [(found[i][0].end, found[i + 1][0]) for i in range(len(found) - 1)]
    return _Result(raw, at, response, _said(response.response), inside, behind)


def _decode(body: bytes) -> _Top:
    top = _top.decode(body)
    for wrapped in (top.counted, top.request):
        if not length(top.contents) and opens_with(wrapped, b"{"):
            return _top.decode(wrapped)
    return top


def _declared(tools: Raw | bytes) -> Iterator[str]:
    """The names of the functions that a tool list declares."""
    for spelling in ("functionDeclarations", "function_declarations"):
        for _, name in values_at(tools, (EACH, spelling, EACH, "name")):
            yield plain_text(name) or ""


def _essence_within(name: str, value: Raw) -> bytes:
    if name != "parts" or not opens_with(value, b"["):
        return bytes(value)
    parts = [ordered(part, _SIGNATURES, _part_essence) for part in decoded(raws, value)]
    # A harness that goes on with a session may send every response twice in its content.
    responses = {part for part in parts if b'"functionResponse"' in part}
    once = [part for i, part in enumerate(parts) if part not in responses or part not in parts[:i]]
    return b"[" + b",".join(once) + b"]"


def _part_essence(_: str, value: Raw) -> bytes:
    return ordered(value, (), lambda _, inner: bytes(inner)) if opens_with(value, b"{") else bytes(value)


class Gemini:
    """generateContent and streamGenerateContent, and countTokens."""

    name = "gemini"

    def kind_of(self, path: str) -> Literal["generate", "count"] | None:
        if path.endswith((":generateContent", ":streamGenerateContent")):
            return "generate"
        return "count" if path.endswith(":countTokens") else None

    def parse_request(self, body: bytes, previous: ParsedRequest | None) -> ParsedRequest:
        body, found, items = take_apart(body, _decode, "contents", previous, _parse_item)
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
            # Searches and the like run at the endpoint: without a function there is nothing to run.
            tools=bytes(top.tools) if any(_declared(top.tools)) else b"",
            system=bytes(top.system) or bytes(top.system_instruction),
            model=None,
            stream=False,
        )

    def essence(self, item: bytes) -> bytes:
        return ordered(item, (), _essence_within)

    def call_arguments(self, request: ParsedRequest, call: SeenCall) -> bytes:
        return bytes(decoded(_call, request.slice(call.at)).args) or b"{}"

    def result_parts(self, request: ParsedRequest, result: SeenResult) -> tuple[Part, ...]:
        found = _result(request, result)
        parts: list[Part] = []
        value = found.said.value
        if length(value):
            start = found.at + offset_in(value, found.raw)
            text = plain_text(value)
            text = bytes(value).decode("utf-8", "replace") if text is None else text
            parts.append(Part(Span(start, start + length(value)), text))
        parts += (Part(span, None) for span in found.inside)
        parts += (Part(span, None) for _, span in found.behind)
        return tuple(parts)

    def texts(self, request: ParsedRequest, item: Item) -> tuple[Part, ...]:
        raw = request.slice(item.at)
        return tuple(
            Part(span, plain_text(part.text))
            for span, _, part in _parts_of(decoded(_content, raw), raw, item.at.start)
            if opens_with(part.text, b'"') and bytes(part.thought) != b"true"
        )

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
        """A flag is the name under which the text stands. A text in the place of a picture becomes what the
        tool said."""
        found = _result(request, result)
        has_text = bool(length(found.said.value))
        first = plan[0] if has_text else KEEP
        media = list(plan[1:] if has_text else plan)
        texts = [entry for entry in ([first] if has_text else media) if isinstance(entry, str)]
        text = "" if first is REMOVE else next(iter(texts), None)
        edits = _edit_said(request.base, found, text, False if is_error is REMOVE else is_error)
        gone = [entry is not KEEP for entry in media]
        if any(gone[: len(found.inside)]):
            kept = [request.slice(span) for span, out in zip(found.inside, gone, strict=False) if not out]
            at = request.base + found.at + offset_in(found.response.parts, found.raw)
            edits.append(Edit(at, at + length(found.response.parts), b"[" + b",".join(kept) + b"]"))
        for (before, span), out in zip(found.behind, gone[len(found.inside) :], strict=False):
            if out:
                # With the comma in front of it.
                edits.append(Edit(request.base + before, request.base + span.end, b""))
        return edits

    def edit_call(
        self, request: ParsedRequest, call: SeenCall, tool: str, arguments: bytes | None
    ) -> list[Edit]:
        raw = request.slice(call.at)
        found = decoded(_call, raw)
        at = request.base + call.at.start
        news = _names(found, tool)
        if arguments is not None:
            news.append((found.args, arguments))
        return [
            Edit(at + offset_in(old, raw), at + offset_in(old, raw) + length(old), new)
            for old, new in news
            if length(old)
        ]

    def edit_result_tool(self, request: ParsedRequest, result: SeenResult, tool: str) -> list[Edit]:
        found = _result(request, result)
        at, news = request.base + found.at, _names(found.response, tool)
        starts = [at + offset_in(old, found.raw) for old, _ in news]
        return [Edit(start, start + length(old), new) for start, (old, new) in zip(starts, news, strict=True)]

    def offered(self, tools: bytes) -> frozenset[str]:
        return frozenset(_declared(tools))

    def opening(self, request: ParsedRequest) -> str:
        texts = []
        if request.system:
            for _, text in values_at(request.system, ("parts", EACH, "text")):
                texts.append(plain_text(text) or "")
        for item in request.items[:_OPENING_ITEMS]:
            if item.role == "assistant":
                break
            texts += (part.text for part in self.texts(request, item) if part.text)
        return "\n".join(texts)

    def said(self, document: Any) -> Iterator[str]:
        answer = object_of(document)
        answer = object_of(answer.get("response")) or answer
        for candidate in map(object_of, list_of(answer.get("candidates"))):
            for part in map(object_of, list_of(object_of(candidate.get("content")).get("parts"))):
                if part.get("thought") is not True:
                    yield text_or_none(part.get("text")) or ""

    def reader(self, content_type: str) -> ResponseReader:
        return GeminiEventReader() if "event-stream" in content_type else GeminiDocumentReader()

    def error_body(self, status: int, message: str) -> bytes:
        error = {"code": status, "message": message, "status": _STATUS.get(status, "INTERNAL")}
        return orjson.dumps({"error": error})

    @property
    def socket(self) -> SocketFormat | None:
        return None


def _edit_said(base: int, found: _Result, text: str | None, is_error: bool | None) -> list[Edit]:
    """Makes the response say ``text``, as an error or not."""
    said, at = found.said, base + found.at
    changes_flag = is_error is not None and is_error != bool(said.failed)
    key = "error" if (is_error if changes_flag else said.failed) else "output"
    if said.key is None:
        if text is None:
            return []
        new = b'{"' + key.encode() + b'":' + json_string(text) + b"}"
        return value_edit(found.raw, at, b"response", found.response.response, new)
    start = offset_in(said.value, found.raw)
    edits = [] if text is None else [Edit(at + start, at + start + length(said.value), json_string(text))]
    if changes_flag and key not in fields(found.response.response):
        # A key has no quote in it here, so the last two before the value are its own.
        end = found.raw.rindex(b'"', 0, start)
        edits.append(Edit(at + found.raw.rindex(b'"', 0, end), at + end + 1, json_string(key)))
    return edits
