"""Which wire format a request speaks, and which harness sent it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Literal

import msgspec

from proxy.exchange import Head
from proxy.protocols.anthropic import AnthropicMessages
from proxy.protocols.gemini import Gemini
from proxy.protocols.openai_chat import OpenAIChat
from proxy.protocols.openai_responses import OpenAIResponses
from proxy.protocols.wire import SocketFormat, WireFormat
from scheduler.dialect import Dialect

WIRES: tuple[WireFormat, ...] = (AnthropicMessages(), OpenAIChat(), OpenAIResponses(), Gemini())

_NONE = msgspec.Raw()


class _Telltale(msgspec.Struct):
    tools: msgspec.Raw = _NONE
    messages: msgspec.Raw = _NONE
    input: msgspec.Raw = _NONE
    contents: msgspec.Raw = _NONE


_telltale = msgspec.json.Decoder(_Telltale)


def wire_of(head: Head) -> tuple[WireFormat, Literal["generate", "count"]] | None:
    """The wire format of a request by its path, and what it asks for."""
    if head.method != "POST":
        return None
    path = head.path.partition("?")[0]
    for wire in WIRES:
        kind = wire.kind_of(path)
        if kind is not None:
            return wire, kind
    return None


def socket_of(head: Head) -> SocketFormat | None:
    """What is spoken over the WebSocket that a request opens; None when it opens none, or another."""
    if head.method != "GET" or head.headers.get("upgrade", "").lower() != "websocket":
        return None
    path = head.path.partition("?")[0]
    return next((wire.socket for wire in WIRES if wire.kind_of(path) == "generate" and wire.socket), None)


def could_be_an_agents(head: Head, body: bytes) -> bool:
    """Whether a request that no wire format knows has fields that an agent's request has."""
    if head.method != "POST" or not body:
        return False
    try:
        found = _telltale.decode(body)
    except (msgspec.DecodeError, RecursionError):
        # Not a JSON object: could still be one that this proxy should have understood.
        return any(name in body[:4096] for name in (b'"messages"', b'"tools"', b'"contents"'))
    return any(memoryview(getattr(found, name)).nbytes for name in ("tools", "messages", "input", "contents"))


def dialect_of(
    dialects: Iterable[Dialect], headers: Mapping[str, str], body: bytes = b""
) -> tuple[Dialect | None, str | None]:
    """(the dialect that headers and body fit, the harness version that the pattern's group names)."""
    for dialect in dialects:
        pattern, own = dialect.identify.pattern, dialect.identify.body
        if pattern is None:
            continue
        match = _searched(pattern, headers.get(dialect.identify.header, ""))
        if match is not None and (own is None or own.encode("ascii") in body):
            return dialect, match.groupdict().get("version")
    return None, None


@lru_cache(maxsize=256)
def _searched(pattern: str, text: str) -> re.Match[str] | None:
    # The same few headers come with every request.
    return re.search(pattern, text)
