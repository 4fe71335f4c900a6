"""What the scripted model was sent, kept byte for byte: the witness of the tests."""

from __future__ import annotations

import json
import sys
import zlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import brotli

from harness.turns import Conversation
from harness.wire import SOCKET_METHOD, wire_of

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd


@dataclass(frozen=True)
class Received:
    """One request as it came in. ``body`` is as sent, still compressed; ``at_s`` is seconds since the epoch.

    ``headers`` keep order, case and repetitions; ``path`` has the query. ``before`` is what the endpoint knew
    already, when the request goes on from one of its answers; None when it had no such answer. A message of a
    WebSocket has the method ``WEBSOCKET`` and the headers of its handshake.
    """

    method: str
    path: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    at_s: float
    before: tuple[Any, ...] | None = ()

    def header(self, name: str) -> str | None:
        """The first header of that name, whatever its case."""
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)

    @property
    def route(self) -> str:
        """The path without the query."""
        return self.path.partition("?")[0]

    @cached_property
    def plain_body(self) -> bytes:
        """The body decompressed; ValueError for an unknown or broken encoding."""
        if self.method == SOCKET_METHOD:
            return self.body
        return _decompressed(self.body, self.header("content-encoding"))

    @cached_property
    def json(self) -> Any:
        """The body parsed; ValueError when it is no JSON."""
        return json.loads(self.plain_body)

    @cached_property
    def conversation(self) -> Conversation | None:
        """The neutral view, None for what is no model request; ValueError for a body that does not fit."""
        wire = wire_of(self.method, self.path)
        if wire is None:
            return None
        if self.before is None:
            raise ValueError("there is no answer with this id to go on from")
        return wire.read(self.route, self.plain_body, self.before)

    @property
    def is_agent(self) -> bool:
        """Whether this is a step of an agent (tools on offer, no side request) with a readable body."""
        try:
            view = self.conversation
        except ValueError:
            return False
        return view is not None and view.side is None


def _decompressed(body: bytes, encoding: str | None) -> bytes:
    name = (encoding or "identity").strip().lower()
    try:
        if name == "identity":
            return body
        if name in ("gzip", "x-gzip"):
            return zlib.decompress(body, 16 + zlib.MAX_WBITS)
        if name == "deflate":
            return zlib.decompress(body)
        if name == "br":
            return bytes(brotli.decompress(body))
        if name == "zstd":
            return bytes(zstd.decompress(body))
    except (zlib.error, brotli.error, zstd.ZstdError) as error:
        raise ValueError(f"the body is no valid {name}: {error}") from error
    raise ValueError(f"unknown content-encoding {name!r}")
