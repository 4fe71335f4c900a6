"""Gemini: https://ai.google.dev/api/generate-content, https://ai.google.dev/api/tokens and
https://ai.google.dev/gemini-api/docs/function-calling.

Calls may have no id; in the neutral view such a call is known as ``turn 3 call 0`` and its response, found by
order and name, answers to that.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal
from urllib.parse import parse_qs

from harness.turns import Answer, Conversation, ToolCall, ToolOffer, ToolResult, Usage
from harness.wire.past import Past, WholeHistory, dumps, newest, pieces, side_of, spelled

_TEXT_PIECE = 24
# Gemini CLI asks for a summary, and then whether anything is missing from it.
_COMPACTION_ENDING = "generate the updated <state_snapshot>."
_COMPACTION_CHECK = "Critically evaluate the <state_snapshot> you just generated."
_STATUS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    402: "FAILED_PRECONDITION",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
}


class GeminiWire(WholeHistory):
    """``…:generateContent``, ``…:streamGenerateContent`` and ``…:countTokens``.

    A stream is server-sent events with ``alt=sse`` in the query, else one JSON array, which is the other
    ``framing``.
    """

    name = "gemini"
    call_prefix = "call_"

    def __init__(self, framing: Literal["sse", "array"]) -> None:
        self._framing = framing

    @property
    def stream_type(self) -> str:
        """What the framing is called in HTTP."""
        return "text/event-stream" if self._framing == "sse" else "application/json"

    def recognises(self, path: str, query: str) -> bool:
        """True for the three methods; a stream only in this framing."""
        if path.endswith(":streamGenerateContent"):
            return (parse_qs(query).get("alt") == ["sse"]) == (self._framing == "sse")
        return path.endswith((":generateContent", ":countTokens"))

    def read(self, path: str, body: bytes, before: Sequence[Any] = ()) -> Conversation:
        """ValueError when the body is not a JSON object with a list of contents."""
        request = json.loads(body)
        if not isinstance(request, dict) or not isinstance(request.get("contents"), list):
            raise ValueError("the body is not an object with a list of contents")
        past = Past()
        for number, content in enumerate(request["contents"]):
            if not isinstance(content, dict):
                raise ValueError("a content is not an object")
            _take(past, content, number)
        view = Conversation(
            wire=self.name,
            model=path.rpartition("/")[2].partition(":")[0],
            system="\n".join(_texts(request.get("systemInstruction") or request.get("system_instruction"))),
            opening=past.opening,
            turns=past.turns,
            tools=tuple(_offers(request.get("tools") or [])),
            stream=path.endswith(":streamGenerateContent"),
            bytes_in=len(body),
        )
        if path.endswith(":countTokens"):
            return replace(view, side="count_tokens")
        compacting = any(
            text.endswith(_COMPACTION_ENDING) or text.startswith(_COMPACTION_CHECK) for text in newest(view)
        )
        return replace(view, side=side_of(view, "compaction" if compacting else None))

    def whole(self, answer: Answer) -> bytes:
        """One response with its only candidate."""
        parts = [{"text": answer.turn.text}] if answer.turn.text else []
        chunk = _chunk(answer, parts, finished=True)
        return _with_calls(chunk, answer.turn.calls)

    def streamed(self, answer: Answer) -> Iterator[bytes]:
        """The text in small chunks, each call whole in a chunk of its own, the usage in all of them."""
        chunks = list(_chunks(answer))
        for index, chunk in enumerate(chunks):
            if self._framing == "sse":
                yield b"data: " + chunk + b"\r\n\r\n"
            else:
                yield (b"," if index else b"[") + chunk + b"\r\n"
        if self._framing == "array":
            yield b"]"

    def token_count(self, tokens: int) -> bytes:
        """The body that countTokens answers with."""
        return dumps({"totalTokens": tokens})

    def error(self, status: int, message: str) -> bytes:
        """``{"error": {"code", "message", "status"}}``."""
        return dumps(
            {"error": {"code": status, "message": message, "status": _STATUS.get(status, "UNKNOWN")}}
        )


def _take(past: Past, content: dict[str, Any], number: int) -> None:
    parts = [part for part in content.get("parts") or () if isinstance(part, dict)]
    if content.get("role") == "model":
        past.answered("\n".join(_texts(content)))
        for index, part in enumerate(part for part in parts if "functionCall" in part):
            call = part["functionCall"]
            call_id = str(call.get("id") or f"turn {number} call {index}")
            past.called(ToolCall(str(call.get("name")), call.get("args") or {}, call_id))
        return
    unnamed = list(past.open_calls)
    for part in parts:
        if "functionResponse" in part:
            past.result(_result(part["functionResponse"], unnamed))
    for text in _texts(content):
        past.said(text)


def _result(response: dict[str, Any], unnamed: list[ToolCall]) -> ToolResult:
    """Takes the call that an unnamed response answers off ``unnamed``."""
    call_id = response.get("id")
    found = next((call for call in unnamed if call.tool == response.get("name")), None)
    if call_id is None and found is not None:
        unnamed.remove(found)
        call_id = found.call_id
    said = response.get("response")
    if not isinstance(said, dict):
        return ToolResult(str(call_id), "", None)
    if "error" in said and "output" not in said:
        return ToolResult(str(call_id), _plain(said["error"]), is_error=True)
    return ToolResult(str(call_id), _plain(said.get("output", said)), None)


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _texts(content: Any) -> list[str]:
    parts = content.get("parts") if isinstance(content, dict) else None
    return [
        str(part["text"])
        for part in parts or ()
        if isinstance(part, dict) and "text" in part and part.get("thought") is not True
    ]


def _offers(tools: list[Any]) -> Iterator[ToolOffer]:
    for tool in tools:
        for declared in (tool.get("functionDeclarations") or ()) if isinstance(tool, dict) else ():
            schema = declared.get("parameters") or declared.get("parametersJsonSchema")
            properties = schema.get("properties") if isinstance(schema, dict) else None
            yield ToolOffer(str(declared.get("name", "")), tuple(properties or ()))


def _chunk(answer: Answer, parts: list[dict[str, Any]], *, finished: bool) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"parts": parts, "role": "model"}, "index": 0}
    if finished:
        candidate["finishReason"] = "STOP"
    return {
        "candidates": [candidate],
        "usageMetadata": _usage(answer.usage),
        "modelVersion": answer.model,
        "responseId": answer.message_id,
    }


def _with_calls(chunk: dict[str, Any], calls: Sequence[ToolCall]) -> bytes:
    """The chunk with the calls as its last parts, their arguments as the script spells them."""
    parts = chunk["candidates"][0]["content"]["parts"]
    said = [dumps(part) for part in parts] + [_call(call) for call in calls]
    parts.clear()
    return dumps(chunk).replace(b'"parts":[]', b'"parts":[' + b",".join(said) + b"]", 1)


def _call(call: ToolCall) -> bytes:
    head = {"name": call.tool} | ({"id": call.call_id} if call.call_id else {})
    return b'{"functionCall":' + dumps(head)[:-1] + b',"args":' + spelled(call).encode() + b"}}"


def _chunks(answer: Answer) -> Iterator[bytes]:
    for piece in pieces(answer.turn.text, _TEXT_PIECE):
        yield dumps(_chunk(answer, [{"text": piece}], finished=False))
    for call in answer.turn.calls:
        yield _with_calls(_chunk(answer, [], finished=False), [call])
    yield dumps(_chunk(answer, [{"text": ""}], finished=True))


def _usage(usage: Usage) -> dict[str, int]:
    read_in = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
    counts = {
        "promptTokenCount": read_in,
        "candidatesTokenCount": usage.output_tokens,
        "totalTokenCount": read_in + usage.output_tokens,
    }
    if usage.cache_read_tokens:
        counts["cachedContentTokenCount"] = usage.cache_read_tokens
    return counts
