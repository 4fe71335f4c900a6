"""Results inside a user's text: a harness that sums up a conversation may flatten the history into prose.

What the model never saw must not come back to it that way, so an original that was replaced is replaced there
too, cut to the length that the harness cut it to.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from proxy.protocols.wire import Edit, ParsedRequest, WireFormat, splice
from scheduler.dialect import Dialect


def rewrite_flattened(
    wire: WireFormat,
    dialect: Dialect,
    request: ParsedRequest,
    rewritten: Callable[[], Sequence[tuple[str, str]]],
) -> bytes:
    """The body with every flattened original replaced by its payload; the same object when there is none.

    ``rewritten`` gives (original, payload) of the run, and is asked only when the pattern is there at all.
    """
    pattern = dialect.identify.flattened
    if pattern is None or not request.items:
        return request.body
    edits: list[Edit] = []
    pairs: Sequence[tuple[str, str]] | None = None
    for item in request.items:
        if item.role == "assistant":
            continue
        for part in wire.texts(request, item):
            if part.text is None or re.search(pattern, part.text) is None:
                continue
            pairs = rewritten() if pairs is None else pairs
            text = _replaced(pattern, part.text, pairs)
            if text != part.text:
                edits.append(wire.edit_text(request, part, text))
    return splice(request.body, edits)


def _replaced(pattern: str, text: str, pairs: Sequence[tuple[str, str]]) -> str:
    def one(match: re.Match[str]) -> str:
        shown = match["result"]
        left = match.groupdict().get("left")
        for original, payload in pairs:
            if left is None and shown.rstrip() == original.rstrip():
                return _with(match, payload, None)
            if left is not None and len(shown) + int(left) == len(original) and original.startswith(shown):
                cut = payload[: len(shown)]
                return _with(match, cut, len(payload) - len(cut))
        return match[0]

    return re.sub(pattern, one, text)


def _with(match: re.Match[str], result: str, left: int | None) -> str:
    """The whole match with another result; the number of characters left out agrees with it."""
    text, offset = match[0], match.start()
    start, end = match.span("result")
    tail = text[end - offset :]
    if match.groupdict().get("left") is not None:
        a, b = match.span("left")
        if left:
            tail = text[end - offset : a - offset] + str(left) + text[b - offset :]
        else:
            tail = text[match.end() - offset :]
    return text[: start - offset] + result + tail
