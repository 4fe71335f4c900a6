"""What the model said in an answer, read off it once it is over: only the last one's is ever asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from proxy.protocols.sse import SseReader
from proxy.protocols.text import loads
from proxy.protocols.wire import WireFormat

_WHAT = "a part of the answer"


def last_words(wire: WireFormat, content_type: str, raws: Sequence[bytes]) -> str:
    """The text of an answer that came as these frames; raises ``WireError``."""
    return "".join(text for document in _documents(content_type, raws) for text in wire.said(document))


def _documents(content_type: str, raws: Sequence[bytes]) -> Iterator[Any]:
    """The data of each event, or each document: one, the elements of an array, the messages of a socket."""
    if "event-stream" not in content_type:
        for raw in raws:
            inside = raw.strip(b"[], \t\r\n")
            if inside:
                yield loads(inside, _WHAT)
        return
    reader = SseReader()
    events = [event for raw in raws for event in reader.feed(raw)] + reader.close()
    for event in events:
        if event.data and event.data.strip() != b"[DONE]":
            yield loads(event.data, _WHAT)
