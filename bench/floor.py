"""What no proxy of this design can go below: what is written down of a turn, and what has to be imported."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from bench import processes
from bench.conversation import Conversation
from bench.effort import KB, Effort, size_name
from bench.figures import Figure, spread
from bench.share import loads_time
from ledger.decisions import DecisionLog, timestamp
from ledger.memory import CallRow, Memory
from ledger.records import AnyRecord, Decision, Request

Say = Callable[[str], None]
_SHARE = 0.35
_BODIES = (80 * KB, 200 * KB, 400 * KB)
# mitmproxy's master and the addons that a proxy cannot do without, and nothing of ours that is large.
_IMPORTS = "import proxy.few_addons"


def measure_floor(effort: Effort, say: Say) -> list[Figure]:
    """A turn with one call writes to the log twice and commits twice; and Python imports mitmproxy."""
    figures = _written(effort)
    say("floor: what is written of a turn")
    figures.append(_imported(effort))
    say("floor: what is imported")
    return figures


def _written(effort: Effort) -> list[Figure]:
    """Each turn's writes stand beside one ``orjson.loads`` of a body, as they do in a session."""
    spent: list[int] = []
    loads: dict[int, list[int]] = {size: [] for size in _BODIES}
    bodies = {size: Conversation("claude-code", 1).next(result_bytes=size - 75_000).body for size in _BODIES}
    with processes.workspace() as folder:
        log, memory = DecisionLog(folder / "decisions.jsonl"), Memory(folder / "memory.db")
        for position in range(effort.turns * 5):
            for size in _BODIES:
                loads[size].append(loads_time(bodies[size], time.thread_time_ns))
            spent.append(_turn(log, memory, position))
        log.close()
        memory.close()
    mine = median(spent)
    return [
        Figure(
            "floor", size_name(size), "writes of a turn / orjson.loads",
            spread([turn / one for turn, one in zip(spent, loads[size], strict=True)]), None,
            f"{mine / 1e3:.0f} µs against {median(loads[size]) / 1e3:.0f} µs; the target leaves"
            f" {_SHARE * median(loads[size]) / 1e3:.0f} µs for all of a turn",
        )
        for size in _BODIES
    ]  # fmt: skip


def _turn(log: DecisionLog, memory: Memory, position: int) -> int:
    """What one turn with one call writes before its bytes go on, in ns: a call that was drawn, then its
    result that was decided, then what came of the request."""
    row = _row(position)
    records: tuple[AnyRecord, AnyRecord] = (_decision(row), _request())
    began = time.thread_time_ns()
    with memory.transaction():
        memory.add_calls("default", "c0", [row])
    log.write([records[0]])
    with memory.transaction():
        memory.update_calls("default", "c0", [row])
    log.write([records[1]])
    return time.thread_time_ns() - began


def _row(position: int) -> CallRow:
    digest = f"{position:064x}"
    return CallRow(
        position, f"toolu_{position:024d}", digest, 0, "Read", "read", 0, position, 2 * position,
        b'{"key":["content","default","main","Read","%s","0"],"u":0.5,"rate":0.1}' % digest.encode(),
        b'{"file_path":"/tmp/work/project/src/module.py"}', "src/module.py", 30.0,
    )  # fmt: skip


def _decision(row: CallRow) -> Decision:
    return Decision(
        ts=timestamp(), run_id="default", conversation="c0", role="main", call_id=row.call_id, nth=0,
        tool=row.tool, family=row.family, occurrence=0, ordinal=row.ordinal, call_digest=row.call_digest,
        u=0.5, rate=0.1, fired=False, kind=None, timing=None, mode=None, persistence="transient",
        forced=False, wire_name=None, original_sha256=row.call_digest, original_bytes=1500,
        payload_sha256=None, payload_bytes=None, latency_us=90.0, skipped=None,
    )  # fmt: skip


def _request() -> Request:
    return Request(
        ts=timestamp(), run_id="default", path="/v1/messages", protocol="anthropic", bytes_in=200_000,
        bytes_out=200_000, faults=3, tools_digest="0" * 64, overhead_us=500.0, upstream_ms=2.5, status=200,
        input_tokens=1000, cache_read_tokens=900, cache_write_tokens=None, output_tokens=50,
    )  # fmt: skip


def _imported(effort: Effort) -> Figure:
    walls: list[float] = []
    busy: list[float] = []
    with processes.workspace() as folder:
        for number in range(effort.starts + 1):
            wall_s, cpu_s = _import(folder)
            if number:  # the first one compiles
                walls.append(wall_s)
                busy.append(cpu_s)
    return Figure(
        "floor", "start", "to import what serves, of mitmproxy alone", spread(walls), None,
        f"{median(busy):.2f} s of them on the processor", "s",
    )  # fmt: skip


def _import(folder: Path) -> tuple[float, float]:
    """(wall, processor) seconds until Python has imported it."""
    command = [sys.executable, "-c", f"{_IMPORTS}; import time; print(time.time(), time.process_time())"]
    began = time.time()
    done = subprocess.run(
        command, cwd=processes.ROOT, env=processes.environment(folder), capture_output=True, check=True
    )
    ended, busy_s = map(float, done.stdout.split())
    return ended - began, busy_s
