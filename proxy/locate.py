"""Which conversation a request belongs to.

The harness's own header decides where it has one. Else the longest history that went upstream before: when it
is the conversation's last one, the request goes on with it; when it is an earlier one, the request is a fork
and takes over what stood before, unless nothing but questions about the history came in between. A history
that was made anew (compaction) is known by a call id that it kept, or by the dialect's words for it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from itertools import takewhile
from typing import NamedTuple

from msgspec.structs import replace

from ledger.memory import CallRow, Memory, Tip
from proxy.conversation import Conversation
from proxy.protocols.history import shared_items
from proxy.protocols.wire import COMPACTION, ParsedRequest, WireError, WireFormat
from proxy.runs import Conversations, Run
from scheduler.dialect import Dialect

_CANDIDATES = 8


class Located(NamedTuple):
    """``conversation`` is None for a request that is no agent's turn (a title, a count of something else);
    ``named`` is then the one that the harness names all the same."""

    conversation: Conversation | None
    request: ParsedRequest
    named: Conversation | None = None


class NewTips(NamedTuple):
    """A history, and its beginning up to the newest results: the hash of each, and what it is kept as."""

    beginning: tuple[bytes, Tip]
    whole: tuple[bytes, Tip]


class Locator:
    """Finds or makes the conversation of each request."""

    def __init__(self, memory: Memory, conversations: Conversations) -> None:
        self._memory = memory
        self._conversations = conversations

    def locate(
        self, run: Run, wire: WireFormat, dialect: Dialect, headers: dict[str, str], body: bytes
    ) -> Located:
        """Parses ``body`` against the last request of its conversation; raises ``WireError``."""
        self._conversations.load_run(run)
        header, role = _session(dialect, headers)
        if header is not None:
            return self._by_header(run, wire, dialect, header, role, body)
        return self._by_history(run, wire, dialect, body)

    def _going_on(
        self,
        run: Run,
        wire: WireFormat,
        dialect: Dialect,
        request: ParsedRequest,
        header: str | None = None,
        role: str | None = None,
    ) -> Located:
        """A request that goes on from an answer whose history the endpoint keeps."""
        known = run.by_header.get(header, "") if header is not None else ""
        kept = self._memory.answer(run.run_id, request.continues or "", known)
        if kept is None and not is_turn(request):
            return Located(None, request)
        if kept is None:
            raise WireError(
                "this request goes on from a history that the endpoint keeps (previous_response_id or a"
                " stored conversation) and of which nothing was seen here: nothing was injected into it"
            )
        name = kept.conversation or known
        if name:
            conversation = self._conversations.get(run, name)
        else:
            conversation = self._begin(run, wire, dialect, request, header, role or "main")
        if header is None and conversation.is_past(kept):
            conversation = self._fork(run, conversation, kept)
        elif header is not None and header not in run.by_header and kept.conversation:
            conversation = self._fork(run, conversation, kept, header, role)
        self._conversations.let_go(conversation)
        conversation.wire = wire.name
        conversation.go_on(kept)
        self._find_workspace(run, conversation, wire, dialect, request)
        return Located(conversation, replace(request, shared=0))

    def _find_workspace(
        self, run: Run, conversation: Conversation, wire: WireFormat, dialect: Dialect, request: ParsedRequest
    ) -> None:
        """A harness can state its workspace later than in its first request, which only made ready."""
        if conversation.row.workspace is not None or conversation.rows:
            return
        conversation.row.workspace = _workspace(wire, dialect, request)
        if conversation.row.workspace is not None:
            with self._memory.transaction():
                self._memory.set_workspace(run.run_id, conversation.row)

    def _by_header(
        self, run: Run, wire: WireFormat, dialect: Dialect, header: str, role: str, body: bytes
    ) -> Located:
        known = run.by_header.get(header)
        conversation = self._conversations.get(run, known) if known is not None else None
        request = wire.parse_request(body, _last(conversation, wire))
        if request.continues is not None:
            return self._going_on(run, wire, dialect, request, header, role)
        if not is_turn(request):
            return Located(None, request, conversation)
        if conversation is None:
            conversation = self._begin(run, wire, dialect, request, header, role)
        self._find_workspace(run, conversation, wire, dialect, request)
        conversation.wire = wire.name
        conversation.rewind(request.shared)
        self._conversations.hold(conversation, request)
        return Located(conversation, request)

    def _begin(
        self,
        run: Run,
        wire: WireFormat,
        dialect: Dialect,
        request: ParsedRequest,
        header: str | None,
        role: str,
    ) -> Conversation:
        """A conversation that the harness has given a new name: one that has calls of another behind it is a
        fork of that, as a subagent can be that is told what its parent knows."""
        for item in reversed(request.items):
            for call in item.calls:
                name = self._memory.call_by_id(run.run_id, call.call_id) if call.call_id else None
                parent = self._conversations.get(run, name) if name is not None else None
                rows = parent.by_id.get(call.call_id, ()) if parent is not None else ()
                row = next((row for row in rows if call.tool in (row.tool, row.wire_name)), None)
                if parent is not None and row is not None:
                    first = next(other.position for other in parent.rows if other.depth == row.depth)
                    return self._fork(run, parent, Tip(parent.id, row.depth, first, 0), header, role)
        return self._conversations.create(run, role, header, _workspace(wire, dialect, request))

    def _by_history(self, run: Run, wire: WireFormat, dialect: Dialect, body: bytes) -> Located:
        nearest = _nearest(body, self._conversations.recent(run, _CANDIDATES))
        request = wire.parse_request(body, _last(nearest, wire))
        if request.continues is not None:
            return self._going_on(run, wire, dialect, request)
        if not is_turn(request):
            return Located(None, request)
        known = nearest.chain[: request.shared] if nearest is not None else []
        chain = _chain(wire, request, known)
        conversation, shared = self._continue(run, wire, dialect, request, chain, nearest)
        if conversation is not nearest:
            # What was shared was shared with another conversation's last request.
            request = replace(request, shared=0)
        else:
            request = replace(request, shared=min(shared, request.shared))
        self._find_workspace(run, conversation, wire, dialect, request)
        conversation.rewind(request.shared)
        conversation.wire = wire.name
        self._conversations.hold(conversation, request)
        conversation.chain = chain
        return Located(conversation, request)

    def _continue(
        self,
        run: Run,
        wire: WireFormat,
        dialect: Dialect,
        request: ParsedRequest,
        chain: list[bytes],
        nearest: Conversation | None,
    ) -> tuple[Conversation, int]:
        tip = self._memory.deepest_tip(run.run_id, chain)
        if tip is not None:
            conversation = self._conversations.get(run, tip.conversation)
            if chain[tip.depth - 1] == conversation.tip:
                return conversation, request.shared
            edited = self._with_later_calls(run, request, tip)
            if edited is not None:
                return edited, 0
            if not request.has_tools:
                # It cannot go another way: it looks at a part of what there is, as for a summary.
                conversation = self._by_call_id(run, request) or conversation
                return conversation, request.shared
            if _only_asked_about(conversation, request, tip):
                return conversation, request.shared
            return self._fork(run, conversation, tip), 0
        kept = self._by_call_id(run, request)
        if kept is None and starts_with_compaction(wire, dialect, request):
            newest = self._memory.newest_tip(run.run_id)
            kept = self._conversations.get(run, newest.conversation) if newest is not None else None
        if kept is not None:
            return kept, request.shared if kept is nearest else 0
        return self._conversations.create(run, "main", None, _workspace(wire, dialect, request)), 0

    def _with_later_calls(self, run: Run, request: ParsedRequest, tip: Tip) -> Conversation | None:
        """The conversation whose history this is, with something changed or left out in its middle: behind
        what it shares with ``tip`` stands a call that was made after it. A fork has none of those."""
        for item in reversed(request.items[tip.depth :]):
            for call in item.calls:
                name = self._memory.call_by_id(run.run_id, call.call_id) if call.call_id else None
                known = self._conversations.get(run, name) if name is not None else None
                rows = known.by_id.get(call.call_id, ()) if known is not None else ()
                if any(row.tool == call.tool and row.depth > tip.depth for row in rows):
                    return known
        return None

    def _by_call_id(self, run: Run, request: ParsedRequest) -> Conversation | None:
        """The conversation that has the newest of its calls that is known; forks have the older ones, too."""
        for item in reversed(request.items):
            for call in item.calls:
                known = self._memory.call_by_id(run.run_id, call.call_id) if call.call_id else None
                if known is not None:
                    return self._conversations.get(run, known)
        return None

    def _fork(
        self, run: Run, parent: Conversation, tip: Tip, header: str | None = None, role: str | None = None
    ) -> Conversation:
        """A new conversation that has what its parent had when it had sent ``tip`` and got its answer."""
        fork = self._conversations.create(run, role or parent.role, header, parent.row.workspace)
        rows: list[CallRow] = []
        for row in self._memory.calls(run.run_id, parent.id):
            if row.position < tip.calls:
                rows.append(row)
            elif row.depth == tip.depth:
                # Asked for in the answer to the tip: what became of it belongs to the parent's branch, and so
                # does the word that nobody answered it. What a call that may not run is told is decided.
                told = row.wire_name is not None
                rows.append(
                    replace(
                        row, answered=False, skipped="orphaned", original=None, delivered=False, mark=None,
                        payload=row.payload if told else None,
                        payload_error=row.payload_error if told else None,
                    )
                )  # fmt: skip
        fork.restore(rows)
        with self._memory.transaction():
            self._memory.add_calls(run.run_id, fork.id, fork.rows)
        return fork

    def next_tips(self, conversation: Conversation, request: ParsedRequest) -> NewTips | None:
        """What the present history is to be remembered as, once its calls are; None when it is already.

        One that offers no tools only looks at the history (a summary, a check): the agent does not go on from
        there. One that asks something behind new results may do the same with its tools on offer; the agent
        then goes on from these.
        """
        chain = conversation.chain
        if not chain or chain[-1] == conversation.tip or not request.has_tools:
            return None
        calls, first, whole = len(conversation.rows), conversation.first_asked(), len(chain)
        told = next((at for at in range(whole, request.shared, -1) if request.items[at - 1].results), whole)
        return NewTips(
            (chain[told - 1], Tip(conversation.id, told, calls, first)),
            (chain[-1], Tip(conversation.id, whole, calls, first)),
        )


def _nearest(body: bytes, candidates: Sequence[Conversation]) -> Conversation | None:
    """The conversation whose last request has most items in common with ``body``, as far as can be seen
    without taking the body apart; the first of those that have as many."""
    nearest: Conversation | None = None
    most = -1
    for candidate in candidates:
        last = candidate.last
        common = shared_items(body, last.base, last) if last is not None else 0
        if common > most:
            nearest, most = candidate, common
        if last is not None and common > 1 and common >= len(last.items) - 1:
            break  # it goes on with this one
    return nearest


def _only_asked_about(conversation: Conversation, request: ParsedRequest, tip: Tip) -> bool:
    """Whether all that was sent since ``tip`` only asked about the history, as for a summary that came to
    nothing: the model made no call since then, so that ``request``, which shares no more than ``tip`` with
    the conversation, is no fork of it.
    """
    # A call that was made behind the end of this history, and that nobody answered, is out of it.
    since = conversation.rows[tip.calls :]
    return not conversation.in_flight and all(
        not row.answered and row.depth > len(request.items) for row in since
    )


def _last(conversation: Conversation | None, wire: WireFormat) -> ParsedRequest | None:
    """The last request of a conversation, when it was in the same wire format."""
    return conversation.last if conversation is not None and conversation.wire == wire.name else None


def is_turn(request: ParsedRequest) -> bool:
    """Whether a request is an agent's: it offers tools, or brings results."""
    return request.has_tools or any(item.results for item in request.items)


