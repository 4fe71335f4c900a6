"""From a call to its draw, and from a draw and a result to what the model is sent."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from hashlib import sha256
from typing import NamedTuple

from ledger.decisions import timestamp
from ledger.memory import CallRow
from ledger.records import Decision
from proxy.conversation import Conversation, Counts, decode_draw, encode_draw
from proxy.runs import RunSettings
from scheduler.apply import Skipped, Wait, apply_after, lacks_target
from scheduler.call import Call, call_digest, canonical_arguments
from scheduler.dialect import Dialect, Form, has_failed, points_back
from scheduler.faults import KINDS
from scheduler.fitting import fitting_by
from scheduler.schedule import Draw, draw


class NewCall(NamedTuple):
    """A call that is to be drawn. ``arguments``: JSON text (or what the model wrote instead)."""

    call_id: str
    tool: str
    arguments: bytes


class Result(NamedTuple):
    """The tool's own output of one result, as far as a decision needs it."""

    text: str | None
    is_error: bool | None


class Verdict(NamedTuple):
    """What a decision comes to: the record for the log, and how long to hold the request back."""

    record: Decision
    wait_s: float


class Identified(NamedTuple):
    """What identifies the arguments of a call."""

    canonical: bytes
    digest: str


def identify(
    settings: RunSettings, dialect: Dialect, conversation: Conversation, call: NewCall
) -> Identified:
    """The canonical arguments of a call and their digest."""
    rule = dialect.rule(call.tool)
    canonical = canonical_arguments(
        call.arguments, settings.places(conversation.row.workspace), rule.volatile, rule.defaults
    )
    return Identified(canonical, call_digest(canonical))


def draw_call(
    settings: RunSettings,
    dialect: Dialect,
    conversation: Conversation,
    new: NewCall,
    identified: Identified,
    counts: Counts,
    nth: int,
    depth: int,
    began_ns: int,
) -> CallRow:
    """Draws one call where ``counts`` stand, and counts it in; the work on it began at ``began_ns``."""
    canonical, digest = identified
    family = dialect.family(new.tool, dialect.arguments(new.tool, new.arguments))
    call = Call(
        new.tool,
        family,
        digest,
        canonical,
        occurrence=counts.identical(new.tool, digest),
        ordinal=counts.family(family),
    )
    drawn = counts.permanent(new.tool, digest) or draw(
        settings.seed,
        settings.profile,
        settings.task_id,
        conversation.role,
        call,
        fitting_by(settings.gaps, new.tool, family),
        counts.standing(),
    )
    counts.add(settings.profile, call, drawn)
    return CallRow(
        position=-1,
        call_id=new.call_id,
        call_digest=digest,
        nth=nth,
        tool=new.tool,
        family=family,
        occurrence=call.occurrence,
        ordinal=call.ordinal,
        depth=depth,
        draw=encode_draw(drawn),
        arguments=new.arguments,
        target=_target(dialect, new.tool, canonical),
        draw_us=round((time.perf_counter_ns() - began_ns) / 1e3, 1),
    )


def _target(dialect: Dialect, tool: str, canonical: bytes) -> str:
    """What a call is about; empty when that is not known."""
    name = dialect.rule(tool).target
    value = dialect.arguments(tool, canonical).get(name) if name is not None else None
    return plain_target(value) if isinstance(value, str) else ""


@lru_cache(maxsize=256)
def _digest(target: str) -> str:
    # The same few files are what most calls are about.
    return sha256(target.encode("utf-8", "surrogatepass")).hexdigest()


def plain_target(abstract: str) -> str:
    """A target with its places made abstract; a path in the workspace is the same relative and absolute."""
    return abstract.removeprefix("{ws}/").removeprefix("./")


class Earlier(NamedTuple):
    """An earlier call of the same tool and target, and what the tool truly printed (None: not known).

    ``identical``: its other arguments are the same, too.
    """

    row: CallRow
    text: str | None
    is_error: bool | None
    identical: bool


