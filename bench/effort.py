"""How much is measured: the sizes and counts of one run of the bench."""

from __future__ import annotations

from dataclasses import dataclass

KB = 1000
MB = 1000 * KB


def size_name(size: int) -> str:
    """A number of bytes as people say it."""
    return f"{size // MB} MB" if size >= MB else f"{size // KB} KB"


@dataclass(frozen=True, slots=True)
class Effort:
    """``sizes``: body sizes of the whole proxy and of the injector's share, in bytes.

    ``blocks`` of ``rounds`` turns each for every size of the whole proxy; ``turns`` of every sort for every
    size of the injector's share; ``sessions`` of ``session_turns`` turns for growth; ``stream_rounds`` of
    ``stream_events`` events each, ``streams`` of them at a time beside posts of ``post_bytes``;
    ``requests`` for memory; ``starts`` of the command.
    """

    sizes: tuple[int, ...]
    blocks: int
    rounds: int
    share_sizes: tuple[int, ...]
    turns: int
    sessions: int
    session_turns: int
    streams: int
    stream_rounds: int
    stream_events: int
    post_bytes: int
    requests: int
    starts: int


FULL = Effort(
    sizes=(10 * KB, 200 * KB, MB, 5 * MB),
    blocks=12,
    rounds=25,
    share_sizes=(200 * KB, MB, 2 * MB, 5 * MB),
    turns=60,
    sessions=7,
    session_turns=200,
    streams=16,
    stream_rounds=5,
    stream_events=200,
    post_bytes=5 * MB,
    requests=50_000,
    starts=7,
)

SMOKE = Effort(
    sizes=(10 * KB, 200 * KB),
    blocks=4,
    rounds=12,
    share_sizes=(200 * KB,),
    turns=12,
    sessions=2,
    session_turns=40,
    streams=16,
    stream_rounds=1,
    stream_events=60,
    post_bytes=MB,
    requests=1_000,
    starts=2,
)
