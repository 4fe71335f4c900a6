"""JSON strings to text and back, lone surrogates included."""

from __future__ import annotations

import json

import orjson

from proxy.protocols.wire import WireError


def json_string(text: str) -> bytes:
    """``text`` as a JSON string; non-ASCII stays as it is, a lone surrogate is escaped."""
    try:
        return orjson.dumps(text)
    except TypeError:
        return json.dumps(text).encode("ascii")


def text_of(raw: bytes) -> str:
    """The text of a JSON string as sent; escaped lone surrogates are let through. ``WireError`` otherwise."""
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError:
        try:
            value = json.loads(raw)
        except ValueError as error:
            raise WireError(f"not a JSON string: {error}") from None
    if not isinstance(value, str):
        raise WireError("expected a string")
    return value
