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


class SseEvent(NamedTuple):
    """One event: ``raw`` with its closing empty line, ``data`` joined from its data lines."""

    raw: bytes
    data: bytes


def _data(raw: bytes) -> bytes:
    if raw.startswith(b"data:") and raw.count(b"\n") <= 2 and b"\r" not in raw:
        line = raw[5:].strip(b"\n")
        if b"\n" not in line:
            return line[1:] if line.startswith(b" ") else line
    found = []
    for line in _LINE.split(raw):
        name, _, value = line.partition(b":")
        if name == b"data":
            found.append(value[1:] if value.startswith(b" ") else value)
    return b"\n".join(found)


class SseReader:
    """Feeds on chunks, gives whole events. ``rest`` holds what is not whole yet."""

    __slots__ = ("_buffer", "_opened", "_searched")

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._searched = 0
        self._opened = False

    @property
    def rest(self) -> bytes:
        return bytes(self._buffer)

    def feed(self, chunk: bytes) -> list[SseEvent]:
        buffer = self._buffer
        buffer += chunk
        events: list[SseEvent] = []
        at = 0
        start = max(self._searched - 3, 0)
        while (end := _END.search(buffer, max(start, at))) is not None:
            # A CR at the very end may be half of a CR LF.
            if end.end() == len(buffer) and buffer.endswith(b"\r"):
                break
            raw = bytes(buffer[at : end.end()])
            events.append(self._event(raw))
            at = end.end()
        del buffer[:at]
        self._searched = len(buffer)
        return events

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
