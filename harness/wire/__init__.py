"""Wire formats of the scripted model: request bytes to a neutral view, a neutral answer to bytes.

A new protocol is one more file here with an object that fits ``Wire``, and its line in ``WIRES``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from harness.turns import Answer, Conversation
from harness.wire.anthropic import AnthropicWire


class Wire(Protocol):
    """One protocol. Bodies are plain (already decompressed); no method does I/O."""

    @property
    def name(self) -> str:
        """Short name, as in ``anthropic``."""

    def recognises(self, path: str) -> bool:
        """Whether a POST to ``path`` (no query) speaks this protocol."""

    def read(self, path: str, body: bytes) -> Conversation:
        """The view of a request; ValueError when the body is not one of this protocol."""

    def whole(self, answer: Answer) -> bytes:
        """The answer as one JSON body."""

    def streamed(self, answer: Answer) -> Iterator[bytes]:
        """The answer as server-sent events, one ``bytes`` per event."""

    def token_count(self, tokens: int) -> bytes:
        """The answer to a request whose side is ``count_tokens``."""

    def error(self, status: int, message: str) -> bytes:
        """An error body in the protocol's own shape."""


WIRES: tuple[Wire, ...] = (AnthropicWire(),)


def wire_of(method: str, path: str) -> Wire | None:
    """The wire that a request speaks, or None: not a model request."""
    if method != "POST":
        return None
    return next((wire for wire in WIRES if wire.recognises(path)), None)
