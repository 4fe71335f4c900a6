"""The Responses API over a WebSocket: https://platform.openai.com/docs/guides/websocket-mode.

A request is a message ``response.create`` with the fields of a body; the events of its answer are messages.
One with ``generate`` false only makes the endpoint ready. Several answers share a socket by ``stream_id``.
"""

from __future__ import annotations

from typing import Any

import msgspec
import orjson

from proxy.protocols.history import decoded
from proxy.protocols.openai_responses_stream import MessageReader
from proxy.protocols.text import without_lone_surrogates
from proxy.protocols.wire import Asked, ResponseReader


class _Message(msgspec.Struct):
    type: Any = None
    generate: Any = None
    stream_id: Any = None
    status: Any = None
    status_code: Any = None


_message = msgspec.json.Decoder(_Message)


class ResponsesSocket:
    """Client and server events, one a message; a request has the fields of a body."""

    def asks(self, message: bytes) -> Asked | None:
        found = decoded(_message, without_lone_surrogates(message))
        if found.type != "response.create":
            return None
        return Asked("prepare" if found.generate is False else "generate", _stream(found))

    def stream_of(self, message: bytes) -> str:
        return _stream(decoded(_message, without_lone_surrogates(message)))

    def reader(self) -> ResponseReader:
        return MessageReader()

    def failure(self, message: bytes) -> int | None:
        found = decoded(_message, without_lone_surrogates(message))
        if found.type == "response.failed":
            return 200
        if found.type != "error":
            return None
        status = found.status if found.status is not None else found.status_code
        return status if isinstance(status, int) and status >= 400 else 500

    def error_message(self, status: int, body: bytes, stream: str) -> bytes:
        said = {"type": "error", "status": status} | orjson.loads(body)
        return orjson.dumps(said | {"stream_id": stream} if stream else said)


def _stream(message: _Message) -> str:
    return message.stream_id if isinstance(message.stream_id, str) else ""


RESPONSES_SOCKET = ResponsesSocket()
