"""An error that every client can read, for requests whose protocol is not known (yet)."""

from __future__ import annotations

import orjson


def error_document(status: int, message: str) -> bytes:
    """JSON with the fields that Anthropic's, OpenAI's and Gemini's error bodies share."""
    return orjson.dumps({"type": "error", "error": {"type": "api_error", "message": message, "code": status}})
