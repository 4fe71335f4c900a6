"""One request and its response on their way through the proxy."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import msgspec
from msgspec import field

from ledger.memory import CallRow
from proxy.conversation import Conversation
from proxy.encoding import StreamDecoder
from proxy.holding import Holder
from proxy.protocols.wire import Asked, ResponseReader, Usage, WireFormat
from proxy.runs import Run
from scheduler.dialect import Dialect


class Head(NamedTuple):
    """What is known of a request before its body. ``headers`` have lower-case names."""

    method: str
    path: str
    headers: Mapping[str, str]


class Refusal(NamedTuple):
    """An answer that the proxy gives itself, in the protocol's own error shape."""

    status: int
    body: bytes
    headers: Mapping[str, str] = MappingProxyType({})


class Exchange(msgspec.Struct, eq=False):
    """The state of one request. ``body`` is what goes upstream: the object that came in when nothing changed.

    ``message``: what it asks for, when it came as a message of a socket. ``retells``: the conversation that
    it sums up, when it is no turn of it. ``depth``: how long its history is (None: not known), ``calls``: how
    many calls had been drawn when it went on. ``carried``: the calls whose payload this request carries.
    ``spent_ns``: the injector's time so far.
    ``tools``: the tool list of the request. ``holder``: holds the blocks of calls that could be kept from
    running; ``unframed``: what came of such a response and is not part of a frame yet. ``pinned``: the
    conversation that stays loaded until the answer is there. ``answered``: the model has begun to answer.
    ``error_headers``, ``error_body``: of an answer with status 400 or above. ``content_type`` is an answer's,
    ``heard`` the frames of one to an agent, as long as they ask for no tool.
    """

    run: Run
    head: Head
    body: bytes
    bytes_in: int
    message: Asked | None = None
    wire: WireFormat | None = None
    generates: bool = False
    dialect: Dialect | None = None
    conversation: str | None = None
    retells: str | None = None
    depth: int | None = None
    calls: int = 0
    tools_digest: str | None = None
    carried: list[CallRow] = field(default_factory=list)
    wait_s: float = 0.0
    refusal: Refusal | None = None
    spent_ns: int = 0
    sent_ns: int | None = None
    status: int | None = None
    reader: ResponseReader | None = None
    decoder: StreamDecoder | None = None
    holder: Holder | None = None
    unframed: bytearray = field(default_factory=bytearray)
    tools: bytes = b""
    asked: list[CallRow] = field(default_factory=list)
    usage: Usage = field(default_factory=Usage)
    asked_for_tools: bool | None = None
    model: str | None = None
    error_headers: Mapping[str, str] = MappingProxyType({})
    error_body: bytes = b""
    content_type: str = ""
    heard: list[bytes] = field(default_factory=list)
    pinned: Conversation | None = None
    answered: bool = False
    broken: bool = False
    done: bool = False
