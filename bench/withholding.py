"""What of a stream waits when calls can be kept from running: the blocks of such calls, and nothing else.

The same stream (texts, then a tool call in pieces with a ping among them) is read by turns through a proxy
that could withhold the call and through one that could not. No fault fires in either.
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Literal, NamedTuple

from bench import processes
from bench.client import BenchError, request_head
from bench.conversation import Conversation
from bench.effort import Effort
from bench.figures import Figure, spread

Say = Callable[[str], None]
Sort = Literal["text", "ping", "block", "rest"]

_EVENT = re.compile(rb"data: (\{[^\n]*\})\n")
_AT = re.compile(rb'"at":(\d+)')
_INTERVAL_MS = 5
_PIECES = 20
# A rate at which nothing fires in a bench, and yet something could.
_RATE = 1e-12
_PROFILES = {"held": "permission_denied", "not held": "post_effect_error"}


class Seen(NamedTuple):
    """One event as it arrived: how late, and when, in ns."""

    sort: Sort
    delay_ns: int
    at_ns: int


def measure_withholding(effort: Effort, say: Say) -> list[Figure]:
    with (
        processes.workspace() as folder,
        processes.endpoint(folder) as model,
        processes.chaosproxy(model.port, folder / "a", _profile(folder, "held")) as held,
        processes.chaosproxy(model.port, folder / "b", _profile(folder, "not held")) as plain,
    ):
        sides = {"held": held.port, "not held": plain.port}
        rounds: dict[str, list[list[Seen]]] = {side: [] for side in sides}
        for i in range(effort.stream_rounds + 1):
            for side, port in sides.items():
                seen = _read(port, i, effort.stream_events)
                if i:  # the first one warms everything up
                    rounds[side].append(seen)
    say(f"withholding: {effort.stream_rounds} streams of each sort")
    return _figures(rounds, effort.stream_events)


def _profile(folder: Path, side: str) -> str:
    path = folder / f"{side.replace(' ', '-')}.yaml"
    path.write_text(
        f"name: bench\nrate: {_RATE:.0e}\nweights:\n  shell: {{{_PROFILES[side]}: 1}}\n",
        "ascii",
    )
    return str(path)


def _read(port: int, number: int, texts: int) -> list[Seen]:
    """One stream to its end; ``BenchError`` when events are missing."""
    turn = Conversation("claude-code", seed=number).next()
    headers = (*turn.headers, ("x-bench-stream", f"{texts} {_INTERVAL_MS}"), ("x-bench-call", str(_PIECES)))
    seen: list[Seen] = []
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(request_head(headers, len(turn.body), f"held-{number}") + turn.body)
        data = b""
        while not data.endswith(b"0\r\n\r\n"):
            piece = connection.recv(1 << 16)
            now = time.perf_counter_ns()
            if not piece:
                break
            data += piece
            found = list(_EVENT.finditer(data))
            for event in found[len(seen) :]:
                at = _AT.search(event[1])
                seen.append(Seen(_sort(event[1]), now - int(at[1] if at else 0), now))
    # Behind the pieces and the ping: the block's two ends, and the message's.
    if len(seen) != texts + _PIECES + 5:
        raise BenchError(f"{len(seen)} of {texts + _PIECES + 5} events came through port {port}")
    return seen


def _sort(event: bytes) -> Sort:
    if b'"text_delta"' in event:
        return "text"
    if b'"ping"' in event:
        return "ping"
    return "block" if b'"index":1' in event else "rest"


def _figures(rounds: dict[str, list[list[Seen]]], texts: int) -> list[Figure]:
    length_ms = (_PIECES + 2) * _INTERVAL_MS
    added = {sort: _added(rounds, sort) for sort in ("text", "ping")}
    first = {side: [_block(seen)[0] for seen in each] for side, each in rounds.items()}
    last = {side: [_block(seen)[-1] for seen in each] for side, each in rounds.items()}
    together = [_arrived_in_ms(seen) for seen in rounds["held"]]
    return [
        Figure("withholding", "texts", "added per event p50, held over not held", spread(added["text"]), 0.5,
               f"{_p50(rounds, 'held', 'text'):.2f} ms against {_p50(rounds, 'not held', 'text'):.2f} ms,"
               f" {texts} events", "ms"),
        Figure("withholding", "pings in the block", "the same", spread(added["ping"]), 0.5,
               f"{_p50(rounds, 'held', 'ping'):.2f} ms against {_p50(rounds, 'not held', 'ping'):.2f} ms",
               "ms"),
        Figure("withholding", "call block", "wait of its first event, held", spread(first["held"]), None,
               f"not held: {median(first['not held']):.2f} ms; the block takes {length_ms} ms to come", "ms"),
        Figure("withholding", "call block", "wait of its last event, held less not held",
               spread([a - b for a, b in zip(last["held"], last["not held"], strict=True)]), 1.0,
               f"{median(last['held']):.2f} ms against {median(last['not held']):.2f} ms", "ms"),
        Figure("withholding", "call block", "from its first event's arrival to its last's, held",
               spread(together), None, "whole at once, as soon as it is whole", "ms"),
    ]  # fmt: skip


def _block(seen: list[Seen]) -> list[float]:
    return [event.delay_ns / 1e6 for event in seen if event.sort == "block"]


def _arrived_in_ms(seen: list[Seen]) -> float:
    times = [event.at_ns for event in seen if event.sort == "block"]
    return (times[-1] - times[0]) / 1e6


def _added(rounds: dict[str, list[list[Seen]]], sort: Sort) -> list[float]:
    held, plain = ([_middle(seen, sort) for seen in rounds[side]] for side in ("held", "not held"))
    return [a - b for a, b in zip(held, plain, strict=True)]


def _p50(rounds: dict[str, list[list[Seen]]], side: str, sort: Sort) -> float:
    return median(_middle(seen, sort) for seen in rounds[side])


def _middle(seen: list[Seen], sort: Sort) -> float:
    return median(event.delay_ns for event in seen if event.sort == sort) / 1e6
