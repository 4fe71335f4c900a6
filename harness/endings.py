"""How an attempt ended: the four end states, in their precedence, from what was seen of it. Pure."""

from __future__ import annotations

from typing import Literal, NamedTuple

from ledger.runs import Ended


class Seen(NamedTuple):
    """What is known of an attempt that is over.

    ``quota``: whose quota error its last agent request met. ``killed_at``: the checkpoint at which we killed
    it. ``interrupted``: we were stopped ourselves. ``complete``: its last agent request was answered 2xx, and
    the answer asked for no tool. ``untreated``: checkpoints of the plan that it never reached.
    """

    quota: Literal["ours", "theirs"] | None
    killed_at: str | None
    interrupted: bool
    timed_out: bool
    timeout_s: float
    exit_code: int | None
    complete: bool
    agent_requests: int
    untreated: tuple[str, ...] = ()
    last_words: str = ""


class Ending(NamedTuple):
    """The end state, and why in a few words (None when there is nothing to say)."""

    ended: Ended
    reason: str | None


def ending_of(seen: Seen) -> Ending:
    """quota_cut before restart_cut before error before complete."""
    if seen.quota is not None:
        whose = "the token budget is spent" if seen.quota == "ours" else "the provider's quota is used up"
        return Ending("quota_cut", whose)
    if seen.killed_at is not None:
        return Ending("restart_cut", f"killed at {seen.killed_at}")
    if seen.interrupted:
        return Ending("restart_cut", "the supervisor was stopped")
    if seen.timed_out:
        return Ending("error", f"timed out after {seen.timeout_s:g} s")
    if seen.exit_code != 0:
        return Ending("error", _crash(seen))
    if not seen.complete:
        return Ending("error", _unfinished(seen))
    missed = ", ".join(seen.untreated)
    return Ending("complete", f"untreated: {missed} never reached" if missed else None)


def _crash(seen: Seen) -> str:
    if seen.exit_code is None:
        said = "it could not be started"
    elif seen.exit_code < 0:
        said = f"signal {-seen.exit_code}"
    else:
        said = f"exit code {seen.exit_code}"
    words = seen.last_words.strip()[-400:]
    return f"{said}: {words}" if words else said


def _unfinished(seen: Seen) -> str:
    if not seen.agent_requests:
        return "exit code 0, but no request of an agent was recognised"
    return "exit code 0, but its last request was not answered, or the answer asked for a tool"