def decide(
    settings: RunSettings,
    dialect: Dialect,
    conversation: Conversation,
    row: CallRow,
    arguments: bytes,
    result: Result,
    earlier: Callable[[], Sequence[Earlier]],
    *,
    log_texts: bool,
) -> Verdict:
    """Decides on a fresh result. Writes payload, original and the reason for a skip into ``row``.

    ``earlier`` gives the earlier calls for the same target, latest first; it is asked only when that matters.
    """
    drawn = decode_draw(row.draw)
    values = dialect.arguments(row.tool, arguments)
    form = dialect.form(row.tool, row.family)
    kind = KINDS.get(drawn.kind) if drawn.kind is not None else None
    mode = kind.mode(form) if kind is not None else None
    wait_s = 0.0
    text = result.text
    back = text is not None and bool(form.back_references) and points_back(form, text)
    before = earlier() if back or drawn.kind == "stale" else ()
    full = [
        item
        for item in before
        if item.text is not None
        and not has_failed(form, item.text, item.is_error)
        and not points_back(form, item.text)
    ]
    true_texts = [item.text or "" for item in full if back or item.identical]
    if text is not None and dialect.is_superseding(text):
        row.skipped = "superseded"
    elif kind is not None and drawn.limited is not None:
        row.skipped = drawn.limited
    elif kind is not None and kind.timing == "before":
        # It reached the harness, which refused it for want of a target, or ran it: nothing may say otherwise.
        refused = lacks_target(dialect, row.tool, values) and has_failed(form, text or "", result.is_error)
        row.skipped = "already_failed" if refused else "already_ran"
    elif kind is not None:
        source = true_texts[0] if back and true_texts else text
        outcome = apply_after(
            drawn,
            settings.profile,
            dialect,
            settings.seed,
            row.tool,
            values,
            source,
            result.is_error,
            true_texts,
            workspace=settings.workspace or conversation.row.workspace,
            session=conversation.session,
        )
        match outcome:
            case Skipped(reason):
                row.skipped = reason
            case Wait(seconds):
                wait_s = seconds
            case _:
                row.payload, row.payload_error = outcome.text, outcome.is_error
                mode = outcome.mode or mode
    if row.payload is None and back and true_texts and row.skipped != "superseded":
        _dereference(row, form, before, true_texts[0])
    if row.payload is not None:
        row.original = text or ""
    return Verdict(record_of(settings, conversation, row, drawn, mode, text, log_texts=log_texts), wait_s)


def _dereference(row: CallRow, form: Form, before: Sequence[Earlier], true_text: str) -> None:
    """A back-reference at a result that a passing fault had replaced gets what the tool truly printed: else
    the fault would never pass."""
    for item in before:
        if item.row.payload is None:
            if item.text is None or not (
                points_back(form, item.text) or has_failed(form, item.text, item.is_error)
            ):
                return  # the model saw the truth there
            continue  # that one points further back, or is nothing to point at
        passing = decode_draw(item.row.draw).persistence == "transient"
        if passing and item.row.skipped != "dereferenced":
            row.payload = true_text
            row.skipped = "dereferenced"
        return


def record_of(
    settings: RunSettings,
    conversation: Conversation,
    row: CallRow,
    drawn: Draw,
    mode: str | None,
    original: str | None,
    *,
    log_texts: bool = False,
) -> Decision:
    """The ``decision`` record of a call; ``latency_us`` is the draw's alone until the caller adds its own."""
    kind = KINDS.get(drawn.kind) if drawn.kind is not None else None
    original_bytes = None if original is None else original.encode("utf-8", "surrogatepass")
    payload = None if row.payload is None else row.payload.encode("utf-8", "surrogatepass")
    return Decision(
        ts=timestamp(),
        run_id=settings.run_id,
        conversation=conversation.id,
        role=conversation.role,
        call_id=row.call_id,
        nth=row.nth,
        tool=row.tool,
        family=row.family,
        occurrence=row.occurrence,
        ordinal=row.ordinal,
        call_digest=row.call_digest,
        u=drawn.u,
        rate=drawn.rate,
        fired=drawn.fired,
        kind=drawn.kind,
        timing=kind.timing if kind is not None else None,
        mode=mode,
        persistence=drawn.persistence,
        forced=drawn.forced,
        wire_name=row.wire_name,
        original_sha256=None if original_bytes is None else sha256(original_bytes).hexdigest(),
        original_bytes=None if original_bytes is None else len(original_bytes),
        payload_sha256=None if payload is None else sha256(payload).hexdigest(),
        payload_bytes=None if payload is None else len(payload),
        latency_us=row.draw_us,
        skipped=row.skipped,
        standing=drawn.standing,
        rules=drawn.rules,
        target_digest=_digest(row.target) if row.target else None,
        original_text=original if log_texts and payload is not None else None,
        payload_text=row.payload if log_texts else None,
    )
