"""How the injector's time per turn grows over a long session in which every turn sends all of it again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from statistics import median

from bench import processes
from bench.client import BenchError, Client
from bench.conversation import Conversation, Harness
from bench.effort import Effort
from bench.figures import Figure, spread
from bench.log import count_records, request_records
from bench.share import InProcess, Spent, loads_time
from bench.supply import play

Say = Callable[[str], None]
_TARGET = 0.35
_HARNESSES: tuple[Harness, ...] = ("claude-code", "pi")


def measure_growth(effort: Effort, say: Say) -> list[Figure]:
    """``overhead_us`` of turn N against ``orjson.loads`` of its body, the median over several sessions."""
    figures: list[Figure] = []
    for harness in _HARNESSES:
        with processes.workspace() as folder:
            figures += _sessions(harness, effort, folder, say=say)
            figures.append(_in_process(harness, effort, folder))
            say(f"growth: {harness}: in process")
    return figures


def _in_process(harness: Harness, effort: Effort, folder: Path) -> Figure:
    """The same without sockets, by the processor's clock: whatever else the machine does."""
    inside = InProcess(folder)
    sessions: list[list[Spent]] = []
    for session in range(effort.sessions):
        conversation = Conversation(harness, seed=100 + session)
        sessions.append([])
        for i in range(effort.session_turns):
            turn = conversation.next(result_bytes=10_000 if not i else 1_500)
            sessions[-1].append(inside.play(conversation, turn, f"session-{session}"))
    inside.close()
    turns = range(effort.session_turns)
    mine = [median(session[i].whole_ns for session in sessions) for i in turns]
    yardstick = [median(session[i].loads_ns for session in sessions) for i in turns]
    return Figure(
        "growth", harness, "processor time per turn / orjson.loads, in process",
        spread([a / b for a, b in zip(mine, yardstick, strict=True)]), _TARGET,
        f"{median(mine) / 1e3:.0f} µs against {median(yardstick) / 1e3:.0f} µs",
    )  # fmt: skip


def _sessions(harness: Harness, effort: Effort, folder: Path, say: Say) -> list[Figure]:
    loads: list[list[int]] = []
    calls = 0
    with processes.endpoint(folder) as model, processes.chaosproxy(model.port, folder) as chaos:
        for session in range(effort.sessions):
            conversation = Conversation(harness, seed=100 + session)
            loads.append([])
            with Client(chaos.port) as client:
                for i in range(effort.session_turns):
                    turn = conversation.next(result_bytes=10_000 if not i else 1_500)
                    play(client, conversation, turn, f"session-{session}")
                    loads[-1].append(loads_time(turn.body))
                    calls += i > 0
            say(
                f"growth: {harness}: session {session + 1} of {effort.sessions}, {effort.session_turns} turns"
            )
    log = folder / "chaosproxy" / "decisions.jsonl"
    spent: dict[str, list[float]] = {}
    carried = 0
    for record in request_records(log):
        spent.setdefault(record.run_id, []).append(record.overhead_us)
        carried += record.faults
    decided = count_records(log, "decision") - effort.sessions  # the last call of each has no answer
    if decided != calls:
        raise BenchError(f"{decided} decisions on {calls} calls: each should be decided once")
    overheads = [spent[f"session-{session}"] for session in range(effort.sessions)]
    return _figures(
        harness,
        effort,
        overheads,
        loads,
        f"{decided} calls, each decided once; faults were carried {carried} times",
    )


def _figures(
    harness: Harness, effort: Effort, overheads: list[list[float]], loads: list[list[int]], counts: str
) -> list[Figure]:
    turns = range(effort.session_turns)
    mine = [median(session[i] for session in overheads) for i in turns]
    yardstick = [median(session[i] for session in loads) / 1e3 for i in turns]
    ratios = [a / b for a, b in zip(mine, yardstick, strict=True)]
    worst = max(turns, key=lambda i: ratios[i])
    tail = max(1, effort.session_turns // 10)
    grown = spread([median(session[-tail:]) / median(session[1 : tail + 1]) for session in overheads])
    return [
        Figure(
            "growth", harness, "overhead per turn / orjson.loads, all turns", spread(ratios), _TARGET,
            f"{median(mine):.0f} µs against {median(yardstick):.0f} µs; {counts}",
        ),
        Figure(
            "growth", harness, "the same, the worst turn", spread([ratios[worst]]), _TARGET,
            f"turn {worst + 1}: {mine[worst]:.0f} µs against {yardstick[worst]:.0f} µs",
        ),
        Figure(
            "growth", harness, "the same, the first turn", spread([ratios[0]]), None,
            f"{mine[0]:.0f} µs against {yardstick[0]:.0f} µs",
        ),
        Figure(
            "growth", harness, f"overhead, last {tail} turns / first {tail}", grown, None,
            f"{median(mine[-tail:]):.0f} µs against {median(mine[1 : tail + 1]):.0f} µs",
        ),
    ]  # fmt: skip
