"""Responses of Gemini, https://ai.google.dev/api/generate-content: server-sent events with ``alt=sse``, else
one JSON document, or a streamed array of documents. Each is a part of the response, all in one shape.

A function call comes whole; the counts of tokens are cumulative.
"""

from __future__ import annotations

from typing import Any

import msgspec

from proxy.protocols.history import decoded, length, offset_in
from proxy.protocols.json_array import ArrayReader
from proxy.protocols.json_blocks import NONE, Raw, plain_text
from proxy.protocols.readers import count_or_none, data_at, merged, name_at, object_of, text_or_none
from proxy.protocols.sse import SseEvent, SseReader
from proxy.protocols.text import loads, without_lone_surrogates
from proxy.protocols.wire import (
    ArgumentsAt,
    CallDone,
    Finished,
    Frame,
    NameAt,
    ResponseEvent,
    Usage,
    UsageSeen,
    WireError,
)


class _Call(msgspec.Struct):
    id: Raw = NONE
    name: Raw = NONE
    args: Raw = NONE
    partialArgs: Raw = NONE
    willContinue: Raw = NONE


class _Part(msgspec.Struct, rename={"call": "functionCall"}):
    call: _Call | None = None


class _Content(msgspec.Struct):
    parts: list[_Part] | None = None


class _Candidate(msgspec.Struct):
    content: _Content | None = None
    finishReason: Any = None


class _Chunk(msgspec.Struct):
    candidates: list[_Candidate] | None = None
    usageMetadata: Any = None
    promptFeedback: Any = None
    modelVersion: Any = None
    # Where Google's own tools log in, everything stands in here.
    response: _Chunk | None = None


_chunk = msgspec.json.Decoder(_Chunk)


def _usage(value: Any) -> Usage:
    """https://ai.google.dev/api/generate-content#UsageMetadata: the prompt includes what came from the cache;
    thoughts and what tools at the endpoint brought into the prompt stand beside it."""
    counts = object_of(value)

    def count(*names: str) -> int | None:
        said = [found for name in names if (found := count_or_none(counts.get(name))) is not None]
        return sum(said) if said else None

    read_in = count("promptTokenCount", "toolUsePromptTokenCount")
    cached = count("cachedContentTokenCount")
    if read_in is not None:
        read_in = max(0, read_in - (cached or 0))
    return Usage(read_in, cached, None, count("candidatesTokenCount", "thoughtsTokenCount"))


class _Chunks:
    """What the parts of one response have come to so far."""

    def __init__(self) -> None:
        self._usage = Usage()
        self._calls = 0
        self._finished = False

    def frame(self, raw: bytes, given: bytes, at: int) -> Frame:
        """The part ``given``, which stands at ``at`` of ``raw``; -1 when it stands there in pieces."""
        data = without_lone_surrogates(given)
        if not isinstance(loads(data, "a part of the response"), dict):
            return Frame(raw, ())
        chunk = decoded(_chunk, data)
        chunk = chunk.response or chunk
        events: list[ResponseEvent] = []
        names: list[NameAt] = []
        places: list[ArgumentsAt] = []
        for call in _calls_of(chunk):
            if length(call.partialArgs) or bytes(call.willContinue) == b"true":
                raise WireError("the arguments of a function call come in parts, which is not understood")
            ref = str(self._calls)
            self._calls += 1
            start = offset_in(call.args, data) if length(call.args) else 0
            arguments = given[start : start + length(call.args)] or b"{}"
            tool = plain_text(call.name) or ""
            events.append(CallDone(plain_text(call.id) or "", tool, arguments, ref))
            if length(call.name) and at >= 0:
                names.append(name_at(ref, call.name, data, at))
            if length(call.args) and at >= 0:
                places.append(ArgumentsAt(ref, name_at(ref, call.args, data, at).at, "value"))
        if object_of(chunk.usageMetadata):
            self._usage = merged(self._usage, _usage(chunk.usageMetadata))
            events.append(UsageSeen(self._usage))
        if _is_last(chunk) and not self._finished:
            self._finished = True
            events.append(Finished(bool(self._calls), text_or_none(chunk.modelVersion)))
        return Frame(raw, tuple(events), tuple(names), arguments=tuple(places))


def _calls_of(chunk: _Chunk) -> list[_Call]:
    contents = (candidate.content for candidate in chunk.candidates or ())
    parts = (part for content in contents if content is not None for part in content.parts or ())
    return [part.call for part in parts if part.call is not None]


def _is_last(chunk: _Chunk) -> bool:
    reasons = [candidate.finishReason for candidate in chunk.candidates or ()]
    return any(reasons) or "blockReason" in object_of(chunk.promptFeedback)


class GeminiEventReader:
    """Server-sent events."""

    def __init__(self) -> None:
        self._sse = SseReader()
        self._chunks = _Chunks()

    def feed(self, chunk: bytes) -> list[Frame]:
        return [self._frame(event) for event in self._sse.feed(chunk)]

    def close(self) -> list[Frame]:
        return [self._frame(event) for event in self._sse.close()]

    def _frame(self, event: SseEvent) -> Frame:
        if not event.says_something:
            return Frame(event.raw, ())
        return self._chunks.frame(event.raw, event.data, data_at(event))


class GeminiDocumentReader:
    """One document, or an array of them as it comes."""

    def __init__(self) -> None:
        self._array = ArrayReader()
        self._chunks = _Chunks()

    def feed(self, chunk: bytes) -> list[Frame]:
        return [self._chunks.frame(raw, data, len(raw) - len(data)) for raw, data in self._array.feed(chunk)]

    def close(self) -> list[Frame]:
        rest = self._array.rest
        if rest.strip() and not self._array.is_array:
            loads(rest, "the response")
        return [Frame(rest, ())] if rest else []
