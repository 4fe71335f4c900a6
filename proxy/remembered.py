"""Which remembered call it is that a history says again, and which are like it."""

from __future__ import annotations

from collections.abc import Iterator

from ledger.memory import CallRow
from proxy.conversation import Conversation
from proxy.protocols.wire import SeenCall


def only_one_of_its_id(conversation: Conversation, seen: SeenCall) -> CallRow | None:
    """The relayed call with this id, when there is but one and it is not in the present history yet: it is
    the one whatever its arguments look like now, so they need not be read."""
    rows = conversation.by_id.get(seen.call_id, ()) if seen.call_id else ()
    return rows[0] if len(rows) == 1 and _could_be(conversation, rows[0], seen) else None


def of_its_arguments(conversation: Conversation, seen: SeenCall, digest: str) -> CallRow | None:
    """The call with this id and these arguments that has as many of its like before it; else one with this id
    whose arguments the harness wrote in another way."""
    nth = conversation.nth(seen.call_id, digest)
    row = conversation.by_pair.get((seen.call_id, digest, nth))
    if row is not None:
        return row
    for row in conversation.by_id.get(seen.call_id, ()) if seen.call_id else ():
        if _could_be(conversation, row, seen):
            return row
    return _without_id(conversation, seen, digest) if seen.call_id not in conversation.by_id else None


def _without_id(conversation: Conversation, seen: SeenCall, digest: str) -> CallRow | None:
    """A call that the model made without an id, where the harness made one up: the first of its tool with
    these arguments that is not in the present history, else the first of its tool."""
    rows = conversation.by_id.get("", ())
    open_rows = [row for row in rows if _could_be(conversation, row, seen)]
    alike = [row for row in open_rows if row.call_digest == digest]
    # One that was kept from running has another name in the history.
    return next(iter(alike or [row for row in open_rows if row.wire_name is None]), None)


def _could_be(conversation: Conversation, row: CallRow, seen: SeenCall) -> bool:
    """Whether a call with arguments of its own may be this one: such as were swapped are not."""
    return row.tool == seen.tool and not row.is_swapped and row not in conversation.present


def alike_before(conversation: Conversation, row: CallRow) -> Iterator[CallRow]:
    """The answered calls before ``row`` of its tool with its arguments or its target, latest first."""
    for other in reversed(conversation.rows[: row.position]):
        if not other.answered or other.tool != row.tool or other.wire_name is not None:
            continue
        if other.call_digest == row.call_digest or (row.target and other.target == row.target):
            yield other
