"""Anthropic Messages: https://docs.anthropic.com/en/api/messages and …/messages-streaming."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from harness.turns import Answer, Conversation, PastTurn, Side, ToolCall, ToolOffer, ToolResult, Usage
from harness.wire.past import WholeHistory, newest

_COMPACTION_OPENINGS = ("CRITICAL: Respond with TEXT ONLY",)
_TEXT_PIECE = 24
_JSON_PIECE = 12
_ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}


class AnthropicWire(WholeHistory):
    """``POST …/v1/messages`` (JSON and SSE) and ``POST …/v1/messages/count_tokens``."""

    name = "anthropic"
    stream_type = "text/event-stream"
    call_prefix = "toolu_"

    def recognises(self, path: str, query: str) -> bool:
        """True for the two POST paths, under any prefix."""
        return path.endswith(("/v1/messages", "/v1/messages/count_tokens"))

    def read(self, path: str, body: bytes, before: Sequence[Any] = ()) -> Conversation:
        """ValueError when the body is not a JSON object with a list of messages."""
        request = json.loads(body)
        if not isinstance(request, dict) or not isinstance(request.get("messages"), list):
            raise ValueError("the body is not an object with a list of messages")
        opening, turns = _history(request["messages"])
        view = Conversation(
            wire=self.name,
            model=str(request.get("model", "")),
            system=_text(request.get("system", "")),
            opening=opening,
            turns=turns,
            tools=tuple(_offers(request.get("tools") or [])),
            stream=request.get("stream") is True,
            bytes_in=len(body),
        )
        return replace(view, side=_side(view, counting=path.endswith("/count_tokens")))

    def whole(self, answer: Answer) -> bytes:
        """One JSON message with all its content blocks."""
        blocks = [_dumps({"type": "text", "text": answer.turn.text})] if answer.turn.text else []
        for call in answer.turn.calls:
            head = _dumps({"type": "tool_use", "id": call.call_id, "name": call.tool})
            blocks.append(head[:-1] + b',"input":' + _spelled(call).encode() + b"}")
        message = _dumps(
            _message_head(answer) | {"stop_reason": _stop_reason(answer), "usage": _usage(answer.usage)}
        )
        # The arguments keep the spelling that the script gave them, so the array is joined as bytes.
        return message.replace(b'"content":[]', b'"content":[' + b",".join(blocks) + b"]", 1)

    def streamed(self, answer: Answer) -> Iterator[bytes]:
        """message_start, per block start, small deltas and stop, then message_delta and message_stop."""
        usage = answer.usage
        first_usage = _usage(Usage(usage.input_tokens, 1, usage.cache_read_tokens, usage.cache_write_tokens))
        yield _event("message_start", {"message": _message_head(answer) | {"usage": first_usage}})
        yield _event("ping", {})
        index = 0
        if answer.turn.text:
            yield from _text_block(index, answer.turn.text)
            index += 1
        for call in answer.turn.calls:
            yield from _call_block(index, call)
            yield _event("ping", {})
            index += 1
        stop = {"stop_reason": _stop_reason(answer), "stop_sequence": None}
        yield _event("message_delta", {"delta": stop, "usage": _usage(usage)})
        yield _event("message_stop", {})

    def token_count(self, tokens: int) -> bytes:
        """The body that count_tokens answers with."""
        return _dumps({"input_tokens": tokens})

    def error(self, status: int, message: str) -> bytes:
        """``{"type": "error", "error": {"type", "message"}}``."""
        kind = _ERROR_TYPES.get(status, "api_error")
        return _dumps({"type": "error", "error": {"type": kind, "message": message}})


def _history(messages: list[Any]) -> tuple[tuple[str, ...], tuple[PastTurn, ...]]:
    opening: list[str] = []
    turns: list[_OpenTurn] = []
    after_answer = False
    for message in messages:
        if not isinstance(message, dict):
            raise ValueError("a message is not an object")
        blocks = _blocks(message.get("content"))
        if message.get("role") == "assistant":
            if not after_answer:
                turns.append(_OpenTurn())
            turns[-1].add_answer(blocks)
            after_answer = True
            continue
        after_answer = False
        said = turns[-1].add_reply(blocks) if turns else _texts(blocks)
        if not turns:
            opening.extend(said)
    return tuple(opening), tuple(turn.closed() for turn in turns)


class _OpenTurn:
    """A past turn while its messages are read."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._calls: list[ToolCall] = []
        self._results: list[ToolResult] = []
        self._said: list[str] = []

    def add_answer(self, blocks: list[dict[str, Any]]) -> None:
        self._texts.extend(_texts(blocks))
        for block in blocks:
            if block.get("type") == "tool_use":
                arguments = block.get("input")
                given = arguments if isinstance(arguments, dict) else {}
                self._calls.append(ToolCall(str(block.get("name")), given, str(block.get("id"))))

    def add_reply(self, blocks: list[dict[str, Any]]) -> list[str]:
        for block in blocks:
            if block.get("type") == "tool_result":
                error = block.get("is_error")
                texts = _texts(_blocks(block.get("content")))
                self._results.append(
                    ToolResult(
                        call_id=str(block.get("tool_use_id")),
                        text="\n".join(texts),
                        is_error=error if isinstance(error, bool) else None,
                        blocks=tuple(texts),
                    )
                )
        said = _texts(blocks)
        self._said.extend(said)
        return said

    def closed(self) -> PastTurn:
        text = "\n".join(self._texts)
        return PastTurn(text, tuple(self._calls), tuple(self._results), tuple(self._said))


