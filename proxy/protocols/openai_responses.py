"""OpenAI Responses: https://platform.openai.com/docs/api-reference/responses.

The history is ``input``: a string, or a list of items, where a message, a call and a result are items of
their own. A result has the ``call_id`` of its call and a string or a list as ``output``; a call can have more
than one (Codex adds notes to a result). Only the text says that a call failed; a patch has a ``status``.

With ``previous_response_id`` or ``conversation`` the endpoint keeps what came before and only new items are
sent; an ``item_reference`` stands for one that it keeps. Tools may stand in the first item
(``additional_tools``) and in namespaces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from proxy.protocols.history import decoded, length, offset_in
from proxy.protocols.json_blocks import (
    NONE,
    Raw,
    Spelling,
    content_edits,
    content_essence,
    elements,
    fields,
    opens_with,
    ordered,
    parts_of,
    plain_text,
    renaming,
    take_apart,
    text_edit,
    value_edit,
)
from proxy.protocols.openai_responses_socket import RESPONSES_SOCKET
from proxy.protocols.openai_responses_stream import (
    CALLS,
    ResponsesStreamReader,
    response_frame,
    spelled_by,
)
from proxy.protocols.openai_shapes import error_body
from proxy.protocols.readers import EACH, WholeReader, list_of, object_of, text_or_none, values_at
from proxy.protocols.text import json_string, without_lone_surrogates
from proxy.protocols.wire import (
    COMPACTION,
    KEEP,
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

_OPENING_ITEMS = 12
_TEXTS = frozenset({"input_text", "output_text", "text"})
_SPELLING = Spelling(_TEXTS, b'{"type":"input_text","text":', b'""')
_RESULTS = frozenset(f"{kind}_output" for kind in CALLS)
# Tools that run at the endpoint: with these alone there is nothing for a harness to run.
_ENDPOINT_TOOLS = frozenset(
    {"web_search", "web_search_preview", "file_search", "code_interpreter", "image_generation", "mcp"}
)
# What the endpoint or its client may add to an item, and what is different in every copy of one.
_NOT_ESSENTIAL = frozenset({"id", "status", "internal_chat_message_metadata_passthrough", "cache_control"})


class _Top(msgspec.Struct):
    input: Raw = NONE
    tools: Raw = NONE
    instructions: Raw = NONE
    model: Raw = NONE
    stream: Raw = NONE
    previous_response_id: Raw = NONE
    conversation: Raw = NONE
    prompt: Raw = NONE


class _Item(msgspec.Struct):
    type: Any = "message"
    role: Any = ""
    call_id: Raw = NONE
    id: Raw = NONE
    name: Raw = NONE
    content: Raw = NONE
    output: Raw = NONE
    arguments: Raw = NONE
    input: Raw = NONE
    action: Raw = NONE
    operation: Raw = NONE
    status: Raw = NONE
    tools: Raw = NONE


_top = msgspec.json.Decoder(_Top)
_item = msgspec.json.Decoder(_Item)


def _kind(item: _Item) -> str:
    return item.type if isinstance(item.type, str) else ""


def _call_id(item: _Item) -> str:
    """Local shells were once answered by the item's own id."""
    return plain_text(item.call_id) or plain_text(item.id) or ""


def _parse_item(at: Span, raw: Raw, before: Sequence[Item]) -> Item:
    item = decoded(_item, raw)
    kind = _kind(item)
    if kind in CALLS:
        tool = plain_text(item.name) or kind.removesuffix("_call")
        return Item(at, "assistant", (SeenCall(_call_id(item), tool, at),), ())
    if kind in _RESULTS:
        failed = True if kind == "apply_patch_call_output" and bytes(item.status) == b'"failed"' else None
        return Item(at, "tool", (), (SeenResult(_call_id(item), at, failed),))
    if kind == "message":
        return Item(at, item.role if isinstance(item.role, str) else "", (), ())
    # What the model said or did in another way stands before the next result as its words do.
    said = kind == "reasoning" or kind.endswith("_call")
    summary = kind in ("compaction", "compaction_summary", "context_compaction")
    return Item(at, "assistant" if said else COMPACTION if summary else kind, (), ())


def _arguments(item: _Item) -> Raw:
    return getattr(item, CALLS[_kind(item)], NONE) if _kind(item) in CALLS else NONE


def _essence_within(role: Any) -> Callable[[str, Raw], bytes]:
    text_type = b"output_text" if role == "assistant" else b"input_text"

    def inner(name: str, value: Raw) -> bytes:
        if name not in ("content", "output"):
            return bytes(value)
        return content_essence(value, text_type, _block_essence)

    return inner


