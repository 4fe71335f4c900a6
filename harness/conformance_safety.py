"""What becomes of a cell when something ends badly: the harness is killed, the injector is made to crash."""

from __future__ import annotations

from collections.abc import Sequence

from harness.conformance_evidence import decision_of, sha256_of, sighting_in
from harness.conformance_plan import Placed
from harness.conformance_session import Session, view_of
from scheduler.dialect import Dialect

KEPT = "kept"
SUPERSEDED = "superseded: the harness put its own word over the result"
IMPOSSIBLE = "not possible"
RECORDED = "error record, run invalid"


def fate_on_resume(placed: Placed, session: Session, dialect: Dialect) -> str:
    """What the endpoint is sent in the place of the faulted result after the harness was killed and resumed:
    ``kept`` (the same payload), the harness's own word over it, or what is wrong."""
    decision = decision_of(session, placed.target)
    carrying = [request for request in session.main_resumed if len(view_of(request).calls) > placed.target]
    if decision is None or not carrying:
        return "not seen again: the resumed history does not have the call"
    found = [sighting_in(request, placed.target, dialect) for request in carrying]
    owns = {sighting.own for sighting in found if sighting is not None}
    # An image that was only waited for has no digest: no text has to come again.
    wanted = decision.payload_sha256 or decision.original_sha256 or sha256_of("")
    if {sha256_of(own) for own in owns} == {wanted} and None not in found:
        return KEPT
    if owns and all(dialect.is_superseding(own) for own in owns):
        return SUPERSEDED
    return f"lost: the resumed history has {min(owns, default='no result')[:120]!r}"


def is_lost(fate: str) -> bool:
    """Whether a fate on resume is one that should not be."""
    return fate not in {KEPT, SUPERSEDED} and not fate.startswith(IMPOSSIBLE)


def fate_on_crash(placed: Placed, crashed: Sequence[Session]) -> str:
    """Whether sessions with an injector that crashes end as they must: ``error record, run invalid``."""
    for session in crashed:
        if session.outcome.timed_out:
            return "the harness did not end"
        if session.with_call(placed.target) is None:
            return "the harness did not come to the call"
        if not session.errors or not session.invalid:
            return "a run that looks clean"
        if any(delivery.call_id.endswith(f"_step{placed.target}") for delivery in session.deliveries):
            return "a delivery in the log of an injector that crashed"
    return RECORDED if crashed else "not tried"
