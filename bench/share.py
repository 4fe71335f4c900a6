"""The injector's own time against one ``orjson.loads`` of the same body, by sort of turn."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import NamedTuple

import orjson

from bench import processes
from bench.client import Client
from bench.conversation import Conversation, Turn
from bench.effort import Effort, size_name
from bench.endpoint import answer_events
from bench.figures import Figure, spread
from bench.log import request_records
from bench.supply import grown, harness_of, play
from configs import load_profile
from proxy.exchange import Head
from proxy.injector import Injector
from proxy.service import ServiceSettings, open_service
from proxy.upstream import parse_upstreams

Say = Callable[[str], None]
_TARGET = 0.35
_EVENTS = {"content-type": "text/event-stream"}


class _Sort(NamedTuple):
    """A sort of turn: what it is called, and how many calls its answer and the one before ask for."""

    name: str
    calls: int


# "steady": text upon text; the others bring that many results, which are decided, and get new calls.
_SORTS = (_Sort("steady turn", 0), _Sort("1 new call", 1), _Sort("4 new calls", 4))


class Spent(NamedTuple):
    """Of one turn, in ns of the processor: the request's part, request and response together, and the
    yardstick. What others do on the machine in the middle of it does not count."""

    request_ns: int
    whole_ns: int
    loads_ns: int


class InProcess:
    """An injector in this process, fed as the addon feeds it."""

    def __init__(self, folder: Path) -> None:
        self._settings = ServiceSettings(
            processes.SEED,
            load_profile("moderate"),
            parse_upstreams(["http://127.0.0.1:9"]),
            folder / "in-process" / "decisions.jsonl",
        )
        self.injector = self._open()

    def _open(self) -> Injector:
        return open_service(self._settings, lambda line: None)

    def restart(self) -> None:
        """Ends the injector and starts one on the same files: nothing is left but what they hold."""
        self.injector.close()
        self.injector = self._open()

    def play(self, conversation: Conversation, turn: Turn, run_id: str = "default") -> Spent:
        """One turn, timed, with one ``orjson.loads`` of its body right after it."""
        injector = self.injector
        head = Head("POST", "/v1/messages?beta=true", dict(turn.headers))
        answer = answer_events(turn.answer)
        began = time.thread_time_ns()
        exchange = injector.on_request(run_id, head, turn.body)
        sent = time.thread_time_ns()
        injector.on_response_head(exchange, 200, _EVENTS)
        passed = injector.on_response_chunk(exchange, answer)
        passed += injector.on_response_chunk(exchange, b"")
        injector.on_response_end(exchange)
        ended = time.thread_time_ns()
        conversation.heard(passed)
        loads_ns = loads_time(turn.body, time.thread_time_ns)
        return Spent(sent - began, ended - began, loads_ns)

    def close(self) -> None:
        self.injector.close()


def loads_time(body: bytes, clock: Callable[[], int] = time.perf_counter_ns) -> int:
    """How many ns one ``orjson.loads`` of ``body`` takes here and now, as cold as what it stands beside."""
    began = clock()
    value = orjson.loads(body)
    taken = clock() - began
    del value
    return taken


def measure_share(effort: Effort, say: Say) -> list[Figure]:
    """In this process with ``on_request`` and the response's part apart, and served, as the log says it."""
    figures: list[Figure] = []
    for size in effort.share_sizes:
        with processes.workspace() as folder:
            figures += _in_process(size, effort.turns, folder)
            say(f"share: {size_name(size)} in process")
            figures += _served(size, effort.turns, folder)
            say(f"share: {size_name(size)} served")
    return figures


def _in_process(size: int, turns: int, folder: Path) -> list[Figure]:
    inside = InProcess(folder)
    conversation = _played(size, inside)
    gc.collect()
    spent: dict[str, list[Spent]] = {sort.name: [] for sort in _SORTS}
    for i in range(turns):
        sort = _SORTS[i % len(_SORTS)]
        # An answer that asks for calls belongs to this sort; the turn that brings their results, too.
        inside.play(conversation, conversation.next(sort.calls))
        spent[sort.name].append(inside.play(conversation, conversation.next(sort.calls)))
        inside.play(conversation, conversation.next(0))
    cold = []
    for _ in range(max(3, turns // 6)):
        inside.restart()
        cold.append(inside.play(conversation, conversation.next(0)))
    inside.close()
    figures = [
        _figure(size, f"{name}, on_request", [(one.request_ns, one.loads_ns) for one in found], _TARGET)
        for name, found in spent.items()
    ]
    figures += [
        _figure(size, f"{name}, with its response", [(one.whole_ns, one.loads_ns) for one in found], _TARGET)
        for name, found in spent.items()
    ]
    figures.append(
        _figure(size, "first turn after a restart", [(one.whole_ns, one.loads_ns) for one in cold], None)
    )
    return figures


def _played(size: int, inside: InProcess) -> Conversation:
    conversation = Conversation(harness_of(size), seed=size)
    step = max(4_000, size // 250)
    inside.play(conversation, conversation.next(result_bytes=10_000))
    while conversation.size < size:
        inside.play(conversation, conversation.next(result_bytes=step))
    inside.play(conversation, conversation.next(0))
    return conversation


def _served(size: int, turns: int, folder: Path) -> list[Figure]:
    with (
        processes.endpoint(folder) as model,
        processes.chaosproxy(model.port, folder) as chaos,
        Client(chaos.port) as client,
    ):
        conversation = grown(size, 1, client)
        loads = []
        for _ in range(turns):
            turn = conversation.next(1)
            play(client, conversation, turn)
            loads.append(loads_time(turn.body))
    records = request_records(folder / "chaosproxy" / "decisions.jsonl")[-turns:]
    pairs = [(record.overhead_us * 1e3, ns) for record, ns in zip(records, loads, strict=True)]
    return [_figure(size, "overhead_us of the log, 1 new call", pairs, _TARGET)]


def _figure(size: int, what: str, pairs: list[tuple[float, int]], target: float | None) -> Figure:
    mine, yardstick = median(pair[0] for pair in pairs), median(pair[1] for pair in pairs)
    return Figure(
        "share",
        size_name(size),
        f"{what} / orjson.loads",
        spread([ns / loads_ns for ns, loads_ns in pairs]),
        target,
        f"{mine / 1e3:.0f} µs against {yardstick / 1e3:.0f} µs",
    )
