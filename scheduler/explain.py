"""What the schedule says of one call, and what the model would see of it: draw and payload together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scheduler.apply import Skipped, Wait, apply_after, apply_before
from scheduler.call import Call, Family, Key, Places, call_digest, call_key, canonical_arguments
from scheduler.dialect import Dialect
from scheduler.faults import KINDS
from scheduler.faults.registry import Mode, Rewrite, Timing
from scheduler.fitting import Gaps, fitting_by, fitting_kinds
from scheduler.profile import Profile
from scheduler.schedule import Persistence, Standing, draw


@dataclass(frozen=True, slots=True)
class Explanation:
    """The decision on one call.

    ``key`` is the call's own key; a permanent call draws everything from it without its last part.
    ``payload`` is the text that the model would see instead of the result that was given, or as the result
    of a call that never runs, with ``is_error`` as the protocol's flag (None: unchanged, or left out);
    ``skipped`` says why it would see the result as it is; ``wait_s`` how long the request would be held back.
    All three are None when nothing is done to the call, or when an after-kind was drawn and no result given.
    """

    key: Key
    u: float
    rate: float
    fired: bool
    kind: str | None
    timing: Timing | None
    mode: Mode | None
    persistence: Persistence
    forced: bool
    payload: str | None
    is_error: bool | None
    skipped: str | None
    wait_s: float | None
    canonical: bytes
    call_digest: str
    family: Family


def explain(
    seed: int,
    profile: Profile,
    dialect: Dialect,
    tool: str,
    arguments_json: bytes,
    *,
    task_id: str = "default",
    role: str = "main",
    occurrence: int = 0,
    k: int = 0,
    places: Places = Places(),  # noqa: B008 - immutable
    result: str | None = None,
    is_error: bool | None = None,
    earlier: Sequence[str] = (),
    gaps: Gaps | None = None,
) -> Explanation:
    """Draws one call and applies what was drawn: an after-kind to a ``result`` text, when one is given.

    ``arguments_json`` is the arguments' JSON text as the model sent it, ``occurrence`` how many identical
    calls stand before this one, ``k`` how many calls of its family; ``earlier`` as in ``apply_after``;
    ``gaps`` is the table of a log (``gaps_of``); without one, all that the dialect has words for fits. What
    the harness appended to ``result`` is set aside first and is no part of ``payload``.

    Raises ``ValueError`` when ``seed`` is not in [0, 2**64).
    """
    arguments = dialect.arguments(tool, arguments_json)
    rule = dialect.rule(tool)
    family = dialect.family(tool, arguments)
    canonical = canonical_arguments(arguments_json, places, rule.volatile, rule.defaults)
    call = Call(tool, family, call_digest(canonical), canonical, occurrence, k)
    fitting = fitting_kinds(dialect, tool, family) if gaps is None else fitting_by(gaps, tool, family)
    drawn = draw(seed, profile, task_id, role, call, fitting, _standing(profile, call))
    kind = KINDS[drawn.kind] if drawn.kind is not None else None
    mode = kind.mode(dialect.form(tool, family)) if kind is not None else None
    payload, skipped, wait_s = None, None, None
    outcome: Rewrite | Skipped | Wait | None = None
    if kind is not None and kind.timing == "before" and drawn.limited is None:
        outcome = apply_before(drawn, dialect, seed, tool, arguments, workspace=places.workspace)
    elif kind is not None and kind.timing == "after" and result is not None:
        own, _appended = dialect.split_appended(result)
        outcome = apply_after(
            drawn, profile, dialect, seed, tool, arguments, own, is_error, earlier, workspace=places.workspace
        )
    if outcome is not None:
        if isinstance(outcome, Skipped):
            skipped = outcome.reason
        elif isinstance(outcome, Wait):
            wait_s = outcome.seconds
        else:
            payload, is_error, mode = outcome.text, outcome.is_error, outcome.mode or mode
    return Explanation(
        key=call_key(profile.identity, task_id, role, call),
        u=drawn.u,
        rate=drawn.rate,
        fired=drawn.fired,
        kind=drawn.kind,
        timing=kind.timing if kind is not None else None,
        mode=mode,
        persistence=drawn.persistence,
        forced=drawn.forced,
        payload=payload,
        is_error=is_error if payload is not None else None,
        skipped=skipped if skipped is not None else drawn.limited,
        wait_s=wait_s,
        canonical=canonical,
        call_digest=call.digest,
        family=family,
    )


def _standing(profile: Profile, call: Call) -> Standing:
    """Where a call stands as far as its place in its family tells: at least that many calls came before."""
    hits = tuple(
        call.ordinal if rule.family == call.family and rule.match is None else 0 for rule in profile.force
    )
    return Standing(calls_before=call.ordinal, rule_hits=hits)