def _blocks(content: Any) -> list[dict[str, Any]]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if isinstance(content, list):
        return [block for block in content if isinstance(block, dict)]
    return []


def _texts(blocks: list[dict[str, Any]]) -> list[str]:
    return [str(block.get("text", "")) for block in blocks if block.get("type") == "text"]


def _text(content: Any) -> str:
    return "\n".join(_texts(_blocks(content)))


def _offers(tools: list[Any]) -> Iterator[ToolOffer]:
    for tool in tools:
        if isinstance(tool, dict):
            schema = tool.get("input_schema")
            properties = schema.get("properties") if isinstance(schema, dict) else None
            yield ToolOffer(str(tool.get("name", "")), tuple(properties or ()))


def _side(view: Conversation, *, counting: bool) -> Side | None:
    if counting:
        return "count_tokens"
    if not view.tools:
        return "no_tools"
    # Claude Code may let a system message with token counts follow the request to compact.
    if any(text.startswith(_COMPACTION_OPENINGS) for text in newest(view)):
        return "compaction"
    return None


def _message_head(answer: Answer) -> dict[str, Any]:
    return {
        "id": answer.message_id,
        "type": "message",
        "role": "assistant",
        "model": answer.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
    }


def _stop_reason(answer: Answer) -> str:
    return "tool_use" if answer.turn.calls else "end_turn"


def _usage(usage: Usage) -> dict[str, int]:
    return {
        "input_tokens": usage.input_tokens,
        "cache_creation_input_tokens": usage.cache_write_tokens,
        "cache_read_input_tokens": usage.cache_read_tokens,
        "output_tokens": usage.output_tokens,
    }


def _text_block(index: int, text: str) -> Iterator[bytes]:
    yield _event("content_block_start", {"index": index, "content_block": {"type": "text", "text": ""}})
    for piece in _pieces(text, _TEXT_PIECE):
        yield _event("content_block_delta", {"index": index, "delta": {"type": "text_delta", "text": piece}})
    yield _event("content_block_stop", {"index": index})


def _call_block(index: int, call: ToolCall) -> Iterator[bytes]:
    block: dict[str, Any] = {"type": "tool_use", "id": call.call_id, "name": call.tool, "input": {}}
    yield _event("content_block_start", {"index": index, "content_block": block})
    # The real endpoint opens every tool block with an empty delta.
    for piece in ("", *_pieces(_spelled(call), _JSON_PIECE)):
        delta = {"type": "input_json_delta", "partial_json": piece}
        yield _event("content_block_delta", {"index": index, "delta": delta})
    yield _event("content_block_stop", {"index": index})


def _spelled(call: ToolCall) -> str:
    if call.raw_arguments is not None:
        return call.raw_arguments
    return json.dumps(dict(call.arguments), ensure_ascii=False)


def _pieces(text: str, size: int) -> Iterator[str]:
    for start in range(0, len(text), size):
        yield text[start : start + size]


def _event(name: str, data: dict[str, Any]) -> bytes:
    return b"event: " + name.encode() + b"\ndata: " + _dumps({"type": name} | data) + b"\n\n"


def _dumps(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
