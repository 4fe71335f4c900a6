"""A JSON array that is streamed, cut into its elements however the bytes arrive.

A document that is no array is one element: whether a body is streamed cannot be told from its content type.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_OUTSIDE = re.compile(rb'["{}\[\]]')
_INSIDE = re.compile(rb'["\\]')
_BLANKS = b" \t\r\n"


class Element(NamedTuple):
    """``raw``: the bytes up to the end of the element; ``data``: the element itself, at the end of them."""

    raw: bytes
    data: bytes


class ArrayReader:
    """Feeds on chunks, gives whole elements. ``rest`` holds what is not whole yet."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._at = 0
        self._start = -1
        self._depth = 0
        self._in_string = False
        self._is_array: bool | None = None

    @property
    def rest(self) -> bytes:
        return bytes(self._buffer)

    @property
    def is_array(self) -> bool:
        """Whether the document is an array, as far as it is known."""
        return self._is_array is True

    def feed(self, chunk: bytes) -> list[Element]:
        self._buffer += chunk
        found: list[Element] = []
        while (element := self._next()) is not None:
            found.append(element)
        return found

    def _next(self) -> Element | None:
        """Scans on; the next element that is whole, and out of the buffer."""
        buffer = self._buffer
        while True:
            match = (_INSIDE if self._in_string else _OUTSIDE).search(buffer, self._at)
            if match is None:
                self._at = len(buffer)
                return None
            char = match[0]
            self._at = match.end()
            if self._in_string:
                if char == b"\\":
                    if self._at == len(buffer):
                        self._at = match.start()  # what it escapes is not here yet
                        return None
                    self._at += 1
                else:
                    self._in_string = False
                    if self._depth == self._base:
                        return self._cut(self._at)
            elif char == b'"':
                self._begin(match.start())
                self._in_string = True
            elif char in (b"{", b"["):
                if self._is_array is None and char == b"[":
                    self._is_array = True
                    self._depth = 1
                    continue
                self._begin(match.start())
                self._depth += 1
            elif char in (b"}", b"]") and self._depth > self._base:
                self._depth -= 1
                if self._depth == self._base:
                    return self._cut(self._at)

    @property
    def _base(self) -> int:
        """How deep an element stands."""
        return 1 if self._is_array else 0

    def _begin(self, at: int) -> None:
        if self._is_array is None:
            self._is_array = False
        if self._start < 0:
            self._start = at

    def _cut(self, end: int) -> Element:
        element = Element(bytes(self._buffer[:end]), bytes(self._buffer[self._start : end]))
        del self._buffer[:end]
        self._at, self._start = 0, -1
        return element
