"""Recomputes every decision of a log from the log alone: seed, profile and key parts stand in it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

from ledger.reading import Damaged, Problem, read_decisions
from ledger.records import Decision, Delivery, Start
from scheduler.call import Call
from scheduler.faults import KINDS
from scheduler.fitting import fitting_by
from scheduler.profile import Profile, ProfileError, parse_profile
from scheduler.schedule import Draw, Standing, draw_as_ruled

# Why a draw that fired was not applied: decided by the draw itself, so it has to come out the same.
_LIMITS = frozenset({"no_fit", "skip_first", "max_faults", "min_gap"})

# What became of the result says so before a limit does.
_BEFORE_LIMITS = frozenset({"orphaned", "superseded", "already_answered", "dereferenced"})


class Difference(NamedTuple):
    """A decision that does not follow from its own log; ``field`` says where, with both values."""

    run_id: str
    conversation: str
    call_id: str
    field: str
    logged: object
    recomputed: object

    def __str__(self) -> str:
        return (
            f"run {self.run_id}, {self.conversation}, call {self.call_id or '(no id)'}: {self.field} is"
            f" {self.logged!r}, recomputed {self.recomputed!r}"
        )


class Verification(NamedTuple):
    """What ``verify`` found. ``decisions``: how many were recomputed; ``damaged``: records that could not be
    read; ``problems`` (a torn last line) were tolerated."""

    decisions: int
    runs: int
    damaged: int
    differences: tuple[Difference, ...]
    problems: tuple[Problem, ...]

    @property
    def ok(self) -> bool:
        return not self.differences and not self.damaged


class _Run:
    """One run of a log: its start, and what its later decisions may inherit."""

    def __init__(self, start: Start, profile: Profile) -> None:
        self.start = start
        self.profile = profile
        self.gaps: dict[str, list[str]] = start.profile.get("gaps", {})
        self.permanents: dict[tuple[str, str], Draw] = {}
        self.payloads: dict[str, set[str]] = {}


def verify_log(path: Path, most: int = 50) -> Verification:
    """Recomputes the decisions of one decisions.jsonl; at most ``most`` differences are kept.

    Raises ``ReadingError`` for a file that is no log at all.
    """
    runs: dict[str, _Run] = {}
    problems: list[Problem] = []
    differences: list[Difference] = []
    decisions = damaged = 0
    for record in read_decisions(path, problems):
        if isinstance(record, Damaged):
            damaged += 1
            continue
        if isinstance(record, Start):
            known = runs.setdefault(record.run_id, _Run(record, _profile(record)))
            # A resumed run can be another version's, and who asks can be known later than that it began.
            known.gaps = record.profile.get("gaps", {})
        elif isinstance(record, Decision | Delivery) and record.run_id in runs:
            run = runs[record.run_id]
            if isinstance(record, Decision):
                decisions += 1
                found = _decision(run, record)
            else:
                found = _delivery(run, record)
            differences += (one for one in found if len(differences) < most)
    return Verification(decisions, len(runs), damaged, tuple(differences), tuple(problems))


def _profile(start: Start) -> Profile:
    data = {key: value for key, value in start.profile.items() if key != "gaps"}
    try:
        return parse_profile(data, f"the profile in the log (run {start.run_id})")
    except ProfileError as error:
        raise ProfileError(f"{error}; the log was made by another version of chaosproxy") from None


def _decision(run: _Run, record: Decision) -> Iterator[Difference]:
    start, profile = run.start, run.profile
    call = Call(
        record.tool,
        record.family,  # type: ignore[arg-type]  # as logged
        record.call_digest,
        b"",
        record.occurrence,
        record.ordinal,
    )
    fitting = fitting_by(run.gaps, record.tool, record.family)
    standing = Standing(*record.standing) if record.standing is not None else Standing()
    again = draw_as_ruled(
        start.seed, profile, start.task_id, record.role, call, fitting, standing, record.rules
    )
    inherited = run.permanents.get((record.tool, record.call_digest))
    if profile.identity == "ordinal":
        # What is inherited stands where it was drawn. One that nobody answered is not handed on: the same
        # call is drawn again, elsewhere.
        stood = again.standing
        if inherited is not None and (record.kind, record.u, stood) == (
            inherited.kind,
            inherited.u,
            inherited.standing,
        ):
            again = inherited
        elif (
            record.u != again.u and (handed_on := _of_an_earlier_call(run, record, call, fitting)) is not None
        ):
            again = handed_on
        elif again.fired and again.limited is None and again.persistence == "permanent":
            run.permanents.setdefault((record.tool, record.call_digest), again)
    kind = KINDS.get(again.kind) if again.kind is not None else None
    expected: dict[str, tuple[object, object]] = {
        "u": (record.u, again.u),
        "rate": (record.rate, again.rate),
        "fired": (record.fired, again.fired),
        "kind": (record.kind, again.kind),
        "timing": (record.timing, kind.timing if kind is not None else None),
        "persistence": (record.persistence, again.persistence),
        "forced": (record.forced, again.forced),
    }
    if record.skipped in _LIMITS or (again.limited is not None and record.skipped not in _BEFORE_LIMITS):
        expected["skipped"] = (record.skipped, again.limited)
    for field, (logged, recomputed) in expected.items():
        if logged != recomputed:
            yield Difference(record.run_id, record.conversation, record.call_id, field, logged, recomputed)
    if record.payload_sha256 is not None:
        run.payloads.setdefault(record.call_id, set()).add(record.payload_sha256)


def _of_an_earlier_call(run: _Run, record: Decision, call: Call, fitting: Collection[str]) -> Draw | None:
    """The permanent fault of an earlier call of the family, one that the log does not have: the harness asked
    again before it was answered."""
    standing = Standing(*record.standing) if record.standing is not None else Standing()
    for k in range(record.ordinal):
        drawn = draw_as_ruled(
            run.start.seed,
            run.profile,
            run.start.task_id,
            record.role,
            call._replace(ordinal=k),
            fitting,
            standing,
            record.rules,
        )
        if (drawn.u, drawn.fired, drawn.persistence) == (record.u, True, "permanent"):
            return drawn
    return None


def _delivery(run: _Run, record: Delivery) -> Iterator[Difference]:
    """A payload that was delivered is one that was decided before; a fork carries what its parent decided."""
    if record.payload_sha256 not in run.payloads.get(record.call_id, set()):
        yield Difference(
            record.run_id, record.conversation, record.call_id, "payload_sha256", record.payload_sha256, None
        )