def _block_essence(raw: Raw) -> bytes:
    return ordered(raw, ("cache_control", "annotations", "logprobs"), lambda _, value: bytes(value))


class _ShellChunk(msgspec.Struct):
    stdout: Raw = NONE
    stderr: Raw = NONE


_shell_chunk = msgspec.json.Decoder(_ShellChunk)


def _printed(chunk: Raw) -> str | None:
    return plain_text(decoded(_shell_chunk, chunk).stdout)


def _print(request: ParsedRequest, part: Part, entry: PartPlan) -> Iterator[Edit]:
    """Makes a shell's chunk say ``entry``; one that goes says nothing."""
    if entry is KEEP:
        return
    raw = request.slice(part.at)
    at = request.base + part.at.start
    chunk = decoded(_shell_chunk, raw)
    yield from value_edit(
        raw, at, b"stdout", chunk.stdout, json_string(entry if isinstance(entry, str) else "")
    )
    if length(chunk.stderr):
        yield from value_edit(raw, at, b"stderr", chunk.stderr, b'""')


def _run_here(tools: Raw) -> bytes:
    """A tool list; empty when all of it runs at the endpoint."""
    kinds = {plain_text(kind) for _, kind in values_at(tools, (EACH, "type"))}
    return bytes(tools) if not kinds or kinds - _ENDPOINT_TOOLS else b""


def _history_name(top: _Top) -> str | None:
    """Under what the endpoint keeps what came before, if it does."""
    name = plain_text(top.previous_response_id)
    if name is None and opens_with(top.conversation, b"{"):
        return plain_text(fields(top.conversation).get("id", NONE))
    return name or plain_text(top.conversation)


def _one_text(body: bytes) -> ParsedRequest | None:
    """A request whose input is one string, or that has none because the endpoint keeps it; else None."""
    try:
        top = _top.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    items: tuple[Item, ...] = ()
    name = _history_name(top)
    if opens_with(top.input, b'"'):
        base = offset_in(top.input, body)
        items = (Item(Span(0, length(top.input)), "user", (), ()),)
    elif not length(top.input) and (name is not None or length(top.prompt)):
        base = 0
    else:
        return None
    end = base + length(top.input)
    return ParsedRequest(
        body, base, end, items, 0, _run_here(top.tools), bytes(top.instructions), plain_text(top.model),
        bytes(top.stream) == b"true", name,
    )  # fmt: skip


def _added_tools(request: ParsedRequest) -> ParsedRequest:
    """With the tools of the first item, when there are no others."""
    if request.has_tools or not request.items or request.items[0].role != "additional_tools":
        return request
    return replace(request, tools=bytes(decoded(_item, request.slice(request.items[0].at)).tools))


