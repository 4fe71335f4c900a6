"""Wire formats of the scripted model: request bytes to a neutral view, a neutral answer to bytes.

A new protocol is one more file here with an object that fits ``Wire``, and its line in ``WIRES``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from harness.turns import Answer, Conversation
from harness.wire.anthropic import AnthropicWire
from harness.wire.gemini import GeminiWire
from harness.wire.openai_chat import ChatWire
from harness.wire.openai_responses import ResponsesWire


class Wire(Protocol):
    """One protocol. Bodies are plain (already decompressed); no method does I/O."""

    @property
    def name(self) -> str:
        """Short name, as in ``anthropic``."""

    @property
    def stream_type(self) -> str:
        """The content type of a streamed answer."""

    @property
    def call_prefix(self) -> str:
        """What the ids of this protocol's calls begin with."""

    def recognises(self, path: str, query: str) -> bool:
        """Whether a POST to ``path`` with ``query`` speaks this protocol."""

    def continues(self, body: bytes) -> str | None:
        """The answer that a request goes on from, when it sends only what came after; ValueError as read."""

    def answer_id(self, answer: Answer) -> str:
        """What ``continues`` says of a request that goes on from ``answer``."""

    def kept(self, before: Sequence[Any], body: bytes, answer: Answer) -> tuple[Any, ...] | None:
        """What a request that goes on from ``answer``, which was given to ``body``, need not send again; None
        when no request goes on so."""

    def read(self, path: str, body: bytes, before: Sequence[Any] = ()) -> Conversation:
        """The view of a request that goes on from what was ``kept``; ValueError for a body that is none."""

    def whole(self, answer: Answer) -> bytes:
        """The answer as one JSON body."""

    def streamed(self, answer: Answer) -> Iterator[bytes]:
        """The answer in pieces of ``stream_type``, one ``bytes`` per event."""

    def token_count(self, tokens: int) -> bytes:
        """The answer to a request whose side is ``count_tokens``."""

    def error(self, status: int, message: str) -> bytes:
        """An error body in the protocol's own shape."""


class SocketWire(Wire, Protocol):
    """A protocol that can also be spoken over one WebSocket, an answer after each message that asks."""

    def asks(self, message: bytes) -> bool:
        """Whether a message of the harness wants an answer; ValueError for one that is no JSON object."""

    def messages(self, answer: Answer) -> Iterator[bytes]:
        """The answer as messages."""

    def warmed_up(self, answer: Answer) -> Answer:
        """``answer`` as the answer to a request whose side is ``warm_up``."""

    def error_message(self, status: int, message: str) -> bytes:
        """An error as a message."""


_RESPONSES = ResponsesWire()
WIRES: tuple[Wire, ...] = (AnthropicWire(), ChatWire(), _RESPONSES, GeminiWire("sse"), GeminiWire("array"))
SOCKETS: tuple[SocketWire, ...] = (_RESPONSES,)
SOCKET_METHOD = "WEBSOCKET"
"""The method under which a message of a socket is kept, to tell it from a request."""


def wire_of(method: str, target: str) -> Wire | None:
    """The wire that a request to ``target`` (path and query) speaks, or None: not a model request."""
    if method not in ("POST", SOCKET_METHOD):
        return None
    path, _, query = target.partition("?")
    return next((wire for wire in WIRES if wire.recognises(path, query)), None)


def socket_wire_of(target: str) -> SocketWire | None:
    """The wire that is spoken over a WebSocket at ``target``, or None."""
    path, _, query = target.partition("?")
    return next((wire for wire in SOCKETS if wire.recognises(path, query)), None)
