"""The records of decisions.jsonl, one frozen struct per ``event``.

Every number carries its unit in its name. ``None`` means "not known" and is written as ``null``: a reader
can tell it from zero. Texts of calls and results never stand in these records; digests and sizes do.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

# Why a fault that fired was not applied to a call, or what became of the call in its place.
SkipReason = Literal[
    "skip_first",
    "max_faults",
    "min_gap",
    "no_fit",
    "already_failed",
    "already_ran",
    "already_answered",
    "no_change",
    "no_text",
    "orphaned",
    "superseded",
    "dereferenced",
]


class Record(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", omit_defaults=True):
    """What every record has: ``ts`` is RFC 3339 in UTC, ``run_id`` names the run it belongs to."""

    ts: str
    run_id: str


class Start(Record, frozen=True, kw_only=True, tag="start"):
    """A process began to serve this run; a second one that agrees is a restart."""

    version: str
    seed: int
    profile: dict[str, Any]
    profile_sha256: str
    identity: str
    harness: str | None
    harness_version: str | None
    pid: int
    boot_id: str
    started: str
    task_id: str
    repeat: int
    attempt: int
    untested: bool = False


class Decision(Record, frozen=True, kw_only=True, tag="decision"):
    """One tool call, drawn once. ``skipped`` says why a fault that fired was not applied (``SkipReason``).
    ``target_digest`` is the SHA-256 of what the call is about: its path, command or address, with the
    workspace, temp and home directories made abstract; left out where that is not known.

    Under a profile with limits or force rules ``standing`` says where the call stood (calls before it, faults
    before it, calls since the last fault, earlier calls that each rule fits), and ``rules`` which rules fit.
    """

    conversation: str
    role: str
    call_id: str
    nth: int
    tool: str
    family: str
    occurrence: int
    ordinal: int
    call_digest: str
    u: float
    rate: float
    fired: bool
    kind: str | None
    timing: str | None
    mode: str | None
    persistence: str | None
    forced: bool
    wire_name: str | None
    original_sha256: str | None
    original_bytes: int | None
    payload_sha256: str | None
    payload_bytes: int | None
    latency_us: float
    skipped: str | None
    standing: tuple[int, int, int | None, tuple[int, ...]] | None = None
    rules: tuple[bool, ...] = ()
    target_digest: str | None = None
    original_text: str | None = None
    payload_text: str | None = None


class Delivery(Record, frozen=True, kw_only=True, tag="delivery"):
    """The request that carried this payload was answered by the model."""

    conversation: str
    call_id: str
    call_digest: str
    nth: int
    payload_sha256: str
    upstream_status: int
    first: bool


class Request(Record, frozen=True, kw_only=True, tag="request"):
    """One request that went upstream and what came of it (``status`` is null when nothing came)."""

    path: str
    protocol: str | None
    bytes_in: int
    bytes_out: int
    faults: int
    tools_digest: str | None
    overhead_us: float
    upstream_ms: float | None
    status: int | None
    input_tokens: int | None
    cache_read_tokens: int | None
    cache_write_tokens: int | None
    output_tokens: int | None


class Error(Record, frozen=True, kw_only=True, tag="error"):
    """The injector could not do its work here: the run is invalid from now on."""

    where: str
    reason: str


class Quota(Record, frozen=True, kw_only=True, tag="quota"):
    """The token budget of the run is spent."""

    budget: int
    used: int


class Checkpoint(Record, frozen=True, kw_only=True, tag="checkpoint"):
    """A named checkpoint was reached."""

    name: str
    digest: str


class End(Record, frozen=True, kw_only=True, tag="end"):
    """The run stopped: ``ended`` is one of the four end states, or null when nobody said. ``claimed``: what
    the agent's last words came down to, ``done`` or ``gave_up``; left out when it is neither."""

    ended: str | None
    passed: bool | None
    claimed: str | None = None


AnyRecord = Start | Decision | Delivery | Request | Error | Quota | Checkpoint | End
