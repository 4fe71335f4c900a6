"""Responses of OpenAI's Responses API, streamed (https://platform.openai.com/docs/api-reference/responses-streaming),
as one JSON document, or as messages of a socket (https://platform.openai.com/docs/guides/websocket-mode).

A call is an output item. It is said when it begins, when it is whole, and once more at the end of the
response. From the moment when it is whole, a harness may run it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Literal

from proxy.protocols.json_blocks import Raw
from proxy.protocols.openai_shapes import usage_of
from proxy.protocols.readers import (
    EACH,
    Each,
    arguments_at,
    data_at,
    list_of,
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

# What a harness runs and answers in words, and where its arguments stand. Searches and the like run at the
# endpoint, and the answer to a computer call is a picture.
CALLS = {
    "function_call": "arguments",
    "custom_tool_call": "input",
    "local_shell_call": "action",
    "shell_call": "action",
    "apply_patch_call": "operation",
}
_ENDS = frozenset({"response.completed", "response.incomplete", "response.done"})
_IDLE = frozenset({"keepalive", "ping", "response.ping"})


def tool_of(kind: str, item: dict[str, Any]) -> str:
    """The tool of a call item: its name, or what the item is called where a tool has none."""
    return text_or_none(item.get("name")) or kind.removesuffix("_call")


class ResponsesStreamReader:
    """Events, one ``SseEvent`` or message each."""

    def __init__(self) -> None:
        self._sse = SseReader()
        # By ref: the tool of a call that has begun, arguments that came whole before their item.
        self._open: dict[str, str] = {}
        self._whole: dict[str, str] = {}
        self._done: dict[str, str] = {}
        self._finished = False

    def feed(self, chunk: bytes) -> list[Frame]:
        return [self.frame(event) for event in self._sse.feed(chunk)]

    def close(self) -> list[Frame]:
        return [self.frame(event) for event in self._sse.close()]

    def frame(self, event: SseEvent) -> Frame:
        """One event and what it completed."""
        if not event.says_something:
            return Frame(event.raw, (), open_tools=self._open_tools(), passes=not event.data)
        value = object_of(loads(event.data, "an event of the response"))
        kind = text_or_none(value.get("type")) or ""
        refs, events = self._read(kind, value)
        names, places = _places_in(event, kind, refs) if refs else ((), ())
        return Frame(event.raw, events, names, self._open_tools(), kind in _IDLE, places)

    def _open_tools(self) -> tuple[str, ...]:
        return tuple(self._open.values())

    def _read(self, kind: str, value: dict[str, Any]) -> tuple[dict[int, str], tuple[ResponseEvent, ...]]:
        """(refs of the calls that the event names, by their number in it; what it completed)."""
        item = object_of(value.get("item"))
        ref = str(value.get("output_index", value.get("item_id", item.get("id", ""))))
        match kind:
            case "response.output_item.added" if item.get("type") in CALLS and ref not in self._done:
                self._open[ref] = tool_of(item["type"], item)
                return {0: ref}, ()
            case "response.function_call_arguments.delta":
                return {0: ref}, ()
            case "response.function_call_arguments.done" | "response.custom_tool_call_input.done":
                self._whole[ref] = text_or_none(value.get("arguments", value.get("input"))) or ""
                return {0: ref}, ()
            case "response.output_item.done" if item.get("type") in CALLS:
                return {0: ref}, tuple(self._call_done(ref, item))
            case kind if kind in _ENDS:
                return self._end(object_of(value.get("response")))
        return {}, ()

    def _call_done(self, ref: str, item: dict[str, Any]) -> Iterator[CallDone]:
        self._open.pop(ref, None)
        if ref not in self._done:
            self._done[ref] = text_or_none(item.get("call_id")) or ""
            yield call_of(ref, item, self._whole.get(ref))

    def _end(self, response: dict[str, Any]) -> tuple[dict[int, str], tuple[ResponseEvent, ...]]:
        refs: dict[int, str] = {}
        events: list[ResponseEvent] = []
        known = {call_id: ref for ref, call_id in self._done.items() if call_id}
        for number, item in enumerate(map(object_of, list_of(response.get("output")))):
            if item.get("type") in CALLS:
                ref = refs[number] = known.get(str(item.get("call_id")), str(number))
                events += self._call_done(ref, item)
        self._open.clear()
        if object_of(response.get("usage")):
            events.append(UsageSeen(_usage(response["usage"])))
        if not self._finished:
            self._finished = True
            model, answer_id = text_or_none(response.get("model")), text_or_none(response.get("id"))
            events.append(Finished(bool(self._done), model, answer_id))
        return refs, tuple(events)


def _usage(value: Any) -> Usage:
    return usage_of(value, "input_tokens", "output_tokens")


def call_of(ref: str, item: dict[str, Any], arguments: str | None = None) -> CallDone:
    """The call of a whole item; ``arguments`` stand in for those that the item leaves out."""
    kind = item["type"]
    given = item.get(CALLS[kind])
    if isinstance(given, dict):
        spelled = json.dumps(given).encode()
    else:
        spelled = spelled_by(kind, text_or_none(given) or arguments or "")
    return CallDone(text_or_none(item.get("call_id")) or "", tool_of(kind, item), spelled, ref)


def spelled_by(kind: str, text: str) -> bytes:
    """Arguments that came as a text: raw where the tool takes that."""
    return text.encode("utf-8", "surrogatepass") if kind == "custom_tool_call" else spelled_arguments(text)


_Places = tuple[tuple[NameAt, ...], tuple[ArgumentsAt, ...]]
# Where an event has the arguments of a function, all of them or a piece.
_SAID: dict[str, tuple[str, Literal["text", "piece"]]] = {
    "response.function_call_arguments.delta": ("delta", "piece"),
    "response.function_call_arguments.done": ("arguments", "text"),
}


def _places_in(event: SseEvent, kind: str, refs: dict[int, str]) -> _Places:
    at = data_at(event)
    if at < 0:
        return (), ()
    data = without_lone_surrogates(event.data)
    if kind in _SAID:
        field, how = _SAID[kind]
        found = values_at(data, (field,))
        return (
            tuple(name_at(refs[0], name, data, at) for _, name in values_at(data, ("name",))),
            tuple(place for _, value in found for place in arguments_at(refs[0], value, data, at, how)),
        )
    return _places_of_items(data, ("response", "output", EACH) if kind in _ENDS else ("item",), refs, at)


def _places_of_items(data: bytes, path: tuple[str | Each, ...], refs: dict[int, str], at: int = 0) -> _Places:
    """Where the items at ``path`` are named, and where they have their arguments."""

    def values(field: str) -> Iterator[tuple[str, Raw]]:
        for numbers, value in values_at(data, (*path, field)):
            ref = refs.get(numbers[0] if numbers else 0)
            if ref is not None:
                yield ref, value

    return (
        tuple(name_at(ref, name, data, at) for ref, name in values("name")),
        tuple(
            place
            for ref, value in values("arguments")
            for place in arguments_at(ref, value, data, at, "text")
        ),
    )


def response_frame(given: bytes) -> Frame:
    """A response as one document."""
    value = object_of(loads(given, "the response"))
    # A compaction gives items back that the history had before: nothing is asked for in it.
    is_answer = value.get("object", "response") == "response" and isinstance(value.get("output"), list)
    events: list[ResponseEvent] = []
    refs: dict[int, str] = {}
    for number, item in enumerate(map(object_of, list_of(value.get("output")) if is_answer else ())):
        if item.get("type") in CALLS:
            refs[number] = str(number)
            events.append(call_of(str(number), item))
    if object_of(value.get("usage")):
        events.append(UsageSeen(_usage(value["usage"])))
    if "output" in value:
        answer_id = text_or_none(value.get("id")) if is_answer else None
        events.append(Finished(bool(refs), text_or_none(value.get("model")), answer_id))
    raw = without_lone_surrogates(given)
    names, places = _places_of_items(raw, ("output", EACH), refs) if refs else ((), ())
    return Frame(given, tuple(events), names, arguments=places)


class MessageReader:
    """One answer on a socket, a message at a time."""

    def __init__(self) -> None:
        self._reader = ResponsesStreamReader()

    def feed(self, chunk: bytes) -> list[Frame]:
        return [self._reader.frame(SseEvent(chunk, chunk))]

    def close(self) -> list[Frame]:
        return []
