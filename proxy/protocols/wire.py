"""What every wire format gives and takes. Nothing outside ``proxy/protocols`` knows which one it is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from operator import itemgetter
from typing import Any, Literal, NamedTuple, Protocol

import msgspec


class WireError(ValueError):
    """A body that cannot be understood as what its path says it is; the message says why."""


class Span(NamedTuple):
    """Half-open byte range. In an ``Item`` it counts from the first byte after the history's ``[``."""

    start: int
    end: int


class Edit(NamedTuple):
    """Replace ``start:end`` (absolute offsets in the request body) by ``new``."""

    start: int
    end: int
    new: bytes


class SeenCall(NamedTuple):
    """A tool call in the history, as the harness sent it back."""

    call_id: str
    tool: str
    at: Span


class Place(NamedTuple):
    """A call by where it stands: ``items[item].calls[call]``."""

    item: int
    call: int


class SeenResult(NamedTuple):
    """A tool result in the history; ``is_error`` is None where the wire has no such flag, or it is absent.

    ``answers``: the call that it belongs to, where a result does not say so by an id (``call_id`` is empty
    then, as the call's may be); None: the call has the same ``call_id``.
    """

    call_id: str
    at: Span
    is_error: bool | None
    answers: Place | None = None


COMPACTION = "compaction"


class Item(NamedTuple):
    """One element of the history array. ``role`` is ``assistant`` for what the model said, ``COMPACTION``
    for a summary that the endpoint made of what stood before."""

    at: Span
    role: str
    calls: tuple[SeenCall, ...]
    results: tuple[SeenResult, ...]


class Part(NamedTuple):
    """One block of a result (or of a message): ``text`` is None for an image and the like."""

    at: Span
    text: str | None


class Keep(Enum):
    """A part that stays, byte for byte."""

    KEEP = "keep"


class Remove(Enum):
    """A part that goes."""

    REMOVE = "remove"


KEEP = Keep.KEEP
REMOVE = Remove.REMOVE
PartPlan = Keep | Remove | str
# What becomes of a result's error flag; None leaves it as it is, a false that was not said stays unsaid.
Flag = bool | None | Remove


class ParsedRequest(msgspec.Struct, frozen=True):
    """A request body taken apart as far as needed.

    ``body`` is what was parsed: as long as what came in, and the same but for halves of surrogate pairs.
    ``base``: offset of the first byte after the history's ``[``, ``end``: of its ``]``. ``shared``: how many
    leading items are, byte for byte, those of the request it was compared with. ``tools``: the raw bytes of
    the tool list. ``continues``: what stands before ``items`` is kept by the endpoint under this name, of an
    earlier answer (``Finished.answer_id``) or of a conversation that it stores; what those items are is known
    from memory alone.
    """

    body: bytes
    base: int
    end: int
    items: tuple[Item, ...]
    shared: int
    tools: bytes
    system: bytes
    model: str | None
    stream: bool
    continues: str | None = None

    @property
    def has_tools(self) -> bool:
        return is_tool_list(self.tools)

    def slice(self, span: Span) -> bytes:
        """The bytes of a span of an item."""
        return self.body[self.base + span.start : self.base + span.end]


class Usage(NamedTuple):
    """Token counts of one response, each token in one of them; None: not said."""

    input_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    output_tokens: int | None = None


class CallDone(NamedTuple):
    """The model has finished asking for a tool. ``arguments`` is the JSON text, whole.

    ``ref`` tells the calls of one response apart, also where the protocol gives them no id.
    """

    call_id: str
    tool: str
    arguments: bytes
    ref: str = ""


class UsageSeen(NamedTuple):
    """The counts so far; the last one counts."""

    usage: Usage


class Finished(NamedTuple):
    """The response is whole. ``asked_for_tools``: it ended in order to have tools run.

    ``answer_id``: under what a later request can go on from it (``ParsedRequest.continues``).
    """

    asked_for_tools: bool
    model: str | None = None
    answer_id: str | None = None


ResponseEvent = CallDone | UsageSeen | Finished


class NameAt(NamedTuple):
    """Where a frame names the tool of a call: the span of the JSON string in the frame's ``raw``."""

    ref: str
    at: Span


class ArgumentsAt(NamedTuple):
    """Where a frame has arguments of a call: the span of a JSON value in the frame's ``raw``.

    ``how``: a ``text`` is a string with all of them in it, a ``piece`` one with a part of them, which those
    behind it go on with; a ``value`` is the arguments themselves.
    """

    ref: str
    at: Span
    how: Literal["text", "piece", "value"]


class Frame(NamedTuple):
    """Some bytes of a response and what they completed. All frames' ``raw`` in order are the response.

    ``names``: every place in it where a call's tool is named, ``arguments``: where its arguments stand, when
    it has any and they are JSON. ``open_tools``: the tools whose calls are not whole yet behind this frame.
    A frame that ``passes`` (a ping) may go on before what stands before it.
    """

    raw: bytes
    events: tuple[ResponseEvent, ...]
    names: tuple[NameAt, ...] = ()
    open_tools: tuple[str, ...] = ()
    passes: bool = False
    arguments: tuple[ArgumentsAt, ...] = ()


