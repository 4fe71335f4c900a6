"""Whether what the proxy holds grows with the number of requests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from bench import processes
from bench.client import Client
from bench.conversation import Conversation, Turn
from bench.effort import Effort
from bench.figures import Figure, spread
from bench.supply import play

Say = Callable[[str], None]
_TARGET = 1.1
_SHORT_TURNS = 5
_COMPACTED_EVERY = 100


class _Step(NamedTuple):
    """The next turn of a conversation, and whether a new client sends it."""

    conversation: Conversation
    turn: Turn
    new_client: bool


def _many_short() -> Iterator[_Step]:
    """Conversations of a few turns, one after the other."""
    seed = 0
    while True:
        seed += 1
        conversation = Conversation("pi", seed)
        for i in range(_SHORT_TURNS):
            turn = conversation.next(int(i < _SHORT_TURNS - 1), result_bytes=600)
            yield _Step(conversation, turn, i == 0)


def _one_long() -> Iterator[_Step]:
    """One conversation that its harness sums up whenever it has got long."""
    conversation = Conversation("claude-code", 1)
    first = True
    while True:
        for _ in range(_COMPACTED_EVERY):
            yield _Step(conversation, conversation.next(result_bytes=600), first)
            first = False
        conversation.compact()


def measure_memory(effort: Effort, say: Say) -> list[Figure]:
    """Resident memory after N requests against after a tenth of them."""
    short = effort.requests
    long = max(20, effort.requests // 10)
    return [
        _growth("many short conversations", _many_short(), short, say),
        _growth("one long conversation", _one_long(), long, say),
    ]


def _growth(case: str, steps: Iterator[_Step], requests: int, say: Say) -> Figure:
    early = requests // 10
    held: list[int] = []
    with (
        processes.workspace() as folder,
        processes.endpoint(folder) as model,
        processes.chaosproxy(model.port, folder) as chaos,
        Client(chaos.port) as client,
    ):
        for i in range(1, requests + 1):
            step = next(steps)
            if step.new_client:
                client.close()
            play(client, step.conversation, step.turn)
            if i in {early, requests}:
                held.append(chaos.rss_bytes)
            if i % max(1, requests // 5) == 0:
                say(f"memory: {case}: {i} of {requests} requests, {chaos.rss_bytes / 1e6:.0f} MB")
    return Figure(
        "memory", case, f"RSS after {requests} requests / after {early}", spread([held[1] / held[0]]),
        _TARGET, f"{held[1] / 1e6:.1f} MB against {held[0] / 1e6:.1f} MB",
    )  # fmt: skip
