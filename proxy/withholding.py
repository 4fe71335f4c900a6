"""Before-faults: which calls can be kept from running, and what the model is told of one that was."""

from __future__ import annotations

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
    )
    row.wire_name = wire_name
    row.payload, row.payload_error = outcome.text, outcome.is_error
    kind = KINDS[drawn.kind or ""]
    mode = outcome.mode or kind.mode(dialect.form(row.tool, row.family))
    return record_of(settings, conversation, row, drawn, mode, None, log_texts=log_texts)


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
