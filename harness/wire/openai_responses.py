"""OpenAI Responses: https://platform.openai.com/docs/api-reference/responses, …/responses-streaming and
https://platform.openai.com/docs/guides/websocket-mode.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from harness.turns import Answer, Conversation, ToolCall, ToolOffer, ToolResult, Turn, Usage
from harness.wire.past import Past, dumps, newest, parsed, pieces, side_of, spelled

_TEXT_PIECE = 24
_INPUT_PIECE = 12
# How an item without words stands in the view.
_TRIGGER = "(compaction_trigger)"
_COMPACTION_OPENINGS = ("You are performing a CONTEXT CHECKPOINT COMPACTION", _TRIGGER)
_ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "insufficient_quota",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_exceeded",
}


class ResponsesWire:
    """``POST …/responses`` (JSON and SSE), ``…/responses/input_tokens`` and the socket at ``…/responses``."""

    name = "openai-responses"
    stream_type = "text/event-stream"
    call_prefix = "call_"

    def recognises(self, path: str, query: str) -> bool:
        """True for the paths, under any prefix."""
        return path.endswith(("/responses", "/responses/input_tokens"))

    def continues(self, body: bytes) -> str | None:
        """The ``previous_response_id`` of a request that sends only what is new."""
        found = _object(body).get("previous_response_id")
        return found if isinstance(found, str) else None

    def kept(self, before: Sequence[Any], body: bytes, answer: Answer) -> tuple[Any, ...]:
        """The items that stand before a request which goes on from ``answer``."""
        return (*before, *_items(_object(body)), *_output(answer))

    def read(self, path: str, body: bytes, before: Sequence[Any] = ()) -> Conversation:
        """ValueError when the body is not a JSON object whose input is a string or a list of items."""
        request = _object(body)
        items = [*before, *_items(request)]
        past = Past()
        for item in items:
            _take(past, item)
        view = Conversation(
            wire=self.name,
            model=str(request.get("model", "")),
            system=str(request.get("instructions") or ""),
            opening=past.opening,
            turns=past.turns,
            tools=tuple(_offers(request, items)),
            stream=request.get("stream") is True or request.get("type") == "response.create",
            bytes_in=len(body),
        )
        if path.endswith("/input_tokens"):
            return replace(view, side="count_tokens")
        if request.get("generate") is False:
            return replace(view, side="warm_up")
        compacting = any(text.startswith(_COMPACTION_OPENINGS) for text in newest(view))
        return replace(view, side=side_of(view, "compaction" if compacting else None))

    def whole(self, answer: Answer) -> bytes:
        """One response object with all its output items."""
        return dumps(_response(answer, "completed", _output(answer)))

    def streamed(self, answer: Answer) -> Iterator[bytes]:
        """The events of the response as server-sent events."""
        for event in _events(answer):
            yield b"event: " + event["type"].encode() + b"\ndata: " + dumps(event) + b"\n\n"

    def asks(self, message: bytes) -> bool:
        """Whether a message of the harness on the socket wants an answer."""
        return _object(message).get("type") == "response.create"

    def messages(self, answer: Answer) -> Iterator[bytes]:
        """The events of the response as messages of a socket."""
        for event in _events(answer):
            yield dumps(event)

    def warmed_up(self, answer: Answer) -> Answer:
        """The answer to a warm-up: an id of its own to go on from, and no output."""
        return replace(answer, message_id=f"{answer.message_id}_warm", turn=Turn())

    def answer_id(self, answer: Answer) -> str:
        """What ``continues`` says of a request that goes on from ``answer``."""
        return _response_id(answer)

    def error_message(self, status: int, message: str) -> bytes:
        """An error as a message of a socket."""
        return dumps({"type": "error", "status": status, "error": _error(status, message)})

    def token_count(self, tokens: int) -> bytes:
        """The body that ``input_tokens`` answers with."""
        return dumps({"object": "response.input_tokens", "input_tokens": tokens})

    def error(self, status: int, message: str) -> bytes:
        """``{"error": {"message", "type", "param", "code"}}``."""
        return dumps({"error": _error(status, message)})


def _error(status: int, message: str) -> dict[str, Any]:
    kind = _ERROR_TYPES.get(status, "server_error")
    return {"message": message, "type": kind, "param": None, "code": kind if status in (402, 429) else None}


def _object(body: bytes) -> dict[str, Any]:
    request = json.loads(body)
    if not isinstance(request, dict):
        raise ValueError("the body is not an object")
    return request


def _items(request: dict[str, Any]) -> list[dict[str, Any]]:
    given = request.get("input", [])
    if isinstance(given, str):
        return [{"type": "message", "role": "user", "content": given}]
    if not isinstance(given, list) or not all(isinstance(item, dict) for item in given):
        raise ValueError("input is neither a string nor a list of items")
    return given


def _take(past: Past, item: dict[str, Any]) -> None:
    kind = str(item.get("type", "message"))
    call_id = str(item.get("call_id") or item.get("id") or "")
    if kind == "message":
        say = past.answered if item.get("role") == "assistant" else past.said
        say(_text(item.get("content")))
    elif kind.endswith("_call"):
        past.called(_call(kind, call_id, item))
    elif kind.endswith("_output"):
        past.result(ToolResult(call_id, _text(item.get("output")), None))
    elif kind == "reasoning":
        past.answered("")
    elif kind == "compaction":
        past.said(str(item.get("encrypted_content", "")))
    elif kind == "compaction_trigger":
        past.said(_TRIGGER)


def _call(kind: str, call_id: str, item: dict[str, Any]) -> ToolCall:
    tool = str(item.get("name") or kind.removesuffix("_call"))
    if isinstance(item.get("input"), str):
        return ToolCall(tool, {}, call_id, item["input"])
    if isinstance(item.get("arguments"), str):
        return ToolCall(tool, parsed(item["arguments"]), call_id)
    action = item.get("action")
    return ToolCall(tool, action if isinstance(action, dict) else {}, call_id)


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "\n".join(str(part["text"]) for part in parts if isinstance(part, dict) and "text" in part)


def _offers(request: dict[str, Any], items: list[dict[str, Any]]) -> Iterator[ToolOffer]:
    yield from _offers_of(request.get("tools"))
    for item in items:
        if item.get("type") == "additional_tools":
            yield from _offers_of(item.get("tools"))


def _offers_of(tools: Any, namespace: str | None = None) -> Iterator[ToolOffer]:
    for tool in tools if isinstance(tools, list) else ():
        if not isinstance(tool, dict):
            continue
        if tool.get("type") == "namespace":
            yield from _offers_of(tool.get("tools"), str(tool.get("name", "")))
            continue
        schema = tool.get("parameters")
        properties = schema.get("properties") if isinstance(schema, dict) else None
        name = str(tool.get("name") or tool.get("type", ""))
        yield ToolOffer(name, tuple(properties or ()), tool.get("type") == "custom", namespace)


def _output(answer: Answer) -> list[dict[str, Any]]:
    view = answer.view
    if view.side == "compaction" and _TRIGGER in newest(view):
        return [
            {"id": f"cmp_{answer.message_id}", "type": "compaction", "encrypted_content": answer.turn.text}
        ]
    output = [_message(answer, answer.turn.text)] if answer.turn.text else []
    offers = {offer.name: offer for offer in view.tools}
    return output + [_call_item(call, offers.get(call.tool)) for call in answer.turn.calls]


def _message(answer: Answer, text: str) -> dict[str, Any]:
    return {
        "id": answer.message_id,
        "type": "message",
        "status": "completed",
        "role": "assistant",
        "content": [{"type": "output_text", "text": text, "annotations": []}],
    }


def _call_item(call: ToolCall, offer: ToolOffer | None) -> dict[str, Any]:
    said: dict[str, Any]
    if offer is not None and offer.takes_text:
        text = call.raw_arguments if call.raw_arguments is not None else str(call.arguments.get("input", ""))
        kind, said = "custom_tool_call", {"name": call.tool, "input": text}
    elif call.tool == "local_shell":
        kind, said = "local_shell_call", {"action": {"type": "exec"} | dict(call.arguments)}
    else:
        kind, said = "function_call", {"name": call.tool, "arguments": spelled(call)}
    # Tools of this group are called by their bare names.
    if offer is not None and offer.namespace not in (None, "functions"):
        said["namespace"] = offer.namespace
    return {"id": f"item_{call.call_id}", "type": kind, "status": "completed", "call_id": call.call_id} | said


def _response(answer: Answer, status: str, output: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "id": _response_id(answer),
        "object": "response",
        "created_at": 1700000000,
        "status": status,
        "error": None,
        "model": answer.model,
        "output": output,
        "usage": _usage(answer.usage) if status == "completed" else None,
    }


def _response_id(answer: Answer) -> str:
    return answer.message_id.replace("msg_", "resp_", 1)


def _usage(usage: Usage) -> dict[str, Any]:
    read_in = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
    return {
        "input_tokens": read_in,
        "input_tokens_details": {"cached_tokens": usage.cache_read_tokens},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": read_in + usage.output_tokens,
    }


def _events(answer: Answer) -> Iterator[dict[str, Any]]:
    for number, (name, data) in enumerate(_unnumbered(answer, _output(answer))):
        yield {"type": name, "sequence_number": number} | data


def _unnumbered(answer: Answer, output: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    yield "response.created", {"response": _response(answer, "in_progress", [])}
    yield "response.in_progress", {"response": _response(answer, "in_progress", [])}
    for index, item in enumerate(output):
        place = {"output_index": index}
        yield "response.output_item.added", place | {"item": _begun(item)}
        place |= {"item_id": item["id"]}
        if item["type"] == "message":
            yield from _text_events(place, item)
        elif item["type"] == "function_call":
            for piece in pieces(item["arguments"], _INPUT_PIECE):
                yield "response.function_call_arguments.delta", place | {"delta": piece}
            yield "response.function_call_arguments.done", place | {"arguments": item["arguments"]}
        elif item["type"] == "custom_tool_call":
            for piece in pieces(item["input"], _INPUT_PIECE):
                yield "response.custom_tool_call_input.delta", place | {"delta": piece}
            yield "response.custom_tool_call_input.done", place | {"input": item["input"]}
        yield "response.output_item.done", {"output_index": index, "item": item}
    yield "response.completed", {"response": _response(answer, "completed", output)}


def _begun(item: dict[str, Any]) -> dict[str, Any]:
    empty = {"content": [], "arguments": "", "input": ""}
    return {key: empty.get(key, value) for key, value in item.items()} | {"status": "in_progress"}


def _text_events(place: dict[str, Any], item: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    place = place | {"content_index": 0}
    part = item["content"][0]
    yield "response.content_part.added", place | {"part": part | {"text": ""}}
    for piece in pieces(part["text"], _TEXT_PIECE):
        yield "response.output_text.delta", place | {"delta": piece}
    yield "response.output_text.done", place | {"text": part["text"]}
    yield "response.content_part.done", place | {"part": part}
