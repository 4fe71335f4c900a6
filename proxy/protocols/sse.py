"""Server-sent events, cut at event boundaries however the bytes arrive.

https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream: a byte order mark may
open the stream; a line ends with CR LF, LF or CR; an event ends with an empty line; several data lines are
joined with LF.
"""

from __future__ import annotations

import re
from typing import NamedTuple

# Atomic groups: a CR LF is one line end, never an empty line between CR and LF.
_END = re.compile(rb"(?>\r\n|\n|\r)(?>\r\n|\n|\r)")
_LINE = re.compile(rb"\r\n|\n|\r")
_MARK = b"\xef\xbb\xbf"
# What OpenAI ends its streams with; some gateways put it behind the streams of others, too.
_DONE = b"[DONE]"


class SseEvent(NamedTuple):
    """One event: ``raw`` with its closing empty line, ``data`` joined from its data lines."""

    raw: bytes
    data: bytes

    @property
    def says_something(self) -> bool:
        """Whether there is data in it, other than the mark that ends a stream."""
        return bool(self.data) and self.data.strip() != _DONE


def _data(raw: bytes) -> bytes:
    at = raw.find(b"data")
    if (
        (at == 0 or raw[at - 1 : at] == b"\n")
        and raw.startswith(b"data:", at)
        and raw.find(b"\n", at) == len(raw) - 2
        and b"\r" not in raw
    ):
        # Nearly every event: one line of data, and it is the last.
        return raw[at + 6 if raw[at + 5] == 0x20 else at + 5 : -2]
    found = []
    for line in _LINE.split(raw) if b"\r" in raw else raw.split(b"\n"):
        if line.startswith(b"data:"):
            found.append(line[6:] if line.startswith(b"data: ") else line[5:])
        elif line == b"data":
            found.append(b"")
    return b"\n".join(found)


class SseReader:
    """Feeds on chunks, gives whole events. ``rest`` holds what is not whole yet."""

    __slots__ = ("_buffer", "_has_returns", "_opened", "_searched")

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._searched = 0
        self._opened = False
        self._has_returns = False

    @property
    def rest(self) -> bytes:
        return bytes(self._buffer)

    def feed(self, chunk: bytes) -> list[SseEvent]:
        buffer = self._buffer
        buffer += chunk
        self._has_returns = self._has_returns or b"\r" in chunk
        events: list[SseEvent] = []
        at = 0
        start = max(self._searched - 3, 0)
        while (end := self._end(max(start, at))) >= 0:
            raw = bytes(buffer[at:end])
            events.append(self._event(raw))
            at = end
        del buffer[:at]
        self._searched = len(buffer)
        return events

    def _end(self, start: int) -> int:
        """Where the event ends that has no end before ``start``, or -1."""
        buffer = self._buffer
        if not self._has_returns:
            # Nearly every stream, and a search for bytes is much faster than one for a pattern.
            at = buffer.find(b"\n\n", start)
            return at if at < 0 else at + 2
        found = _END.search(buffer, start)
        # A CR at the very end may be half of a CR LF.
        if found is None or (found.end() == len(buffer) and buffer.endswith(b"\r")):
            return -1
        return found.end()

    def _event(self, raw: bytes) -> SseEvent:
        lines = raw if self._opened else raw.removeprefix(_MARK)
        self._opened = True
        return SseEvent(raw, _data(lines))

    def close(self) -> list[SseEvent]:
        """The last bytes. An event without its empty line is not an event: its data is empty."""
        rest = self.rest
        self._buffer, self._searched = bytearray(), 0
        if not rest:
            return []
        return [self._event(rest) if _END.search(rest) is not None else SseEvent(rest, b"")]