def _session(dialect: Dialect, headers: dict[str, str]) -> tuple[str | None, str]:
    """(the harness's own name for the conversation, role), or (None, main)."""
    identify = dialect.identify
    session = next((headers[name] for name in identify.session_headers if headers.get(name)), None)
    if session is None:
        return None, "main"
    sub = next((headers[name] for name in identify.sub_headers if headers.get(name)), None)
    return (session, "main") if sub is None else (f"{session}/{sub}", "sub")


def _workspace(wire: WireFormat, dialect: Dialect, request: ParsedRequest) -> str | None:
    if not dialect.identify.workspace:
        return None
    opening = wire.opening(request)
    for pattern in dialect.identify.workspace:
        found = re.search(pattern, opening)
        if found is not None:
            return found["path"]
    return None


def starts_with_compaction(wire: WireFormat, dialect: Dialect, request: ParsedRequest) -> bool:
    """Whether a history begins with the words in which this harness sums one up, or with the endpoint's own
    summary."""
    # What the harness always says first stands before it.
    opening = list(takewhile(lambda item: item.role != "assistant", request.items))
    if any(item.role == COMPACTION for item in opening):
        return True
    if not dialect.identify.compaction:
        return False
    # The words of a summary are the model's; some harnesses put an answer of their own behind it.
    begun = request.items[: len(opening) + 1]
    texts = (part.text or "" for item in begun for part in wire.texts(request, item))
    return any(re.search(pattern, text) for text in texts for pattern in dialect.identify.compaction)


def _chain(wire: WireFormat, request: ParsedRequest, known: list[bytes]) -> list[bytes]:
    """One hash per item, each over the one before and the item's essence."""
    chain = list(known)
    last = chain[-1] if chain else b""
    for item in request.items[len(chain) :]:
        last = hashlib.blake2b(last + wire.essence(request.slice(item.at)), digest_size=16).digest()
        chain.append(last)
    return chain
