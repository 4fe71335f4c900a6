"""Conversations that have got to a size on the wire, with faults in them that are replayed on every turn."""

from __future__ import annotations

from bench.client import Client, Reply
from bench.conversation import Conversation, Harness, Turn
from bench.endpoint import answer_header

_SMALL = 20_000


def harness_of(size: int) -> Harness:
    """Whose bodies are that large: Claude Code's never have less than 80 KB."""
    return "pi" if size < 100_000 else "claude-code"


def step_bytes(size: int) -> int:
    """How large the results of a measured turn are, for a body of ``size``."""
    return 300 if size < _SMALL else 1_500


def grown(size: int, seed: int, client: Client, run_id: str | None = None) -> Conversation:
    """A conversation of about ``size`` bytes, played turn by turn through ``client``.

    Results are about 4 KB each, larger where that would need more than 250 turns, as reading whole files
    does. Small ones start at their first turn.
    """
    conversation = Conversation(harness_of(size), seed)
    if size < _SMALL:
        return conversation
    play(client, conversation, conversation.next(result_bytes=10_000), run_id)
    while conversation.size < size:
        turn = conversation.next(result_bytes=max(4_000, size // 250))
        play(client, conversation, turn, run_id)
    return conversation


def send(client: Client, turn: Turn, run_id: str | None = None) -> Reply:
    """Posts a turn and reads its answer."""
    return client.post((*turn.headers, answer_header(turn.answer)), turn.body, run_id)


def play(client: Client, conversation: Conversation, turn: Turn, run_id: str | None = None) -> Reply:
    """Posts a turn of a conversation, which goes on from the answer as it arrived."""
    reply = send(client, turn, run_id)
    conversation.heard(reply.raw)
    return reply
