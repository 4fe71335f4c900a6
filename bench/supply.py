"""Conversations that have got to a size on the wire, with faults in them that are replayed on every turn."""

from __future__ import annotations

from bench.client import Client
from bench.conversation import Conversation, Harness, Turn
from bench.endpoint import answer_header

_SMALL = 20_000


def harness_of(size: int) -> Harness:
    """Whose bodies are that large: Claude Code's never have less than 80 KB."""
    return "pi" if size < 100_000 else "claude-code"


def step_bytes(size: int) -> int:
    """How large the results of a measured turn are, for a body of ``size``."""
    return 300 if size < _SMALL else 1_500


def grown(size: int, seed: int, play: Client | None, run_id: str | None = None) -> Conversation:
    """A conversation of about ``size`` bytes, played turn by turn through ``play``.

    Results are about 4 KB each, larger where that would need more than 250 turns, as reading whole files
    does. Small ones start at their first turn.
    """
    conversation = Conversation(harness_of(size), seed)
    if size < _SMALL:
        return conversation
    step = max(4_000, size // 250)
    turn = conversation.next(result_bytes=10_000)
    send(play, turn, run_id)
    while conversation.size < size:
        send(play, conversation.next(result_bytes=step), run_id)
    return conversation


def send(client: Client | None, turn: Turn, run_id: str | None = None) -> int:
    """Posts a turn; gives back the ns from its first byte to the last byte of its answer."""
    if client is None:
        return 0
    return client.post((*turn.headers, answer_header(turn.answer)), turn.body, run_id).ns
