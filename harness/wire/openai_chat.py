"""OpenAI Chat Completions: https://platform.openai.com/docs/api-reference/chat and …/chat-streaming."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from harness.turns import Answer, Conversation, ToolCall, ToolOffer, ToolResult, Usage
from harness.wire.past import Past, WholeHistory, dumps, newest, parsed, pieces, side_of, spelled

_TEXT_PIECE = 24
_ARGUMENTS_PIECE = 12
# Qwen Code, whether it leaves its tools on offer or not.
_COMPACTION_ENDING = "Then, produce the <state_snapshot> XML."
_ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "insufficient_quota",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_exceeded",
}


class ChatWire(WholeHistory):
    """``POST …/chat/completions``, JSON and SSE."""

    name = "openai-chat"
    stream_type = "text/event-stream"
    call_prefix = "call_"

    def recognises(self, path: str, query: str) -> bool:
        """True for the path, under any prefix."""
        return path.endswith("/chat/completions")

    def read(self, path: str, body: bytes, before: Sequence[Any] = ()) -> Conversation:
        """ValueError when the body is not a JSON object with a list of messages."""
        request = json.loads(body)
        if not isinstance(request, dict) or not isinstance(request.get("messages"), list):
            raise ValueError("the body is not an object with a list of messages")
        past = Past()
        system: list[str] = []
        for message in request["messages"]:
            if not isinstance(message, dict):
                raise ValueError("a message is not an object")
            if message.get("role") in ("system", "developer") and not (past.opening or past.turns):
                system.append(_text(message.get("content")))
            else:
                _take(past, message)
        options = request.get("stream_options")
        view = Conversation(
            wire=self.name,
            model=str(request.get("model", "")),
            system="\n".join(system),
            opening=past.opening,
            turns=past.turns,
            tools=tuple(_offers(request.get("tools") or [])),
            stream=request.get("stream") is True,
            bytes_in=len(body),
            counts_wanted=isinstance(options, dict) and options.get("include_usage") is True,
        )
        compacting = any(text.endswith(_COMPACTION_ENDING) for text in newest(view))
        return replace(view, side=side_of(view, "compaction" if compacting else None))

    def whole(self, answer: Answer) -> bytes:
        """One completion with its only choice."""
        message: dict[str, Any] = {"role": "assistant", "content": answer.turn.text or None, "refusal": None}
        if answer.turn.calls:
            message["tool_calls"] = [_call(call) for call in answer.turn.calls]
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _finish_reason(answer)}
        head = _head(answer, "chat.completion")
        return dumps(head | {"choices": [choice], "usage": _usage(answer.usage)})

    def streamed(self, answer: Answer) -> Iterator[bytes]:
        """Small deltas, the finish reason, the usage when it was asked for, and ``[DONE]``."""
        head = _head(answer, "chat.completion.chunk")
        for delta in _deltas(answer):
            yield _event(head | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
        end = {"index": 0, "delta": {}, "finish_reason": _finish_reason(answer)}
        yield _event(head | {"choices": [end]})
        if answer.view.counts_wanted:
            yield _event(head | {"choices": [], "usage": _usage(answer.usage)})
        yield b"data: [DONE]\n\n"

    def token_count(self, tokens: int) -> bytes:
        """Nothing in this protocol counts tokens."""
        return self.error(404, "no such request")

    def error(self, status: int, message: str) -> bytes:
        """``{"error": {"message", "type", "param", "code"}}``."""
        kind = _ERROR_TYPES.get(status, "server_error")
        code = kind if status in (402, 429) else None
        return dumps({"error": {"message": message, "type": kind, "param": None, "code": code}})


def _take(past: Past, message: dict[str, Any]) -> None:
    text = _text(message.get("content"))
    if message.get("role") == "assistant":
        past.answered(text)
        for call in message.get("tool_calls") or ():
            function = call.get("function") or {}
            arguments = parsed(str(function.get("arguments", "")))
            past.called(ToolCall(str(function.get("name")), arguments, str(call.get("id"))))
    elif message.get("role") == "tool":
        past.result(ToolResult(str(message.get("tool_call_id")), text, None))
    else:
        past.said(text)


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "\n".join(str(part["text"]) for part in parts if isinstance(part, dict) and "text" in part)


def _offers(tools: list[Any]) -> Iterator[ToolOffer]:
    for tool in tools:
        function = tool.get("function") if isinstance(tool, dict) else None
        if isinstance(function, dict):
            schema = function.get("parameters")
            properties = schema.get("properties") if isinstance(schema, dict) else None
            yield ToolOffer(str(function.get("name", "")), tuple(properties or ()))


def _head(answer: Answer, kind: str) -> dict[str, Any]:
    return {
        "id": answer.message_id.replace("msg_", "chatcmpl-", 1),
        "object": kind,
        "created": 1700000000,
        "model": answer.model,
    }


def _call(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.tool, "arguments": spelled(call)}
    return {"id": call.call_id, "type": "function", "function": function}


def _finish_reason(answer: Answer) -> str:
    return "tool_calls" if answer.turn.calls else "stop"


def _usage(usage: Usage) -> dict[str, Any]:
    read_in = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
    return {
        "prompt_tokens": read_in,
        "completion_tokens": usage.output_tokens,
        "total_tokens": read_in + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read_tokens},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }


def _deltas(answer: Answer) -> Iterator[dict[str, Any]]:
    yield {"role": "assistant", "content": "" if answer.turn.text else None}
    for piece in pieces(answer.turn.text, _TEXT_PIECE):
        yield {"content": piece}
    for index, call in enumerate(answer.turn.calls):
        whole = _call(call)
        opened = whole | {"index": index, "function": whole["function"] | {"arguments": ""}}
        yield {"tool_calls": [opened]}
        for piece in pieces(whole["function"]["arguments"], _ARGUMENTS_PIECE):
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


def _event(data: dict[str, Any]) -> bytes:
    return b"data: " + dumps(data) + b"\n\n"
