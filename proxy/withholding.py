"""Before-faults: which calls can be kept from running, and what the model is told of one that was.

A call goes on under a name that no tool has, or, where the harness cannot live with that, under its own name
with harmless arguments (``Dialect.withhold``). Either way it is known again when the harness sends it back.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

from ledger.memory import CallRow
from ledger.records import Decision
from proxy.conversation import Conversation, decode_draw, encode_draw
from proxy.deciding import record_of
from proxy.protocols.wire import SeenCall
from proxy.runs import RunSettings
from scheduler.apply import apply_before
from scheduler.dialect import Dialect
from scheduler.faults import KINDS
from scheduler.fitting import Gaps, fitting_by
from scheduler.profile import Profile
from scheduler.schedule import Draw


def harmless_text(dialect: Dialect, tool: str) -> str | None:
    """The arguments, as JSON text, that a withheld call of ``tool`` goes on with; None: it is renamed."""
    harmless = dialect.rule(tool).harmless if dialect.withhold == "swap" else None
    return None if harmless is None else json.dumps(dict(harmless), ensure_ascii=False)


def may_withhold(profile: Profile, gaps: Gaps, dialect: Dialect, tool: str) -> bool:
    """Whether a before-kind is live for ``tool``: then its calls have to be held until they are decided."""
    family = dialect.rule(tool).family
    families = (family, "search", "list") if family == "shell" else (family,)
    for one in families:
        before = {kind for kind in fitting_by(gaps, tool, one) if KINDS[kind].timing == "before"}
        weights = profile.weights_of(one)
        if profile.rate_of(one) > 0 and any(weights.get(kind, 0) > 0 for kind in before):
            return True
        for rule in profile.force:
            if rule.kind in before and (rule.tool == tool or rule.family == one):
                return True
    return False


def is_to_withhold(drawn: Draw) -> bool:
    """Whether the draw says that the call must not run."""
    return (
        drawn.fired
        and drawn.limited is None
        and drawn.kind is not None
        and KINDS[drawn.kind].timing == "before"
    )


def withhold(
    settings: RunSettings,
    dialect: Dialect,
    conversation: Conversation,
    row: CallRow,
    arguments: bytes,
    wire_name: str,
    *,
    log_texts: bool,
) -> Decision:
    """Decides that a call does not run: writes payload and wire name into ``row``, gives the record."""
    drawn = decode_draw(row.draw)
    outcome = apply_before(
        drawn,
        dialect,
        settings.seed,
        row.tool,
        dialect.arguments(row.tool, arguments),
        workspace=settings.workspace or conversation.row.workspace,
        session=conversation.session,
    )
    row.wire_name = wire_name
    row.payload, row.payload_error = outcome.text, outcome.is_error
    return retold(settings, dialect, conversation, row, log_texts=log_texts)


def retold(
    settings: RunSettings, dialect: Dialect, conversation: Conversation, row: CallRow, *, log_texts: bool
) -> Decision:
    """The record of a call that was kept from running; once more when it had been given up in between."""
    drawn = decode_draw(row.draw)
    mode = KINDS[drawn.kind or ""].mode(dialect.form(row.tool, row.family))
    return record_of(settings, conversation, row, drawn, mode, None, log_texts=log_texts)


def let_run(row: CallRow) -> None:
    """The harness has the call under its own name: it went on so after all, whatever was decided of it."""
    if row.wire_name is not None and not row.is_swapped:
        row.wire_name = row.payload = row.payload_error = None


def as_named(row: CallRow, kind: str) -> None:
    """Takes the kind of a call that nothing remembers from its wire name: the harness was told so."""
    drawn = decode_draw(row.draw)
    if drawn.kind != kind or not is_to_withhold(drawn):
        row.draw = encode_draw(replace(drawn, fired=True, kind=kind, limited=None))


def by_wire_name(conversation: Conversation, seen: SeenCall, lost_names: frozenset[str]) -> CallRow | None:
    """The call that went on under the name of ``seen``, or that the harness gave one of ``lost_names``,
    having no such tool. One that stands in the present history already is another."""
    present = conversation.present
    lost = seen.tool in lost_names
    for row in conversation.by_id.get(seen.call_id, ()) if seen.call_id else ():
        if row.wire_name is not None and (lost or row.wire_name == seen.tool) and row not in present:
            return row
    # Under another id: some harnesses make ids of their own.
    for row in conversation.rows:
        if row.wire_name == seen.tool and row not in present:
            return row
    return None


def is_harmless(dialect: Dialect, tool: str, arguments: bytes) -> bool:
    """Whether these are the arguments that a withheld call of ``tool`` goes on with."""
    rule = dialect.rule(tool)
    if rule.harmless is None:
        return False
    given, harmless = (
        {k: v for k, v in said.items() if k not in rule.volatile and (k, v) not in rule.defaults.items()}
        for said in (dialect.arguments(tool, arguments), rule.harmless)
    )
    return given == harmless


def by_harmless_arguments(
    conversation: Conversation, seen: SeenCall, depth: int, is_alike: Callable[[], bool]
) -> CallRow | None:
    """The call that went on with harmless arguments in the place of its own and that ``seen``, in item
    ``depth`` of the history, is. ``is_alike`` says whether ``seen`` has such arguments; it is asked only when
    the id alone does not tell.
    """
    same_id = conversation.by_id.get(seen.call_id, []) if seen.call_id else []
    rows = same_id or [row for row in conversation.rows if not seen.call_id or not row.call_id]
    found = [row for row in rows if _could_be(row, conversation, seen)]
    if not found or (len(same_id) != 1 and not is_alike()):
        return None
    if not same_id:
        return found[0]
    # Ids that are used again: the one that was asked for there, which is the latest when it was asked twice.
    return min(found, key=lambda row: (abs(depth - row.depth), row.answered, -row.position))


def _could_be(row: CallRow, conversation: Conversation, seen: SeenCall) -> bool:
    return row.is_swapped and row.tool == seen.tool and row not in conversation.present