class OpenAIResponses:
    """Responses, JSON and SSE, and the same over a socket."""

    name = "openai-responses"

    def kind_of(self, path: str) -> Literal["generate", "count"] | None:
        if path.endswith(("/responses", "/responses/compact")):
            return "generate"
        return "count" if path.endswith("/responses/input_tokens") else None

    def parse_request(self, body: bytes, previous: ParsedRequest | None) -> ParsedRequest:
        if previous is not None and previous.body[previous.base - 1 : previous.base] != b"[":
            previous = None  # its history was no list
        try:
            body, found, items = take_apart(body, _top.decode, "input", previous, _parse_item)
        except WireError:
            alone = _one_text(without_lone_surrogates(body))
            if alone is None:
                raise
            return alone
        if found.top is None and previous is not None:
            return replace(
                previous, body=body, base=found.base, end=found.end, items=items, shared=found.shared
            )
        top: _Top = found.top
        request = ParsedRequest(
            body=body,
            base=found.base,
            end=found.end,
            items=items,
            shared=found.shared,
            tools=_run_here(top.tools),
            system=bytes(top.instructions),
            model=plain_text(top.model),
            stream=bytes(top.stream) == b"true",
            continues=_history_name(top),
        )
        return _added_tools(request)

    def essence(self, item: bytes) -> bytes:
        if item[:1] == b'"':
            return (
                b'{"content":'
                + content_essence(Raw(item), b"input_text", _block_essence)
                + b',"role":"user"}'
            )
        found = decoded(_item, item)
        kind = _kind(found)
        leave_out = _NOT_ESSENTIAL | ({"type"} if kind == "message" else set())
        if kind == "item_reference":
            leave_out -= {"id"}
        return ordered(item, leave_out, _essence_within(found.role))

    def call_arguments(self, request: ParsedRequest, call: SeenCall) -> bytes:
        item = decoded(_item, request.slice(call.at))
        given = _arguments(item)
        text = plain_text(given)
        return bytes(given) or b"{}" if text is None else spelled_by(_kind(item), text)

    def result_parts(self, request: ParsedRequest, result: SeenResult) -> tuple[Part, ...]:
        raw = request.slice(result.at)
        item = decoded(_item, raw)
        if not length(item.output):
            return ()
        at = result.at.start + offset_in(item.output, raw)
        if _kind(item) == "shell_call_output":
            return tuple(Part(span, _printed(chunk)) for span, chunk in elements(item.output, at))
        return parts_of(item.output, at, _SPELLING)

    def texts(self, request: ParsedRequest, item: Item) -> tuple[Part, ...]:
        raw = request.slice(item.at)
        if raw[:1] == b'"':
            return parts_of(raw, item.at.start, _SPELLING)
        content = decoded(_item, raw).content
        if item.calls or item.results or not length(content):
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
        """Only patches have a flag for an error: ``is_error`` changes nothing elsewhere."""
        raw = request.slice(result.at)
        item = decoded(_item, raw)
        at = request.base + result.at.start
        if _kind(item) == "shell_call_output":
            return [
                edit
                for part, entry in zip(parts, plan, strict=False)
                for edit in _print(request, part, entry)
            ]
        edits: list[Edit] = []
        if opens_with(item.output, b'"') or opens_with(item.output, b"["):
            start = at + offset_in(item.output, raw)
            edits += content_edits(request, item.output, start, parts, plan, _SPELLING)
        else:
            texts = [json_string(text) for text in plan if isinstance(text, str)]
            edits += (
                edit for text in texts[:1] for edit in value_edit(raw, at, b"output", item.output, text)
            )
        failed = False if is_error is REMOVE else is_error
        if _kind(item) == "apply_patch_call_output" and failed not in (None, bool(result.is_error)):
            status = b'"failed"' if failed else b'"completed"'
            edits += value_edit(raw, at, b"status", item.status, status)
        return edits

    def edit_call(
        self, request: ParsedRequest, call: SeenCall, tool: str, arguments: bytes | None
    ) -> list[Edit]:
        raw = request.slice(call.at)
        item = decoded(_item, raw)
        news = [(item.name, json_string(tool))]
        given = _arguments(item)
        if arguments is not None:
            is_text = opens_with(given, b'"')
            news.append(
                (given, json_string(arguments.decode("utf-8", "surrogatepass")) if is_text else arguments)
            )
        at = request.base + call.at.start
        return [
            Edit(at + offset_in(old, raw), at + offset_in(old, raw) + length(old), new)
            for old, new in news
            if length(old)
        ]

    def edit_result_tool(self, request: ParsedRequest, result: SeenResult, tool: str) -> list[Edit]:
        raw = request.slice(result.at)
        return renaming(raw, request.base + result.at.start, decoded(_item, raw).name, tool)

    def offered(self, tools: bytes) -> frozenset[str]:
        paths = ((EACH, "name"), (EACH, "type"), (EACH, "tools", EACH, "name"))
        found = (name for path in paths for _, name in values_at(tools, path))
        return frozenset(name for raw in found if (name := plain_text(raw)) is not None)

    def opening(self, request: ParsedRequest) -> str:
        texts = [plain_text(Raw(request.system)) or ""] if request.system else []
        for item in request.items[:_OPENING_ITEMS]:
            if item.role == "assistant":
                break
            texts += (part.text for part in self.texts(request, item) if part.text)
        return "\n".join(texts)

    def said(self, document: Any) -> Iterator[str]:
        """Of a stream only its whole items: pieces of them came before, and all of them come once more."""
        answer = object_of(document)
        whole = answer.get("type") == "response.output_item.done"
        for item in map(object_of, [answer.get("item")] if whole else list_of(answer.get("output"))):
            if item.get("type") == "message":
                for part in map(object_of, list_of(item.get("content"))):
                    yield text_or_none(part.get("text")) or ""

    def reader(self, content_type: str) -> ResponseReader:
        return ResponsesStreamReader() if "event-stream" in content_type else WholeReader(response_frame)

    def error_body(self, status: int, message: str) -> bytes:
        return error_body(status, message)

    @property
    def socket(self) -> SocketFormat | None:
        return RESPONSES_SOCKET
