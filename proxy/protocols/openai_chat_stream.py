"""Responses of OpenAI Chat Completions, streamed (https://platform.openai.com/docs/api-reference/chat-streaming)
or as one JSON document.

The calls of a choice come in pieces, told apart by an index, and are whole when the choice has a reason to
finish. What a harness does with them it may do from then on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal, NamedTuple

from proxy.protocols.json_blocks import Raw
from proxy.protocols.openai_shapes import usage_of
from proxy.protocols.readers import (
    EACH,
    Each,
    StreamedCall,
    arguments_at,
    data_at,
    list_of,
    merged,
    name_at,
    object_of,
    spelled_arguments,
    text_or_none,
    values_at,
)
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
)

_END = b"[DONE]"
# A call of a function, of a tool that takes raw text, and of a function in the way before there were tools.
_KINDS = {"function": "arguments", "custom": "input"}
_ASKING = frozenset({"tool_calls", "function_call"})


def _usage(value: Any) -> Usage:
    return usage_of(value, "prompt_tokens", "completion_tokens")


def _said(call: dict[str, Any]) -> tuple[str, str]:
    """(the tool's name, a piece of the arguments) in a call or a part of one."""
    for kind, arguments in _KINDS.items():
        inner = object_of(call.get(kind))
        if inner:
            return text_or_none(inner.get("name")) or "", text_or_none(inner.get(arguments)) or ""
    return "", ""


def _calls_in(message: dict[str, Any]) -> list[dict[str, Any]]:
    """The calls of a message or of a piece of one."""
    calls = [object_of(call) for call in list_of(message.get("tool_calls"))]
    legacy = message.get("function_call")
    return [*calls, {"function": legacy, "index": "legacy"}] if isinstance(legacy, dict) else calls


Refs = dict[tuple[int, int], str]


def _values_in(
    whole: bytes, holder: str, refs: Refs, field: str, kinds: Iterable[str]
) -> Iterator[tuple[str, Raw]]:
    """(ref, value) of a field of the calls of a document; ``refs``: by number of the choice and of the call
    in it."""
    calls: tuple[str | Each, ...] = ("choices", EACH, holder, "tool_calls", EACH)
    for kind in kinds:
        for numbers, value in values_at(whole, (*calls, kind, field)):
            ref = refs.get((numbers[0], numbers[1]))
            if ref is not None:
                yield ref, value
    counts = {choice: max(call for other, call in refs if other == choice) for choice, _ in refs}
    for (choice,), value in values_at(whole, ("choices", EACH, holder, "function_call", field)):
        # It stands behind all others in ``_calls_in``.
        ref = refs.get((choice, counts.get(choice, 0)))
        if ref is not None:
            yield ref, value


class _Places(NamedTuple):
    names: tuple[NameAt, ...] = ()
    arguments: tuple[ArgumentsAt, ...] = ()


def _places_in(whole: bytes, holder: str, refs: Refs, at: int, how: Literal["text", "piece"]) -> _Places:
    """Where a document, which stands at ``at`` of the frame, names calls and has their arguments."""
    if not refs or at < 0:
        return _Places()
    names = _values_in(whole, holder, refs, "name", _KINDS)
    # What a tool takes raw is no JSON.
    said = _values_in(whole, holder, refs, "arguments", ("function",))
    return _Places(
        tuple(name_at(ref, name, whole, at) for ref, name in names if bytes(name) not in (b'""', b"null")),
        tuple(place for ref, value in said for place in arguments_at(ref, value, whole, at, how)),
    )


class ChatStreamReader:
    """SSE, ended by ``[DONE]``."""

    def __init__(self) -> None:
        self._sse = SseReader()
        self._open: dict[str, StreamedCall] = {}
        self._asked = False
        self._reason: str | None = None
        self._model: str | None = None
        self._usage = Usage()
        self._finished = False

    def feed(self, chunk: bytes) -> list[Frame]:
        return [self._frame(event) for event in self._sse.feed(chunk)]

    def close(self) -> list[Frame]:
        frames = [self._frame(event) for event in self._sse.close()]
        # Some endpoints leave the end mark out.
        if self._reason is not None and not self._finished:
            frames.append(Frame(b"", self._finish()))
        return frames

    def _finish(self) -> tuple[ResponseEvent, ...]:
        if self._finished:
            return ()
        self._finished = True
        calls = self._calls_done()
        asked = self._asked or self._reason in _ASKING
        return (*calls, Finished(asked, self._model))

    def _calls_done(self) -> tuple[CallDone, ...]:
        done = tuple(call.done() for call in self._open.values())
        self._asked = self._asked or bool(done)
        self._open.clear()
        return done

    def _frame(self, event: SseEvent) -> Frame:
        if not event.data:
            return Frame(event.raw, (), open_tools=self._open_tools(), passes=True)
        if event.data.strip() == _END:
            return Frame(event.raw, self._finish())
        value = object_of(loads(event.data, "an event of the response"))
        self._model = text_or_none(value.get("model")) or self._model
        refs: dict[tuple[int, int], str] = {}
        events: list[ResponseEvent] = []
        for number, choice in enumerate(map(object_of, list_of(value.get("choices")))):
            for place, call in enumerate(_calls_in(object_of(choice.get("delta")))):
                refs[number, place] = self._piece(str(choice.get("index", number)), place, call)
            reason = text_or_none(choice.get("finish_reason"))
            if reason is not None:
                self._reason = reason
                events += self._calls_done()
        if object_of(value.get("usage")):
            self._usage = merged(self._usage, _usage(value["usage"]))
            events.append(UsageSeen(self._usage))
        found = _places_in(without_lone_surrogates(event.data), "delta", refs, data_at(event), "piece")
        return Frame(event.raw, tuple(events), found.names, self._open_tools(), arguments=found.arguments)

    def _open_tools(self) -> tuple[str, ...]:
        return tuple(call.tool for call in self._open.values())

    def _piece(self, choice: str, place: int, call: dict[str, Any]) -> str:
        """Takes up a piece of a call; its ref."""
        name, arguments = _said(call)
        call_id = text_or_none(call.get("id")) or ""
        ref = f"{choice}.{call.get('index', place)}"
        opened = self._open.get(ref)
        # Some endpoints number every call 0: another id is another call.
        while opened is not None and call_id and opened.call_id and opened.call_id != call_id:
            ref += "'"
            opened = self._open.get(ref)
        if opened is None:
            opened = self._open[ref] = StreamedCall(ref, call_id, name)
        opened.call_id = opened.call_id or call_id
        opened.tool = opened.tool or name
        if arguments:
            opened.pieces.append(arguments)
        return ref


def completion_frame(given: bytes) -> Frame:
    """A completion as one document."""
    value = object_of(loads(given, "the response"))
    if not isinstance(value.get("choices"), list):
        return Frame(given, ())
    refs: dict[tuple[int, int], str] = {}
    events: list[ResponseEvent] = []
    asked = False
    for number, choice in enumerate(map(object_of, value["choices"])):
        asked = asked or choice.get("finish_reason") in _ASKING
        for place, call in enumerate(_calls_in(object_of(choice.get("message")))):
            name, arguments = _said(call)
            ref = refs[number, place] = f"{number}.{place}"
            call_id = text_or_none(call.get("id")) or ""
            events.append(CallDone(call_id, name, spelled_arguments(arguments), ref))
    if object_of(value.get("usage")):
        events.append(UsageSeen(_usage(value["usage"])))
    events.append(Finished(asked or bool(refs), text_or_none(value.get("model"))))
    found = _places_in(without_lone_surrogates(given), "message", refs, 0, "text")
    return Frame(given, tuple(events), found.names, arguments=found.arguments)
