"""Request bodies and conversations, as short as a test wants to write them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

TOOLS = [
    {"name": name, "description": "A tool. " * 40, "input_schema": {"type": "object"}}
    for name in ("Read", "Bash", "Edit", "read", "bash")
]


def user(*content: Any) -> dict[str, Any]:
    """A user message: one string, or blocks."""
    return {
        "role": "user",
        "content": content[0] if len(content) == 1 and isinstance(content[0], str) else list(content),
    }


def assistant(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": [text(b) if isinstance(b, str) else b for b in blocks]}


def text(value: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": value} | more


def call(call_id: str, tool: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": tool, "input": arguments}


def result(call_id: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content} | more


def image() -> dict[str, Any]:
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}


def body(messages: Iterable[Mapping[str, Any]], **more: Any) -> bytes:
    """A Messages request with tools, as a harness spells it; a value of None leaves its key out."""
    whole = {
        "model": "claude-sonnet-4-5",
        "messages": list(messages),
        "max_tokens": 32000,
        "stream": True,
        "system": [text("You help.")],
        "tools": TOOLS,
    } | more
    return dumps({key: value for key, value in whole.items() if value is not None})


def dumps(value: Any) -> bytes:
    """As JavaScript's JSON.stringify spells it: no blanks, lone surrogates escaped."""
    spelled = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return "".join(c if not 0xD800 <= ord(c) < 0xE000 else f"\\u{ord(c):04x}" for c in spelled).encode()


class Answer(NamedTuple):
    """What a model says: text, calls as (id, tool, arguments as it spells them), and its token counts as
    (input, cache read, cache write, output)."""

    text: str = ""
    calls: Sequence[tuple[str, str, str]] = ()
    usage: tuple[int, int, int, int] = (10, 0, 0, 5)


def sse_event(kind: str, **more: Any) -> bytes:
    return b"event: " + kind.encode() + b"\ndata: " + dumps({"type": kind} | more) + b"\n\n"


def streamed(answer: Answer) -> bytes:
    """The answer as the endpoint streams it."""
    usage = dict(
        zip(
            ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens"),
            answer.usage,
            strict=True,
        )
    )
    out = sse_event("message_start", message={"model": "m", "usage": usage | {"output_tokens": 1}})
    out += sse_event("content_block_start", index=0, content_block=text(""))
    for at in range(0, len(answer.text), 9):
        piece = {"type": "text_delta", "text": answer.text[at : at + 9]}
        out += sse_event("content_block_delta", index=0, delta=piece)
    out += sse_event("content_block_stop", index=0) + sse_event("ping")
    for index, (call_id, tool, spelled) in enumerate(answer.calls, 1):
        out += sse_event("content_block_start", index=index, content_block=call(call_id, tool))
        for given in ("", *(spelled[at : at + 7] for at in range(0, len(spelled), 7))):
            inner = {"type": "input_json_delta", "partial_json": given}
            out += sse_event("content_block_delta", index=index, delta=inner)
        out += sse_event("content_block_stop", index=index)
    reason = {"stop_reason": "tool_use" if answer.calls else "end_turn"}
    out += sse_event("message_delta", delta=reason, usage={"output_tokens": answer.usage[3]})
    return out + sse_event("message_stop")


def whole(answer: Answer) -> bytes:
    """The answer as one JSON message, the arguments in the model's own spelling."""
    blocks = [dumps(text(answer.text))]
    for call_id, tool, spelled in answer.calls:
        head = dumps({"type": "tool_use", "id": call_id, "name": tool})
        blocks.append(head[:-1] + b',"input":' + spelled.encode("utf-8", "surrogatepass") + b"}")
    reason = "tool_use" if answer.calls else "end_turn"
    message = {"type": "message", "model": "m", "content": [], "stop_reason": reason}
    counts = {"input_tokens": answer.usage[0], "output_tokens": answer.usage[3]}
    spelled_message = dumps(message | {"usage": counts})
    return spelled_message.replace(b'"content":[]', b'"content":[' + b",".join(blocks) + b"]", 1)
