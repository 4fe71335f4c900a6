"""What OpenAI's two protocols have in common: how they count tokens and say that something went wrong."""

from __future__ import annotations

from typing import Any

import orjson

from proxy.protocols.readers import count_or_none, object_of
from proxy.protocols.wire import Usage


def usage_of(value: Any, read_in: str, written_out: str) -> Usage:
    """Token counts, each token once.

    https://platform.openai.com/docs/api-reference/chat/object: the count called ``read_in`` includes what
    came from the cache, the one called ``written_out`` the reasoning. Endpoints that leave the reasoning out
    of it still have it in the total.
    """
    counts = object_of(value)
    details = object_of(counts.get(f"{read_in}_details"))
    prompt, output = count_or_none(counts.get(read_in)), count_or_none(counts.get(written_out))
    total = count_or_none(counts.get("total_tokens"))
    cached = count_or_none(details.get("cached_tokens"))
    stored = count_or_none(details.get("cache_write_tokens"))
    if prompt is not None and output is not None and total is not None:
        output = max(output, total - prompt)
    if prompt is not None:
        prompt = max(0, prompt - (cached or 0) - (stored or 0))
    return Usage(prompt, cached, stored, output)


def error_document(status: int, message: str) -> dict[str, Any]:
    """https://platform.openai.com/docs/guides/error-codes"""
    kind = {400: "invalid_request_error", 402: "insufficient_quota", 429: "rate_limit_exceeded"}.get(
        status, "server_error"
    )
    return {"message": message, "type": kind, "param": None, "code": None}


def error_body(status: int, message: str) -> bytes:
    """An error as the body of a response."""
    return orjson.dumps({"error": error_document(status, message)})