class ResponseReader(Protocol):
    """Reads one response body as it comes."""

    def feed(self, chunk: bytes) -> list[Frame]:
        """The frames that ``chunk`` completed; raises ``WireError`` on what cannot be understood."""
        ...

    def close(self) -> list[Frame]:
        """What is left at the end of the body."""
        ...


class WireFormat(Protocol):
    """One protocol. Every method is a pure function of its arguments."""

    @property
    def name(self) -> str: ...

    def kind_of(self, path: str) -> Literal["generate", "count"] | None:
        """Whether a POST to ``path`` (no query string) asks for a response, counts tokens, or is not ours."""
        ...

    def parse_request(self, body: bytes, previous: ParsedRequest | None) -> ParsedRequest:
        """Takes ``body`` apart, reusing what ``previous`` proved about a shared prefix; ``WireError``."""
        ...

    def essence(self, item: bytes) -> bytes:
        """An item without what may differ from turn to turn: cache marks, string or one text block."""
        ...

    def call_arguments(self, request: ParsedRequest, call: SeenCall) -> bytes:
        """The JSON text (or raw text) of a call's arguments as the harness sent it back."""
        ...

    def result_parts(self, request: ParsedRequest, result: SeenResult) -> tuple[Part, ...]:
        """The blocks of a result; a string content is one part."""
        ...

    def texts(self, request: ParsedRequest, item: Item) -> tuple[Part, ...]:
        """The plain texts of an item that the user (or the harness in the user's name) said."""
        ...

    def edit_text(self, request: ParsedRequest, part: Part, text: str) -> Edit:
        """The edit that puts ``text`` in the place of one plain text part."""
        ...

    def edit_result(
        self,
        request: ParsedRequest,
        result: SeenResult,
        parts: Sequence[Part],
        plan: Sequence[PartPlan],
        is_error: Flag,
    ) -> list[Edit]:
        """The edits that carry out ``plan``: one entry a part, entries beyond the parts are new texts.

        Where the protocol says by the shape of a result whether it is an error, ``REMOVE`` is no error.
        """
        ...

    def edit_call(
        self, request: ParsedRequest, call: SeenCall, tool: str, arguments: bytes | None
    ) -> list[Edit]:
        """The edits that give a call its tool's name back, and its arguments where the harness has not got
        them."""
        ...

    def edit_result_tool(self, request: ParsedRequest, result: SeenResult, tool: str) -> list[Edit]:
        """The edits that give a result the name of its call's tool back, where results repeat it."""
        ...

    def offered(self, tools: bytes) -> frozenset[str]:
        """The names of the tools in a request's tool list."""
        ...

    def opening(self, request: ParsedRequest) -> str:
        """The system text and the texts of the first messages, where a harness states its workspace."""
        ...

    def said(self, document: Any) -> Iterator[str]:
        """What one document of a response, or one event of a streamed one, adds to what the model says."""
        ...

    def reader(self, content_type: str) -> ResponseReader:
        """A reader for a response of this content type."""
        ...

    def error_body(self, status: int, message: str) -> bytes:
        """An error in this protocol's own shape."""
        ...

    @property
    def socket(self) -> SocketFormat | None:
        """How the protocol is spoken over a WebSocket at the path of a request; None where it is not."""
        ...


class Asked(NamedTuple):
    """What a message of a harness on a socket asks for.

    ``kind``: ``prepare`` makes the endpoint ready and gives an answer without output, which the next request
    can go on from. ``stream``: one socket can carry several answers at once; each has the name that was given
    with the request, else they come one after the other and it is empty.
    """

    kind: Literal["generate", "prepare"]
    stream: str


class SocketFormat(Protocol):
    """A protocol over a WebSocket. A message of the harness is parsed and edited as a request body is."""

    def asks(self, message: bytes) -> Asked | None:
        """What a message of the harness asks for; None when it is no request. ``WireError``."""
        ...

    def stream_of(self, message: bytes) -> str:
        """Which answer a message of the endpoint belongs to, see ``Asked.stream``. ``WireError``."""
        ...

    def reader(self) -> ResponseReader:
        """A reader for one answer: it is fed one whole message at a time, and done at ``Finished``."""
        ...

    def failure(self, message: bytes) -> int | None:
        """The status of an answer that ends with this message of the endpoint and without ``Finished``; None
        for any other message. ``WireError``."""
        ...

    def error_message(self, status: int, body: bytes, stream: str) -> bytes:
        """An error body (``WireFormat.error_body``) as a message of the endpoint."""
        ...


def is_tool_list(tools: bytes) -> bool:
    """Whether the raw bytes of a tool list have a tool in it."""
    return tools[:1] == b"[" and tools[1:].lstrip(b" \t\r\n")[:1] != b"]"


def splice(body: bytes, edits: Sequence[Edit], base: int = 0) -> bytes:
    """``body`` with all edits done, which count from ``base`` and must not overlap. No edit gives the same
    object back."""
    if not edits:
        return body
    view = memoryview(body)
    out: list[bytes | memoryview] = []
    at = 0
    for start, end, new in sorted(edits, key=itemgetter(0, 1)):
        if start + base < at:
            raise ValueError("edits overlap")
        out += (view[at : start + base], new)
        at = end + base
    out.append(view[at:])
    return b"".join(out)
