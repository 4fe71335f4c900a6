"""Whether the evidence on a cell holds: each rule gives nothing, or a sentence that says what is wrong."""

from __future__ import annotations

from collections.abc import Iterator

from harness.conformance_counts import wrong_counts
from harness.conformance_evidence import Evidence, sha256_of
from harness.conformance_plan import SLOW_S
from harness.conformance_probes import Cell
from scheduler.dialect import Dialect, points_back

_LATER_TURNS = 2


def judge(cell: Cell, seen: Evidence, dialect: Dialect, *, looks_kept: bool) -> tuple[str, ...]:
    """What is wrong with a cell, in sentences; nothing when it passes. ``looks_kept``: the disk tells that a
    file was read."""
    if seen.true is None or seen.true_disk is None:
        return ("the probe itself does not work: the session without faults never came to this call",)
    return (
        *_probe_works(cell, seen, dialect, looks_kept=looks_kept),
        *_logged(cell, seen),
        *(_slowed(seen) if cell.kind == "slow" else _shown(cell, seen)),
        *_whole(seen),
        *_disk(cell, seen, looks_kept=looks_kept),
        *_secret(cell, seen),
        *_went_on(seen),
    )


def says_nothing(seen: Evidence) -> bool:
    """Whether what is wrong may be the tool's own doing: the fault did not fit what it gave, or it gave
    something else than without the fault, as when a harness loses what a command printed."""
    decision = seen.decision
    if decision is None:
        return False
    if decision.skipped in {"no_change", "no_text", "already_failed"}:
        return True
    own = None if seen.true is None else sha256_of(seen.true.own)
    return decision.original_sha256 is not None and decision.original_sha256 != own


def _probe_works(cell: Cell, seen: Evidence, dialect: Dialect, *, looks_kept: bool) -> Iterator[str]:
    """Without a fault the call succeeds and its work can be seen: else nothing would be shown by a fault."""
    if seen.true is None or seen.true_disk is None:
        return
    form = dialect.form(cell.tool, cell.family)
    if seen.true.is_error or points_back(form, seen.true.own):
        yield f"the probe itself does not work: without a fault it gives {seen.true.own[:200]!r}"
    before, after = seen.true_disk
    visible = before.files != after.files or (looks_kept and after.looked_at)
    if cell.probe.visible and looks_kept and not visible:
        yield "the probe itself does not work: without a fault it leaves no trace on the disk"
    for wrong in wrong_counts(cell.counts, seen.true.own):
        yield f"the probe itself does not work: without a fault {wrong}"


def _logged(cell: Cell, seen: Evidence) -> Iterator[str]:
    decision = seen.decision
    if decision is None:
        yield "no decision in the log"
        return
    if not decision.fired or decision.kind != cell.kind:
        yield f"the log says that {decision.kind or 'nothing'} was decided, not {cell.kind}"
    elif decision.skipped is not None:
        yield f"the fault was not applied: {decision.skipped}"
    if decision.timing != cell.timing:
        yield f"the log says that it is a fault {decision.timing} the call, not {cell.timing}"
    if cell.timing == "before" and decision.wire_name is None:
        yield "the log has no wire name: the call was not withheld"
    yield from (f"the injector failed: {error}" for error in dict.fromkeys(seen.errors))


def _shown(cell: Cell, seen: Evidence) -> Iterator[str]:
    if not seen.shown:
        yield "the endpoint received no result of this call"
        return
    if seen.seen <= _LATER_TURNS:
        yield f"the result was seen in {seen.seen} requests only"
    wanted = seen.decision.payload_sha256 if seen.decision is not None else None
    digests = [sha256_of(sighting.own) for sighting in seen.shown]
    if wanted is None:
        yield "the log has no payload"
    elif digests[0] != wanted:
        yield "what the endpoint received is not the payload of the log"
    if len(set(digests)) > 1:
        yield f"the fault evaporates: another text after {seen.shown[0].times} requests"
    elif len({(sighting.appended, sighting.is_error) for sighting in seen.shown}) > 1:
        yield "what stands around the payload differs from turn to turn"
    if seen.true is not None and cell.kind != "phantom_success" and seen.shown[0].own == seen.true.own:
        yield "the endpoint received the true result"
    if wanted is not None and wanted not in {delivery.payload_sha256 for delivery in seen.deliveries}:
        yield "no delivery in the log"


def _slowed(seen: Evidence) -> Iterator[str]:
    """A wait and no other change."""
    if not seen.shown:
        yield "the endpoint received no result of this call"
        return
    decision = seen.decision
    if decision is not None and decision.payload_sha256 is not None:
        yield "the log has a payload, where there should be a wait only"
    if decision is not None and decision.original_sha256 not in {None, sha256_of(seen.shown[0].own)}:
        yield "the result was changed"
    if seen.waited_s is None or seen.waited_s < SLOW_S:
        yield f"the request came after {seen.waited_s} s, not after {SLOW_S:g} s"


def _whole(seen: Evidence) -> Iterator[str]:
    """The history that the endpoint is sent stays that of the model's own calls."""
    if any(count != 1 for count in seen.answers):
        yield f"the call has {max(seen.answers)} results" if max(seen.answers) else "the call has no result"
    odd = next((call for call in seen.calls if call not in seen.right_calls), None)
    if odd is not None:
        yield f"the call itself was changed: {odd[0]} {odd[1][:200]}"


def _disk(cell: Cell, seen: Evidence, *, looks_kept: bool) -> Iterator[str]:
    if not cell.probe.visible:
        return
    if seen.disk is None or seen.true_disk is None:
        yield "the disk was not seen before and after the call"
        return
    (before, after), (_, true_after) = seen.disk, seen.true_disk
    if cell.timing == "before":
        if after.files != before.files:
            yield "the tool ran: the disk has changed"
        elif looks_kept and after.looked_at:
            yield "the tool ran: its files were looked at"
        return
    if after.files != true_after.files:
        yield "the tool did not do its work exactly once: the disk is not as it is without the fault"
    elif looks_kept and true_after.looked_at and not after.looked_at:
        yield "the tool did not run: nothing was looked at"


def _secret(cell: Cell, seen: Evidence) -> Iterator[str]:
    if cell.kind != "slow":
        yield from (f"the true result stands in a request: {line[:120]!r}" for line in seen.leaked[:3])
    yield from (f"given away by {word!r}" for word in seen.told)
    if seen.shown:
        yield from wrong_counts(cell.counts, seen.shown[0].own)


def _went_on(seen: Evidence) -> Iterator[str]:
    if seen.timed_out:
        yield "the harness did not end"
    elif seen.turns < seen.turns_due:
        yield f"the harness stopped after {seen.turns} of {seen.turns_due} steps"
    if seen.exit_code != seen.true_exit_code:
        yield f"the harness ended with {seen.exit_code}, without faults with {seen.true_exit_code}"
