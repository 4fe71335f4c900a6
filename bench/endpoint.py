"""A model endpoint that costs next to nothing, so that what is measured is what stands before it.

``python -m bench.endpoint`` prints its port and serves until it is stopped. A request's own headers say what
it is answered with: ``x-bench-answer`` holds the tool calls of an event stream that is sent at once,
``x-bench-stream: COUNT INTERVAL_MS`` asks for text events in that rhythm, each with the time at which it was
sent (``at``, ns of the monotonic clock), and ``x-bench-call: PIECES`` for a tool call behind them whose input
comes in so many pieces, with a ping in the middle; without both the answer is a short JSON message.
"""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections.abc import Sequence

import orjson

from bench.conversation import Call

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_ANSWER = re.compile(rb"\r\nx-bench-answer: *([^\r\n]*)", re.IGNORECASE)
_STREAM = re.compile(rb"\r\nx-bench-stream: *(\d+) ([\d.]+)", re.IGNORECASE)
_CALL = re.compile(rb"\r\nx-bench-call: *(\d+)", re.IGNORECASE)
_STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
_USAGE = {"input_tokens": 1000, "output_tokens": 50, "cache_read_input_tokens": 900}
_MESSAGE = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5"}


def answer_header(calls: Sequence[Call]) -> tuple[str, str]:
    """The header that asks for an answer with these calls."""
    return "x-bench-answer", orjson.dumps([list(call) for call in calls]).decode()


def _event(kind: str, **fields: object) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (kind.encode(), orjson.dumps({"type": kind} | fields))


def answer_events(calls: Sequence[Call]) -> bytes:
    """The event stream of an answer: a sentence, then each call with its input in two pieces."""
    out = [
        _event("message_start", message=_MESSAGE | {"content": [], "usage": _USAGE}),
        _event("content_block_start", index=0, content_block={"type": "text", "text": ""}),
        _event("content_block_delta", index=0, delta={"type": "text_delta", "text": "Let me look at it."}),
        _event("content_block_stop", index=0),
    ]
    for index, (call_id, tool, arguments) in enumerate(calls, 1):
        block = {"type": "tool_use", "id": call_id, "name": tool, "input": {}}
        text = orjson.dumps(arguments).decode()
        out.append(_event("content_block_start", index=index, content_block=block))
        for piece in (text[:8], text[8:]):
            delta = {"type": "input_json_delta", "partial_json": piece}
            out.append(_event("content_block_delta", index=index, delta=delta))
        out.append(_event("content_block_stop", index=index))
    stop = "tool_use" if calls else "end_turn"
    out.append(_event("message_delta", delta={"stop_reason": stop}, usage={"output_tokens": 50}))
    out.append(_event("message_stop"))
    return b"".join(out)


def _stream(texts: int, pieces: int) -> list[tuple[str, dict[str, object]]]:
    """The events of a stream, without their times: texts, then, with ``pieces``, a call of a shell."""
    said = {"index": 0, "delta": {"type": "text_delta", "text": "some words of an answer "}}
    events: list[tuple[str, dict[str, object]]] = [("content_block_delta", said)] * texts
    if pieces:
        block = {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {}}
        texts_of = ['{"command": "', *["echo a; "] * (pieces - 2), '"}']
        deltas: list[tuple[str, dict[str, object]]] = [
            ("content_block_delta", {"index": 1, "delta": {"type": "input_json_delta", "partial_json": text}})
            for text in texts_of
        ]
        deltas.insert(len(deltas) // 2, ("ping", {}))
        events += [
            ("content_block_start", {"index": 1, "content_block": block}),
            *deltas,
            ("content_block_stop", {"index": 1}),
            ("message_delta", {"delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 50}}),
            ("message_stop", {}),
        ]
    return events


def _whole() -> bytes:
    body = orjson.dumps(
        _MESSAGE
        | {"content": [{"type": "text", "text": "Done."}], "stop_reason": "end_turn", "usage": _USAGE}
    )
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    return head % len(body) + body


_WHOLE = _whole()


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


class _Connection(asyncio.Protocol):
    """One keep-alive connection; bodies are counted, not kept."""

    def __init__(self) -> None:
        self._head = b""
        self._left = 0
        self._reply: bytes | tuple[list[tuple[str, dict[str, object]]], float] = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport if isinstance(transport, asyncio.Transport) else None

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None

    def data_received(self, data: bytes) -> None:
        if self._left:
            self._left -= len(data)
        else:
            self._head += data
            end = self._head.find(b"\r\n\r\n")
            if end < 0:
                return
            self._take_head(self._head[:end], len(self._head) - end - 4)
            self._head = b""
        if not self._left:
            self._send()

    def _take_head(self, head: bytes, beyond: int) -> None:
        length = _LENGTH.search(head)
        self._left = (int(length[1]) if length else 0) - beyond
        stream, answer = _STREAM.search(head), _ANSWER.search(head)
        if stream is not None:
            call = _CALL.search(head)
            events = _stream(int(stream[1]), int(call[1]) if call is not None else 0)
            self._reply = events[::-1], float(stream[2]) / 1e3
        elif answer is not None:
            calls = [Call(*call) for call in orjson.loads(answer[1])]
            self._reply = _STREAM_HEAD + _chunk(answer_events(calls)) + b"0\r\n\r\n"
        else:
            self._reply = _WHOLE

    def _send(self) -> None:
        if self._transport is None:
            return
        if isinstance(self._reply, bytes):
            self._transport.write(self._reply)
        else:
            self._transport.write(_STREAM_HEAD)
            self._tick(*self._reply)

    def _tick(self, left: list[tuple[str, dict[str, object]]], interval_s: float) -> None:
        """Sends the last event of ``left``, and the others in their time."""
        if self._transport is None:
            return
        if not left:
            self._transport.write(b"0\r\n\r\n")
            return
        kind, fields = left.pop()
        self._transport.write(_chunk(_event(kind, **fields, at=time.perf_counter_ns())))
        asyncio.get_running_loop().call_later(interval_s, self._tick, left, interval_s)


async def _serve() -> None:
    server = await asyncio.get_running_loop().create_server(_Connection, "127.0.0.1", 0)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve())
