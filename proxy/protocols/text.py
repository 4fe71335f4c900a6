"""JSON strings to text and back, lone surrogates included."""

from __future__ import annotations

import json
import re
from typing import Any

import orjson

from proxy.protocols.wire import WireError

_ESCAPES = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})|\\.",
    re.DOTALL,
)


def without_lone_surrogates(raw: bytes) -> bytes:
    """JSON text with every escaped half of a surrogate pair as U+FFFD: as long as before, and every parser
    takes it. The same object when there is none."""
    if b"\\u" not in raw:
        return raw
    whole = _ESCAPES.sub(lambda match: b"\\ufffd" if match[1] else match[0], raw)
    return raw if whole == raw else whole


def json_string(text: str) -> bytes:
    """``text`` as a JSON string; non-ASCII stays as it is, a lone surrogate is escaped."""
    try:
        return orjson.dumps(text)
    except TypeError:
        return json.dumps(text).encode("ascii")


def loads(raw: bytes, what: str) -> Any:
    """The value of a JSON document; escaped lone surrogates are let through. ``WireError`` names ``what``."""
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError:
        try:
            return json.loads(raw)
        except (ValueError, RecursionError) as error:
            raise WireError(f"{what} is not JSON: {error}") from None


def text_of(raw: bytes) -> str:
    """The text of a JSON string as sent; ``WireError`` when it is something else."""
    value = loads(raw, "a text")
    if not isinstance(value, str):
        raise WireError("expected a string")
    return value
