"""What the readers of responses have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum
from typing import Any, Literal

from proxy.protocols.history import decoded, length, offset_in
from proxy.protocols.json_blocks import Raw, fields, opens_with, raws
from proxy.protocols.sse import SseEvent
from proxy.protocols.wire import ArgumentsAt, CallDone, Frame, NameAt, Span, Usage


def object_of(value: Any) -> dict[str, Any]:
    """``value``, or an empty object when it is none."""
    return value if isinstance(value, dict) else {}


def list_of(value: Any) -> list[Any]:
    """``value``, or an empty list when it is none."""
    return value if isinstance(value, list) else []


def text_or_none(value: Any) -> str | None:
    """``value`` when it is a text."""
    return value if isinstance(value, str) else None


def count_or_none(value: Any) -> int | None:
    """``value`` when it is a whole number (in Python, true is one too)."""
    return value if type(value) is int else None


def merged(old: Usage, new: Usage) -> Usage:
    """Streamed counts are cumulative: a later count stands for the whole, one not said again stays."""
    return Usage(*[b if b is not None else a for a, b in zip(old, new, strict=True)])


class Each(Enum):
    """A step of a path: every element of a list."""

    EACH = "each"


EACH = Each.EACH


def values_at(raw: Raw | bytes, path: tuple[str | Each, ...]) -> Iterator[tuple[tuple[int, ...], Raw]]:
    """The values at the end of ``path``, each with the numbers of the list elements on the way to it."""
    step, rest = path[0], path[1:]
    if step is EACH:
        found: list[Raw] = decoded(raws, raw) if opens_with(raw, b"[") else []
        for number, element in enumerate(found):
            for numbers, value in values_at(element, rest) if rest else (((), element),):
                yield (number, *numbers), value
    elif opens_with(raw, b"{"):
        field = fields(raw).get(str(step))
        if field is not None:
            yield from values_at(field, rest) if rest else (((), field),)


def name_at(ref: str, name: Raw, whole: bytes, at: int = 0) -> NameAt:
    """A call's name, which was decoded from ``whole``, which stands at ``at`` of the frame."""
    start = at + offset_in(name, whole)
    return NameAt(ref, Span(start, start + length(name)))


def arguments_at(
    ref: str, value: Raw, whole: bytes, at: int, how: Literal["text", "piece"]
) -> Iterator[ArgumentsAt]:
    """A call's arguments, which were decoded from ``whole``, which stands at ``at`` of the frame; none when
    they are no text. All of them in a text that is empty are none either: they are yet to come."""
    if opens_with(value, b'"') and (how == "piece" or length(value) > len(b'""')):
        yield ArgumentsAt(ref, name_at(ref, value, whole, at).at, how)


def data_at(event: SseEvent) -> int:
    """Where an event's data start in its raw bytes; -1 when they stand on several lines."""
    return event.raw.find(event.data)


class StreamedCall:
    """A call that is being streamed, its arguments piece by piece."""

    __slots__ = ("call_id", "pieces", "ref", "tool")

    def __init__(self, ref: str, call_id: str, tool: str) -> None:
        self.ref = ref
        self.call_id = call_id
        self.tool = tool
        self.pieces: list[str] = []

    def done(self) -> CallDone:
        """The call, whole."""
        return CallDone(self.call_id, self.tool, spelled_arguments("".join(self.pieces)), self.ref)


def spelled_arguments(text: str) -> bytes:
    """Arguments that came as a text; a call without any has none to give."""
    return text.encode("utf-8", "surrogatepass") or b"{}"


class WholeReader:
    """A response that comes as one document: ``frame`` reads it."""

    def __init__(self, frame: Callable[[bytes], Frame]) -> None:
        self._frame = frame
        self._chunks: list[bytes] = []

    def feed(self, chunk: bytes) -> list[Frame]:
        self._chunks.append(chunk)
        return []

    def close(self) -> list[Frame]:
        raw = b"".join(self._chunks)
        self._chunks = []
        return [self._frame(raw)] if raw else []
